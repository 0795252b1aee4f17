"""`hived config plan`: the effects of a configuration, and the decisions of a recorded run under its rules."""

import math
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from hived.values.errors import UserError
from hived.values.specs import Rules
from hived_cli.config.given import Source, read_sound_source, required, takes_file, tell_mistakes
from hived_cli.config.report import LINES, draw, shortened
from hived_cli.helpers.answers import AnsweringCommand, as_json, format_option
from hived_cli.helpers.connecting import asks_service
from hived_config.document import ConfigError
from hived_config.loader import load_text
from hived_extender.api.certificates import span
from hived_extender.api.configuration import ConfigReport
from hived_extender.api.inspection import ConfigClient, Inspector
from hived_extender.api.past import MovedStart, OtherDecision, RecordedPast
from hived_extender.jobs.progress import read_time
from hived_extender.reconfiguration.recorded import past_under, plan_recorded

PROGRESS_INTERVAL_S = 2.0
OPTION = "hived config plan --record DIR FILE"


def find_past(report: ConfigReport, source: Source, record: Path | None, inspector: Inspector) -> RecordedPast | None:
    """The comparison for a record, by default the service's own; None if the rules stay as they are.

    The service's record counts only if its files are on this machine. If they are not, or if they cannot be repeated, a
    message on stderr says so, and the result is None.
    """
    rules = load_text(source.text, source.file, lenient=True).cluster.rules
    is_changed = any(each.key == "rules" for each in report.changes.settings)
    if report.is_refused or not (is_changed or (rules is Rules.BETTER and report.changes.virtual_clusters.changed)):
        return None
    if record is not None:
        return past_under(record, source.text, source.file, tell=_Progress())
    kept = ConfigClient(inspector).current().record
    folder, _, run = kept.rpartition("/")
    if not kept or not Path(f"{kept}-0001.jsonl").is_file():
        if is_changed:
            remedy = f"`{OPTION}` compares the decisions of any record"
            click.echo(f"the service keeps no record on this machine: {remedy}", err=True)
        return None
    try:
        return past_under(Path(folder), source.text, source.file, run, _Progress())
    except UserError as error:
        click.echo(f"the service's record cannot be repeated here: {error.message}", err=True)
        return None


def draw_past(past: RecordedPast, *, full: bool = False) -> str:
    """The comparison as text; with `full`, no list is shortened."""
    return "\n".join(_lines(past, full))


def _lines(past: RecordedPast, full: bool) -> Iterator[str]:
    head = f"Recorded past with rules {past.new_rules}, instead of {past.old_rules}"
    if past.old_rules == past.new_rules:
        head = f"Recorded past with these keys of rules {past.new_rules}"
    yield click.style(head, bold=True)
    yield f"  run {past.run}: {past.operations:,} operations, {past.questions:,} decisions compared"
    if not past.questions:
        yield "  no pod has asked for a place in this run: there is nothing to compare"
        return
    if past.is_equal:
        yield "  every decision would have been the same"
        return
    yield from _jobs("would not have had to leave", past.spared, full)
    yield from _jobs("would have had to leave, and did not", past.evicted, full)
    yield from _jobs("would have started earlier", _starts(past.earlier), full)
    yield from _jobs("would have started later, or not before they ended", _starts(past.later), full)
    yield f"  decisions that differ: {sum(each.count for each in past.decisions):,}"
    yield from (f"    {each.old} -> {each.new}: {each.count:,}" for each in past.decisions)
    shown = past.first if full else past.first[:LINES]
    if shown:
        yield "  the first of them, by pod, other places last:"
        yield from (f"    {_decision(each)}" for each in shown)
    if past.unfollowed:
        yield f"  lines of the record that could not be followed: {past.unfollowed:,}"


def _jobs(what: str, names: Iterable[str], full: bool) -> Iterator[str]:
    found = list(names)
    if found:
        yield f"  jobs that {what}: {len(found):,} ({shortened(found, full=full)})"


def _decision(each: OtherDecision) -> str:
    return (
        f"{each.when or each.place} {each.group} ({each.vc}, pod {each.pod}): {each.old} {each.old_detail} -> "
        f"{each.new} {each.new_detail}"
    )


def _starts(moved: Iterable[MovedStart]) -> list[str]:
    """Jobs that start at another time, those with a start in one world only first, then by the difference."""
    return [_start(each) for each in sorted(moved, key=lambda each: -_moved_s(each))]


def _moved_s(moved: MovedStart) -> float:
    """By how many seconds a start moves; infinity if there is only one, 0 if the record does not tell."""
    if not (moved.old_place and moved.new_place):
        return math.inf
    return abs(read_time(moved.new_when) - read_time(moved.old_when)) if moved.old_when and moved.new_when else 0.0


def _start(moved: MovedStart) -> str:
    was, now = moved.old_when or moved.old_place, moved.new_when or moved.new_place
    if was and was == now:
        return f"{moved.group} within the second of {was}"
    seconds = _moved_s(moved)
    by = f" by {span(seconds)}:" if 0 < seconds < math.inf else ""
    return f"{moved.group}{by} {was or 'never'} -> {now or 'never'}"


class _Progress:
    """Tells on stderr, every two seconds, how many lines are done, and of how many."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        if time.monotonic() - self._told >= PROGRESS_INTERVAL_S:
            self._told = time.monotonic()
            click.echo(f"{done / of:4.0%}  recorded past, {done:,} of {of:,} operations", err=True)


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
def plan(inspector: Inspector, path: Path | None, record: Path | None, full: bool, form: str) -> None:
    """Show what a configuration would do to whom, and change nothing.

    FILE is a scheduler configuration or OpenPAI's services-configuration.yaml; DIR is a folder with such a file. The
    exit code is 0 if no running work is affected, 2 if some is. It is 1 if the configuration is refused or the
    command line is wrong.

    Where the rules of decisions change, the recorded past is repeated once under each rules: which decisions would have
    been others, and which jobs would have started at another time or not had to leave. The record is that in --record
    DIR, by default that of the service if its files are on this machine.

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
