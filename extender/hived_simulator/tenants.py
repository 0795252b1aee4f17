"""A trace on another cluster: the virtual cluster of each tenant, and models of GPU that the cluster does not have."""

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from hived.cells.layout import build_topology
from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_simulator.traces.jobs import Trace

AUTO = "auto"
ALL_OTHERS = "*"
UNNAMED_VC = "default"
"""The virtual cluster of jobs whose trace names no tenant, where there is one of that name."""
SHOWN = 10
"""So many names an error lists."""


def assigned(trace: Trace, spec: ClusterSpec, written: Sequence[str], option: str = "--tenants") -> dict[str, str]:
    """The virtual cluster of every tenant.

    option : the name of the option that `written` is of
    written : TENANT=VC texts, or `auto` alone; tenants that are not among them need a virtual cluster of their name.
        `*=VC` is for all tenants that have none

    UserError names tenants that have none.
    """
    tenants = sorted({job.tenant for job in trace.jobs})
    if list(written) == [AUTO]:
        return _by_size(trace, spec, option)
    given = dict(_pair(text, spec, option) for text in written)
    unknown = sorted(given.keys() - {*tenants, ALL_OTHERS})
    if unknown:
        raise UserError(f"{option}: the trace has no tenant {_listed(unknown)}; it has {_listed(tenants)}")
    if not given and len(tenants) == 1 and len(spec.virtual_clusters) == 1:
        return {tenants[0]: next(iter(spec.virtual_clusters))}
    found = {tenant: given.get(tenant, tenant or UNNAMED_VC) for tenant in tenants}
    lacking = [tenant for tenant, vc in found.items() if vc not in spec.virtual_clusters]
    if ALL_OTHERS in given:
        found |= dict.fromkeys(lacking, given[ALL_OTHERS])
    elif lacking == [""]:
        raise UserError(
            f"jobs of the trace name no tenant: give them all one virtual cluster with {option} =VC, one of"
            f" {_listed(sorted(spec.virtual_clusters))}"
        )
    elif lacking:
        raise UserError(
            f"tenants of the trace without a virtual cluster: {_listed(lacking)}; the configuration has"
            f" {_listed(sorted(spec.virtual_clusters))}. Assign them with {option} TENANT=VC, all of"
            f" these with {option} '*=VC', or all tenants with {option} auto"
        )
    return found


def _pair(text: str, spec: ClusterSpec, option: str) -> tuple[str, str]:
    tenant, is_given, vc = text.rpartition("=")
    if not is_given:
        raise UserError(f"{option} {text!r}: expected TENANT=VC, or auto alone")
    if vc not in spec.virtual_clusters:
        raise UserError(f"{option} {text!r}: the configuration has no virtual cluster {vc!r}")
    return tenant, vc


def _by_size(trace: Trace, spec: ClusterSpec, option: str) -> dict[str, str]:
    """Tenants with the most GPU-hours have the largest virtual clusters; beyond their number, the least loaded one."""
    work: Counter[str] = Counter()
    for job in trace.jobs:
        work[job.tenant] += int(job.leaf_count * job.duration_s)
    promised = build_topology(spec).promised_leaves()
    vcs = sorted((vc for vc in promised if promised[vc]), key=lambda vc: (-promised[vc], vc))
    if not vcs:
        raise UserError(f"{option} auto: the configuration has no virtual cluster with cells")
    load = dict.fromkeys(vcs, 0)
    found = {}
    for number, tenant in enumerate(sorted(work, key=lambda name: (-work[name], name))):
        vc = vcs[number] if number < len(vcs) else min(vcs, key=lambda each: (load[each] / promised[each], each))
        load[vc] += work[tenant]
        found[tenant] = vc
    return found


def _listed(found: Sequence[str]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(repr(name) for name in found[:SHOWN]) + more


IGNORED = "models of GPU are ignored"
"""The beginning of the note."""
SHOWN_MODELS = 5
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
    more = f" and {len(wanted) - SHOWN_MODELS} more" if len(wanted) > SHOWN_MODELS else ""
    note = (
        f"{IGNORED}: the trace has {', '.join(wanted[:SHOWN_MODELS])}{more}, and the configuration only "
        f"{', '.join(sorted(known)[:SHOWN_MODELS])}; its jobs take any"
    )
    jobs = tuple(msgspec.structs.replace(job, leaf_type="") for job in trace.jobs)
    return msgspec.structs.replace(trace, jobs=jobs, notes=(*trace.notes, note))
