"""`hived config validate` and `schema`."""

from pathlib import Path
from typing import Any

import click

from hived.values.specs import ClusterSpec
from hived_cli.config.given import find_file, takes_files
from hived_cli.helpers.answers import as_json, format_option
from hived_config.document import ConfigError, Mistake, not_checked
from hived_config.loader import load
from hived_config.reference import SCHEMA, as_markdown
from hived_config.words import counted


@click.command("validate")
@takes_files
@click.option("--lenient", is_flag=True, help="Unknown keys are warnings, not mistakes.")
@format_option
def validate(paths: tuple[Path, ...], lenient: bool, form: str) -> None:
    """List every mistake in scheduler configurations, each with its place and what was expected.

    A FILE is a scheduler configuration, or an OpenPAI services-configuration.yaml that contains one under
    hivedscheduler.config; a DIR is a folder with such a file. The exit code is 0 if every file can be used, and 1 if
    not.

    \b
    Examples:
      hived config validate hivedscheduler.yaml
      hived config validate --lenient /etc/openpai/services-configuration.yaml
      hived config validate --format json clusters/*.yaml | jq '.files[].mistakes[].line'
    """
    checked = [_check(find_file(path), lenient) for path in paths]
    is_valid = all(cluster is not None for _, cluster, _, _ in checked)
    if form == "json":
        answer = {"valid": is_valid, "files": [_report(*each) for each in checked]}
        click.echo(as_json(answer))
    else:
        for each in checked:
            _print(*each)
    if not is_valid:
        raise SystemExit(1)


def _check(path: Path, lenient: bool) -> tuple[str, ClusterSpec | None, tuple[Mistake, ...], str]:
    """The name of a file, its cluster, None if it cannot be used, all that is noted, and what could not be checked."""
    file = click.format_filename(path)
    try:
        configuration = load(path, lenient)
    except ConfigError as error:
        return file, None, error.mistakes, error.left_out
    return file, configuration.cluster, configuration.warnings, ""


def _report(file: str, cluster: ClusterSpec | None, noted: tuple[Mistake, ...], left_out: str) -> dict[str, Any]:
    def listed(is_warning: bool) -> list[dict[str, Any]]:
        return [
            {key: getattr(mistake, key) for key in ("line", "path", "found", "expected", "suggestion")}
            for mistake in noted
            if mistake.is_warning == is_warning
        ]

    found = {"file": file, "valid": cluster is not None, "mistakes": listed(False), "warnings": listed(True)}
    return found | ({"notChecked": left_out} if left_out else {})


def _print(file: str, cluster: ClusterSpec | None, noted: tuple[Mistake, ...], left_out: str) -> None:
    for mistake in noted:
        click.echo(str(mistake))
    if cluster is None:
        count = sum(not mistake.is_warning for mistake in noted)
        click.echo(f"{file}: {counted(count, 'mistake')}")
        if left_out:
            click.echo(not_checked(file, left_out))
        return
    chains = {cell.cell_type for cell in cluster.physical_cells}
    vcs = len(cluster.virtual_clusters)
    click.echo(f"{file}: valid, cell chains {', '.join(sorted(chains))}; {counted(vcs, 'virtual cluster')}")


@click.command("schema")
@click.option(
    "--format", "form", type=click.Choice(["json", "markdown"]), default="json", show_default=True,
    help="The JSON schema, or tables of its keys.",
)  # fmt: skip
def schema(form: str) -> None:
    """Print the JSON schema of configurations, for editors that check and complete YAML.

    Save it beside the configuration and name it in the first line of the configuration; editors with the YAML language
    server (VS Code, Vim, Emacs and others) then know every key:

    \b
      # yaml-language-server: $schema=hivedscheduler.schema.json

    The schema is that of the scheduler's own file, not of OpenPAI's file that holds it as text.

    \b
    Examples:
      hived config schema > hivedscheduler.schema.json
      hived config schema --format markdown
    """
    click.echo(as_markdown() if form == "markdown" else as_json(SCHEMA))
