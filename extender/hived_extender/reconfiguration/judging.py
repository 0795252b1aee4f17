"""The effects of another configuration on running groups (rules 8.11, 11.2, 11.3, 11.5), on waiting jobs and on nodes.

A node's name that Kubernetes cannot have is refused, unless the configuration in force has it already. A name that the
cluster does not have is a warning, as nodes may join later. A configuration with none of the cluster's nodes is refused
if the one in force has some: it is that of another cluster.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import product

import msgspec
import numpy as np
from msgspec.structs import replace

from hived.cells.state import Group, GroupState, State
from hived.cells.topology import NO_CELL, BoolArray, IntArray, LongArray
from hived.life.groups import bind_info_of_slot
from hived.scenario import Asked, Scenario
from hived.scheduler import idle_state
from hived.values.decisions import Applied, Bind, Decision, Preempt
from hived.values.errors import UserError
from hived.values.events import Offer
from hived.values.specs import MIN_GUARANTEED_PRIORITY, ClusterSpec, PodRequest, PodSpec, VirtualClusterSpec, count_pods
from hived_config.access import AccessRules
from hived_config.document import Mistake
from hived_config.loader import Configuration
from hived_config.node_names import (
    PLACEHOLDER,
    VALID_NAME,
    WRITTEN_NAMES,
    Likely,
    NodeNames,
    is_possible,
    made_possible,
)
from hived_config.reader import shorten
from hived_extender.api.configuration import BadCells, ReportedJob
from hived_extender.machine.certificates import NO_NODE
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.gangs.plans import Round
from hived_extender.machine.gangs.rounds import Alone
from hived_extender.machine.notices import Reason
from hived_extender.machine.offers import Asking
from hived_extender.machine.pods import PodRecord, PodState
from hived_extender.reconfiguration.successor import Successor


class Verdict(Enum):
    """The fate of a group; one that goes on as before has none."""

    LAZILY_PREEMPTED = "lazilyPreempted"
    UNACCOUNTED = "unaccounted"
    PARTLY_UNACCOUNTED = "partlyUnaccounted"
    PREEMPTION_CANCELLED = "preemptionCancelled"
    RESTORED = "restored"


HARM = (Verdict.LAZILY_PREEMPTED, Verdict.UNACCOUNTED, Verdict.PARTLY_UNACCOUNTED)
"""Running work is affected."""


class Affected(msgspec.Struct, frozen=True):
    """A group of the present state and its fate, with its pods by name and by uid.

    `is_locked_out`: it loses cells guaranteed to its VC (rule 33.1).
    """

    name: str
    vc: str
    priority: int
    pods: tuple[str, ...]
    uids: tuple[str, ...]
    verdict: Verdict
    reason: str
    is_locked_out: bool


class Verdicts:
    """Compares the present state with its successor; unchanging facts of a group are looked at once."""

    def __init__(self, successor: Successor) -> None:
        self._successor = successor
        self._lost: dict[int, tuple[IntArray, int]] = {}  # by id of the group's cells, which never change
        self._settled: dict[str, tuple[Group, Group, IntArray | None, IntArray | None]] = {}  # that nothing becomes of

    def affected(self, present: State) -> list[Affected]:
        """All groups that something becomes of, by name. Cost: a look at each group; the lock need not be held, but
        then the answer may be of two moments. Of groups that the successor has not been told of yet, nothing is said.
        """
        successors, settled = self._successor.core.state.groups, self._settled
        found = []
        for name, group in present.groups.copy().items():  # copied at once: others may come and go meanwhile
            new = successors.get(name)
            seen = settled.get(name)
            if (
                seen is not None
                and new is not None
                and seen[0] is group
                and seen[1] is new
                and seen[2] is group.virtual
                and seen[3] is new.virtual
            ):
                continue
            is_other = new is not None and len(new.physical) != len(group.physical)
            if is_other or not self._successor.was_told_of(group):
                continue  # it has come since then, perhaps after another one of its name
            verdict = self._verdict(group, new)
            if verdict is not None:
                found.append(self._explain(present, group, name, verdict))
            elif new is not None and group.state is not GroupState.PREEMPTING:
                settled[name] = group, new, group.virtual, new.virtual
        return sorted(found, key=lambda one: one.name)

    def _verdict(self, group: Group, new: Group | None) -> Verdict | None:
        if group.state is GroupState.PREEMPTING:
            is_kept = new is not None and new.state is GroupState.PREEMPTING
            return None if is_kept else Verdict.PREEMPTION_CANCELLED
        count = len(group.physical)
        before, after = self._lost_cells(group), count if new is None else self._lost_cells(new)
        # A group without any of its cells has no place either, even if some are to come back.
        had_place = group.virtual is not None and before < count
        has_place = new is not None and new.virtual is not None and after < count
        if not (before or after) and had_place == has_place:
            return None
        if after > before or (before and new is not None and _loses_some(group, new)):
            return Verdict.UNACCOUNTED if after == count else Verdict.PARTLY_UNACCOUNTED
        if had_place != has_place and group.priority >= MIN_GUARANTEED_PRIORITY:
            return Verdict.LAZILY_PREEMPTED if had_place else Verdict.RESTORED
        return Verdict.RESTORED if after < before else None

    def _lost_cells(self, group: Group) -> int:
        """The number of its cells that are not configured, or another group's."""
        known = self._lost.get(id(group.physical))
        if known is None:
            known = group.physical, int(np.count_nonzero(group.physical == NO_CELL))
            self._lost[id(group.physical)] = known
        return known[1]

    def _explain(self, present: State, group: Group, name: str, verdict: Verdict) -> Affected:
        vc = present.vc_names[group.vc]
        pods = [pod for pod in (*group.holders, *group.preempting_pods.values()) if pod is not None]
        return Affected(
            name,
            vc,
            group.priority,
            tuple(dict.fromkeys(f"{pod.namespace}/{pod.name}" for pod in pods)),
            tuple(dict.fromkeys(pod.uid for pod in pods)),
            verdict,
            self._reason(present, group, verdict),
            verdict in HARM and group.virtual is not None,
        )

    def _reason(self, present: State, group: Group, verdict: Verdict) -> str:
        state = self._successor.core.state
        new = state.groups.get(group.name)
        errors = [
            error
            for pod in group.holders
            if pod is not None and (error := self._successor.unaccounted.get(pod.uid)) is not None
        ]
        if errors:
            return errors[0].message
        if verdict is Verdict.PREEMPTION_CANCELLED:
            lost = self._successor.lost.get(group.name)
            return lost.message if lost is not None else "another preemption needs its cells"
        if verdict in (Verdict.UNACCOUNTED, Verdict.PARTLY_UNACCOUNTED):
            return self._missing_cells(present, group, new)
        if verdict is Verdict.RESTORED:
            has_more = new is not None and self._lost_cells(new) < self._lost_cells(group)
            return "its cells are configured again" if has_more else "its VC has room for it again"
        if new is not None and new.lazy_preemptor not in (None, new.name):
            return f"its place in the VC is needed by {new.lazy_preemptor}"
        if new is not None and new.lazy_preemptor is None:
            return (
                "other pods of its job lose their place in the VC, and a queued job has that as a whole, or not at all"
            )
        return why_no_place(state, present, group)

    def _missing_cells(self, present: State, group: Group, new: Group | None) -> str:
        """The cells that are gone, by node."""
        cells = group.physical if new is None else group.physical[new.physical == NO_CELL]
        cells = cells[cells != NO_CELL]
        nodes = sorted({present.topology.node_names[node] for node in present.arrays.node[cells].tolist()})
        configured = self._successor.core.state.topology.node_index
        gone = [node for node in nodes if node not in configured]
        if gone:
            return f"node {', '.join(gone)} is not configured any more"
        return f"{len(cells)} of its cells on node {', '.join(nodes)} are not configured any more, or another job's"


def _loses_some(group: Group, new: Group) -> bool:
    """True if it loses a cell; it may get others back at the same time."""
    return bool(((group.physical != NO_CELL) & (new.physical == NO_CELL)).any())


def why_no_place(state: State, present: State, group: Group) -> str:
    """The reason why a guaranteed group that keeps its cells has no place in its VC in `state`."""
    vc = present.vc_names[group.vc]
    spec = state.spec.virtual_clusters.get(vc)
    if spec is None:
        return f"virtual cluster {vc} is not configured any more"
    pinned = group.spec.pinned_cell_id
    shapes = _shapes(present, group)
    if pinned:
        if pinned not in spec.pinned_cell_ids:
            return f"{vc} does not have the pinned cell {pinned} any more"
        return _why_not_pinned(state, pinned, shapes)
    lacking = [shape for shape in shapes if not _count(spec, shape)]
    if lacking:
        chain, _, had = lacking[0].partition(".")
        kept = [each.cell_type for each in spec.virtual_cells if each.cell_type.split(".")[0] == chain]
        if not kept:
            return f"{vc} is not guaranteed any {had.rpartition('.')[2]} in {chain} any more"
        now = ", ".join(each.rpartition(".")[2] for each in kept)
        return f"it runs on a promise of {had.rpartition('.')[2]} in {chain}, and {vc} is promised {now} there instead"
    if shapes:
        count = _count(spec, shapes[0])
        return (
            f"{vc} is guaranteed {count} {shapes[0].rpartition('.')[2]} in {shapes[0].split('.')[0]}; jobs of the "
            "same or a higher priority have them, or other guarantees need these very cells"
        )
    return "its place in the VC cannot be told from its annotations"


def _why_not_pinned(state: State, pinned: str, shapes: list[str]) -> str:
    topology = state.topology
    cell = topology.pinned_cells[pinned]
    chain, cell_type = topology.chain_of(cell).name, topology.cell_type(cell)
    if shapes and shapes[0] != f"{chain}.{cell_type}":
        was = " in ".join(reversed(shapes[0].split(".")))
        return f"the pinned cell {pinned} is now {cell_type} in {chain}, formerly {was}"
    return f"the pinned cell {pinned} is elsewhere, or its cells are in use"


def _shapes(present: State, group: Group) -> list[str]:
    """`chain.type` of the preassigned cells that a group is in, in the order of its cells."""
    info = bind_info_of_slot(present, group, 0)
    types = [each for member in info.members for pod in member for each in pod.preassigned_cell_types if each]
    return [f"{info.cell_chain}.{each}" for each in dict.fromkeys(types)]


def _count(spec: VirtualClusterSpec, shape: str) -> int:
    chain, cell_type = shape.split(".")
    return sum(
        cells.cell_count
        for cells in spec.virtual_cells
        if cells.cell_type.split(".")[0] == chain and cells.cell_type.split(".")[-1] == cell_type
    )


def news_of(affected: Affected) -> tuple[Reason, str] | None:
    """The message to the owners of its pods, if there is any."""
    why = affected.reason
    match affected.verdict:
        case Verdict.LAZILY_PREEMPTED:
            lost = f"this job has lost its place in the virtual cluster to a new configuration ({why})"
            goes_on = "it runs on, but opportunistic now: any guaranteed job may preempt it"
            return Reason.LAZY_PREEMPTED, f"{lost}; {goes_on}"
        case Verdict.UNACCOUNTED | Verdict.PARTLY_UNACCOUNTED:
            extent = "not all" if affected.verdict is Verdict.PARTLY_UNACCOUNTED else "none"
            text = f"this job runs on, but {extent} of its cells are configured any more ({why})"
            return Reason.UNACCOUNTED, text
        case Verdict.RESTORED:
            return (
                Reason.RESTORED,
                f"this job has back what an earlier configuration took from it ({why})",
            )
        case Verdict.PREEMPTION_CANCELLED:
            return None


TRIED_ALIKE = 16
"""Jobs that ask for the same and are tried; when so many could start, no more are looked at."""

_Shape = tuple[tuple[PodSpec, ...], tuple[bytes, ...]]

COULD_START = "couldStart"
NEVER_STARTS = "neverStarts"
WAITS = "waits"


class Waiting(msgspec.Struct, frozen=True):
    """A job that waits, or a part of one: its requests, in parts that start together, or why it cannot be asked for.

    `rules` says which rules refuse which nodes, "" for none. `offered` are the nodes that kube-scheduler offers now.
    `job` is its job in lists.
    """

    name: str
    vc: str
    pods: tuple[str, ...]
    parts: tuple[Asking, ...] = ()
    offered: frozenset[str] | None = None
    rules: str = ""
    why: str = ""
    is_refused: bool = False
    job: str = ""

    @property
    def requests(self) -> tuple[PodRequest, ...]:
        """Those of its parts."""
        return tuple(one.request for one in self.parts)


def note_waiting(found: dict[str, Waiting], cache: ClusterCache, records: Iterable[PodRecord]) -> None:
    """Enter the jobs of these pods by name, but for pods that do not wait any more. Under the lock.

    Cost: a look at each pod, and a plan for each gang that has none yet.
    """
    for record in records:
        if record.state is not PodState.WAITING or cache.pods.get(record.uid) is not record:
            continue
        request = record.request
        if not record.is_of_dialect:
            if request is not None:
                name = request.spec.group.name
                known = found.get(name)
                if known is None:
                    known = _waiting(name, cache, cache.requests(record, request))
                found[name] = replace(known, pods=(*known.pods, record.key), job=record.shown_job)
            continue
        ask = record.ask
        vc = ask.virtual_cluster if ask is not None else ""
        try:
            step = cache.rounds.step(record)
        except UserError as error:
            found[record.key] = Waiting(
                record.key, vc, (record.key,), why=error.message, is_refused=True, job=record.shown_job
            )
            continue
        if isinstance(step, Round):
            job = _waiting(step.name, cache, cache.requests(record, step))
            pods = tuple(member.key for member in step.members)
            found[step.name] = replace(job, vc=vc, pods=pods, job=record.shown_job)
        elif not isinstance(step, Alone):
            found[record.key] = Waiting(record.key, vc, (record.key,), why=step.reason, job=record.shown_job)
        elif step.request is not None:
            job = _waiting(record.key, cache, cache.requests(record, step.request))
            found[record.key] = replace(job, vc=vc, pods=(record.key,), job=record.shown_job)


def _waiting(name: str, cache: ClusterCache, parts: Sequence[tuple[PodRequest, Sequence[PodRecord]]]) -> Waiting:
    """A job of these parts, each with the pods of its slots; it has no pods yet. Cost O(slots x nodes)."""
    core, offers = cache.core, cache.offers
    nodes = core.state.topology.node_names if core is not None else ()
    rules = next(filter(None, (offers.refusals(one) for _, slots in parts for one in slots[:1])), "")
    latest = next((one.offer.latest for _, slots in parts for one in slots[:1]), None)
    offered = frozenset(nodes[at] for at in np.flatnonzero(latest.mask).tolist()) if latest is not None else None
    asking = tuple(offers.asking(Asked(request), slots) for request, slots in parts)
    return Waiting(name, asking[0].request.spec.virtual_cluster, (), asking, offered, rules)


def in_turn(found: Mapping[str, Waiting]) -> list[Waiting]:
    """The jobs by priority, highest first."""
    return sorted(found.values(), key=_turn)


def refused_by(access: AccessRules, jobs: Iterable[Waiting]) -> list[Waiting]:
    """The jobs; the ones that rules of access refuse are marked. Rules by labels of namespaces refuse none."""
    return [job if access.needs_labels else _allowed(access, job) for job in jobs]


def _allowed(access: AccessRules, job: Waiting) -> Waiting:
    namespaces = dict.fromkeys(pod.partition("/")[0] for pod in job.pods)
    for namespace, request in product(namespaces, job.requests):
        spec = request.spec
        if why := access.refusal(namespace, {}, spec.virtual_cluster, spec.priority):
            return replace(job, why=why, is_refused=True)
    return job


def outcomes(jobs: Sequence[Waiting], state: State, nodes: Sequence[str]) -> list[ReportedJob]:
    """An entry of a report for each job, tried on `state` in turn, each with the earlier ones in place.

    `nodes` are those of the configuration in force, which `Asking.fit` is of. Any other may take any pod.
    Nothing changes. Cost: a search for each of up to TRIED_ALIKE jobs that ask for the same, and another one in an
    empty cluster if it cannot start.
    """
    alike: dict[_Shape, int] = {}
    tried = []
    for job in jobs:
        wanted = _wanted(job)
        alike[wanted] = alike.get(wanted, 0) + 1
        if job.requests and not job.is_refused and alike[wanted] <= TRIED_ALIKE:
            tried.append(job)
    places = {name: index for index, name in enumerate(nodes)}
    here = np.fromiter((places.get(name, -1) for name in state.topology.node_names), np.int64)
    bundles = [[_asked(part, here, len(nodes)) for part in job.parts] for job in tried]
    found = dict(zip((job.name for job in tried), Scenario(state).plan(bundles), strict=True))
    never = _Never(state.spec)
    return [
        ReportedJob(
            job.name,
            job.vc,
            _priority(job) if job.vc else None,
            [*job.pods],
            *_verdict(job, found.get(job.name), never),
            job.job,
        )
        for job in jobs
    ]


class _Never:
    """Tries jobs in an empty cluster, each kind of job once."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._spec = spec
        self._state: State | None = None
        self._known: dict[_Shape, str] = {}

    def why(self, job: Waiting) -> str:
        """The reason why a job can never start, "" if it can."""
        wanted = _wanted(job)
        if wanted not in self._known:
            if self._state is None:
                self._state = idle_state(self._spec)
            (found,) = Scenario(self._state).plan([[Asked(request) for request in job.requests]])
            self._known[wanted] = _obstacle(found)
        return self._known[wanted]


def _verdict(job: Waiting, found: list[Decision] | UserError | None, never: _Never) -> tuple[str, str]:
    if job.is_refused or not job.requests:
        return (NEVER_STARTS if job.is_refused else WAITS), job.why
    if isinstance(found, UserError):
        return NEVER_STARTS, found.message
    if found is not None and all(isinstance(decision, Bind | Preempt) for decision in found):
        leaving = sum(len(pods) for one in found if isinstance(one, Preempt) for pods in one.victims_by_node.values())
        victims = "1 pod has" if leaving == 1 else f"{leaving} pods have"
        return COULD_START, f"{victims} to leave first" if leaving else ""
    why = never.why(job)
    if why:
        return NEVER_STARTS, why
    if found is None:
        return WAITS, "others that ask for the same come first"
    return WAITS, job.rules if job.rules.startswith(NO_NODE) else _joined(_obstacle(found), job.rules)


def _asked(part: Asking, here: LongArray, count: int) -> Asked:
    """The question about a part on other nodes: `here` has their places among the `count` present ones, -1 for none."""
    if not _is_limited(part) or part.fit.shape[1] != count:  # nodes of a moment ago
        return Asked(part.request)
    rows = np.where(here >= 0, _rows(part)[:, here], True)
    return Asked(part.request, offer=Offer(rows, np.zeros_like(rows)))


def _rows(part: Asking) -> BoolArray:
    """The nodes that could take the pod of each slot."""
    slots = count_pods(part.request.spec.group.members)
    return np.broadcast_to(part.fit, (slots, part.fit.shape[1]))


def _is_limited(part: Asking) -> bool:
    """Do rules of Kubernetes that hived has to heed keep any of its pods from any node?"""
    return not part.request.spec.ignore_suggested_nodes and not bool(part.fit.all())


def _joined(obstacle: str, rules: str) -> str:
    return f"{obstacle}; {rules}" if rules else obstacle


def _obstacle(found: list[Decision] | UserError) -> str:
    if isinstance(found, UserError):
        return found.message
    waits: Iterator[str] = (
        one.reason or "no cell chain could be tried" for one in found if not isinstance(one, Bind | Preempt | Applied)
    )
    return next(waits, "")


def _wanted(job: Waiting) -> _Shape:
    """Equal for jobs that ask for the same, and that the same nodes could take."""
    specs = tuple(request.spec.of_group("") for request in job.requests)
    return specs, tuple(np.packbits(_rows(one)).tobytes() if _is_limited(one) else b"" for one in job.parts)


def _turn(job: Waiting) -> tuple[int, str]:
    return -_priority(job), job.name


def _priority(job: Waiting) -> int:
    return max((request.spec.priority for request in job.requests), default=0)


CELLS = "physicalCluster.physicalCells"
EACH = 20
"""Names that get a line each, if another name was likely meant."""

NAMED = 8
"""Names in one line."""


class Judged(msgspec.Struct, frozen=True):
    """Refusals and warnings about the names of nodes."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def judge(old: Configuration, new: Configuration, cluster: Collection[str]) -> Judged:
    """The names of `new`, which is to replace `old`; `cluster` has the names of its nodes, none where they are
    unknown. Its other warnings come first. Cost O(nodes).
    """
    names, nodes = new.node_names, frozenset(cluster)
    likely = Likely(nodes - names.written.keys())
    impossible = [name for name in names.written if not is_possible(name)]
    refused = [name for name in impossible if name not in old.node_names.written]
    refusals = [
        Mistake(
            names.file, names.written[name], CELLS, f"node name {shorten(name)}", VALID_NAME,
            likely.meant_by(name) or made_possible(name),
        )
        for name in refused
    ]  # fmt: skip
    if nodes:
        refusals += _foreign(old, new, nodes)
    lines = {names.written[name] for name in refused}
    joined = {each.line for each in names.generated if nodes.issuperset(each.names())} if nodes else set()
    warnings = [
        each
        for each in new.warnings
        if not (each.expected == VALID_NAME and each.line in lines)
        and not (each.expected == WRITTEN_NAMES and each.line in joined)
    ]
    if nodes:
        warnings += _unknown(names, nodes, likely)
    return Judged(tuple(map(str, refusals)), tuple(map(str, warnings)))


def _foreign(old: Configuration, new: Configuration, nodes: Collection[str]) -> Iterator[Mistake]:
    """A mistake where no node of the file is in the cluster, though nodes of the present file are."""
    if any(name in nodes for name in new.node_names.all()):
        return
    present = sum(name in nodes for name in old.node_names.all())
    if present:
        found = "no node that the cluster has"
        expected = f"at least one: of the configuration in force, it has {present} (is this that of another cluster?)"
        yield Mistake(new.node_names.file, 0, CELLS, found, expected)


def _unknown(names: NodeNames, nodes: Collection[str], likely: Likely) -> Iterator[Mistake]:
    """Warnings of nodes that the cluster does not have, likely misspellings first."""
    unknown = [
        name for name in names.written if name not in nodes and is_possible(name) and not name.startswith(PLACEHOLDER)
    ]
    others = []
    told = 0
    for name in unknown:
        meant = likely.meant_by(name) if told < EACH else ""
        if not meant:
            others.append(name)
            continue
        told += 1
        found = f"node {shorten(name)}, which the cluster does not have"
        yield Mistake(names.file, names.written[name], CELLS, found, "one of its nodes", meant, is_warning=True)
    if others:
        shown = ", ".join(others[:NAMED]) + (f" and {len(others) - NAMED:,} more" if len(others) > NAMED else "")
        count = f"{len(others):,} nodes that the cluster does" if len(others) > 1 else "a node that the cluster does"
        found = f"{count} not have: {shown}"
        expected = "each to join later, as its cells are bad until then"
        yield Mistake(names.file, names.written[others[0]], CELLS, found, expected, is_warning=True)


def bad_nodes(state: State) -> list[BadCells]:
    """The bad nodes of each cell type at node level that has some, in file order."""
    cells, topology = state.cells, state.topology
    found = []
    for chain in topology.chains:
        slot = int(topology.arrays.level_offset[topology.chain_index[chain.name]]) + chain.node_level
        first = int(topology.arrays.level_base[slot])
        nodes = topology.arrays.node[first : first + int(topology.arrays.level_size[slot])]
        bad = nodes[cells.node_bad[nodes] != 0]
        if bad.size:
            names = [topology.node_names[node] for node in bad[:NAMED].tolist()]
            path = ".".join(dict.fromkeys((chain.name, chain.types[chain.node_level - 1])))
            found.append(BadCells(path, int(bad.size), int(nodes.size), names))
    return found
