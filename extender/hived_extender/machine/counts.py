"""Numbers for `/metrics` and the history: gauges from the core's state, starts, preemptions and latest ends of pods.

Not thread-safe.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from hived.cells.state import NO_TIME, Group, GroupState, State
from hived.cells.topology import NO_CELL
from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, PodRequest
from hived_extender.jobs.job import JobName
from hived_extender.jobs.outcomes import NO_OUTCOME, EvictionName, Outcome, outcome_of
from hived_extender.jobs.progress import read_progress, read_time, seconds_of
from hived_extender.jobs.wire import Pod
from hived_extender.kube.metrics import Gauges
from hived_extender.machine.cluster_cache import CORDONED, ClusterCache
from hived_extender.machine.devices.guarantees import count_short_leaf_cells, shared_shortages
from hived_extender.machine.effects import Outbox
from hived_extender.machine.moves import Moves
from hived_extender.machine.pods import PodRecord, PodState
from hived_extender.machine.preemptions import Preemptions
from hived_extender.machine.stimuli import PodGone, PodSeen


def gauges_of(pods: Mapping[str, int], state: State | None, lost_devices: Mapping[tuple[str, str], int]) -> Gauges:
    """All gauges that need no count by group, for a replica with or without a state. Cost O(cells), in numpy."""
    return Gauges(
        pods={**pods, "Preempting": 0},
        groups={},
        leaf_cells=count_leaf_cells(state) if state else {},
        short_leaf_cells=count_short_leaf_cells(state) if state else {},
        shared_short_cells=count_shared_short_cells(state) if state else {},
        lost_devices=lost_devices,
        bad_node_count=int(state.cells.node_bad.sum()) if state else 0,
        is_ready=False,
        is_healthy=False,
    )


def with_groups(gauges: Gauges, groups: Sequence[Group]) -> Gauges:
    """Add counts of groups, and tell waiting from preempting pods."""
    waiting = gauges.pods["Waiting"]
    preempting = min(sum(len(group.preempting_pods) for group in groups), waiting)
    pods = {**gauges.pods, "Waiting": waiting - preempting, "Preempting": preempting}
    counts = Counter(group.state for group in groups)
    return replace(gauges, pods=pods, groups={state.value: counts[state] for state in GroupState})


def count_leaf_cells(state: State) -> dict[tuple[str, str], int]:
    """Leaf cells by VC and use ("used", "free"); opportunistic pods count for no VC.

    Cost O(preassigned cells), in numpy.
    """
    topology = state.topology
    counts = {(vc, use): 0 for vc in topology.vc_names for use in ("used", "free")}
    for forest in topology.forests:
        if forest.vc == NO_CELL:
            continue
        vc = topology.vc_names[forest.vc]
        first = forest.bases[forest.top_level]
        used = int(state.cells.used[first : first + forest.tree_count].sum())
        total = forest.tree_count * topology.chains[forest.chain].leaf_count(forest.top_level)
        counts[vc, "used"] += used
        counts[vc, "free"] += total - used
    return counts


def count_shared_short_cells(state: State) -> dict[tuple[str, str], int]:
    """By chain and cell type, the cells promised to several VCs together that are lost.

    Cost O(chain levels x VCs).
    """
    return {
        (shared.chain, cell_type): count
        for shared in shared_shortages(state)
        for cell_type, count in shared.cells.items()
    }


MS_PER_HOUR = 3_600_000

MOST_ENDS = 4096
"""Ends that are remembered for those who look now and then; those of victims, and all, are counted apart."""


class PodEnd(NamedTuple):
    """The end of a pod. `number` grows; moments in seconds since 1970, `started_s` None if unknown.

    A pod that `is_preempted` left for the job `by` with pods in `by_namespace`, "" if unknown. `owner` is its job
    object, None if it has none. One without cells has no `leaves`. `why` is known of pods that others ended,
    and `outcome` is what its containers said. One that `is_deleted` did not end by itself. `was_led`: this replica led,
    so it knows whether the pod was preempted. `made_from` is as in `PodRecord`. It was told to leave at `told_s`, None
    if nobody has told it so.
    """

    number: int
    pod: str
    job: str
    namespace: str
    group: str
    vc: str
    priority: int
    leaves: int
    started_s: float | None
    ended_s: float
    is_preempted: bool = False
    by: str = ""
    by_namespace: str = ""
    user: str = ""
    owner: JobName | None = None
    by_priority: int | None = None
    uid: str = ""
    node: str = ""
    created_s: float | None = None
    outcome: Outcome = NO_OUTCOME
    why: EvictionName = ""
    is_deleted: bool = False
    was_led: bool = True
    request: PodRequest | None = None
    made_from: str = ""
    told_s: float | None = None

    @property
    def left_s(self) -> float:
        """The moment from which its controller may make another pod in its place."""
        return self.ended_s if self.told_s is None else min(self.told_s, self.ended_s)


News = TypeVar("News", PodSeen, PodGone)


class _Loss(NamedTuple):
    """The loss of a VC by the preemption of a pod."""

    vc: str
    gpu_hours: float


class Tallies:
    """Counts starts and preemptions of pods by VC, and remembers the latest ends."""

    def __init__(self, cache: ClusterCache, outbox: Outbox, preemptions: Preemptions, moves: Moves) -> None:
        self._cache, self._outbox, self._preemptions, self._moves = cache, outbox, preemptions, moves
        self._lost: deque[PodEnd] = deque(maxlen=MOST_ENDS)
        self._ends: deque[PodEnd] = deque(maxlen=MOST_ENDS)
        self._end_count = 0
        self._awaited: dict[str, PodEnd] = {}
        self._on_lost_nodes: set[str] = (
            set()
        )  # uids of pods that leave since their node was lost, though it may be back

    @property
    def lost(self) -> tuple[PodEnd, ...]:
        """The latest preempted pods, oldest first. Cost O(MOST_ENDS)."""
        return tuple(self._lost)

    @property
    def ends(self) -> tuple[PodEnd, ...]:
        """The latest ends of pods, oldest first, those of other leaders' terms too. Cost O(MOST_ENDS)."""
        return tuple(self._ends)

    def await_ends(self, pods: Iterable[PodEnd]) -> None:
        """Pods that had not ended when an earlier process did: if they have by now, that is an end as well."""
        self._awaited.update((pod.uid, pod) for pod in pods)

    def handlers(
        self, pod_seen: Callable[[PodSeen], None], pod_gone: Callable[[PodGone], None]
    ) -> dict[type[Any], Callable[[Any], None]]:
        """Wrap the handlers of pod news, to count starts and ends of victims."""
        return {PodSeen: self._counting(pod_seen), PodGone: self._counting(pod_gone)}

    def _counting(self, handle: Callable[[News], None]) -> Callable[[News], None]:
        def counted(news: News) -> None:
            uid = news.uid if isinstance(news, PodGone) else news.pod.metadata.uid
            before = self._cache.pods.get(uid)
            was_binding, loss = before is not None and before.state is PodState.BINDING, self._loss_of(before)
            end = self._end_of(before, news, is_preempted=loss is not None)
            awaited = self._awaited.pop(uid, None) if self._awaited else None
            if loss is None and self._cache.jobs.is_reclaimed(uid):  # its queue says what became of the job
                loss = self._loss_of_work(before)
            handle(news)
            record = self._cache.pods.get(uid)
            if record is None:
                self._on_lost_nodes.discard(uid)
            elif record.seen.evicted == "tainted" and self._is_node_lost(record.place.node):
                self._on_lost_nodes.add(uid)
            if record is None and loss is not None:
                self._outbox.metrics.count_preempted(loss.vc, loss.gpu_hours)
            if record is None and end is not None:
                self._note(end)
            elif record is None and awaited is not None and isinstance(news, PodSeen) and news.pod.has_completed:
                self._note(self._late(awaited, news.pod))
            elif record is not None and was_binding and record.state is PodState.BOUND:
                self._count_start(record)

        return counted

    def _note(self, end: PodEnd) -> None:
        self._end_count += 1
        end = end._replace(number=self._end_count)
        self._ends.append(end)
        if end.is_preempted and end.leaves:
            self._lost.append(end)

    def _end_of(self, record: PodRecord | None, news: PodSeen | PodGone, *, is_preempted: bool) -> PodEnd | None:
        """The end of a pod by this news; None if it goes on."""
        if record is None or (isinstance(news, PodSeen) and not news.pod.is_over):
            return None
        pod = news.pod if isinstance(news, PodSeen) else None
        now_s, info = self._outbox.now.wall, record.place.info
        outcome = NO_OUTCOME if pod is None or record.seen.is_done else outcome_of(pod)
        started_s, leaves_s = record.progress.times.started_s, seconds_of(record.seen.leaves_at)
        if pod is not None and started_s is None:  # it may have run so shortly that nobody saw it run
            started_s = read_progress(pod, now_s).times.started_s
        by = self._preemptions.preempted_for(record.uid) if is_preempted else ("", "", None)
        return PodEnd(
            0, record.key, record.job, record.namespace,
            record.request.spec.group.name if record.request is not None else "", *record.claim,
            len(info.leaf_cell_indices) if info is not None else 0, started_s, now_s, is_preempted,
            *by[:2], record.user, record.owner, by[2],
            uid=record.uid, node=record.place.node, created_s=seconds_of(record.seen.created), outcome=outcome,
            why=self._why(record, outcome, is_preempted=is_preempted),
            is_deleted=not record.seen.is_done and (pod is None or pod.metadata.deletion_timestamp is not None),
            was_led=self._cache.core is not None, request=record.request, made_from=record.made_from,
            told_s=None if leaves_s is None else leaves_s - record.seen.leaving_s,
        )  # fmt: skip

    def _late(self, awaited: PodEnd, pod: Pod) -> PodEnd:
        """The end of a pod that ended while no process of ours watched, by its own status."""
        outcome = outcome_of(pod)
        ended_s = self._outbox.now.wall if outcome.at_s is None else outcome.at_s
        is_deleted = pod.metadata.deletion_timestamp is not None
        return awaited._replace(
            ended_s=ended_s,
            outcome=outcome,
            why=outcome.evicted,
            is_deleted=is_deleted,
            node=pod.node,
            created_s=seconds_of(pod.metadata.created or ""),
        )

    def _why(self, record: PodRecord, outcome: Outcome, *, is_preempted: bool) -> EvictionName:
        """Return why others ended a pod (rule 35.3), "" if none did, or nothing says so."""
        core = self._cache.core
        if self._moves.is_moving(record.uid):
            return "move"
        if is_preempted:
            group = core.state.groups.get(record.request.spec.group.name) if core and record.request else None
            is_lent = record.claim[1] < MIN_GUARANTEED_PRIORITY if group is None else group.virtual is None
            return "reclaim" if is_lent else "priority"
        why, node = outcome.evicted or record.seen.evicted, record.place.node
        is_lost = why == "tainted" and (record.uid in self._on_lost_nodes or self._is_node_lost(node))
        is_lost = is_lost or (bool(node) and not self._cache.nodes.exists(node))
        return "node-lost" if is_lost and not outcome.has_succeeded else why

    def _is_node_lost(self, node: str) -> bool:
        """Is a node not ready, or gone? One that is cordoned is neither."""
        nodes = self._cache.nodes
        return bool(node) and node not in nodes.healthy and not nodes.trouble(node)[0].startswith(CORDONED)

    def _count_start(self, record: PodRecord) -> None:
        """Count a bound pod, and its wait since creation by the API server's clock."""
        try:
            created_s = read_time(record.seen.created)
        except UserError:
            return
        self._outbox.metrics.count_start(record.claim[0], max(self._outbox.now.wall - created_s, 0.0))

    def _loss_of(self, record: PodRecord | None) -> _Loss | None:
        """The loss if this pod ends now; None if it ends by itself.

        Evicted pods, and pods whose cells others reserve, are lost. Work since the group's last checkpoint counts, as
        victims are chosen by it (rule 8.12); none if the start is unknown.
        """
        core = self._cache.core
        if core is None or record is None or record.request is None:
            return None
        if not self._preemptions.has_evicted(record.uid) and not core.is_victim(record.request):
            return None
        return self._loss_of_work(record)

    def _loss_of_work(self, record: PodRecord | None) -> _Loss | None:
        """The loss of the work of a pod; None if it has no cells."""
        core = self._cache.core
        if core is None or record is None or record.request is None or record.place.info is None:
            return None
        group = core.state.groups.get(record.request.spec.group.name)
        since_ms = group.since_ms if group is not None else NO_TIME
        lost_ms = 0.0 if since_ms == NO_TIME else max(self._outbox.now.wall * 1000 - since_ms, 0.0)
        return _Loss(record.claim[0], len(record.place.info.leaf_cell_indices) * lost_ms / MS_PER_HOUR)
