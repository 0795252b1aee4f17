"""Models of GPU that a trace names, on a cluster whose leaf cell types have other names."""

from collections.abc import Iterable

import msgspec

from hived.layout import build_topology
from hived.specs import ClusterSpec
from hived_simulator.traces.jobs import Trace

IGNORED = "models of GPU are ignored"
"""How the note begins."""
SHOWN = 5
"""So many models a note lists."""


def with_known_models(trace: Trace, specs: Iterable[ClusterSpec]) -> Trace:
    """The trace; without the models of its jobs, and with a note, if no configuration has any of them.

    A cluster made for a trace has one type of leaf cells, whose name no job asks for. A job with a model that is
    missing beside others that are there keeps its wish, and never starts. Cost O(cells + jobs).
    """
    wanted = sorted({job.leaf_type for job in trace.jobs if job.leaf_type})
    known = {chain.types[0] for spec in specs for chain in build_topology(spec).chains}
    if not wanted or known.intersection(wanted):
        return trace
    more = f" and {len(wanted) - SHOWN} more" if len(wanted) > SHOWN else ""
    note = (
        f"{IGNORED}: the trace has {', '.join(wanted[:SHOWN])}{more}, and the configuration only "
        f"{', '.join(sorted(known)[:SHOWN])}; its jobs take any"
    )
    jobs = tuple(msgspec.structs.replace(job, leaf_type="") for job in trace.jobs)
    return msgspec.structs.replace(trace, jobs=jobs, notes=(*trace.notes, note))
