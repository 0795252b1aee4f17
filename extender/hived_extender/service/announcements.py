"""Telling people about their pods, where they look: events and a status condition.

What is said is noted on a board for each pod, the latest state only, and written when it is due. Events are best
effort: when the API server is away they wait, and what is out of date by then is not written. Of pods without number
only the last ones are remembered. Not thread-safe.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence

from hived_extender.kube.events import NODE, NodeRef, PodRef, clipped
from hived_extender.pods.wire import PodCondition
from hived_extender.service.effects import Announce
from hived_extender.service.notices import ALLOCATED, Announced, Board, Condition, Pace, Reason
from hived_extender.service.outbox import Outbox
from hived_extender.service.pods import PodName

TIMER = "announce"
AWAY = TIMER, ""

AT_ONCE = 2
BOARD_LIMIT = 16_384
"""Pods of which something is remembered; beyond that, those that nothing was said of for longest are forgotten."""

BACKOFF_INITIAL_S = 0.5
BACKOFF_LONGEST_S = 30.0

_ALLOCATED = (Reason.SCHEDULED, Reason.RESTORED)


class Announcements:
    """A `PodRef`, such as a `pods.PodRecord`, is read during the call and not kept."""

    def __init__(self, outbox: Outbox, *, pace: Pace | None = None, board_limit: int = BOARD_LIMIT) -> None:
        self._outbox = outbox
        self._metrics = outbox.metrics
        self._pace = pace or Pace()
        self._board_limit = board_limit
        self._boards: OrderedDict[str, Board] = OrderedDict()
        self._ready: dict[str, None] = {}
        self._under_way: dict[str, Announce] = {}  # by uid; those of boards that nobody looks at any more as well
        self._orphan_count = 0
        self._failure_count = 0
        self._not_before = -math.inf

    # What is said

    def waiting(self, pod: PodRef, reason: str) -> None:
        """The pod was told to wait; `reason` is that of the decision."""
        self._say(pod, Reason.WAITING, reason, is_true=False)

    def preempting(self, pod: PodRef, victims: str) -> None:
        """The pod's cells are chosen, but other pods have to leave first; `victims` says which."""
        self._say(pod, Reason.PREEMPTING, victims, is_true=False)

    def refused(self, pod: PodRef, message: str) -> None:
        """The pod's annotation is invalid: what was given, what is expected."""
        self._say(pod, Reason.INVALID_SPEC, message, is_true=False)

    def timed_out(self, pod: PodRef, text: str) -> None:
        """The pod's gang could not start within its waiting time, and goes on waiting."""
        self._say(pod, Reason.GANG_TIMED_OUT, text)

    def blocked(self, pod: PodRef, text: str) -> None:
        """Victims of this preemptor cannot be evicted: why."""
        self._say(pod, Reason.PREEMPTION_BLOCKED, text)

    def not_handled(self, pod: PodRef, text: str) -> None:
        """kube-scheduler does not ask about the pod, and nobody else may bind it."""
        self._say(pod, Reason.NOT_HANDLED, text)

    def forced(self, pod: PodRef, text: str) -> None:
        """The pod is bound without kube-scheduler: why."""
        self._say(pod, Reason.FORCED_BINDING, text)

    def placed(self, uid: str) -> None:
        """The pod has a place, and kube-scheduler is to bind it: an unwritten wait is not worth telling any more."""
        board = self._boards.get(uid)
        if board is not None:
            board.place()

    def scheduled(self, pod: PodRef, node: str, leaf_cells: Sequence[int], *, vc: str = "", group: str = "") -> None:
        """The pod is bound."""
        self._say(pod, Reason.SCHEDULED, _placement(node, leaf_cells, vc, group), is_true=True)

    def replayed(self, pod: PodRef, node: str, leaf_cells: Sequence[int], *, vc: str = "", group: str = "") -> None:
        """The pod was bound by an earlier process, which need not have lived to take back that it waits."""
        board = self._boards.get(pod.uid)
        if board is not None and board.is_said_to_wait:
            text = clipped(_placement(node, leaf_cells, vc, group))
            board.want(Condition(True, ALLOCATED, text), self._outbox.now.at)
            self._plan(board)

    def lazily_preempted(self, pod: PodRef, group: str, by: str) -> None:
        """The pod's group runs on, but opportunistically: its virtual cluster gave its cells to the group `by`."""
        text = (
            f"affinity group {group} gave its place in the virtual cluster up for {by}; it runs on, but opportunistic "
            "now: anyone with a guarantee may preempt it"
        )
        self._say(pod, Reason.LAZY_PREEMPTED, text, is_true=True)

    def reconfigured(self, pod: PodRef, reason: Reason, text: str) -> None:
        """Another configuration has taken the pod's place in its VC, or its cells, or has given it back."""
        self._say(pod, reason, text, is_true=None if reason is Reason.UNACCOUNTED else True)

    def evicting(self, victim: PodRef, preemptor: PodRef) -> None:
        """The victim is made to leave. The preemptor is named by uid, as it may be another tenant's."""
        self._say(victim, Reason.PREEMPTED, f"its cells are needed by pod {preemptor.uid}")

    def foreign_devices(self, pod: PodRef, text: str) -> None:
        """The pod, which holds no cells, uses devices: what follows from that."""
        self._say(pod, Reason.FOREIGN_DEVICES, text)

    def devices_missing(self, node: str, text: str) -> None:
        """A node does not offer all its devices."""
        self._say(NodeRef(node), Reason.DEVICES_MISSING, text, about=NODE)

    # What else is known

    @property
    def unwritten_count(self) -> int:
        """Events that are yet to be written."""
        return sum(board.notice_count for board in self._boards.values())

    @property
    def is_quiet(self) -> bool:
        """Is nothing under way, nor to be written now?"""
        return not self._under_way and not self._ready

    def observe(self, pod: PodRef, condition: PodCondition | None) -> None:
        """A watch shows the pod with this condition of CONDITION_TYPE; None if it has none.

        What an earlier process or another replica wrote is then neither repeated nor left standing.
        """
        board = self._boards.get(pod.uid)
        if board is None and condition is not None:
            board = self._board(pod)
        if board is not None:
            board.observe(Condition.read(condition))
            self._plan(board)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        board = self._boards.get(uid)
        if board is not None:
            board.leave()
            self._tidy(board)

    def resign(self) -> None:
        """Another replica leads from now on: what is not written yet is for it to say."""
        former, self._boards = self._boards, OrderedDict()
        self._ready.clear()
        for uid in former:
            self._outbox.timers.drop((TIMER, uid))
        # What is being written at this moment comes back to a board that nobody looks at any more.
        written, self._under_way = self._under_way, {}
        self._orphan_count += len(written)
        for board in former.values():
            if board.stored is not None:
                self._board(board).observe(board.stored)
            if board.uid in written:
                self._board(board, board.about).doubt()

    def time_came(self, _: str, uid: str) -> None:
        """Something may be due of a pod, or the API server may be back."""
        if uid:
            self._ready[uid] = None
        self._go_on()

    def wrote(self, effect: Announce, found: Announced) -> None:
        """What became of what was to be written; the rest goes back to its board."""
        if found.is_away:
            wait_s = min(BACKOFF_LONGEST_S, BACKOFF_INITIAL_S * 2 ** min(self._failure_count, 10))
            self._not_before = self._outbox.now.at + wait_s
            self._failure_count += 1
        else:
            self._failure_count, self._not_before = 0, -math.inf
        uid = effect.pod.uid
        if self._under_way.get(uid) is effect:
            del self._under_way[uid]
            board = self._boards.get(uid)
            if board is not None:
                board.wrote(effect.notices, found, self._outbox.now.at)
                self._tidy(board)
                self._plan(board)
        else:
            self._orphan_count -= 1
        self._go_on()

    def _say(
        self, pod: PodRef, reason: Reason, message: str, is_true: bool | None = None, *, about: str = "Pod"
    ) -> None:
        """Note an event and, unless `is_true` is None, a condition with the same text."""
        message = clipped(message)
        board, now = self._board(pod, about), self._outbox.now
        board.say(reason, message, now.wall, now.at)
        if is_true is not None:
            board.want(Condition(is_true, ALLOCATED if reason in _ALLOCATED else reason.value, message), now.at)
        self._plan(board)

    def _board(self, pod: PodRef, about: str = "Pod") -> Board:
        board = self._boards.get(pod.uid)
        if board is None:
            board = Board(pod.uid, pod.namespace, pod.name, self._pace, self._outbox.now.at, about)
            self._boards[pod.uid] = board
            while len(self._boards) > self._board_limit:
                _, oldest = self._boards.popitem(last=False)
                self._metrics.events.labels("dropped").inc(oldest.notice_count)
                self._drop(oldest.uid)
        else:
            self._boards.move_to_end(pod.uid)
        return board

    def _plan(self, board: Board) -> None:
        """Have the board looked at when there is something to tell; one that is being written is planned afterwards."""
        due = board.due_at()
        if board.uid in self._under_way or self._boards.get(board.uid) is not board:
            return
        if due > self._outbox.now.at:
            self._ready.pop(board.uid, None)
            self._outbox.timers.drop((TIMER, board.uid))
            if due < math.inf:
                self._outbox.timers.set((TIMER, board.uid), due)
        elif board.uid not in self._ready:
            self._ready[board.uid] = None
            self._go_on()

    def _go_on(self) -> None:
        """Write what is due, as far as may be under way at once."""
        now = self._outbox.now.at
        while self._ready and len(self._under_way) + self._orphan_count < AT_ONCE:
            if now < self._not_before:
                self._outbox.timers.set(AWAY, self._not_before)
                return
            uid = next(iter(self._ready))
            del self._ready[uid]
            board = self._boards.get(uid)
            if board is None:
                continue
            due = board.take(now)
            if not due:
                self._plan(board)
                continue
            pod = PodName(board.uid, board.namespace, board.name)
            effect = Announce(pod, board.about, tuple(due.notices), due.condition, board.stored, board.is_stored_known)
            self._under_way[uid] = effect
            self._outbox.send(effect)

    def _tidy(self, board: Board) -> None:
        if board.is_gone and board.uid not in self._under_way and not board.notice_count:
            del self._boards[board.uid]
            self._drop(board.uid)

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
