"""A first configuration for a trace: racks of equal nodes, shared by the GPU-hours of its tenants."""

from collections import Counter
from typing import NamedTuple

import yaml

from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived_config.virtual import VC_NAME
from hived_config.words import counted
from hived_simulator.tenants import UNNAMED_VC
from hived_simulator.traces.jobs import Trace

OTHERS = "others"
"""The virtual cluster that tenants share which have none of their own."""


class Hardware(NamedTuple):
    """`nodes` nodes of `gpus` GPUs, `rack` of them in a rack."""

    nodes: int
    gpus: int
    rack: int


def first_text(trace: Trace, hardware: Hardware, most_vcs: int | None = None) -> str:
    """The text of a configuration in which every tenant has nodes by its guaranteed GPU-hours, and enough for its
    largest job if there are so many.

    most_vcs : so many virtual clusters at most: tenants with less GPU-hours share the one called OTHERS

    Raises UserError for tenants whose names no virtual cluster may have, and if there are more of them than nodes.
    """
    vc_of = vcs_by_work(trace, most_vcs)
    work: Counter[str] = Counter()
    largest: dict[str, int] = {}
    for job in trace.jobs:
        if job.priority != OPPORTUNISTIC_PRIORITY:
            vc = vc_of[job.tenant]
            largest[vc] = max(-(-job.leaf_count // hardware.gpus), largest.get(vc, 1))
            work[vc] += round(job.leaf_count * job.duration_s) + 1
    if bad := next((name for name in sorted(work) if not VC_NAME.fits(name)), None):
        raise UserError(
            f"{trace.name}: tenant {bad!r} can be no virtual cluster; expected {VC_NAME.what}. "
            "Take another column for the tenants: `hived trace convert --tenant-column`"
        )
    if not work or len(work) > hardware.nodes:
        raise UserError(
            f"{trace.name}: has {counted(len(work), 'tenant')} with guaranteed jobs, for "
            f"{counted(hardware.nodes, 'node')}; with --vcs N the smallest of them share one virtual cluster"
        )
    least = largest if sum(largest.values()) <= hardware.nodes else dict.fromkeys(largest, 1)
    return _written(hardware, _shares(work, least, hardware.nodes))


def vcs_by_work(trace: Trace, most_vcs: int | None) -> dict[str, str]:
    """The virtual cluster of every tenant: its own, or OTHERS for those beyond the most work."""
    work: Counter[str] = Counter()
    for job in trace.jobs:
        work[job.tenant] += round(job.leaf_count * job.duration_s) * (job.priority != OPPORTUNISTIC_PRIORITY)
    ordered = sorted(work, key=lambda tenant: (-work[tenant], tenant))
    own = len(ordered) if most_vcs is None or len(ordered) <= most_vcs else most_vcs - 1
    return {tenant: (tenant or UNNAMED_VC) if rank < own else OTHERS for rank, tenant in enumerate(ordered)}


def _shares(work: Counter[str], least: dict[str, int], nodes: int) -> dict[str, int]:
    """Nodes by tenant: the least that each needs, and the others one by one to who has the most work for a node."""
    shares = dict(least)
    for _ in range(nodes - sum(shares.values())):
        shares[max(shares, key=lambda name: (work[name] / shares[name], name))] += 1
    return shares


def _written(hardware: Hardware, shares: dict[str, int]) -> str:
    width = len(str(hardware.nodes))
    names = [f"node-{number:0{width}}" for number in range(1, hardware.nodes + 1)]
    racks = [names[start : start + hardware.rack] for start in range(0, hardware.nodes, hardware.rack)]
    if len(racks[-1]) < hardware.rack:
        raise UserError(
            f"{hardware.nodes} nodes make no whole racks of {hardware.rack}: name another number with --rack"
        )
    lines = [
        "rules: 2",
        "physicalCluster:",
        "  cellTypes:",
        f"    NODE: {{childCellType: GPU, childCellNumber: {hardware.gpus}, isNodeLevel: true}}",
        f"    RACK: {{childCellType: NODE, childCellNumber: {hardware.rack}}}",
        "  physicalCells:",
    ]
    for number, rack in enumerate(racks, 1):
        lines += [f"  - cellType: RACK\n    cellAddress: rack-{number}\n    cellChildren:"]
        lines += [f"    - cellAddress: {name}" for name in rack]
    lines.append("virtualClusters:")
    for name, count in shares.items():
        key = yaml.safe_dump(name, default_style='"', width=1_000_000, allow_unicode=True).strip()
        lines += [f"  {key}:", f"    virtualCells: [{{cellType: RACK.NODE, cellNumber: {count}}}]"]
    return "\n".join(lines) + "\n"
