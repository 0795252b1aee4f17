"""`hived trace scale`: a trace of another load."""

from pathlib import Path
from typing import Any

import click

from hived_cli.helpers.numbers import FiniteRange
from hived_cli.helpers.traces import output_option, reads_trace, span_of, trace_of, write_trace
from hived_simulator.traces.changing import fold, size, speed, to_load

_FACTOR = FiniteRange(min=0, min_open=True, max=1e6)


@click.command()
@click.option("--size", "larger", type=_FACTOR, metavar="FACTOR", help="GPUs of each job times this.")
@click.option("--fold", "span", callback=span_of, metavar="SPAN", help="Arrivals modulo this span, such as 1.5d.")
@click.option("--speed", "faster", type=_FACTOR, metavar="FACTOR", help="Arrivals so many times as fast.")
@click.option("--load", "load", type=_FACTOR, metavar="LOAD", help="Bring the load on --gpus to this, such as .63.")
@click.option("--gpus", type=click.IntRange(1), metavar="N", help="GPUs of the cluster, for --load.")
@click.option(
    "--by", type=click.Choice(["fold", "speed"]), default="fold", show_default=True, help="How --load is reached."
)
@output_option
@reads_trace
def command(
    *,
    file: str,
    span: float | None,
    faster: float | None,
    load: float | None,
    gpus: int | None,
    output: Path | None,
    **others: Any,
) -> None:
    """Change the load of a trace: fold its arrivals, or make them faster, or its jobs larger.

    Several wishes are followed in this order: size, fold, speed, load. Durations stay as they are. A fold lays days
    above each other and keeps the time of day; another speed keeps the order of jobs and makes days shorter. The load
    is what jobs ask for while they arrive, as a share of what the GPUs can do: GPU-seconds by GPUs and by the span
    from the first to the last submission. The notes of the result say what was done.

    \b
    Examples:
      hived trace scale weeks.jsonl --fold 1.5d -o folded.jsonl
      hived trace scale weeks.jsonl --load .63 --gpus 2496 -o busy.jsonl
      hived trace scale weeks.jsonl --load .2 --gpus 2496 --by speed
      hived trace scale weeks.jsonl --size 2 --speed .5
    """
    larger, by = others.pop("larger"), others.pop("by")
    if all(wish is None for wish in (larger, span, faster, load)):
        raise click.UsageError("say how: --fold, --speed, --load or --size")
    if (load is None) != (gpus is None):
        raise click.UsageError("--load and --gpus belong together")
    node_leaf_cells = others["node_leaf_cells"]
    trace = trace_of(file, others)
    if larger is not None:
        trace = size(trace, larger, node_leaf_cells)
    if span is not None:
        trace = fold(trace, span)
    if faster is not None:
        trace = speed(trace, faster)
    if load is not None and gpus is not None:
        trace = to_load(trace, load, gpus, folds=by == "fold")
    write_trace(trace, file, output)
