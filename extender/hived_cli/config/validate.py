"""`hived config validate`: check configuration files before the scheduler meets them."""

from typing import Any

import click

from hived.specs import ClusterSpec
from hived_cli.helpers.answers import as_json, format_option
from hived_config.errors import ConfigError, Mistake
from hived_config.loader import load


@click.command("validate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--lenient", is_flag=True, help="Unknown keys are warnings, not mistakes.")
@format_option
def command(files: tuple[str, ...], lenient: bool, form: str) -> None:
    """List every mistake in scheduler configurations, each with its place and what was expected.

    A FILE is a scheduler configuration, or an OpenPAI services-configuration.yaml that contains one under
    hivedscheduler.config. The exit code is 0 if every file can be used, and 1 if not.

    \b
    Examples:
      hived config validate hivedscheduler.yaml
      hived config validate --lenient /etc/openpai/services-configuration.yaml
      hived config validate --format json clusters/*.yaml | jq '.files[].mistakes[].line'
    """
    checked = [(click.format_filename(file), *_check(file, lenient)) for file in files]
    is_valid = all(cluster is not None for _, cluster, _ in checked)
    if form == "json":
        answer = {"valid": is_valid, "files": [_report(*each) for each in checked]}
        click.echo(as_json(answer))
    else:
        for each in checked:
            _print(*each)
    if not is_valid:
        raise SystemExit(1)


def _check(file: str, lenient: bool) -> tuple[ClusterSpec | None, tuple[Mistake, ...]]:
    """The cluster of a file, None if it cannot be used, and everything noted about it."""
    try:
        configuration = load(file, lenient)
    except ConfigError as error:
        return None, error.mistakes
    return configuration.cluster, configuration.warnings


def _report(file: str, cluster: ClusterSpec | None, noted: tuple[Mistake, ...]) -> dict[str, Any]:
    def listed(is_warning: bool) -> list[dict[str, Any]]:
        return [
            {key: getattr(mistake, key) for key in ("line", "path", "found", "expected", "suggestion")}
            for mistake in noted
            if mistake.is_warning == is_warning
        ]

    return {"file": file, "valid": cluster is not None, "mistakes": listed(False), "warnings": listed(True)}


def _print(file: str, cluster: ClusterSpec | None, noted: tuple[Mistake, ...]) -> None:
    for mistake in noted:
        click.echo(str(mistake))
    if cluster is None:
        count = sum(not mistake.is_warning for mistake in noted)
        click.echo(f"{file}: {count} mistake{'s' if count > 1 else ''}")
        return
    chains = {cell.cell_type for cell in cluster.physical_cells}
    vcs = len(cluster.virtual_clusters)
    click.echo(f"{file}: valid, cell chains {', '.join(sorted(chains))}; {vcs} virtual cluster{'s' * (vcs != 1)}")
