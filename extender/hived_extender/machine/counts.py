"""Numbers for `/metrics` and the history: gauges from the core's state, starts, preemptions and latest ends of pods.

Not thread-safe.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from hived.cells.state import NO_TIME, Group, GroupState, State
from hived.cells.topology import NO_CELL
from hived.values.errors import UserError
from hived_extender.jobs.progress import read_progress, read_time
from hived_extender.kube.metrics import Gauges
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.devices.guarantees import shared_shortages
from hived_extender.machine.effects import Outbox
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


def count_short_leaf_cells(state: State) -> dict[str, int]:
    """By VC, the guaranteed leaf cells that are bound to bad ones.

    Cost O(virtual leaf cells), in numpy.
    """
    topology = state.topology
    counts = dict.fromkeys(topology.vc_names, 0)
    for forest in topology.forests:
        if forest.vc != NO_CELL:
            first = forest.bases[1]
            count = forest.tree_count * topology.chains[forest.chain].leaf_count(forest.top_level)
            counts[topology.vc_names[forest.vc]] += int(state.cells.bad[first : first + count].sum())
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
    """The end of a pod with cells. `number` grows; moments in seconds since 1970, `started_s` None if unknown.

    A pod that `is_preempted` left for the job `by` with pods in `by_namespace`, "" if unknown.
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


News = TypeVar("News", PodSeen, PodGone)


class _Loss(NamedTuple):
    """The loss of a VC by the preemption of a pod."""

    vc: str
    gpu_hours: float


class Tallies:
    """Counts starts and preemptions of pods by VC, and remembers the latest ends."""

    def __init__(self, cache: ClusterCache, outbox: Outbox, preemptions: Preemptions) -> None:
        self._cache, self._outbox, self._preemptions = cache, outbox, preemptions
        self._lost: deque[PodEnd] = deque(maxlen=MOST_ENDS)
        self._ends: deque[PodEnd] = deque(maxlen=MOST_ENDS)
        self._end_count = 0

    @property
    def lost(self) -> tuple[PodEnd, ...]:
        """The latest preempted pods, oldest first. Cost O(MOST_ENDS)."""
        return tuple(self._lost)

    @property
    def ends(self) -> tuple[PodEnd, ...]:
        """The latest ends of pods with cells, oldest first. Cost O(MOST_ENDS)."""
        return tuple(self._ends)

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
            handle(news)
            record = self._cache.pods.get(uid)
            if record is None and loss is not None:
                self._outbox.metrics.count_preempted(loss.vc, loss.gpu_hours)
            if record is None and end is not None:
                self._note(end)
            elif record is not None and was_binding and record.state is PodState.BOUND:
                self._count_start(record)

        return counted

    def _note(self, end: PodEnd) -> None:
        self._end_count += 1
        end = end._replace(number=self._end_count)
        self._ends.append(end)
        if end.is_preempted:
            self._lost.append(end)

    def _end_of(self, record: PodRecord | None, news: PodSeen | PodGone, *, is_preempted: bool) -> PodEnd | None:
        """The end of a pod by this news; None if it goes on or has no cells."""
        if isinstance(news, PodSeen) and not news.pod.is_over:
            return None
        if self._cache.core is None or record is None or record.request is None or record.place.info is None:
            return None
        started_s, now_s = record.progress.times.started_s, self._outbox.now.wall
        if isinstance(news, PodSeen) and started_s is None:  # it may have run so shortly that nobody saw it run
            started_s = read_progress(news.pod, now_s).times.started_s
        by = self._preemptions.preempted_for(record.uid) if is_preempted else ("", "")
        return PodEnd(
            0, record.key, record.job, record.namespace, record.request.spec.group.name, *record.claim,
            len(record.place.info.leaf_cell_indices), started_s, now_s, is_preempted,
            *by, self._cache.nodes.user_of(record),
        )  # fmt: skip

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
        if core is None or record is None or record.request is None or record.place.info is None:
            return None
        if not self._preemptions.has_evicted(record.uid) and not core.is_victim(record.request):
            return None
        group = core.state.groups.get(record.request.spec.group.name)
        since_ms = group.since_ms if group is not None else NO_TIME
        lost_ms = 0.0 if since_ms == NO_TIME else max(self._outbox.now.wall * 1000 - since_ms, 0.0)
        return _Loss(record.claim[0], len(record.place.info.leaf_cell_indices) * lost_ms / MS_PER_HOUR)
