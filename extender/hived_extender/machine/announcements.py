"""Events and a status condition for each pod, so that users see its state with kubectl.

The latest state of each pod is noted and written when due. Events are best effort: without an API server they wait, and
outdated ones are dropped. Beyond a limit of pods only the newest are remembered. Not thread-safe.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence

from hived_extender.jobs.wire import StatusCondition
from hived_extender.kube.clocks import Backoff
from hived_extender.kube.events import NODE, NodeRef, PodRef, clipped
from hived_extender.machine.effects import Announce, Outbox
from hived_extender.machine.notices import ALLOCATED, Announced, Condition, Pace, PodNotices, Reason
from hived_extender.machine.pods import PodName

TIMER = "announce"
AWAY = TIMER, ""

AT_ONCE = 2
BOARD_LIMIT = 16_384
"""Pods of which something is remembered; beyond that, those that nothing was said of for longest are forgotten."""

BACKOFF_INITIAL_S = 0.5
BACKOFF_LONGEST_S = 30.0

_ALLOCATED = (Reason.SCHEDULED, Reason.RESTORED)


class Announcements:
    """Notes the state of each pod and sends due events. A `PodRef` is read during the call and not stored."""

    def __init__(self, outbox: Outbox, *, pace: Pace | None = None, pod_limit: int = BOARD_LIMIT) -> None:
        self._outbox = outbox
        self._metrics = outbox.metrics
        self._pace = pace or Pace()
        self._pod_limit = pod_limit
        self._notices: OrderedDict[str, PodNotices] = OrderedDict()
        self._ready: dict[str, None] = {}
        self._under_way: dict[str, Announce] = {}  # by uid; those of forgotten pods as well
        self._orphan_count = 0
        self._backoff = Backoff(BACKOFF_INITIAL_S, BACKOFF_LONGEST_S)

    # News

    def say(self, pod: PodRef, reason: Reason, message: str, *, about: str = "Pod") -> None:
        """Note an event, and a condition of the same text if the reason says whether the pod has cells."""
        message = clipped(message)
        notices, now = self._notices_of(pod, about), self._outbox.now
        notices.say(reason, message, now.wall, now.at)
        if (has_cells := reason.has_cells) is not None:
            notices.want(Condition(has_cells, ALLOCATED if reason in _ALLOCATED else reason.value, message), now.at)
        self._plan(notices)

    def placed(self, uid: str) -> None:
        """Drop an unwritten wait: the pod is placed and kube-scheduler is to bind it."""
        notices = self._notices.get(uid)
        if notices is not None:
            notices.place()

    def take_back(self, uid: str) -> None:
        """Drop an unwritten reason to wait: the pod could run, and kube-scheduler has not asked."""
        notices = self._notices.get(uid)
        if notices is not None:
            notices.take_back()
            self._plan(notices)

    def scheduled(self, pod: PodRef, node: str, leaf_cells: Sequence[int], *, vc: str = "", group: str = "") -> None:
        """Note that the pod is bound."""
        self.say(pod, Reason.SCHEDULED, _placement(node, leaf_cells, vc, group))

    def replayed(self, pod: PodRef, node: str, leaf_cells: Sequence[int], *, vc: str = "", group: str = "") -> None:
        """Note a pod bound by an earlier process, whose waiting condition may still stand."""
        notices = self._notices.get(pod.uid)
        if notices is not None and notices.is_said_to_wait:
            text = clipped(_placement(node, leaf_cells, vc, group))
            notices.want(Condition(True, ALLOCATED, text), self._outbox.now.at)
            self._plan(notices)

    def lazily_preempted(self, pod: PodRef, by: str) -> None:
        """Note that the pod of a group runs on as opportunistic: its VC gave its cells to the group `by`."""
        text = (
            f"this job gave its place in the virtual cluster up for {by}; it runs on, but opportunistic now: "
            "any guaranteed job may preempt it"
        )
        self.say(pod, Reason.LAZY_PREEMPTED, text)

    def evicting(self, victim: PodRef, winner: str) -> None:
        """Note an eviction. Readers of the victim's namespace see the words for the `winner`."""
        self.say(victim, Reason.PREEMPTED, f"its cells are needed by {winner}")

    def devices_missing(self, node: str, text: str) -> None:
        """Note that a node does not offer all its devices."""
        self.say(NodeRef(node), Reason.DEVICES_MISSING, text, about=NODE)

    # Facts

    @property
    def now_s(self) -> float:
        """Wall clock seconds since 1970."""
        return self._outbox.now.wall

    def said(self, uid: str) -> str:
        """The latest text on the reason why the pod has no cells; "" if none."""
        notices = self._notices.get(uid)
        return notices.refusal if notices is not None else ""

    @property
    def unwritten_count(self) -> int:
        """Events not written yet."""
        return sum(notices.notice_count for notices in self._notices.values())

    @property
    def is_quiet(self) -> bool:
        """True if no write is under way or due."""
        return not self._under_way and not self._ready

    def observe(self, pod: PodRef, condition: StatusCondition | None) -> None:
        """Take a pod's condition of CONDITION_TYPE from a watch; None if it has none.

        Texts of an earlier leader are then neither repeated nor left standing.
        """
        notices = self._notices.get(pod.uid)
        if notices is None and condition is not None:
            notices = self._notices_of(pod)
        if notices is not None:
            notices.observe(Condition.read(condition))
            self._plan(notices)

    def forget(self, uid: str) -> None:
        """Forget a pod that is bound or gone."""
        notices = self._notices.get(uid)
        if notices is not None:
            notices.leave()
            self._tidy(notices)

    def resign(self) -> None:
        """Drop unwritten news at the end of a term: the next leader writes its own."""
        former, self._notices = self._notices, OrderedDict()
        self._ready.clear()
        for uid in former:
            self._outbox.timers.drop((TIMER, uid))
        # The result of a write under way goes to dropped notices.
        written, self._under_way = self._under_way, {}
        self._orphan_count += len(written)
        for notices in (one for one in former.values() if not one.is_gone):
            if notices.stored is not None:
                self._notices_of(notices).observe(notices.stored)
            if notices.uid in written:
                self._notices_of(notices, notices.about).doubt()

    def time_came(self, _: str, uid: str) -> None:
        """Write due news of a pod, or try the API server again."""
        if uid and uid not in self._under_way:  # else it is planned when it has been written
            self._ready[uid] = None
        self._send_due()

    def wrote(self, effect: Announce, found: Announced) -> None:
        """Take the result of a write; unwritten notices return to their pod."""
        if found.is_away:
            self._backoff.failed(self._outbox.now.at)
        else:
            self._backoff.succeeded()
        uid = effect.pod.uid
        if self._under_way.get(uid) is effect:
            del self._under_way[uid]
            notices = self._notices.get(uid)
            if notices is not None:
                notices.wrote(effect.notices, found, self._outbox.now.at)
                self._tidy(notices)
                self._plan(notices)
        else:
            self._orphan_count -= 1
        self._send_due()

    def _notices_of(self, pod: PodRef, about: str = "Pod") -> PodNotices:
        notices = self._notices.get(pod.uid)
        if notices is None:
            notices = PodNotices(pod.uid, pod.namespace, pod.name, self._pace, self._outbox.now.at, about)
            self._notices[pod.uid] = notices
            while len(self._notices) > self._pod_limit:
                _, oldest = self._notices.popitem(last=False)
                self._metrics.events.labels("dropped").inc(oldest.notice_count)
                self._drop(oldest.uid)
        else:
            self._notices.move_to_end(pod.uid)
        return notices

    def _plan(self, notices: PodNotices) -> None:
        """Set the timer for the next due notice; notices being written are planned afterwards."""
        due = notices.due_at()
        if notices.uid in self._under_way or self._notices.get(notices.uid) is not notices:
            return
        if due > self._outbox.now.at:
            self._ready.pop(notices.uid, None)
            self._outbox.timers.drop((TIMER, notices.uid))
            if due < math.inf:
                self._outbox.timers.set((TIMER, notices.uid), due)
        elif notices.uid not in self._ready:
            self._ready[notices.uid] = None
            self._send_due()

    def _send_due(self) -> None:
        """Write due news, up to the limit of concurrent writes."""
        now = self._outbox.now.at
        while self._ready and len(self._under_way) + self._orphan_count < AT_ONCE:
            if now < self._backoff.at_s:
                self._outbox.timers.set(AWAY, self._backoff.at_s)
                return
            uid = next(iter(self._ready))
            del self._ready[uid]
            notices = self._notices.get(uid)
            if notices is None:
                continue
            due = notices.take(now)
            if not due:
                self._plan(notices)
                continue
            pod = PodName(notices.uid, notices.namespace, notices.name)
            effect = Announce(
                pod, notices.about, tuple(due.notices), due.condition, notices.stored, notices.is_stored_known
            )
            self._under_way[uid] = effect
            self._outbox.send(effect)

    def _tidy(self, notices: PodNotices) -> None:
        if notices.is_gone and notices.uid not in self._under_way and not notices.notice_count:
            del self._notices[notices.uid]
            self._drop(notices.uid)

    def _drop(self, uid: str) -> None:
        self._ready.pop(uid, None)
        self._outbox.timers.drop((TIMER, uid))
        if self._under_way.pop(uid, None) is not None:
            self._orphan_count += 1


def _placement(node: str, leaf_cells: Sequence[int], vc: str, group: str) -> str:
    facts = [f"node {node}", f"leaf cells {','.join(str(number) for number in leaf_cells)}"]
    facts += [f"virtual cluster {vc}"] if vc else []
    facts += [f"affinity group {group}"] if group else []
    return ", ".join(facts)
