"""Telling people about their pods, where they look: events and a status condition.

`Announcer` may be called from anywhere, under any lock: it notes what is said and returns. Threads of its own write it
down, the latest state only. Events are best effort: when the API server is away they wait, and what is out of date by
then is not written; of pods without number only the last ones are remembered.
"""

import heapq
import itertools
import logging
import math
import random
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from hived_extender.kube.client import KubeError, pod_path
from hived_extender.kube.events import NODE, EventRecorder, NodeRef, PodRef, clipped, timestamp
from hived_extender.kube.metrics import Metrics
from hived_extender.pods.wire import Pod, PodCondition
from hived_extender.service.writes.notices import (
    ALLOCATED,
    CONDITION_TYPE,
    Board,
    Condition,
    Notice,
    Pace,
    Reason,
    Round,
)

COMPONENT = "hived"

THREADS = 2
BOARD_LIMIT = 16_384
"""Pods of which something is remembered; beyond that, those that nothing was said of for longest are forgotten."""

BACKOFF_INITIAL_S = 0.5
BACKOFF_LONGEST_S = 30.0
COMPLAINT_INTERVAL_S = 60.0

_ALLOCATED = (Reason.SCHEDULED, Reason.RESTORED)

log = logging.getLogger(__name__)


class AnnouncerApi(Protocol):
    """What is asked of the API server; `kube.KubeClient` is one. Every method raises KubeError."""

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create an object in a collection."""

    def get(self, path: str, item_type: type[Any]) -> Any:
        """Read one object."""

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Merge into one object."""

    def patch_lists(self, path: str, body: Mapping[str, Any]) -> None:
        """Merge into one object, lists item by item."""


class Announcer:
    """Thread-safe; no method but `close` waits for anything, and none raises.

    A `PodRef`, such as a `pods.PodRecord`, is read during the call and not kept.
    """

    def __init__(
        self, kube: AnnouncerApi, metrics: Metrics, *, pace: Pace | None = None, board_limit: int = BOARD_LIMIT
    ) -> None:
        self._kube = kube
        self._metrics = metrics
        self._pace = pace or Pace()
        self._board_limit = board_limit
        self._recorder = EventRecorder(kube, COMPONENT, socket.gethostname()[:128])
        # Guards everything below; never held during a call to the API server.
        self._changed = threading.Condition()
        self._boards: OrderedDict[str, Board] = OrderedDict()
        self._queue: list[tuple[float, int, Board]] = []
        self._numbers = itertools.count()
        self._threads: list[threading.Thread] = []
        self._is_closing = False
        self._failure_count = 0
        self._not_before = -math.inf
        self._next_complaint = -math.inf
        self._unsaid_complaints = 0

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
        with self._changed:
            board = self._boards.get(uid)
            if board is not None:
                board.place()

    def scheduled(self, pod: PodRef, node: str, leaf_cells: Sequence[int], *, vc: str = "", group: str = "") -> None:
        """The pod is bound."""
        self._say(pod, Reason.SCHEDULED, _placement(node, leaf_cells, vc, group), is_true=True)

    def replayed(self, pod: PodRef, node: str, leaf_cells: Sequence[int], *, vc: str = "", group: str = "") -> None:
        """The pod was bound by an earlier process, which need not have lived to take back that it waits."""
        with self._changed:
            board = self._boards.get(pod.uid)
            if board is not None and board.is_said_to_wait:
                board.want(
                    Condition(True, ALLOCATED, clipped(_placement(node, leaf_cells, vc, group))), time.monotonic()
                )
                self._enqueue(board)

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

    def observe(self, pod: PodRef, condition: PodCondition | None) -> None:
        """A watch shows the pod with this condition of CONDITION_TYPE; None if it has none.

        What an earlier process or another replica wrote is then neither repeated nor left standing.
        """
        with self._changed:
            board = self._boards.get(pod.uid)
            if board is None and condition is not None:
                board = self._board(pod)
            if board is not None:
                board.observe(_read(condition))
                self._enqueue(board)

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        with self._changed:
            board = self._boards.get(uid)
            if board is not None:
                board.leave()
                self._tidy(board)

    def resign(self) -> None:
        """Another replica leads from now on: what is not written yet is for it to say."""
        self._recorder.forget_counts()
        with self._changed:
            former, self._boards = self._boards, OrderedDict()
            self._queue.clear()
            # What is being written at this moment goes back to a board that nobody looks at any more.
            for board in former.values():
                if board.stored is not None:
                    self._board(board).observe(board.stored)
                if board.is_busy:
                    self._board(board, board.about).doubt()

    def close(self, timeout_s: float = 1.0) -> None:
        """Write what is due, but for no longer than `timeout_s`; nothing is written or noted afterwards."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
            threads = tuple(self._threads)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            unwritten = sum(board.notice_count for board in self._boards.values())
            self._boards.clear()
            self._queue.clear()
        self._metrics.events.labels("dropped").inc(unwritten)

    # Noting, under the lock

    def _say(
        self, pod: PodRef, reason: Reason, message: str, is_true: bool | None = None, *, about: str = "Pod"
    ) -> None:
        """Note an event and, unless `is_true` is None, a condition with the same text."""
        message = clipped(message)
        with self._changed:
            if self._is_closing:
                return
            board = self._board(pod, about)
            now = time.monotonic()
            board.say(reason, message, time.time(), now)
            if is_true is not None:
                board.want(Condition(is_true, ALLOCATED if reason in _ALLOCATED else reason.value, message), now)
            self._enqueue(board)

    def _board(self, pod: PodRef, about: str = "Pod") -> Board:
        board = self._boards.get(pod.uid)
        if board is None:
            board = Board(pod.uid, pod.namespace, pod.name, self._pace, time.monotonic(), about)
            self._boards[pod.uid] = board
            while len(self._boards) > self._board_limit:
                _, oldest = self._boards.popitem(last=False)
                self._metrics.events.labels("dropped").inc(oldest.notice_count)
        else:
            self._boards.move_to_end(pod.uid)
        return board

    def _enqueue(self, board: Board) -> None:
        """Have the board looked at when there is something to tell; one that is busy is queued afterwards."""
        due = board.due_at()
        if board.is_busy or due >= board.queued_at:
            return
        board.queued_at = due
        heapq.heappush(self._queue, (due, next(self._numbers), board))
        if len(self._queue) > 2 * len(self._boards) + 100:
            self._rebuild_queue()
        if len(self._threads) < THREADS and not self._is_closing:
            self._start_thread()
        if self._queue[0][2] is board:
            self._changed.notify()

    def _rebuild_queue(self) -> None:
        """Entries of boards that are forgotten or were queued again for earlier would stay until they are due."""
        self._queue = [
            (board.queued_at, next(self._numbers), board)
            for board in self._boards.values()
            if board.queued_at < math.inf
        ]
        heapq.heapify(self._queue)

    def _start_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"announcer-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _tidy(self, board: Board) -> None:
        if board.is_gone and not board.is_busy and not board.notice_count and self._boards.get(board.uid) is board:
            del self._boards[board.uid]

    # Writing, on the threads

    def _run(self) -> None:
        while True:
            work = self._next()
            if work is None:
                return
            board, taken = work
            try:
                self._carry_out(board, taken)
            except Exception:  # a mistake of ours must not silence the others
                log.exception("announcing failed", extra={"fields": {"pod": f"{board.namespace}/{board.name}"}})
            with self._changed:
                board.is_busy = False
                self._tidy(board)
                if self._boards.get(board.uid) is board:
                    self._enqueue(board)

    def _next(self) -> tuple[Board, Round] | None:
        """Wait for something to write; None if there is nothing and we are closing."""
        with self._changed:
            while True:
                now = time.monotonic()
                wake_at = max(self._queue[0][0], self._not_before) if self._queue else math.inf
                if wake_at <= now:
                    due, _, board = heapq.heappop(self._queue)
                    if due != board.queued_at or self._boards.get(board.uid) is not board:
                        continue
                    board.queued_at = math.inf
                    taken = board.take(now)
                    if taken:
                        board.is_busy = True
                        if self._queue:
                            self._changed.notify()  # the next one is for another thread
                        return board, taken
                    self._enqueue(board)
                elif self._is_closing:
                    return None
                else:
                    self._changed.wait(None if wake_at == math.inf else wake_at - now)

    def _carry_out(self, board: Board, taken: Round) -> None:
        """Write a round; what cannot be written at the moment goes back to the board."""
        is_away = False
        for notice in taken.notices:
            is_away = is_away or not self._write_event(board, notice)
            with self._changed:
                if is_away:
                    board.put_back(notice)
                else:
                    board.told(notice, time.monotonic())
        if taken.condition is not None and not is_away:
            is_away = not self._write_condition(board, taken.condition)
        with self._changed:
            if is_away:
                longest = min(BACKOFF_LONGEST_S, BACKOFF_INITIAL_S * 2 ** min(self._failure_count, 10))
                self._not_before = time.monotonic() + longest * random.uniform(0.5, 1.0)
                self._failure_count += 1
            else:
                self._failure_count, self._not_before = 0, -math.inf

    def _write_event(self, board: Board, notice: Notice) -> bool:
        """Return False if it should be tried again."""
        reason = notice.reason
        try:
            is_new = self._recorder.record(
                board,
                reason.event_type,
                reason.value,
                notice.message,
                times=notice.times,
                since_s=notice.since_s,
                about=board.about,
            )
        except KubeError as error:
            self._metrics.events.labels("failed").inc()
            self._complain(f"the event {reason.value} about {board.namespace}/{board.name} is not written", str(error))
            return not _is_passing(error)
        self._metrics.events.labels("created" if is_new else "counted").inc()
        return True

    def _write_condition(self, board: Board, wanted: Condition) -> bool:
        """Return False if it should be tried again."""
        path = pod_path(board.namespace, board.name)
        try:
            if not board.is_stored_known:
                pod: Pod = self._kube.get(path, Pod)
                if pod.metadata.uid != board.uid:
                    raise KubeError(404, "NotFound", f"pod {board.uid} is gone, another one has its name")
                with self._changed:
                    board.know(_read(pod.condition(CONDITION_TYPE)))
            if wanted != board.stored:
                # The uid keeps the call from touching a later pod of the same name.
                self._kube.patch_lists(
                    f"{path}/status",
                    {"metadata": {"uid": board.uid}, "status": {"conditions": [_written(wanted, board.stored)]}},
                )
                self._metrics.conditions.labels("written").inc()
        except KubeError as error:
            if error.is_not_found:
                self.forget(board.uid)
                return True
            self._metrics.conditions.labels("failed").inc()
            self._complain(f"the condition of {board.namespace}/{board.name} is not written", str(error))
            with self._changed:
                if _is_passing(error):
                    board.doubt()
                    return False
                board.know(wanted)  # it would be refused again
            return True
        with self._changed:
            board.know(wanted)
        return True

    def _complain(self, message: str, reason: str) -> None:
        """Log that something is lost or late, at most once in a while."""
        with self._changed:
            now = time.monotonic()
            if now < self._next_complaint:
                self._unsaid_complaints += 1
                return
            unsaid, self._unsaid_complaints = self._unsaid_complaints, 0
            self._next_complaint = now + COMPLAINT_INTERVAL_S
        log.warning(message, extra={"fields": {"reason": reason, "others": unsaid}})


def _placement(node: str, leaf_cells: Sequence[int], vc: str, group: str) -> str:
    facts = [f"node {node}", f"leaf cells {','.join(str(number) for number in leaf_cells)}"]
    facts += [f"virtual cluster {vc}"] if vc else []
    facts += [f"affinity group {group}"] if group else []
    return ", ".join(facts)


def _is_passing(error: KubeError) -> bool:
    """Whether the same call may succeed later."""
    return error.reason == "NoAnswer" or error.status in (408, 429) or error.status >= 500


def _read(condition: PodCondition | None) -> Condition | None:
    if condition is None:
        return None
    return Condition(condition.status == "True", condition.reason or "", condition.message or "")


def _written(wanted: Condition, stored: Condition | None) -> dict[str, str]:
    """The item of a pod's conditions; merged into the one that is there, which keeps its time if its status stays."""
    item = {
        "type": CONDITION_TYPE,
        "status": "True" if wanted.is_true else "False",
        "reason": wanted.reason,
        "message": wanted.message,
    }
    if stored is None or stored.is_true != wanted.is_true:
        item["lastTransitionTime"] = timestamp()
    return item
