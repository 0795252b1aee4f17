"""`hived config history`: which configurations were in force, and who pushed them."""

import click

from hived_cli.config.helpers.certificate_text import brief
from hived_cli.helpers.answers import as_json, format_option
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.tables import table
from hived_config.reader import printable
from hived_extender.api.paths import CONFIG_VERSIONS_PATH
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector


@click.command("history")
@format_option
@asks_service
def command(inspector: Inspector, form: str) -> None:
    """List the versions of the configuration that are kept, newest first: when, who and why.

    Versions that were pushed with a certificate have it below the list.

    \b
    Examples:
      hived config history
      hived config history --format json | jq '.items[0].who'
    """
    if form == "json":
        click.echo(as_json(inspector.fetch(CONFIG_VERSIONS_PATH)))
        return
    service = ConfigClient(inspector)
    current, versions = service.current(), service.versions()
    rows = [
        [
            str(each.version),
            "*" if each.version == current.version else "",
            each.when,
            printable(each.who) or "-",
            printable(each.why),
        ]
        for each in versions
    ]
    click.echo(table([">VERSION", "", "WHEN", "WHO", "WHY"], rows))
    certified = [(each.version, each.certificate) for each in versions if each.certificate is not None]
    if certified:
        click.echo("\n" + click.style("Certificates", bold=True))
    for number, certificate in certified:
        color = "red" if certificate.verdict == "broken" else None
        click.echo(
            f"  {number}: " + click.style(f"promises {certificate.verdict}", fg=color) + f": {brief(certificate)}"
        )
        for failure in certificate.failures():
            click.echo(f"     {failure}")
    click.echo("\n" + click.style(f"* in force, from {current.source}", dim=True))
    if current.refused is not None:
        refused = current.refused
        click.echo(click.style(f"A change of {refused.when} is not in force: {refused.reason}", fg="red"))
