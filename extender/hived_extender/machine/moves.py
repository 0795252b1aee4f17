"""Moves of groups: their pods are evicted, and new cells are held until the controller has recreated them.

The steps of a plan follow each other; rules 28.7 to 28.10 say what happens in each. Moves are not stored: a new leader
schedules moved groups like any others. Not thread-safe.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from hived.cells.state import Group, GroupState
from hived.life.groups import bind_info_for, member_slots
from hived.values.decisions import Bind, Wait
from hived.values.errors import HivedError, UserError
from hived.values.events import Offer
from hived.values.specs import BindInfo, PodRequest, PodSpec
from hived_extender.api.defrag import MoveState, MovingReport, PlannedPod
from hived_extender.jobs.kinds.description import GangKey
from hived_extender.kube.client import KubeError
from hived_extender.kube.clocks import Backoff
from hived_extender.kube_rules.demands import RuledPod
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core
from hived_extender.machine.effects import EvictPod, Outbox
from hived_extender.machine.gangs.gang import written_name
from hived_extender.machine.notices import Reason
from hived_extender.machine.pods import PodRecord, PodTable
from hived_extender.machine.stand_ins import StandIns
from hived_extender.machine.stimuli import MoveOrder, MovesAsked, MovesLookedAt, MovesStopped

log = logging.getLogger(__name__)

DEADLINE, AGAIN = "moves", "move-pod"
TIMERS = (DEADLINE, AGAIN)

FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
PENDING, LEAVING, RETURNING, DONE, GIVEN_UP = "pending", "leaving", "returning", "done", "given up"
MOVING_REASON = "its group is being moved: its new cells are free once all its old pods have left"


class _Move:
    """An order under way. `stand_ins` hold cells."""

    def __init__(self, order: MoveOrder) -> None:
        self.order = order
        self.state = PENDING
        self.spec: PodSpec | None = None
        self.namespace = ""
        self.left: dict[str, Backoff] = {}  # pods that have not left, by uid
        self.stand_ins = StandIns()

    @property
    def is_over(self) -> bool:
        """True if nothing is left to do."""
        return self.state in (DONE, GIVEN_UP)

    def hold(self, core: Core, number: int) -> None:
        """Hold the new cells. Raises UserError, and holds nothing, unless all are free."""
        becomes = self.order.becomes
        if becomes is None or self.spec is None or self.stand_ins:
            return
        try:
            self.stand_ins.take(core, number, self.order.group, self.namespace, self.spec, becomes)
        except UserError:
            self.stand_ins.release(core)
            raise UserError(f"the new cells of {self.order.group} are not free any more", 409) from None

    def is_alike(self, request: PodRequest) -> bool:
        """True if a pod asks for the same as the evicted group, under any group name."""
        if self.spec is None:
            return False
        mine = replace(request.spec.of_group(""), leaf_cell_count=0)
        theirs = replace(self.spec.of_group("", request.spec.ignore_suggested_nodes), leaf_cell_count=0)
        return mine == theirs


class Moves:
    """Carries out a plan of moves, step by step."""

    def __init__(
        self,
        cache: ClusterCache,
        outbox: Outbox,
        announcements: Announcements,
        own_grace: Callable[[PodRecord], int | None] = lambda record: None,
    ) -> None:
        """`own_grace` gives a pod's seconds to leave, None for its own."""
        self._cache, self._outbox, self._announcements = cache, outbox, announcements
        self._own_grace = own_grace
        self._asked: MovesAsked | None = None
        self._moves: list[_Move] = []
        self._number = 0
        self._state, self._reason = "none", ""
        self._return_s = 0.0

    def handlers(self) -> dict[type[Any], Callable[[Any], Any]]:
        """The handler of each stimulus about moves."""
        return {
            MovesAsked: self.begin,
            MovesStopped: lambda one: self.stop(one.reason),
            MovesLookedAt: lambda one: self.report(),
        }

    # Questions

    def report(self) -> MovingReport:
        """The progress of the moves."""
        who, vc = (self._asked.who, self._asked.vc) if self._asked is not None else ("", "")
        moves = [MoveState(move.order.step, move.order.group, move.state) for move in self._moves]
        return MovingReport(state=self._state, number=self._number, who=who, vc=vc, reason=self._reason, moves=moves)

    def begin(self, asked: MovesAsked) -> MovingReport:
        """Begin these moves. Raises UserError (409), and moves nothing, if the first step is impossible."""
        core = self._cache.core
        if core is None:
            raise UserError("this replica does not lead", 503)
        if self._state == "moving":
            raise UserError("groups are being moved already: wait until that is over, or stop it", 409)
        self._asked, self._moves, self._return_s = asked, [_Move(order) for order in asked.orders], asked.return_s
        self._number += 1
        self._state, self._reason = "moving", ""
        self._begin_step(core)
        self.look()
        if self._state == "stopped":
            raise UserError(self._reason, 409)
        return self.report()

    def stop(self, reason: str) -> MovingReport:
        """Stop the moves and free held cells. Evicted pods return like any others.

        Returns a report of the state "none" if nothing is under way.
        """
        if self._state != "moving":
            return MovingReport(reason="nothing is under way")
        self._stop(reason)
        return self.report()

    # Questions of others

    def refusal(self, record: PodRecord, request: PodRequest | None) -> Wait | None:
        """The reason not to place a pod now (rule 28.9): its group is leaving, and would stay on its old cells."""
        names = (request.spec.group.name if request is not None else "", str(record.gang) if record.gang else None)
        leaving = (move.order for move in self._moves if move.state == LEAVING)
        if any(order.group == names[0] or order.gang == names[1] for order in leaving):
            return Wait(MOVING_REASON)
        return None

    def is_held_for(self, record: PodRecord, request: PodRequest | None) -> bool:
        """True if cells are held for the group of this pod."""
        if record.gang is not None:
            return bool(self._held_for_gang(record.gang))
        return request is not None and self._returning(request) is not None

    def answer(
        self, core: Core, record: PodRecord, request: PodRequest, offer: Offer | None, *, commit: bool
    ) -> Bind | Wait | None:
        """Take the held cells of a pod's group, or return the reason to wait (rule 28.9); None if nothing is held.

        Without `commit` the pod only learns whether it must wait. Cells that Kubernetes does not offer, or that are
        bad, are freed.
        """
        if not self._moves:
            return None
        refusal = self.refusal(record, request)
        if refusal is not None or not commit:
            return refusal
        if record.gang is not None:
            self.give_to_gang(core, record.gang)
            return None
        move = self._returning(request)
        if move is None or move.order.becomes is None:
            return None
        info = _own_info(move.order.becomes, request)
        is_offered = offer is None or _is_offered(core, info, offer)
        move.stand_ins.release(core)
        move.state = DONE
        if not is_offered or not _are_healthy(core, info):
            log.warning("held cells are not offered any more", extra={"fields": {"group": move.order.group}})
            return None
        core.adopt(request, info)
        if not core.has_all_cells(request.spec.group.name):
            core.delete(request)
            return None
        return Bind(info)

    def give_to_gang(self, core: Core, key: GangKey) -> None:
        """Free the held cells of a gang that kube-scheduler asks about, for its own search."""
        for move in self._held_for_gang(key):
            move.stand_ins.release(core)
            move.state = DONE

    # Events

    def look(self) -> None:
        """Advance a step once all its pods have left or returned."""
        core = self._cache.core
        if core is None or self._state != "moving":
            return
        for move in self._moves:
            if move.state == LEAVING and self._holds(core, move) and not core.has_group(move.order.group):
                self._has_left(move)
        taken = [move for move in self._moves if move.stand_ins.are_victims(core)]
        if taken:
            self._stop(f"cells held for {taken[0].order.group} are needed by a job of higher priority")
        if self._state == "moving" and all(move.is_over or move.state == PENDING for move in self._moves):
            if any(move.state == PENDING for move in self._moves):
                self._begin_step(core)
                self.look()
            else:
                self._end("done", "")

    def time_came(self, kind: str, uid: str) -> None:
        """End a step that took too long, or retry an eviction."""
        if kind == AGAIN:
            self._evict(uid)
            return
        late = next((move for move in self._moves if move.state in (LEAVING, RETURNING)), None)
        if late is not None:
            what = "has not left" if late.state == LEAVING else "has not come back"
            self._stop(f"{late.order.group} {what} in {self._return_s:g} s")

    def wrote(self, effect: EvictPod, error: HivedError | None, *, is_current: bool) -> None:
        """Take the result of an eviction (rule 28.8)."""
        move = next((one for one in self._moves if effect.pod.uid in one.left), None)
        if error is None or move is None or not is_current or (isinstance(error, KubeError) and error.is_not_found):
            return
        log.warning("pod not evicted", extra={"fields": {"pod": effect.pod.key, "reason": str(error)}})
        self._outbox.wake_in((AGAIN, effect.pod.uid), move.left[effect.pod.uid].failed())

    def forget_all(self, reason: str) -> None:
        """Drop all moves with their state."""
        for move in self._moves:
            move.stand_ins.pods.clear()
        self._stop(reason)

    # Steps

    def _begin_step(self, core: Core) -> None:
        """Hold new cells, then evict the groups of the next step."""
        step = min(move.order.step for move in self._moves if move.state == PENDING)
        moves = [move for move in self._moves if move.state == PENDING and move.order.step == step]
        movable = self._asked.movable if self._asked is not None else frozenset[str]()
        jobs = self._asked.jobs if self._asked is not None else frozenset[str]()
        if jobs and not self._cache.pods.is_waiting(jobs):
            self._stop("the job that wants the room does not wait any more")
            return
        try:
            for move in moves:
                _check(core, move, self._cache.pods, movable)
            old = {leaf for move in moves for leaf in _leaves(move.order.was)}
            for move in moves:
                becomes = move.order.becomes
                if becomes is not None and old.isdisjoint(_leaves_of(becomes)):
                    move.hold(core, self._number)
            self._check_rules(moves)
        except UserError as error:
            self._stop(error.message)
            return
        for move in moves:
            move.state = LEAVING
            for uid in move.left:
                self._tell(uid, move)
                self._evict(uid)
        self._outbox.wake_in((DEADLINE, ""), self._return_s)

    def _check_rules(self, moves: Sequence[_Move]) -> None:
        """Raise UserError unless Kubernetes would take all pods of a step to their new nodes (rule 28.5).

        Pods that ignore offers are not checked.
        """
        residents, offers = self._cache.nodes.residents, self._cache.offers
        coming: list[tuple[RuledPod, str]] = []
        for move in moves:
            becomes = move.order.becomes
            if becomes is None or move.spec is None or move.spec.ignore_suggested_nodes:
                continue
            records = [record for uid in move.left if (record := self._cache.pods.get(uid)) is not None]
            records.sort(key=lambda one: 0 if one.request is None else one.request.spec.leaf_cell_count)
            places = [place for size in becomes.members for place in size]
            for record, place in zip(records, places, strict=False):
                if (resident := residents.get(record.uid)) is not None:
                    if resident.pod.demands.beyond:
                        raise UserError(
                            f"only kube-scheduler knows whether node {place.node} would take {record.key}: "
                            f"{resident.pod.demands.beyond}",
                            409,
                        )
                    coming.append((resident.pod, place.node))
        gone = {*residents.leaving, *(uid for move in moves for uid in move.left)}
        with residents.supposing(gone, {}):
            refusal = offers.refusal_in_turn(coming)
        if refusal is not None:
            node, reasons = refusal
            groups = ", ".join(move.order.group for move in moves)
            raise UserError(f"node {node} would not take the pods of {groups}: {', '.join(reasons)}", 409)

    def _holds(self, core: Core, move: _Move) -> bool:
        """True once the new cells are held; they may be those of a group that leaves in the same step (rule 28.7)."""
        becomes = move.order.becomes
        if becomes is not None and not move.stand_ins:
            users = (one.order for one in self._moves if one.state == LEAVING and core.has_group(one.order.group))
            if any(not _leaves(order.was).isdisjoint(_leaves_of(becomes)) for order in users):
                return False
            try:
                move.hold(core, self._number)
            except UserError as error:
                self._stop(error.message)
                return False
        return True

    def _has_left(self, move: _Move) -> None:
        self._drop_timers(move)
        if move.order.becomes is None:
            move.state = DONE
            return
        move.state = RETURNING
        self._outbox.wake_in((DEADLINE, ""), self._return_s)

    def is_moving(self, uid: str) -> bool:
        """True if a pod was evicted to start anew elsewhere, and has not left."""
        return any(uid in move.left for move in self._moves if move.state == LEAVING)

    def _evict(self, uid: str) -> None:
        record = self._cache.pods.get(uid)
        if record is not None and self._state == "moving" and not record.seen.is_leaving:
            self._outbox.send(EvictPod(record.named, by_force=False, is_move=True, grace_s=self._own_grace(record)))

    def _tell(self, uid: str, move: _Move) -> None:
        record, asked = self._cache.pods.get(uid), self._asked
        if record is not None and asked is not None:
            where = "its new cells are held for it" if move.order.becomes is not None else "it has to wait"
            text = f"moved to make room in virtual cluster {asked.vc}; {where}"
            self._announcements.say(record, Reason.MOVED, text)

    def _stop(self, reason: str) -> None:
        """End all moves (rule 28.10)."""
        if self._state != "moving":
            return
        core = self._cache.core
        for move in self._moves:
            if core is not None:
                move.stand_ins.release(core)
            if not move.is_over:
                move.state = GIVEN_UP
        self._end("stopped", reason)

    def _end(self, state: str, reason: str) -> None:
        self._state, self._reason = state, reason
        self._outbox.timers.drop((DEADLINE, ""))
        for move in self._moves:
            self._drop_timers(move)
        log.info("moves are over", extra={"fields": {"groups": len(self._moves), "reason": reason}})

    def _drop_timers(self, move: _Move) -> None:
        for uid in move.left:
            self._outbox.timers.drop((AGAIN, uid))
        move.left = {}

    # Pods that come back

    def _returning(self, request: PodRequest) -> _Move | None:
        """The move with cells for a pod: of its group; without a named group, of an equal request."""
        held = [move for move in self._moves if move.state == RETURNING and not move.order.gang]
        name = request.spec.group.name
        names = (name, written_name(request.namespace, name))  # the second: a bare name ends with its last pod
        for move in held:
            if move.order.group in names and move.namespace == request.namespace and move.is_alike(request):
                return move
        if request.spec.group.name != f"{request.namespace}/{request.name}":
            return None
        unnamed = (move for move in held if move.order.group.startswith(f"{request.namespace}/"))
        return next((move for move in unnamed if move.is_alike(request)), None)

    def _held_for_gang(self, key: GangKey) -> list[_Move]:
        return [move for move in self._moves if move.state == RETURNING and move.order.gang == str(key)]


def _check(core: Core, move: _Move, pods: PodTable, movable: Collection[str]) -> None:
    """Raise UserError unless the group is at its planned place and may be moved (rule 28.1); note its pods."""
    order, group = move.order, core.state.groups.get(move.order.group)
    if group is None or group.state is not GroupState.ALLOCATED:
        raise UserError(f"{order.group} is not what it was: it does not run, or has to leave for others", 409)
    records = _records(group, pods)
    places = {(one.place.node, one.place.info.leaf_cell_indices) for one in records if one.place.info is not None}
    if places != {(place.node, place.cells) for place in order.was}:
        raise UserError(f"{order.group} is not where it was when the plan was made", 409)
    if group.spec.virtual_cluster not in movable and not all(one.progress.may_move for one in records):
        raise UserError(f"{order.group} does not allow to be moved any more", 409)
    move.spec, move.namespace = group.spec, records[0].namespace
    move.left = {record.uid: Backoff(FIRST_WAIT_S, LONGEST_WAIT_S) for record in records}


def _own_info(becomes: BindInfo, request: PodRequest) -> BindInfo:
    """The placement for the first returning pod of the group."""
    slot = member_slots(request.spec.group.members, request.spec.leaf_cell_count).start
    return bind_info_for(becomes.members, slot, becomes.cell_chain)


def _records(group: Group, pods: PodTable) -> list[PodRecord]:
    uids = dict.fromkeys(pod.uid for pod in group.holders if pod is not None)
    return [record for uid in uids if (record := pods.get(uid)) is not None]


def _leaves(places: Iterable[PlannedPod]) -> set[tuple[str, int]]:
    return {(place.node, cell) for place in places for cell in place.cells}


def _leaves_of(info: BindInfo) -> set[tuple[str, int]]:
    return {(one.node, cell) for size in info.members for one in size for cell in one.leaf_cell_indices}


def _is_offered(core: Core, info: BindInfo, offer: Offer) -> bool:
    """True if Kubernetes offers the node of every pod of the placement."""
    index = core.state.topology.node_index
    nodes = [index[one.node] for size in info.members for one in size]
    return len(nodes) == len(offer.nodes) and all(bool(offer.nodes[slot, node]) for slot, node in enumerate(nodes))


def _are_healthy(core: Core, info: BindInfo) -> bool:
    index, bad = core.state.topology.node_index, core.state.cells.node_bad
    return not any(bad[index[one.node]] for size in info.members for one in size)
