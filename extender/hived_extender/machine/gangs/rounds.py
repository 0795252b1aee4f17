"""Starts of gangs: the next step of a gang's pod, and all pods of a round at once.

A round is asked of the core as one group, then allocated and split in one step (rule 26.6). Each pod goes on as a group
of its own: it may leave, be replaced or be joined without moving others. Not thread-safe: the service calls it under
its lock.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from hived.scenario import Asked
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.errors import InvariantError, UserError
from hived.values.events import Offer, Phase
from hived.values.specs import GroupSpec, MemberSpec, PodRequest, PodSpec
from hived_config.words import counted
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.bind_info import bind_annotations, gang_annotations, promise, spec_text
from hived_extender.jobs.kinds.description import GangKey
from hived_extender.jobs.readings import as_asked
from hived_extender.kube_rules.demands import RuledPod
from hived_extender.machine.core import Core
from hived_extender.machine.gangs.plans import Part, Round, round_of
from hived_extender.machine.gangs.table import Gangs
from hived_extender.machine.offers import Offers
from hived_extender.machine.pods import PodRecord, PodState, PodTable

log = logging.getLogger(__name__)


class Alone(msgspec.Struct, frozen=True):
    """The pod starts by itself. `request` is None if it takes no cells."""

    request: PodRequest | None


class Bound(Protocol):
    """Limits of placed pods beside the cells themselves."""

    def allows(self, core: Core, pods: Sequence[tuple[PodRecord, PodRequest]]) -> bool:
        """True if these pods may have cells together."""

    def moment(self, core: Core) -> object:
        """A value that changes whenever the answer may."""


class Rounds:
    """The next step of each gang. A `bound` limits the pods that start together."""

    def __init__(self, pods: PodTable, gangs: Gangs, offers: Offers) -> None:
        """`offers` are replaced when the configured nodes change."""
        self.offers = offers
        self._pods = pods
        self._gangs = gangs
        self.bound: Bound | None = None
        self._planned: tuple[object, list[Bind | Preempt | Wait]] = None, []
        self._told: dict[str, tuple[GangKey, PodRequest]] = {}  # rounds that the core may reserve cells for
        self._alone: dict[str, PodRecord] = {}  # pods of gangs that it may do so for by themselves, by uid

    def step(self, record: PodRecord) -> Alone | Round | Wait:
        """The next step of a waiting pod: alone, in a round, or later. Raises UserError if it is refused."""
        if record.translation.mistake:
            raise UserError(record.translation.mistake)
        key = record.gang
        if key is None:
            return Alone(self._single(record))
        plan = self._gangs.plan(key)
        if plan.refusal:
            raise UserError(plan.refusal)
        if plan.forming:
            return Wait(plan.forming)
        if plan.round is None:
            return Alone(self._single(record))
        if record.uid in plan.round.uids:
            return plan.round
        return Wait(f"podgroup/{key} starts first with {counted(len(plan.round.members), 'other pod')}")

    def choose(self, core: Core, key: GangKey, before: Sequence[Sequence[Asked]] = ()) -> None:
        """Choose the pods of a gang that start together, by the present room with `before` in place (`plans`).

        A choice stays while cells are reserved for it. Cost O(pods) without changes, else up to `MOST_TRIES` questions
        to the core.
        """
        plan = self._gangs.plan(key)
        if plan.choices is None or plan.round is None:
            return
        if any(core.reserves(part.request) for part in plan.round.parts):
            return
        quotas = None if self.bound is None else self.bound.moment(core)
        moment = (
            id(core), core.change_count, len(before), self.offers.moment(plan.choices.ready), quotas,
            self.offers.pods_moment if any(map(_has_no_cells, plan.choices.ready)) else 0,
        )  # fmt: skip
        if plan.chosen_at == moment:
            return
        plan.chosen_at = moment

        def fits(members: list[PodRecord]) -> bool:
            parts = round_of(members, {}).parts
            pods = [(one, single_request(one)) for part in parts for one in part.members]
            if self.bound is not None and not self.bound.allows(core, pods):
                return False
            asks = [Asked(part.request, offer=self.offer(part)) for part in parts]
            found = core.plan([*before, asks])[-1]
            if isinstance(found, UserError) or not all(isinstance(one, Bind) for one in found):
                return False
            others = [one for one in members if _has_no_cells(one)]
            return not others or self.offers.take_beside(others, _places(parts, found))

        def is_unlikely(record: PodRecord) -> bool:
            return record.offer.is_doubted or not self.offers.has_node(record)

        members = plan.choices.best(fits, is_unlikely)
        if plan.round.uids != {record.uid for record in members}:
            plan.round = round_of(members, {}, plan.choices.least(members))

    def choose_within(self, key: GangKey, sizes: Sequence[int]) -> None:
        """Choose the pods of a gang that start on the cells held for it, of these sizes."""
        plan = self._gangs.plan(key)
        if plan.choices is None or plan.round is None or plan.chosen_at == tuple(sizes):
            return
        plan.chosen_at, held = tuple(sizes), Counter(sizes)

        def fits(members: list[PodRecord]) -> bool:
            return Counter(one.ask.leaf_cell_count for one in members if one.ask and one.ask.leaf_cell_count) <= held

        members = plan.choices.best(fits, lambda record: record.offer.is_doubted)
        if plan.round.uids != {record.uid for record in members}:
            plan.round = round_of(members, {}, plan.choices.least(members))

    def offer(self, part: Part, *, exact: PodRecord | None = None) -> Offer | None:
        """The nodes offered to each pod of a part; see `Offers.of`."""
        return self.offers.of(part.request, part.slots, exact=exact)

    def room(self, core: Core, round_: Round) -> list[Bind | Preempt | Wait]:
        """The core's answer to each part if every node were offered; cached until a change.

        Cost: a look into a table but for the first of many equal pods. UserError as `decide`.
        """
        self._check_names(core, round_)
        if len(round_.parts) == 1:
            request = round_.parts[0].request
            return [core.try_waiting(request, self.offers.everywhere(request))]
        moment = (core, core.change_count, [part.request for part in round_.parts])
        if moment != self._planned[0]:
            self._planned = moment, _planned(core, [Asked(part.request) for part in round_.parts])
        return self._planned[1]

    def decide(
        self, core: Core, round_: Round, phase: Phase, *, exact: PodRecord | None = None
    ) -> list[Bind | Preempt | Wait]:
        """The core's answer to each part, in order, with earlier parts in place.

        Parts that could only wait free their reserved cells. UserError if other pods have taken a name that the round
        needs.
        """
        self._check_names(core, round_)
        asks = [Asked(part.request, offer=self.offer(part, exact=exact)) for part in round_.parts]
        for asked in asks:
            if core.has_lost_cells(asked.pod):
                core.decide(asked.pod, Phase.PREEMPTING, asked.offer, commit=False)
        if len(asks) > 1:
            found = _planned(core, asks)
        else:
            found = [core.decide(asked.pod, phase, asked.offer, commit=False) for asked in asks]
        if any(isinstance(one, Wait) and not one.is_emptied for one in found):
            self._cancel_reservations(core, [asked.pod for asked in asks])
        elif phase is Phase.PREEMPTING and len(asks) > 1:
            found = [
                core.decide(asked.pod, phase, asked.offer, commit=False) if isinstance(one, Preempt) else one
                for asked, one in zip(asks, found, strict=True)
            ]
        self.note_reserved(core, round_)
        return found

    def _check_names(self, core: Core, round_: Round) -> None:
        """Raise UserError if an affinity group has the name of a part: any author may choose it."""
        for part in round_.parts:
            name = part.request.spec.group.name
            is_ours = name in self._told and core.reserves(part.request)
            absent = (one.spec.group.name for one in part.absent)
            for taken in (*(() if is_ours else (name,)), *(record.key for record in part.members), *absent):
                if core.has_group(taken):
                    raise UserError(
                        f"podgroup/{round_.key} cannot start: other pods are in an affinity group {taken}; "
                        "delete them, or give their group another name"
                    )

    def note_reserved(self, core: Core, round_: Round) -> None:
        """Note that the core may have reserved cells for this round."""
        for part in round_.parts:
            if core.reserves(part.request):
                self._told[part.request.spec.group.name] = round_.key, part.request

    def start(self, core: Core, round_: Round, exact: PodRecord) -> bool:
        """Allocate all parts, for which the core had room, and split them (rule 26.6): each pod is Binding or cleared.

        False, and nothing changes, if the core answers otherwise now: it looks first at the nodes of its last search.
        """
        asks = [Asked(part.request, offer=self.offer(part, exact=exact)) for part in round_.parts]
        (found,) = core.plan([asks])
        if isinstance(found, UserError) or not all(isinstance(one, Bind) for one in found):
            self._planned = None, []
            core.forget_answers()
            return False
        for part in round_.parts:
            self._start_part(core, part, exact, round_.spare)
        self.has_started(core, round_)
        return True

    def has_started(self, core: Core, round_: Round) -> None:
        """Handle a started round: pods without cells are cleared, and nothing stays reserved."""
        self._cancel_reservations(core, [part.request for part in round_.parts])
        for record in round_.members:
            if (ask := record.ask) is not None and not ask.leaf_cell_count:
                self._pods.move(record, PodState.CLEARED)
        self._gangs.changed(round_.key)
        log.info("gang started", extra={"fields": {"gang": round_.name, "pods": len(round_.members)}})

    def asked_alone(self, record: PodRecord) -> None:
        """Note that the core is asked about a pod alone, and may reserve cells for it."""
        if record.gang is not None:
            self._alone[record.uid] = record

    def reconcile(self, core: Core, key: GangKey) -> list[PodRecord]:
        """Cancel reservations of a round that is out of date after a change of its pods (rule 26.6).

        Returns the pods with reserved cells that do not start alone any more.
        """
        together = self._gangs.together(key)
        self._alone = {uid: one for uid, one in self._alone.items() if not one.state.has_node}
        reserving = [of for of, _ in self._told.values()] + [one.gang for one in self._alone.values()]
        if not any(of in together for of in reserving):
            return []  # a plan costs more, and pods of a large gang come one by one
        plan = self._gangs.plan(key)
        wanted = [part.request for part in plan.round.parts] if plan.round is not None else []
        for of, request in list(self._told.values()):
            if of in plan.keys and request not in wanted:
                self._cancel_reservations(core, [request])
        if not (plan.refusal or plan.forming or plan.round):
            return []
        waiting = [self._alone.pop(uid) for uid, one in list(self._alone.items()) if one.gang in plan.keys]
        return [one for one in waiting if one.is_in_core and one.request is not None and core.reserves(one.request)]

    def gone(self, uid: str) -> None:
        """Remove a pod that is gone."""
        self._alone.pop(uid, None)

    def forget(self) -> None:
        """Forget a pod that is bound or gone."""
        self._told.clear()
        self._alone.clear()

    def annotations(self, record: PodRecord) -> dict[str, str]:
        """The annotations of a pod being bound: its place, and unwritten places of its gang (rule 26.10)."""
        place = bind_annotations(record.place.info) if record.place.info is not None else {}
        if not record.is_of_dialect:
            # The decision used the text of that time, which may have changed since.
            asked = _decided_text(record)
            return ({SCHEDULING_SPEC: asked} if asked else {}) | place
        mates = self._gangs.placed_with(record.gang) if record.gang is not None else ()
        peers = [
            promise(mate.uid, mate.place.info)
            for mate in mates
            if mate.uid != record.uid
            and mate.state is not PodState.BOUND
            and self._pods.get(mate.place.promised_by) is None
        ]
        return place | gang_annotations(record.request, str(record.gang or ""), peers)

    def _single(self, record: PodRecord) -> PodRequest | None:
        """A pod's own request; that of a surplus pod by rule 26.11."""
        if record.ask is None or not record.ask.leaf_cell_count:
            return None
        mate = self._gangs.mate_with_cells(record)
        beside = mate.request.spec.group.name if mate is not None and mate.request is not None else ""
        request = single_request(record)
        return replace(request, spec=replace(request.spec, elastic=self._gangs.is_surplus(record), beside=beside))

    def _start_part(self, core: Core, part: Part, exact: PodRecord, spare: Collection[str]) -> None:
        decision = core.decide(part.request, Phase.FILTERING, self.offer(part, exact=exact), commit=True)
        if not isinstance(decision, Bind):
            raise InvariantError(f"{part.request.label} had room, and then {decision}")
        pods = [_as_in(part, single_request(record), elastic=record.uid in spare) for record in part.members]
        core.split(part.request.spec.group.name, [*pods, *part.absent])
        for absent in part.absent:
            core.delete(absent)
        self._told.pop(part.request.spec.group.name, None)
        for record, request in zip(part.members, pods, strict=True):
            self._pods.place(record, request, core.bind_info_of(request.spec.group.name))

    def _cancel_reservations(self, core: Core, requests: Iterable[PodRequest]) -> None:
        for request in requests:
            if self._told.pop(request.spec.group.name, None) is not None:
                core.delete(request)


def _has_no_cells(record: PodRecord) -> bool:
    return record.ask is None or not record.ask.leaf_cell_count


def _places(parts: Sequence[Part], found: Sequence[Bind | Preempt | Wait]) -> dict[str, tuple[str, RuledPod]]:
    """The nodes of the pods of these parts, by uid."""
    places: dict[str, tuple[str, RuledPod]] = {}
    for part, decision in zip(parts, found, strict=True):
        slots = [one for member in decision.bind_info.members for one in member] if isinstance(decision, Bind) else []
        for record, slot in zip(part.members, slots, strict=False):  # later slots are for pods that are not there
            if record.ruled is not None:
                places[record.uid] = slot.node, record.ruled
    return places


def _planned(core: Core, asks: list[Asked]) -> list[Bind | Preempt | Wait]:
    (found,) = core.plan([asks])
    if isinstance(found, UserError):
        raise found
    return found


def single_request(record: PodRecord) -> PodRequest:
    """A gang pod's request as a group of its own. It must take cells."""
    ask = record.ask
    if ask is None:
        raise InvariantError(f"{record.key} asks for nothing")
    group = GroupSpec(record.key, (MemberSpec(1, ask.leaf_cell_count),))
    return PodRequest(record.uid, record.name, record.namespace, ask.spec(group))


def _decided_text(record: PodRecord) -> str:
    """The pod's own annotation at its decided priority, which its job's may override; "" if none."""
    if record.reading is None:
        return ""
    spec, request = record.reading.spec, record.request
    if isinstance(spec, PodSpec) and request is not None and spec.priority != request.spec.priority:
        return spec_text(replace(spec, priority=request.spec.priority))
    return as_asked(record.reading)


def _as_in(part: Part, request: PodRequest, *, elastic: bool) -> PodRequest:
    """A pod's own request, with the common terms of its part."""
    common = part.request.spec
    spec = replace(request.spec, lazy_preemption=common.lazy_preemption, elastic=elastic)
    return replace(request, spec=spec)


def merged(decisions: list[Bind | Preempt | Wait]) -> Bind | Preempt | Wait | None:
    """One answer for a round: its first wait, else all victims, else a bind; None if no part takes cells."""
    for decision in decisions:
        if isinstance(decision, Wait):
            return decision
    victims: dict[str, tuple[str, ...]] = {}
    for decision in decisions:
        if isinstance(decision, Preempt):
            for node, uids in decision.victims_by_node.items():
                victims[node] = tuple(sorted({*victims.get(node, ()), *uids}))
    if victims:
        gave_up = any(isinstance(decision, Preempt) and decision.gave_up for decision in decisions)
        return Preempt(dict(sorted(victims.items())), gave_up=gave_up)
    return decisions[0] if decisions else None
