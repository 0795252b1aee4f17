"""Changes that would let a waiting job start at once, each confirmed by the core; cheapest first.

The order is the cost to its owner, and then to others: other pods of as many cells, other cells, a higher priority,
without a guarantee, fewer pods; hardware repaired; others moved, others ended; another configuration. The work is
bounded by a number of trials, so equal snapshots have equal answers.

Jobs that could be in the way are found by counting free leaf cells, node by node, before and after they end. The count
knows nothing of levels above nodes, offers and wishes; the core does. So a job that counts may not help.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace as with_fields
from itertools import chain, combinations, islice

import numpy as np
from msgspec.structs import replace

from hived.cells.state import NO_GROUP, State
from hived.cells.topology import NO_CELL, BoolArray, IntArray, LongArray
from hived.cells.views import views_to_try
from hived.values.errors import UserError
from hived.values.specs import (
    FREE_PRIORITY,
    MAX_GUARANTEED_PRIORITY,
    MIN_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    ClusterSpec,
    MemberSpec,
    PodSpec,
    Rules,
    VirtualClusterSpec,
    count_leaves,
    count_pods,
)
from hived_config.words import listed_with
from hived_extender.api.waiting import Unblock, pods_that_start
from hived_extender.insight.snapshot import Snapshot, WaitingEntry
from hived_extender.insight.trials import (
    MOST_LEAVES,
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
    Outcomes,
    Pods,
    Priority,
    Resize,
    Trials,
    refusal,
    state_after,
    words,
)
from hived_extender.jobs.amounts import leaves_below
from hived_extender.jobs.progress import MAY_MOVE
from hived_extender.machine.certificates import pods_told
from hived_extender.machine.devices.keeper import SHORT

MOST_APART = 24
"""Jobs on any nodes of which pairs are looked at, the ones with the least lost work."""

MOST_TOGETHER = 64
"""Nodes of which pairs of jobs are looked at."""

MOST_ON_A_NODE = 4
"""Jobs of one node of which pairs are looked at."""

NO_JOB = -1


class Holding:
    """The jobs that have cells where a part of a waiting job looks, and that it cannot preempt.

    Attributes
    ----------
    jobs : their names, those that lose least first
    room : free leaf cells of each node of the views, shape (bins,)
    held : (job, bin, leaf cells), three arrays of one length; jobs are indices into `jobs`
    """

    def __init__(
        self, state: State, spec: PodSpec, jobs: Mapping[str, Sequence[str]], now_s: float, *, of_hardware: bool
    ) -> None:
        """`jobs` are the groups of each job; `now_s` is in seconds since 1970. Cost O(cells + groups).

        `of_hardware`: count the hardware that others have, and not the cells of the job's virtual cluster, which may be
        free and have no good hardware.
        """
        if of_hardware:
            spec = with_fields(spec, priority=OPPORTUNISTIC_PRIORITY, pinned_cell_id="")
        self._sizes = [(one.leaf_cell_count, one.pod_count) for one in spec.group.members]
        rooms, bins, numbers, offset = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
        for view in [view for views in views_to_try(state, spec) for view in views]:
            leaves, bin_of, count = _leaves_of_view(state, view)
            is_free, group = _use(state, leaves, spec.priority)
            rooms.append(np.bincount(bin_of[is_free], minlength=count))
            blocked = group != NO_GROUP
            bins.append(bin_of[blocked] + offset)
            numbers.append(group[blocked].astype(np.int64))
            offset += count
        self.room: LongArray = np.concatenate(rooms)
        self._order(state, jobs, np.concatenate(numbers), np.concatenate(bins), int(now_s * 1000))

    def _order(
        self, state: State, jobs: Mapping[str, Sequence[str]], numbers: LongArray, bins: LongArray, now_ms: int
    ) -> None:
        """Count the leaf cells of each job by bin; jobs by lost work, of equals the older ones first."""
        names, lost = list(jobs), np.zeros(len(jobs), np.int64)
        job_of = np.full(state.group_total + 1, NO_JOB, np.int64)
        for job, groups in enumerate(jobs.values()):
            for name in groups:
                group = state.groups[name]
                job_of[group.number] = job
                if 0 <= group.since_ms < now_ms:
                    lost[job] += len(group.physical) * (now_ms - group.since_ms)
        own = job_of[numbers]
        here = own != NO_JOB
        present = np.unique(own[here])
        present = present[np.argsort(lost[present], kind="stable")]
        self.jobs = [names[job] for job in present.tolist()]
        place = np.full(len(names) + 1, NO_JOB, np.int64)
        place[present] = np.arange(len(present))
        width = max(len(self.room), 1)
        pairs, counts = np.unique(place[own[here]] * width + bins[here], return_counts=True)
        self.held: tuple[LongArray, LongArray, LongArray] = (pairs // width, pairs % width, counts.astype(np.int64))

    def singles(self) -> list[str]:
        """The jobs one of which alone might make enough room, in their order."""
        return [self.jobs[job] for job in self._alone()]

    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of jobs that might make enough room together, though neither does alone, in order of their jobs."""
        alone = set(self._alone())
        found = [pair for pair in dict.fromkeys((*self._apart(), *self._together())) if not alone & set(pair)]
        enough = sorted((pair for pair in found if self._make_room(pair)), key=lambda pair: (sum(pair), pair))
        return [(self.jobs[one], self.jobs[other]) for one, other in enough]

    def _alone(self) -> list[int]:
        enough = np.ones(len(self.jobs), np.bool_)
        for size, wanted in self._sizes:
            enough &= int((self.room // size).sum()) + self._gain(size) >= wanted
        found: list[int] = np.flatnonzero(enough).tolist()
        return found

    def _gain(self, size: int) -> LongArray:
        """Return how many pods of a size fit more once each job has ended; shape (jobs,)."""
        of_job, of_bin, count = self.held
        more = (self.room[of_bin] + count) // size - self.room[of_bin] // size
        return np.bincount(of_job, more, len(self.jobs)).astype(np.int64)

    def _apart(self) -> list[tuple[int, int]]:
        """Pairs of jobs each of which makes room for some pods."""
        size = self._sizes[-1][0]
        some = np.flatnonzero(self._gain(size) > 0)[:MOST_APART].tolist()
        return list(combinations(some, 2))

    def _together(self) -> list[tuple[int, int]]:
        """Pairs of jobs on one node that make room there."""
        of_job, of_bin, count = self.held
        size, least = self._sizes[0][0], np.full(len(self.room), len(self.jobs), np.int64)
        np.minimum.at(least, of_bin, of_job)
        total = self.room + np.bincount(of_bin, count, len(self.room)).astype(np.int64)
        is_open = (total >= size) & (self.room < size) & (np.bincount(of_bin, minlength=len(self.room)) > 1)
        found: list[tuple[int, int]] = []
        nodes = np.flatnonzero(is_open)
        for node in islice(nodes[np.argsort(least[nodes], kind="stable")].tolist(), MOST_TOGETHER):
            found += combinations(sorted(of_job[of_bin == node].tolist())[:MOST_ON_A_NODE], 2)
        return found

    def _make_room(self, pair: tuple[int, int]) -> bool:
        of_job, of_bin, count = self.held
        mine = (of_job == pair[0]) | (of_job == pair[1])
        bins, which = np.unique(of_bin[mine], return_inverse=True)
        more = np.bincount(which, count[mine]).astype(np.int64)
        before = self.room[bins]
        return all(
            int((self.room // size).sum() + ((before + more) // size - before // size).sum()) >= wanted
            for size, wanted in self._sizes
        )


def _leaves_of_view(state: State, view: int) -> tuple[IntArray, LongArray, int]:
    """The leaves of a view, the candidate node of each, and how many of these there are."""
    arrays = state.arrays
    nodes = arrays.view_cell[arrays.view_start[view] : arrays.view_start[view + 1]]
    counts = arrays.leaf_count[arrays.chain_level[nodes]].astype(np.int64)
    bin_of = np.repeat(np.arange(len(nodes)), counts)
    within = np.arange(len(bin_of)) - np.repeat(np.cumsum(counts) - counts, counts)
    return (arrays.first_leaf[nodes][bin_of] + within).astype(np.int32), bin_of, len(nodes)


def _use(state: State, leaves: IntArray, priority: int) -> tuple[BoolArray, IntArray]:
    """Free leaves at this priority, as a mask, and the group on each of the others; NO_GROUP if it stays bad."""
    cells = state.cells
    is_blocked = cells.priority[leaves] >= max(priority, FREE_PRIORITY + 1)
    physical = leaves if priority < MIN_GUARANTEED_PRIORITY else cells.bound[leaves]
    known = np.where(physical == NO_CELL, 0, physical)
    group = np.where(cells.reserving[known] != NO_GROUP, cells.reserving[known], cells.using[known])
    is_good = cells.bad[leaves] == 0
    can_be_good = is_good | (priority >= MIN_GUARANTEED_PRIORITY)  # a virtual cell gets other hardware once it is free
    group = np.where(is_blocked & (physical != NO_CELL) & can_be_good, group, NO_GROUP)
    return is_good & ~is_blocked, group


_REMEDIES = {
    "cordoned": ("is uncordoned", "are uncordoned"),
    "NotReady": ("is Ready", "are Ready"),
    "not in Kubernetes": ("is in Kubernetes", "are in Kubernetes"),
    SHORT: ("has all its devices", "have all their devices"),
}
"""Words for a node that can be used again, and for several, by the reason why it cannot."""

_MENDED = ("is usable again", "are usable again")


def text_of(change: Change, found: Outcome, trials: Trials) -> str:
    """The change as a clause that goes with "starts at once", and who would be preempted."""
    said = _said(change, trials)
    if told := pods_that_start(*trials.counts(found)):
        said += f": {told} would start"
    return f"{said}; {trials.told(found.victims)[0]} would be preempted" if found.victims else said


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
            told, count = trials.told(names)
            return f"once {told} {'has' if count == 1 else 'have'} ended"
        case Heal(nodes):
            return _healed(nodes, trials.snapshot)
        case Move(names):
            told, count = trials.told(names)
            start = "starts" if count == 1 else "start"
            return f"if {told} {start} anew elsewhere, {_permission(names, trials)}"
        case Cells(resizes):
            return "if the configuration promises " + listed_with(list(_resizes_text(resizes)))
        case Combine(vc):
            return f"if the configuration sets combine: true for {vc}"


def _pods_text(members: tuple[MemberSpec, ...], trials: Trials) -> str:
    own = _members(trials) or trials.specs[0].group.members
    if [one.leaf_cell_count for one in own] == [one.leaf_cell_count for one in members]:
        return f"with {count_pods(members)} of its {count_pods(own)} pods"
    leaf_type = trials.wanted[0].request.spec.leaf_cell_type or "GPU"
    now, then = ([(one.leaf_cell_count, one.pod_count) for one in each] for each in (own, members))
    return f"as {pods_told(then, leaf_type)} instead of {pods_told(now, leaf_type)}"


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


def _shown(change: Change, trials: Trials) -> Change:
    """The change with the names of jobs as lists have them."""
    match change:
        case Ends(names):
            return Ends(tuple(map(trials.shown, names)))
        case Move(names):
            return Move(tuple(map(trials.shown, names)))
    return change


def _permission(names: tuple[str, ...], trials: Trials) -> str:
    if not trials.may_move(names):
        return f"which neither annotation {MAY_MOVE} nor movable: true of the virtual cluster allows yet"
    entry = trials.entry
    is_planned = entry.pods and entry.priority >= MIN_GUARANTEED_PRIORITY  # plans are for these alone
    return "which is allowed" + (f": hived defrag plan --job {entry.name} plans it" if is_planned else "")


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
"""Priorities that are tried with all that follows, from the lowest that could preempt."""

MOST_SHOWN = 2
"""Changes of one kind that are shown."""

MOST_CONFIGURATIONS = 6
"""Other configurations that are tried."""


def unblocks_of(
    snapshot: Snapshot, entry: WaitingEntry, mates: Sequence[WaitingEntry] = (), known: Outcomes | None = None
) -> list[Unblock]:
    """Changes that would let the job start at once (rule 20.10); `mates` and `known` are as in `Trials`.

    None for a job that cannot be asked for, or that starts as it is.
    Cost: up to MOST_TRIALS searches. Takes `snapshot.lock`.
    """
    with snapshot.lock:
        trials = Trials(snapshot, entry, mates=mates, known=known)
        if not entry.requests or snapshot.holds_cells_of(entry) or trials.change(()).starts:
            return []
        return [
            Unblock(
                change=words(_shown(change, trials)),
                text=text_of(change, found, trials),
                victims=[trials.shown(name) for name in found.victims],
            )
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
        total, largest = count_leaves(members), members[-1].leaf_cell_count
        sizes = sorted({size for size in _node_sizes(trials) if size < largest and total % size == 0}, reverse=True)
        yield from _tried(trials, (Pods((MemberSpec(total // size, size),)) for size in sizes), 1)


def _fewer(trials: Trials) -> Iterator[tuple[Change, Outcome]]:
    """As many of its pods as would start, where all are alike."""
    members = _members(trials)
    if members is None or len(members) > 1 or members[0].pod_count < 2 or len(trials.asked) > 1:
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
    if len(trials.wanted) != 1 or not trials.are_alike or len(trials.asked) < len(trials.waiting):
        return None
    members = trials.wanted[0].request.spec.group.members
    if len(trials.asked) > 1:  # as if all of its pods started together
        members = tuple(with_fields(one, pod_count=one.pod_count * len(trials.asked)) for one in members)
    return members if count_pods(members) else None


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
            state = state_after(trials.state, [change])
            other = Trials(replace(trials.snapshot, state=state), entry, mates=trials.waiting[1:])
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
    """More cells of a type that it has, else of the next larger type that holds its pods: those promised to none, else
    instead of its own smaller cells, or of another virtual cluster's.
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
    """Return how many cells of a type hold all pods of the job, each of which fits one."""
    leaves = _leaves_of(trials.state.spec, path)
    sizes = [each for spec in trials.specs for each in spec.group.members]
    return sum(-(-each.pod_count // (leaves // each.leaf_cell_count)) for each in sizes)
