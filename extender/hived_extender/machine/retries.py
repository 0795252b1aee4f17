"""Retries of waiting pods on the core, for changes that kube-scheduler does not see.

kube-scheduler retries a refused pod on cluster events, but not if only hived knows of the change (a reservation ended,
a new leader has another configuration), or if it asked just before hived's own watch told. So a moment after any change
that makes room, pods not asked about since are tried on the core, and woken if they could run. A try costs
microseconds; a needless wake-up costs kube-scheduler a cycle and the API server several writes. New pods that
kube-scheduler has not asked about are tried too, as its own filters may leave them no node until others make room (rule
5.13). Pods that could run are retried after others got nodes: theirs may be among them (rule 5.14).
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable

from hived.values.errors import HivedError
from hived_extender.kube.client import KubeError
from hived_extender.machine.effects import Outbox, TouchPod
from hived_extender.machine.pods import PodName, PodRecord, PodTable

TIMER = "retries"
SWEEP = TIMER, "sweep"
OVERTAKEN = TIMER, "overtaken"

SLICE = 4
"""Pods that are tried on the core at once, in half a millisecond."""

RETRY_S = 2.0
"""Until pods are tried again that could not be woken: the API server may be away."""

OVERTAKEN_S = 5.0
"""Until pods are tried again that could run, after others got their nodes. There may be thousands of them."""

UNASKED = -1


class Retries:
    """Waiting pods to try again, until settled: one that was woken may be overtaken."""

    def __init__(self, outbox: Outbox, delay_s: float) -> None:
        """`delay_s` is the time for kube-scheduler to ask by itself after a change that made room."""
        self._outbox = outbox
        self._delay_s = delay_s
        self._refusals: dict[str, int] = {}  # uid -> how many changes there had been when it was last refused or tried
        self.change_count = 0
        """The number of times that something has made room."""
        self._fitting: set[str] = set()  # those that could run when they were tried last
        self._being_tried: set[str] = set()  # less those that something else was heard of since
        self._backlog: OrderedDict[str, None] = OrderedDict()
        self._slice_began = 0

    @property
    def has_backlog(self) -> bool:
        """True if there are pods to try now."""
        return bool(self._backlog)

    def appeared(self, uid: str) -> None:
        """Add a waiting pod about which kube-scheduler has not asked."""
        self._note(uid, UNASKED)
        self._sweep_in(self._delay_s)

    def not_woken(self, uid: str) -> None:
        """Add a pod that could run and could not be woken."""
        self._note(uid, UNASKED)
        self._sweep_in(RETRY_S)

    def refused(self, uid: str) -> None:
        """Add a refused pod."""
        self._note(uid, self.change_count)

    def settled(self, uid: str) -> None:
        """Remove a pod that has its node or is gone."""
        self._refusals.pop(uid, None)
        self._being_tried.discard(uid)
        self._fitting.discard(uid)
        if self._fitting and OVERTAKEN not in self._outbox.timers:
            self._outbox.wake_in(OVERTAKEN, OVERTAKEN_S)

    def room_made(self) -> None:
        """Note a change that may let a refused pod in."""
        self.change_count += 1
        if self._refusals:
            self._sweep_in(self._delay_s)

    def forget_all(self) -> None:
        """Drop all pods at the end of a term."""
        for pods in (self._refusals, self._being_tried, self._fitting, self._backlog):
            pods.clear()

    def time_came(self, _: str, what: str) -> None:
        """Queue pods refused before the last change, or that may be overtaken."""
        are_overtaken = what == OVERTAKEN[1]
        for uid, seen in self._refusals.items():
            if seen < self.change_count or (are_overtaken and uid in self._fitting):
                self._backlog.setdefault(uid)

    def take_slice(self) -> list[str]:
        """The next pods to try; `tried` must follow."""
        uids: list[str] = []
        while self._backlog and len(uids) < SLICE:
            uid, _ = self._backlog.popitem(last=False)
            if uid in self._refusals:
                uids.append(uid)
        self._being_tried, self._slice_began = set(uids), self.change_count
        return uids

    def add_alike(self, uids: Iterable[str]) -> None:
        """Add pods that share the fate of one in the slice."""
        for uid in uids:
            self._backlog.pop(uid, None)
            if uid in self._refusals:
                self._being_tried.add(uid)

    def tried(self, fitting: Collection[str]) -> None:
        """End a slice. Pods in `fitting` could run; others may have to leave for them."""
        for uid in self._being_tried:
            self._refusals[uid] = self._slice_began  # what it changed itself, others of the slice may not have seen
        self._fitting |= self._being_tried & set(fitting)
        self._being_tried.clear()

    def _note(self, uid: str, seen: int) -> None:
        self._refusals[uid] = seen
        self._being_tried.discard(uid)
        self._fitting.discard(uid)

    def _sweep_in(self, delay_s: float) -> None:
        timers, at = self._outbox.timers, self._outbox.now.at + delay_s
        if at < timers.due_of(SWEEP):
            timers.set(SWEEP, at)


AT_ONCE = 16

SILENT_S = 1.0
"""After a wake without an answer, others are not tried: thousands of them would keep the service from its work."""


class Wakes:
    """Pods to touch so that kube-scheduler tries them. One that fails and still waits is retried later."""

    def __init__(self, outbox: Outbox, pods: PodTable, retries: Retries) -> None:
        self._outbox = outbox
        self._pods = pods
        self._retries = retries
        self._ready: dict[str, PodName] = {}
        self._under_way = 0
        self._silent_until = 0.0

    def ask(self, record: PodRecord) -> None:
        """Wake kube-scheduler for a pod, soon."""
        if self._outbox.now.at < self._silent_until:
            self._failed(record.uid)
            return
        self._ready[record.uid] = record.named
        self._send_due()

    def wrote(self, effect: TouchPod, error: HivedError | None) -> None:
        """Take the result of a touch."""
        self._under_way -= 1
        if error is not None:
            self._failed(effect.pod.uid)
        if isinstance(error, KubeError) and error.status == 0:
            self._silent_until = self._outbox.now.at + SILENT_S
            waiting, self._ready = self._ready, {}
            for uid in waiting:
                self._failed(uid)
        self._send_due()

    def forget_all(self) -> None:
        """Drop all pods at the end of a term."""
        self._ready.clear()

    def _send_due(self) -> None:
        while self._ready and self._under_way < AT_ONCE:
            self._under_way += 1
            self._outbox.send(TouchPod(self._ready.pop(next(iter(self._ready)))))

    def _failed(self, uid: str) -> None:
        record = self._pods.get(uid)
        if record is not None and not record.state.has_node:
            record.is_asked = True
            self._retries.not_woken(uid)
