"""Tentative questions: the outcomes of pods now, on the state as it is. Nothing is held afterwards.

Pods that do not exist yet, as for `hived submit --dry-run`, or copies of pods that wait: they are taken to be all there
and asked about, those of a gang together and before those beyond its minimum. The core tries each place under its
journal and takes it back. Not thread-safe.
"""

import dataclasses
import re
from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from hived.scenario import Asked, nodes_of, once_left
from hived.values.decisions import Bind, Preempt, Wait
from hived.values.errors import UserError
from hived.values.specs import BindInfo, PodPlacement, PodRequest
from hived_extender.api.waiting import Certificate, PodOutcome, Victim
from hived_extender.jobs.node_names import Mask
from hived_extender.jobs.quotas.usage import TOO_LARGE
from hived_extender.jobs.readings import Reading
from hived_extender.jobs.wire import AskedPod, Pod
from hived_extender.kube_rules.demands import DemandsReader
from hived_extender.machine.cluster_cache import ClusterCache
from hived_extender.machine.core import Core, Refused
from hived_extender.machine.explaining import MOST_AT_ONCE, Explaining, Ration, shape_of
from hived_extender.machine.gangs.members import translate
from hived_extender.machine.gangs.plans import Round, listed
from hived_extender.machine.gangs.rounds import Alone, Rounds, merged
from hived_extender.machine.gangs.table import Gangs
from hived_extender.machine.kept_cells import pods_of, reserved_by
from hived_extender.machine.pods import Place, PodRecord, PodState, PodTable, Seen
from hived_extender.machine.preemptions import Preemptions
from hived_extender.machine.quota_bound import QuotaBound, Words
from hived_extender.machine.victim_sets import Wanted
from hived_extender.machine.waiting import NO_CHAIN_REASON

_LABEL = re.compile(r"^\[what-if-\d+\([^()]*\)\]: ")
"""The beginning of the core's messages; the pods have no uids yet."""

POD_LIMIT = 4096
"""Pods of one question."""

MOST_VICTIMS = 64
"""Jobs that are named among the victims of one answer."""

BESIDE = "pods that start before it would have the cells"
"""The reason of a pod that would start without others of the same question."""

ANY_NODE = "takes no cells: kube-scheduler chooses its node"

Decision = Bind | Preempt | Wait


def check_count(pods: Sequence[Pod]) -> None:
    """Raise UserError for more pods than one question may have."""
    if len(pods) > POD_LIMIT:
        raise UserError(f"{len(pods)} pods, at most {POD_LIMIT} at once")


class WhatIf:
    """One question."""

    def __init__(
        self, core: Core, cache: ClusterCache, explaining: Explaining, quotas: QuotaBound, preemptions: Preemptions
    ) -> None:
        self._core, self._preemptions = core, preemptions
        self._quotas, self._said = quotas, dict[str, Words]()
        self._counted: list[tuple[PodRecord, PodRequest]] = []  # that can run, and count against quotas
        self._explaining = explaining
        self._ration = Ration(0.0, MOST_AT_ONCE)
        self._cache = cache
        self._pods = PodTable()
        self._gangs = Gangs()
        self._rounds = Rounds(self._pods, self._gangs, cache.offers)
        self._rounds.bound = quotas
        self._outcomes: dict[str, PodOutcome] = {}
        self._placed: list[list[Asked]] = []  # bundles that can run, in turn; after others have left, if they must
        self._leaving: dict[str, PodRequest] = {}  # pods that leave for these, by uid
        self._alone: dict[object, list[Decision] | UserError] = {}  # answers without these, by what is asked for

    def of_new(self, pods: Sequence[tuple[Pod, Reading]]) -> list[PodOutcome]:
        """The outcomes for pods that do not exist yet, in their order."""
        return self._answer([self._read(number, pod, reading) for number, (pod, reading) in enumerate(pods)])

    def of_asked(self, pod: AskedPod, reading: Reading, offered: Mask | None) -> PodOutcome:
        """The outcome for a pod that kube-scheduler could ask about, with these nodes offered; None for all.

        A pod that waits is copied, with its gangs.
        """
        known = self._cache.pods.get(pod.metadata.uid)
        if known is None:
            return self.of_new([(pod.whole(), reading)])[0]
        if known.state.is_placed:
            info = known.place.info
            self._say(known, "bind", node=known.place.node, cells=info.leaf_cell_indices if info is not None else ())
            return self._outcomes[known.uid]
        record = dataclasses.replace(known, reading=reading, request=None)
        if not record.is_of_dialect:
            record.request = self._cache.bound.own_request(record, reading)
        self._cache.offers.note(record, offered)
        for gang in self._cache.gangs.of(record):
            for mate in gang.in_order():
                if mate.uid != record.uid:
                    self._gangs.join(dataclasses.replace(mate))
            for uid, ended in gang.ended.items():
                self._gangs.end(uid, ended)
        return self._answer([record])[0]

    def _answer(self, records: Sequence[PodRecord]) -> list[PodOutcome]:
        for record in records:
            self._gangs.join(record)
        waits = {record.uid: "" for record in records if record.uid not in self._outcomes}
        while waits:  # those beyond the minimum of a gang come after the others have started
            before = len(self._outcomes)
            waits = self._try_all([record for record in records if record.uid in waits])
            if len(self._outcomes) == before:
                break
        for record in records:
            if record.uid in waits:
                self._say(record, "wait", waits[record.uid])
        return [self._outcomes[record.uid] for record in records]

    def _read(self, number: int, pod: Pod, reading: Reading) -> PodRecord:
        meta = msgspec.structs.replace(pod.metadata, namespace=pod.metadata.namespace or "default")
        pod = msgspec.structs.replace(pod, metadata=meta)
        record = self._pods.add(f"what-if-{number}", meta.name or f"pod-{number}", meta.namespace)
        seen = Seen.of(pod)
        record.seen = Seen(created=f"{number:06d}", priority=seen.priority, preempts=seen.preempts)
        self._said[record.uid] = self._quotas.read(pod)
        self._pods.hold(record, is_held=pod.is_held)
        try:
            record.ruled = DemandsReader().read_pod(pod)
            if not self._cache.interpreter.is_ours(pod):
                self._say(record, "not-ours", "neither its limits nor its schedulerName make it a pod of hived")
            elif pod.node:
                is_there = self._cache.nodes.ruled(pod.node) is not None
                what = "hived chooses the node of this pod" if is_there else f"there is no node {pod.node}"
                raise UserError(f"spec.nodeName: {what}; leave the field out")
            elif reading.is_own:
                record.request = self._cache.bound.own_request(record, reading)
            else:
                record.translation = translate(self._cache.interpreter, pod, record.namespace, number)
            mistake = record.translation.mistake
        except UserError as error:
            mistake = error.message
        if mistake:
            record.translation = replace(record.translation, mistake=mistake)
            self._say(record, "refused", mistake)
        return record

    def _try_all(self, records: Sequence[PodRecord]) -> dict[str, str]:
        """Find out about these pods, one after the other, each with all that start with it. Returns, by uid, why the
        others have to wait for some of them.
        """
        waits: dict[str, str] = {}
        steps: dict[str, tuple[PodRecord, Alone | Round]] = {}  # by what is asked for
        for record in records:
            try:
                if record.request is None and record.gang is not None:
                    self._rounds.choose(self._core, record.gang, self._placed)
                step = self._rounds.step(record) if record.request is None else Alone(record.request)
                if isinstance(step, Wait):
                    waits[record.uid] = step.reason
                elif isinstance(step, Alone) and step.request is None:
                    self._say(record, "bind", ANY_NODE)
                else:
                    steps.setdefault(step.name if isinstance(step, Round) else record.uid, (record, step))
            except UserError as error:
                self._say(record, "refused", error.message)
        for (record, step), found in zip(steps.values(), self._decide(steps.values()), strict=True):
            if isinstance(found, UserError):
                for one in step.members if isinstance(step, Round) else (record,):
                    self._say(one, "refused", found.message)
            elif isinstance(step, Round):
                self._tell_round(step, found)
            else:
                self._tell([record], found[0], [] if step.request is None else [step.request])
        return waits

    def _decide(self, steps: Collection[tuple[PodRecord, Alone | Round]]) -> list[list[Decision] | UserError]:
        """The core's answer to each, with all before that can run in place."""
        over = [self._over_quota(record, step) for record, step in steps]
        bundles = [
            [] if refusal is not None else self._asks(record, step)
            for (record, step), refusal in zip(steps, over, strict=True)
        ]
        found = self._core.plan([*self._placed, *bundles])[len(self._placed) :]
        for at, ((record, step), bundle) in enumerate(zip(steps, bundles, strict=True)):
            one = found[at]
            if bundle and self._leaving:
                one = self._after_victims(bundle)
            elif bundle and not self._placed and not isinstance(one, UserError):
                one = self._foreseen(record, step, bundle, one)
            if self._placed and not isinstance(one, UserError) and any(isinstance(each, Wait) for each in one):
                one = self._without_others(bundle, one)
            found[at] = one
            if bundle and not isinstance(one, UserError) and all(isinstance(decision, Bind) for decision in one):
                self._placed.append(bundle)
            elif bundle and not isinstance(one, UserError):
                self._clear(bundle, one)
        return [one if refusal is None else [refusal] for one, refusal in zip(found, over, strict=True)]

    def _foreseen(
        self, record: PodRecord, step: Alone | Round, bundle: list[Asked], found: list[Decision]
    ) -> list[Decision]:
        """The evictions, by Kubernetes' rules too, as the service decides it; only of the first that ask, as
        others would count without those before them.
        """
        slots = [part.slots for part in step.parts] if isinstance(step, Round) else [(record,)]
        wanted = [Wanted(one.pod, own, one.offer) for one, own in zip(bundle, slots, strict=True)]

        def has_cells() -> bool:
            asks = [Asked(one.pod, offer=self._cache.offers.everywhere(one.pod)) for one in bundle]
            (answers,) = self._core.plan([asks])
            return not isinstance(answers, UserError) and not any(isinstance(one, Wait) for one in answers)

        if any(isinstance(one, Wait) and not isinstance(one, Refused) for one in found) or len(found) < len(bundle):
            return found
        return self._preemptions.foresee(self._core, wanted, found, has_cells)

    def _clear(self, bundle: list[Asked], found: Sequence[Decision]) -> None:
        """The victims of these are gone for those that come after them in the same question."""
        uids = {uid for one in found if isinstance(one, Preempt) for uid in one.victims}
        records = [record for uid in sorted(uids) if (record := self._cache.pods.get(uid)) is not None]
        leaving = {one.uid: one.request for one in records if one.request is not None}
        if leaving and not any(isinstance(one, Wait) for one in found):
            self._leaving |= leaving
            self._placed.append(bundle)

    def _after_victims(self, bundle: list[Asked]) -> list[Decision] | UserError:
        """The answer once the victims of those before these have left, and these have their cells."""
        gone = list(self._leaving.values())
        left = nodes_of(self._core.state, (one.spec.group.name for one in gone))
        bundles = [[once_left(one, left) for one in each] for each in (*self._placed, bundle)]
        *_, found = self._core.plan(bundles, gone)
        return found

    def _without_others(self, bundle: list[Asked], found: list[Decision]) -> list[Decision] | UserError:
        """Return why these would wait even without the pods of the question before them; `BESIDE` if they would not."""
        shape = tuple(shape_of(asked.pod, asked.offer) for asked in bundle)
        if shape not in self._alone:
            (self._alone[shape],) = self._core.plan([bundle])
        alone = self._alone[shape]
        if isinstance(alone, UserError) or any(isinstance(one, Wait) for one in alone):
            return alone
        return [Wait(f"{BESIDE}: {next(one.reason for one in found if isinstance(one, Wait))}")]

    def _over_quota(self, record: PodRecord, step: Alone | Round) -> Wait | None:
        """Return why a quota does not allow this besides all before that are within theirs."""
        asked = step.request if isinstance(step, Alone) else step
        if asked is None or not self._quotas.is_asked:
            return None
        pods = pods_of(record, asked)
        refusal = self._quotas.refusal(
            self._core, pods, beside=self._counted, instead=reserved_by(asked), said=self._said
        )
        if refusal is None:
            self._counted += pods
        return refusal

    def _asks(self, record: PodRecord, step: Alone | Round) -> list[Asked]:
        """As if kube-scheduler offered every node that its rules of nodes do not forbid."""
        if isinstance(step, Round):
            return [Asked(part.request, offer=self._rounds.offer(part)) for part in step.parts]
        return (
            [] if step.request is None else [Asked(step.request, offer=self._cache.offers.of(step.request, [record]))]
        )

    def _tell_round(self, round_: Round, found: list[Decision]) -> None:
        decision = merged(found)
        if isinstance(decision, Preempt | Wait):
            self._tell(round_.members, decision, [part.request for part in round_.parts])
            return
        for part, one in zip(round_.parts, found, strict=True):
            self._tell(part.members, one, [part.request])
            if isinstance(one, Bind):
                for record in part.members:  # those beyond the minimum may have to be near
                    record.request, record.place = part.request, Place(one.bind_info.node, one.bind_info)
        for record in round_.members:
            record.state = PodState.CLEARED  # it has its place
            if record.uid not in self._outcomes:
                self._say(record, "bind", ANY_NODE)
        self._gangs.changed(round_.key)

    def _tell(self, records: Sequence[PodRecord], decision: Decision, requests: Sequence[PodRequest]) -> None:
        if isinstance(decision, Bind):
            info = decision.bind_info
            places: list[PodPlacement | BindInfo] = [info]
            if len(records) > 1:
                places = [place for member in info.members for place in member]
            for record, place in zip(records, places, strict=True):
                self._say(record, "bind", node=place.node, cells=list(place.leaf_cell_indices))
            return
        if isinstance(decision, Preempt):
            count = sum(map(len, decision.victims_by_node.values()))
            victims = "1 pod has" if count == 1 else f"{count} pods have"
            reason = f"{victims} to leave first, on {listed(list(decision.victims_by_node))}"
            if decision.gave_up:
                reason += "; other victims may lose less work, the search for them was given up"
        else:
            self._tell_wait(records, decision, requests)
            return
        for record in records:
            self._say(record, "preempt", reason)
        jobs, first = self._victims(decision), self._outcomes[records[0].uid]
        first.victims, first.more_victims = jobs[:MOST_VICTIMS], max(len(jobs) - MOST_VICTIMS, 0)

    def _victims(self, decision: Preempt) -> list[Victim]:
        """The jobs that would have to leave, with the number of their pods."""
        found: dict[str, Victim] = {}
        for uid in decision.victims:
            record, resident = self._cache.pods.get(uid), self._cache.nodes.residents.get(uid)
            if record is not None:
                job, namespace = record.shown_job, record.namespace
            elif resident is not None and resident.standing is not None:  # a pod of another scheduler
                namespace = resident.pod.namespace
                job = f"{namespace}/{resident.standing.name}"
            else:
                continue
            known = found.get(job)
            found[job] = Victim(job, namespace, 1 if known is None else known.pods + 1)
        return list(found.values())

    def _tell_wait(self, records: Sequence[PodRecord], decision: Wait, requests: Sequence[PodRequest]) -> None:
        """Explain a refusal, unless pods of the question stand in the way themselves."""
        reason, found = decision.reason or NO_CHAIN_REASON, None
        if isinstance(decision, Refused):
            refusals = self._cache.offers.refusals(records[0])
            found = self._explaining.certificate(records, requests, decision, refusals, self._ration)
        for record in records:
            if found is None:
                self._say(record, "never" if reason.endswith(TOO_LARGE) else "wait", reason)
                continue
            own = self._explaining.as_told(found, record.namespace)
            text = self._explaining.words(own.sentence, reason)
            self._say(record, "never" if own.never else "wait", text, certificate=own)

    def _say(
        self,
        record: PodRecord,
        outcome: str,
        reason: str = "",
        *,
        node: str = "",
        cells: Sequence[int] = (),
        certificate: Certificate | None = None,
    ) -> None:
        reason = _LABEL.sub("", reason)
        self._outcomes[record.uid] = PodOutcome(
            namespace=record.namespace, name=record.name, outcome=outcome, node=node, cells=list(cells), reason=reason,
            certificate=certificate,
        )  # fmt: skip
