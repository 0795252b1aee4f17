"""Changes that would let a waiting job start at once, each confirmed by the core; cheapest first.

The order is the cost to its owner, and then to others: other pods of as many cells, other cells, a higher priority,
without a guarantee, fewer pods; hardware repaired; others moved, others ended; another configuration. The work is
bounded by a number of trials, so equal snapshots have equal answers.

What would help, in words for people.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice

import numpy as np
from msgspec.structs import replace

from hived.cells.topology import NO_CELL
from hived.values.errors import UserError
from hived.values.specs import (
    MAX_GUARANTEED_PRIORITY,
    MIN_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    ClusterSpec,
    MemberSpec,
    Rules,
    VirtualClusterSpec,
)
from hived_extender.api.waiting import Unblock
from hived_extender.insight.holding import Holding
from hived_extender.insight.resized import MOST_LEAVES, state_after
from hived_extender.insight.snapshot import Snapshot, WaitingEntry
from hived_extender.insight.trials import (
    Cells,
    Change,
    Combine,
    ConfigurationChange,
    Ends,
    Heal,
    LeafType,
    Move,
    OtherCluster,
    Outcome,
    Pods,
    Priority,
    Resize,
    Trials,
    refusal,
    slot_count,
    words,
)
from hived_extender.jobs.capacity import leaves_below
from hived_extender.jobs.progress import MAY_MOVE
from hived_extender.machine.certificates import counted, listed_with, short_name
from hived_extender.machine.devices.keeper import SHORT

_REMEDIES = {
    "cordoned": ("is uncordoned", "are uncordoned"),
    "NotReady": ("is Ready", "are Ready"),
    "not in Kubernetes": ("is in Kubernetes", "are in Kubernetes"),
    SHORT: ("has all its devices", "have all their devices"),
}
"""What is said of a node once it can be used, and of several, by the reason why it cannot."""

_MENDED = ("is usable again", "are usable again")


def text_of(change: Change, found: Outcome, trials: Trials) -> str:
    """The change as a clause that goes with "starts at once", and who would be preempted."""
    said = _said(change, trials)
    return f"{said}; {_jobs(found.victims, trials)} would be preempted" if found.victims else said


def _said(change: Change, trials: Trials) -> str:
    match change:
        case Priority(value):
            if value == OPPORTUNISTIC_PRIORITY:
                return "as an opportunistic job, which others may preempt"
            if trials.entry.priority < MIN_GUARANTEED_PRIORITY:
                return f"with a guarantee, at priority {value}"
            return f"at priority {value} instead of {trials.entry.priority}"
        case Pods(members):
            return _pods_text(members, trials)
        case LeafType(name):
            return f"with {name} instead of {trials.wanted[0].request.spec.leaf_cell_type}"
        case OtherCluster(name):
            pinned = next((spec.pinned_cell_id for spec in trials.specs if spec.pinned_cell_id), "")
            return f"in virtual cluster {name}" + (f", without pinned cell {pinned}" if pinned else "")
        case Ends(names):
            return f"once {_jobs(names, trials)} {'has' if len(names) == 1 else 'have'} ended"
        case Heal(nodes):
            return _healed(nodes, trials.snapshot)
        case Move(names):
            start = "starts" if len(names) == 1 else "start"
            return f"if {_jobs(names, trials)} {start} anew elsewhere, {_permission(names, trials)}"
        case Cells(resizes):
            return "if the configuration promises " + listed_with(list(_resizes_text(resizes)))
        case Combine(vc):
            return f"if the configuration sets combine: true for {vc}"


def _pods_text(members: tuple[MemberSpec, ...], trials: Trials) -> str:
    own = trials.specs[0].group.members
    if [one.leaf_cell_count for one in own] == [one.leaf_cell_count for one in members]:
        return f"with {slot_count(members)} of its {slot_count(own)} pods"
    return f"as {_shape(members)} instead of {_shape(own)}"


def _shape(members: tuple[MemberSpec, ...]) -> str:
    return listed_with([f"{counted(one.pod_count, 'pod')} of {one.leaf_cell_count}" for one in members])


def _healed(nodes: tuple[str, ...], snapshot: Snapshot) -> str:
    """Nodes that need the same remedy together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        reason, _ = snapshot.bad.get(node, (SHORT, None))
        alike.setdefault(_REMEDIES.get(reason.partition(":")[0], _MENDED), []).append(node)
    return "once " + listed_with(
        [
            f"node {own[0]} {alone}" if len(own) == 1 else f"nodes {listed_with(own)} {together}"
            for (alone, together), own in alike.items()
        ]
    )


def _jobs(names: Sequence[str], trials: Trials) -> str:
    return listed_with([short_name(name, trials.namespace_of(name), trials.entry.namespace) for name in names])


def _permission(names: tuple[str, ...], trials: Trials) -> str:
    if trials.may_move(names):
        return "as its owner allows" if len(names) == 1 else "as their owners allow"
    return f"which annotation {MAY_MOVE} does not allow yet"


def _resizes_text(resizes: Sequence[Resize]) -> Iterator[str]:
    """A clause for each; the cell type once, while it is the same."""
    before = ""
    for one in resizes:
        noun = "" if one.cell_type == before else f" {one.cell_type}"
        yield f"{abs(one.count)}{noun} {'more' if one.count > 0 else 'fewer'} to {one.vc}"
        before = one.cell_type


MOST_TRIALS = 64
"""Of one job; each is a search of the core."""

MOST_OF_A_KIND = 8
"""Trials of one kind: ends, moves, nodes."""

MOST_PRIORITIES = 4
"""Priorities that are tried with all that follows, from the lowest at which somebody could be preempted."""

MOST_SHOWN = 2
"""Changes of one kind that are shown."""

MOST_CONFIGURATIONS = 6
"""Other configurations that are tried."""


def unblocks_of(snapshot: Snapshot, entry: WaitingEntry) -> list[Unblock]:
    """What would let the job start at once. None for a job that cannot be asked for, or that starts as it is.

    Cost: up to MOST_TRIALS searches. Takes `snapshot.lock`.
    """
    with snapshot.lock:
        trials = Trials(snapshot, entry)
        if not entry.requests or snapshot.holds_cells_of(entry) or trials.change(()).starts:
            return []
        return [
            Unblock(change=words(change), text=text_of(change, found, trials), victims=list(found.victims))
            for change, found in _confirmed(trials)
        ]


def _confirmed(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    """Changes with their outcomes, until there are no trials left."""
    for finder in (
        _pods,
        _leaf_types,
        _clusters,
        _priorities,
        _opportunistic,
        _fewer,
        _nodes,
        _holders,
        _configurations,
    ):
        for change, found in finder(trials):
            yield change, found
            if trials.count >= MOST_TRIALS:
                return


def _tried(trials: Trials, changes: Iterable[Change], most: int = MOST_SHOWN) -> Iterator[tuple[Change, Outcome]]:
    """Those of the changes that help, up to `most`."""
    shown = 0
    for change in changes:
        if trials.count >= MOST_TRIALS or shown >= most:
            return
        found = trials.change([change])
        if found.starts:
            shown += 1
            yield change, found


def _pods(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    """Smaller pods with as many cells together, as large as can be."""
    members = _members(trials)
    if members is not None:
        total, largest = sum(one.pod_count * one.leaf_cell_count for one in members), members[-1].leaf_cell_count
        sizes = sorted({size for size in _node_sizes(trials) if size < largest and total % size == 0}, reverse=True)
        yield from _tried(trials, (Pods((MemberSpec(total // size, size),)) for size in sizes), 1)


def _fewer(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    """As many of its pods as would start, where all are alike."""
    members = _members(trials)
    if members is None or len(members) > 1 or members[0].pod_count < 2:
        return
    (size,) = (one.leaf_cell_count for one in members)
    least, most, best = 1, members[0].pod_count - 1, None
    while least <= most and trials.count < MOST_TRIALS:
        count = (least + most + 1) // 2
        change = Pods((MemberSpec(count, size),))
        found = trials.change([change])
        if found.starts and not found.victims:
            best, least = (change, found), count + 1
        else:
            most = count - 1
    if best is not None:
        yield best


def _members(trials: Trials) -> tuple[MemberSpec, ...] | None:
    """The pods of a job of one part that may be any others; None for other jobs."""
    if len(trials.wanted) != 1:
        return None
    members = trials.wanted[0].request.spec.group.members
    return members if slot_count(members) else None


def _node_sizes(trials: Trials) -> set[int]:
    """The leaf cells of the cells inside nodes, and of nodes."""
    return {each.leaf_count(level) for each in trials.state.topology.chains for level in range(1, each.node_level + 1)}


def _leaf_types(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    """Other leaf cell types that are the same resource, which the job's containers name; all in place of an unknown."""
    means, types = trials.snapshot.resources, trials.state.topology.leaf_type_chains
    asked = {spec.leaf_cell_type for spec in trials.specs}
    if len(asked) == 1 and "" not in asked:
        (one,) = asked
        others = (name for name in types if name != one and (one not in types or means.get(name) == means.get(one)))
        yield from _tried(trials, map(LeafType, others))


def _clusters(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    """Other virtual clusters that the job's namespace may use at its priority."""
    entry = trials.entry
    others = [name for name in trials.state.topology.vc_names if name != entry.vc]
    allowed = [name for name in others if not refusal(trials.snapshot, entry, name, entry.priority)]
    if entry.priority >= MIN_GUARANTEED_PRIORITY:
        yield from _tried(trials, map(OtherCluster, allowed))


def _priorities(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    """The lowest priority that would do, just above that of some group of the virtual cluster."""
    entry = trials.entry
    allowed = [
        each
        for each in _priorities_above(trials)
        if each <= MAX_GUARANTEED_PRIORITY and not refusal(trials.snapshot, entry, entry.vc, each)
    ]
    least, most, middle = 0, len(allowed), 0  # often the lowest will do
    while least < most and trials.count < MOST_TRIALS:
        if trials.may_start([Priority(allowed[middle])]):
            most = middle
        else:
            least = middle + 1
        middle = (least + most) // 2
    yield from _tried(trials, map(Priority, allowed[least : least + MOST_PRIORITIES]), 1)


def _priorities_above(trials: Trials) -> list[int]:
    """Each just above that of some group which the job cannot preempt, ascending; the lowest with a guarantee first."""
    state = trials.state
    vc = state.topology.vc_index.get(trials.entry.vc, NO_CELL)
    arrays = state.arrays
    found = np.unique(state.cells.priority[(arrays.vc == vc) & (arrays.level == 1)])
    least = max(trials.entry.priority, MIN_GUARANTEED_PRIORITY)
    lowest = [MIN_GUARANTEED_PRIORITY] if trials.entry.priority < MIN_GUARANTEED_PRIORITY else []
    return lowest + [each + 1 for each in found.tolist() if each >= least]


def _opportunistic(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    entry = trials.entry
    is_allowed = not refusal(trials.snapshot, entry, entry.vc, OPPORTUNISTIC_PRIORITY)
    if entry.priority >= MIN_GUARANTEED_PRIORITY and is_allowed:
        yield from _tried(trials, [Priority(OPPORTUNISTIC_PRIORITY)])


def _nodes(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    """Bad nodes one by one, then as few as possible of the first ones together."""
    bad = _bad_nodes(trials)[:MOST_OF_A_KIND]
    alone = list(_tried(trials, (Heal((node,)) for node in bad)))
    yield from alone
    if alone or len(bad) < 2 or not trials.change([Heal(tuple(bad))]).starts:
        return
    for node in bad[:]:
        fewer = [other for other in bad if other != node]
        if trials.count < MOST_TRIALS and fewer and trials.change([Heal(tuple(fewer))]).starts:
            bad = fewer
    yield from _tried(trials, [Heal(tuple(bad))])


def _bad_nodes(trials: Trials) -> list[str]:
    """Nodes that are bad or have lost devices: those behind cells of the virtual cluster first, in their order."""
    state, topology = trials.state, trials.state.topology
    arrays, cells = state.arrays, state.cells
    leaves = arrays.node_leaf
    bad = leaves[cells.bad[leaves] > 0]
    bound = cells.bound[bad]
    vc = topology.vc_index.get(trials.entry.vc, NO_CELL)
    own = set(arrays.node[bad[(bound != NO_CELL) & (arrays.vc[bound] == vc)]].tolist())
    return [
        topology.node_names[node]
        for node in sorted(set(arrays.node[bad].tolist()), key=lambda node: (node not in own, node))
    ]


def _holders(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    """Jobs that move, or that end: one, else two; jobs that lose least first."""
    if not trials.can_be_asked:
        return
    spec = max(trials.specs, key=lambda spec: spec.group.members[-1].leaf_cell_count)
    for of_hardware in (False, True):
        holding = Holding(trials.state, spec, trials.jobs, trials.snapshot.at, of_hardware=of_hardware)
        for names in ([(one,) for one in holding.singles()], holding.pairs()):
            tried = names[:MOST_OF_A_KIND]
            ends = list(_tried(trials, map(Ends, tried)))
            allowed_first = sorted(tried, key=lambda jobs: not trials.may_move(jobs))
            yield from _tried(trials, map(Move, allowed_first if ends else ()), 1)
            yield from ends
            if ends:
                return


def _configurations(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    """Cells of the virtual cluster combined, else more cells for it. For small clusters only."""
    entry = trials.entry
    vc = trials.state.spec.virtual_clusters.get(entry.vc)
    if vc is None or entry.priority < MIN_GUARANTEED_PRIORITY or len(trials.state.arrays.node_leaf) > MOST_LEAVES:
        return
    shown = 0
    changes: Iterator[ConfigurationChange] = chain(_combined(trials, vc), _resizes(trials, vc))
    for change in islice(changes, MOST_CONFIGURATIONS):
        if shown >= MOST_SHOWN:
            return
        with suppress(UserError):
            other = Trials(replace(trials.snapshot, state=state_after(trials.state, [change])), entry)
            found = other.change(())
            if found.starts:
                shown += 1
                yield change, found


def _combined(trials: Trials, vc: VirtualClusterSpec) -> Iterator[Combine]:
    """For pods that are larger than a cell which the virtual cluster is promised (rule 18.3)."""
    spec = trials.state.spec
    if spec.rules is Rules.BETTER and not vc.combines and _largest_pod(trials) > _smallest_cell(spec, vc):
        yield Combine(trials.entry.vc)


def _smallest_cell(spec: ClusterSpec, vc: VirtualClusterSpec) -> int:
    """Leaf cells; 0 without any cells."""
    return min((_leaves_of(spec, cell.cell_type) for cell in vc.virtual_cells), default=0)


def _resizes(trials: Trials, vc: VirtualClusterSpec) -> Iterator[Cells]:
    """More cells of a type that it has, else of the next larger type that holds its pods: nobody's, else taken from its
    own smaller cells, or from another virtual cluster.
    """
    spec, name = trials.state.spec, trials.entry.vc
    for cell in vc.virtual_cells:
        wanted = _holding_type(trials, cell.cell_type)
        count = _cells_lacking(trials, wanted) if wanted else 0
        if not count:
            continue
        more = Resize(name, count, wanted)
        yield Cells((more,))
        if wanted != cell.cell_type:
            needed = -(-count * _leaves_of(spec, wanted) // _leaves_of(spec, cell.cell_type))
            yield Cells((more, Resize(name, -min(cell.cell_count, needed), cell.cell_type)))
        for other_name, other in spec.virtual_clusters.items():
            if other_name != name and any(one.cell_type == wanted for one in other.virtual_cells):
                yield Cells((more, Resize(other_name, -count, wanted)))


def _holding_type(trials: Trials, path: str) -> str:
    """The cell type, or the nearest one above it, whose cells hold each pod of the job; "" if there is none."""
    largest = _largest_pod(trials)
    while path and _leaves_of(trials.state.spec, path) < largest:
        path = path.rpartition(".")[0]
    return path


def _largest_pod(trials: Trials) -> int:
    """Leaf cells."""
    return max(each.leaf_cell_count for spec in trials.specs for each in spec.group.members)


def _leaves_of(spec: ClusterSpec, path: str) -> int:
    """Leaf cells below a cell of this type, which may have its chain before it."""
    return leaves_below(spec, path.rsplit(".", 1)[-1])[1]


def _cells_lacking(trials: Trials, path: str) -> int:
    """How many cells of a type hold all pods of the job, each of which fits one."""
    leaves = _leaves_of(trials.state.spec, path)
    sizes = [each for spec in trials.specs for each in spec.group.members]
    return sum(-(-each.pod_count // (leaves // each.leaf_cell_count)) for each in sizes)
