"""`hived config plan`: what a configuration would do to whom, without doing it."""

from pathlib import Path

import click
import msgspec

from hived_cli.config.helpers.answering import AnsweringCommand
from hived_cli.config.helpers.files import read_sound_source, tell_mistakes
from hived_cli.config.helpers.given_files import required, takes_file
from hived_cli.config.helpers.past import draw_past, find_past
from hived_cli.config.helpers.report import draw
from hived_cli.helpers.answers import as_json, format_option
from hived_cli.helpers.connecting import asks_service
from hived_config.document import ConfigError
from hived_extender.api.configuration import ConfigReport
from hived_extender.api.past import RecordedPast
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector
from hived_extender.reconfiguration.recorded import plan_recorded

AFFECTED = 2
"""The exit code where running work is affected."""


@click.command("plan", cls=AnsweringCommand)
@takes_file
@click.option(
    "--record", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
    help="Instead of a service, the last state of a run that was recorded there, and its decisions.",
)  # fmt: skip
@click.option("--full", is_flag=True, help="Shorten no list.")
@format_option
@asks_service
def command(inspector: Inspector, path: Path | None, record: Path | None, full: bool, form: str) -> None:
    """Show what a configuration would do to whom, and change nothing.

    FILE is a scheduler configuration or OpenPAI's services-configuration.yaml; DIR is a folder with such a file. The
    exit code is 0 if no running work is affected, 2 if some is. It is 1 if the configuration is refused or the
    command line is wrong.

    Where the rules of decisions change, the recorded past is repeated once under each rules: which decisions would have
    been others, and which groups would have started at another time or not had to leave. The record is that in --record
    DIR, by default that of the service if its files are on this machine.

    Each pod of a gang of another dialect, such as a PyTorchJob or a job of Volcano, counts as a group of one pod.

    \b
    Examples:
      hived config plan hivedscheduler.yaml
      hived config plan -f hivedscheduler.yaml
      hived config plan /cluster-configuration
      hived config plan hivedscheduler.yaml --record /var/log/hived
      hived config plan hivedscheduler.yaml --format json | jq .groups.affected
    """
    try:
        source = read_sound_source(required(path))
    except ConfigError as error:
        if form == "json":
            click.echo(as_json(_refused(error)))
        tell_mistakes(error)
        raise SystemExit(1) from error
    if record is not None:
        report = plan_recorded(record, source.text, source.file)
    else:
        report = ConfigClient(inspector).plan(source.text, source.file)
    tell_plan(report, form == "json", full, find_past(report, source, record, inspector))


def tell_plan(report: ConfigReport, is_json: bool, full: bool = False, past: RecordedPast | None = None) -> None:
    """Print a report, shortened unless `full`, and the recorded past under other rules if there is one.

    Exits with 2 if running work is affected, with 1 if the report is refused.
    """
    if is_json:
        with_past = {} if past is None else {"recordedPast": past}
        click.echo(as_json(msgspec.to_builtins(report) | with_past))
    else:
        click.echo(draw(report, full=full))
        if past is not None:
            click.echo(draw_past(past, full=full))
    if report.is_refused:
        raise SystemExit(1)
    if report.affects_running:
        raise SystemExit(AFFECTED)


def _refused(error: ConfigError) -> ConfigReport:
    """A report that says no more than that a file is not sound."""
    return ConfigReport(
        refusals=[str(each) for each in error.mistakes if not each.is_warning],
        warnings=[str(each) for each in error.mistakes if each.is_warning],
    )
