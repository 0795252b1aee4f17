"""Options of all commands that read traces or write them, and the words for spans and moments in them."""

import gzip
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from hived.values.errors import UserError
from hived_cli.helpers.answers import FiniteRange, with_options
from hived_cli.helpers.progress import Count
from hived_config.words import counted
from hived_simulator.traces.draft import Options
from hived_simulator.traces.fields import Unusable, instant, parse_duration, zone
from hived_simulator.traces.jobs import Trace
from hived_simulator.traces.reading import NAMES, read_with_format
from hived_simulator.traces.writing import WRITERS, losses


class Duration(click.ParamType[float]):
    """A length of time such as 30m or 1.5d, in seconds."""

    name = "duration"

    def __init__(self, *, may_be_zero: bool = True) -> None:
        self._may_be_zero = may_be_zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds."""
        if isinstance(value, float):
            return value
        try:
            seconds = parse_duration(value, param.opts[0] if param is not None else "time")
        except UserError as error:
            self.fail(str(error), param, ctx)
        if not seconds and not self._may_be_zero:
            self.fail(f"{value!r} is no length of time above 0", param, ctx)
        return seconds


_READING: list[Callable[..., Any]] = [
    click.option(
        "--format", "name_of_format", type=click.Choice(NAMES), default=None, metavar="NAME",
        help=f"Its format: {', '.join(NAMES)}.  [default: by its text]",
    ),
    click.option(
        "--node-leaf-cells", type=click.IntRange(1, 1024), default=8, show_default=True,
        help="GPUs of a node: shapes gangs of which only the number of GPUs is given.",
    ),
    click.option("--time-zone", default="UTC", show_default=True, help="Of times that name no zone."),
    click.option("--tenant-column", default="", metavar="NAME", help="What names the tenant, such as user."),
    click.option("--as-placed", "is_as_placed", is_flag=True, help="Shape gangs as they ran, if the trace says how."),
    click.option(
        "--column", "columns", multiple=True, metavar="PROPERTY=COLUMN",
        help="Of any table: the column that says this, such as gpus=cards; for submitted, duration, gpus, tenant, "
        "name, user, started, ended, nodes and others.",
    ),
    click.option(
        "--steps-per-s", type=FiniteRange(min=0, min_open=True), default=None, metavar="N",
        help="Of jobs whose length is in steps (gavel).",
    ),
    click.option(
        "--throughputs", type=click.Path(dir_okay=False), default="", metavar="FILE",
        help="Steps per second by type of job (gavel).",
    ),
    click.option(
        "--device", "devices", multiple=True, metavar="RESOURCE",
        help="A resource of Kubernetes that is a GPU.  [default: nvidia.com/gpu, amd.com/gpu]",
    ),
]  # fmt: skip

tenants_option = click.option(
    "--tenants", multiple=True, metavar="TENANT=VC",
    help="Virtual cluster of a tenant of the trace; `auto` assigns all by size.  [default: that of its name]",
)  # fmt: skip

backfill_option = click.option(
    "--backfill", "has_backfill", is_flag=True, help="Later jobs of a virtual cluster pass those that have no room."
)

output_option = click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Write to this file; one that ends in .gz is packed.  [default: standard output]",
)  # fmt: skip


def reads_trace(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the argument FILE, and the options that say how it is read; see `trace_of`."""
    return with_options(function, [click.argument("file", metavar="FILE"), *_READING])


def trace_of(file: str, options: dict[str, Any]) -> Trace:
    """The trace that the command line names; takes the options of `reads_trace` out of `options`."""
    return named_trace_of(file, options)[1]


def named_trace_of(file: str, options: dict[str, Any]) -> tuple[str, Trace]:
    """The same, with the name of its format."""
    name = options.pop("name_of_format") or ""
    found = {key: options.pop(key) for key in Options.__struct_fields__}
    options_of_reader = Options(**{key: value for key, value in found.items() if value})
    return read_with_format(file, name, options_of_reader, Count(file, "rows"))


def moment_in(trace: Trace, text: str, time_zone: str, option: str) -> float:
    """Seconds since a trace's start of a date, or of a span since the start. Raises UserError for anything else."""
    with suppress(UserError):
        return parse_duration(text.strip(), option)
    try:
        found = instant(text.strip(), option, zone(time_zone))
    except Unusable:
        raise UserError(f"{option} {text!r}: expected a date such as 2017-10-16, or a span such as 3d") from None
    if trace.start is None:
        raise UserError(f"{option} {text!r}: the trace tells no dates; give a span since its start, such as 3d")
    return found - trace.start


def write_trace(trace: Trace, source: str, output: Path | None, form: str = "hived") -> None:
    """Write a trace; a file appears only once it is whole. Losses of the form are named on stderr."""
    if lost := losses(trace, form):
        click.echo(f"not kept by {form}: {', '.join(lost)}", err=True)
    pieces = WRITERS[form](trace)
    if output is None:
        for piece in pieces:
            click.echo(piece, nl=False)
        return
    if source != "-" and output.exists() and Path(source).exists() and output.samefile(source):
        raise UserError(f"{output}: is the trace itself; name another file")
    try:
        _write(output, pieces)
    except OSError as error:
        raise UserError(f"{output}: {error.strerror}") from None
    click.echo(f"{output}: {counted(len(trace.jobs), 'job')}", err=True)


def _write(output: Path, pieces: Iterable[bytes]) -> None:
    """Beside the file first, unless it is no file but a pipe or a device."""
    if output.exists() and not output.is_file():
        with output.open("wb") as file:
            file.writelines(pieces)
        return
    beside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with beside.open("xb") as file:
            if output.suffix == ".gz":
                with gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
                    packed.writelines(pieces)
            else:
                file.writelines(pieces)
        beside.replace(output)
    finally:
        beside.unlink(missing_ok=True)
