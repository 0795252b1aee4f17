"""The share of each virtual cluster in a first configuration, and the jobs of a trace that are too large for it."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from hived.cells.layout import build_topology
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_cli.helpers.answers import as_json
from hived_cli.helpers.tables import table
from hived_simulator.fresh_file import OTHERS
from hived_simulator.hardware import promised_leaves
from hived_simulator.tenants import ALL_OTHERS
from hived_simulator.traces.jobs import Trace


class Share(msgspec.Struct, frozen=True):
    """The jobs of one virtual cluster that the trace does not call opportunistic, and the leaf cells promised to it.

    too_large : jobs that ask for more, and can start on idle cells alone
    """

    vc: str
    tenants: int
    jobs: int
    gpu_hours: float
    leaf_cells: int
    too_large: int


class Shares(msgspec.Struct, frozen=True):
    """A first configuration, and its shares in the order of the file."""

    text: str
    vcs: list[Share]


def shares(trace: Trace, cluster: ClusterSpec, vc_of: Mapping[str, str]) -> list[Share]:
    """The share of each virtual cluster. Cost O(jobs)."""
    promised = promised_leaves(build_topology(cluster))
    jobs, too_large = Counter[str](), Counter[str]()
    hours: dict[str, float] = dict.fromkeys(promised, 0.0)
    for job in trace.jobs:
        if job.priority != OPPORTUNISTIC_PRIORITY:
            vc = vc_of[job.tenant]
            jobs[vc] += 1
            hours[vc] += job.leaf_count * job.duration_s / 3600
            too_large[vc] += job.leaf_count > promised[vc]
    tenants = Counter(vc_of.values())
    return [
        Share(vc, tenants[vc], jobs[vc], round(hours[vc], 3), promised[vc], too_large[vc])
        for vc in cluster.virtual_clusters
    ]


def show_shares(
    trace: Trace, cluster: ClusterSpec, vc_of: Mapping[str, str], text: str, output: Path | None, *, is_json: bool
) -> None:
    """Print the configuration if it has no file, and the shares; as JSON both."""
    found = shares(trace, cluster, vc_of)
    if is_json:
        click.echo(as_json(Shares(text, found)))
        return
    if output is None:
        click.echo(text, nl=False)
    headers = ("VC", ">TENANTS", ">JOBS", ">GPU-HOURS", ">GPUS", ">JOBS TOO LARGE FOR IT")
    rows = [
        (one.vc, f"{one.tenants:,}", f"{one.jobs:,}", f"{one.gpu_hours:,.0f}", f"{one.leaf_cells:,}",
         f"{one.too_large:,}")
        for one in found
    ]  # fmt: skip
    click.echo(table(headers, rows), err=output is None)
    if output is not None:
        words = f" --tenants '{ALL_OTHERS}={OTHERS}'" if OTHERS in vc_of.values() else ""
        click.echo(f"{output}: written; simulate it with --config {output}{words}")
