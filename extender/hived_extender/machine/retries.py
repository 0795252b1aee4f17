"""Retries of waiting pods on the core, although kube-scheduler does not ask about them.

kube-scheduler tries a refused pod again on an event of the cluster that may matter to it. It has no reason to when only
hived knows of the change: a reservation ended, or a replica began to lead with another configuration. Nor does it if it
asked about the pod just before hived's own watch told of the same change. So pods are tried on the core a moment after
every change that makes room, unless they have been asked about since. Pods that could run are woken. That costs
microseconds for a pod that still has to wait. Waking it for nothing would cost kube-scheduler a whole cycle and the API
server several writes.

A new pod is tried too if kube-scheduler has not asked about it by then: its own filters may leave the pod no node, and
only the service can know that others are to make room. For the same reason a pod that could run, and has not been asked
about since, is tried again after others got their nodes: its own may be among them.

Having kube-scheduler try a pod again, by a change of the pod: the event that it needs.
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
    """Remembers every pod that waits, until it is settled: one that was woken may be overtaken."""

    def __init__(self, outbox: Outbox, delay_s: float) -> None:
        """`delay_s` is how long kube-scheduler has, after a change that made room, to ask again by itself."""
        self._outbox = outbox
        self._delay_s = delay_s
        self._refusals: dict[str, int] = {}  # uid -> how many changes there had been when it was last refused or tried
        self.change_count = 0
        """How often something has made room."""
        self._fitting: set[str] = set()  # those that could run when they were tried last
        self._being_tried: set[str] = set()  # less those that something else was heard of since
        self._backlog: OrderedDict[str, None] = OrderedDict()
        self._slice_began = 0

    @property
    def has_backlog(self) -> bool:
        """Are there pods to be tried now?"""
        return bool(self._backlog)

    def appeared(self, uid: str) -> None:
        """A pod waits that kube-scheduler has not asked about yet."""
        self._note(uid, UNASKED)
        self._sweep_in(self._delay_s)

    def not_woken(self, uid: str) -> None:
        """A pod that could run could not be woken."""
        self._note(uid, UNASKED)
        self._sweep_in(RETRY_S)

    def refused(self, uid: str) -> None:
        """A pod was told to wait."""
        self._note(uid, self.change_count)

    def settled(self, uid: str) -> None:
        """A pod has its node, or is gone."""
        self._refusals.pop(uid, None)
        self._being_tried.discard(uid)
        self._fitting.discard(uid)
        if self._fitting and OVERTAKEN not in self._outbox.timers:
            self._outbox.wake_in(OVERTAKEN, OVERTAKEN_S)

    def room_made(self) -> None:
        """Something changed that may let a refused pod in."""
        self.change_count += 1
        if self._refusals:
            self._sweep_in(self._delay_s)

    def forget_all(self) -> None:
        """The term is over: nobody's refusal matters any more."""
        for pods in (self._refusals, self._being_tried, self._fitting, self._backlog):
            pods.clear()

    def time_came(self, _: str, what: str) -> None:
        """Look for pods to be tried: all that were refused before the last change, or that may be overtaken."""
        are_overtaken = what == OVERTAKEN[1]
        for uid, seen in self._refusals.items():
            if seen < self.change_count or (are_overtaken and uid in self._fitting):
                self._backlog.setdefault(uid)

    def take_slice(self) -> list[str]:
        """The pods to be tried next; to be followed by `tried`."""
        uids: list[str] = []
        while self._backlog and len(uids) < SLICE:
            uid, _ = self._backlog.popitem(last=False)
            if uid in self._refusals:
                uids.append(uid)
        self._being_tried, self._slice_began = set(uids), self.change_count
        return uids

    def take_too(self, uids: Iterable[str]) -> None:
        """These pods are tried with one of the slice: whatever is true of it is true of them."""
        for uid in uids:
            self._backlog.pop(uid, None)
            if uid in self._refusals:
                self._being_tried.add(uid)

    def tried(self, fitting: Collection[str]) -> None:
        """All that were taken have been tried. Pods in `fitting` could run; others may have to leave for them."""
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
    """The pods that kube-scheduler is to be told of. One that cannot be told of, and still waits, is retried later."""

    def __init__(self, outbox: Outbox, pods: PodTable, retries: Retries) -> None:
        self._outbox = outbox
        self._pods = pods
        self._retries = retries
        self._ready: dict[str, PodName] = {}
        self._under_way = 0
        self._silent_until = 0.0

    def ask(self, record: PodRecord) -> None:
        """Have kube-scheduler try a pod again, soon."""
        if self._outbox.now.at < self._silent_until:
            self._failed(record.uid)
            return
        self._ready[record.uid] = record.named
        self._go_on()

    def wrote(self, effect: TouchPod, error: HivedError | None) -> None:
        """A pod was changed, or could not be."""
        self._under_way -= 1
        if error is not None:
            self._failed(effect.pod.uid)
        if isinstance(error, KubeError) and error.status == 0:
            self._silent_until = self._outbox.now.at + SILENT_S
            waiting, self._ready = self._ready, {}
            for uid in waiting:
                self._failed(uid)
        self._go_on()

    def forget_all(self) -> None:
        """The term is over."""
        self._ready.clear()

    def _go_on(self) -> None:
        while self._ready and self._under_way < AT_ONCE:
            self._under_way += 1
            self._outbox.send(TouchPod(self._ready.pop(next(iter(self._ready)))))

    def _failed(self, uid: str) -> None:
        record = self._pods.get(uid)
        if record is not None and not record.state.has_node:
            record.is_asked = True
            self._retries.not_woken(uid)
