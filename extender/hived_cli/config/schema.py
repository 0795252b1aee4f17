"""`hived config schema`: the JSON schema by which editors complete and check configurations."""

import click

from hived_cli.helpers.answers import as_json
from hived_config.reference import SCHEMA, as_markdown


@click.command("schema")
@click.option(
    "--format", "form", type=click.Choice(["json", "markdown"]), default="json", show_default=True,
    help="The JSON schema, or tables of its keys.",
)  # fmt: skip
def command(form: str) -> None:
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
