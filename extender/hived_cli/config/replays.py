"""Replays for certificates: the trace is read or fetched, and run in the simulator, with progress and Ctrl-C."""

import time
from os import SEEK_END
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

import click
import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_cli.config.certify_options import Certifying
from hived_cli.helpers.progress import Bar, stop_signal
from hived_extender.api.certificates import Certificate
from hived_extender.api.inspection import Inspector
from hived_extender.api.paths import RECORD_PATH
from hived_extender.machine.recording.record import MOST_BYTES, recent_lines, recent_parts
from hived_extender.warm import NOT_COMPILED, load_kernels
from hived_simulator.certification import ConfigText, Stopped, Wish, certify, described
from hived_simulator.plan import node_size
from hived_simulator.traces.changing import still_running
from hived_simulator.traces.draft import Options as Reading
from hived_simulator.traces.jobs import Trace
from hived_simulator.traces.reading import read_trace

INTERRUPTED = 130
DAY_S = 86_400.0
BEGINNING = b'{"op":"new",'
"""Of the first line of a term, which alone says nothing of jobs."""


def replayed(
    inspector: Inspector, in_force: tuple[str, ClusterSpec], pushed: tuple[str, ClusterSpec], wish: Certifying,
    percent: float,
) -> Certificate:  # fmt: skip
    """The certificate; texts and clusters of both configurations are given. Exits with 130 if it is interrupted."""
    try:
        return _replayed(inspector, ConfigText(*in_force), ConfigText(*pushed), wish, percent)
    except (Stopped, KeyboardInterrupt):
        click.echo("interrupted: nothing was pushed", err=True)
        raise SystemExit(INTERRUPTED) from None


def _replayed(inspector: Inspector, old: ConfigText, new: ConfigText, wish: Certifying, percent: float) -> Certificate:
    """As `replayed`. Raises Stopped or KeyboardInterrupt if it is interrupted, UserError for a trace of no use."""
    if not load_kernels():
        click.echo(NOT_COMPILED, err=True)
    reading = Reading(node_leaf_cells=max(node_size(old.cluster), node_size(new.cluster)))
    if wish.days:
        trace = _recorded(inspector, wish.days, wish.record, reading)
        traced = described(trace, "record", days=wish.days)
    else:
        path = Path(wish.of)
        try:
            trace = read_trace(path, wish.trace_format, reading)
        except UserError as error:  # it names the option of `hived trace`
            raise UserError(error.message.replace(" --format", " --certify-format"), error.code) from error
        traced = described(trace, path.name, wish.sha256())
    for note in trace.notes:
        click.echo(f"{traced.name}: {note}", err=True)
    how = Wish(percent, wish.has_backfill, wish.tenants)
    with stop_signal() as stop:
        return certify(old, new, trace, traced, how, lambda part: Bar(f"replay, {part}", stop.is_set))


def _recorded(inspector: Inspector, days: int, folder: Path | None, reading: Reading) -> Trace:
    """The jobs of the last days that were there. Raises UserError if nothing is recorded."""
    since_s = time.time() - days * DAY_S
    with NamedTemporaryFile("w+b", prefix="hived-record-", suffix=".jsonl") as file:
        _fetch(inspector, since_s, folder, file)
        file.seek(0)
        if all(line.startswith(BEGINNING) for line in file):
            return Trace("record", (), None, ("no request came in that time",))
        if folder is None:  # work that is running still has run until now
            file.seek(0, SEEK_END)
            file.write(msgspec.json.encode({"op": "time", "now": time.time()}) + b"\n")
        file.flush()
        try:
            trace = read_trace(file.name, "record", reading)
        except UserError as error:
            raise UserError(error.message.replace(file.name, "record"), error.code) from error
    return still_running(trace, since_s)


def _fetch(inspector: Inspector, since_s: float, folder: Path | None, file: IO[bytes]) -> None:
    if folder is not None:
        file.writelines(recent_lines(recent_parts(folder, since_s)))
        return
    click.echo("fetching the record ...", err=True)
    inspector.download(f"{RECORD_PATH}?since={since_s:.0f}", file, MOST_BYTES)
