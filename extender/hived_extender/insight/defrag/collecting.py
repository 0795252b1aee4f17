"""The inputs of a plan from a running service, without keeping others from it for long.

Inputs are what the service holds: nodes, groups with their places, reservations, waiting jobs. With them come the facts
for Kubernetes' own rules: CPU, memory, ports, taints, zones, neighbours. So a plan can be made of a file too, and knows
which nodes these rules allow pods while groups move. A pod that comes back is taken to ask for what it asked for before
it left. Pods that ignore the nodes of kube-scheduler are not held to any rule.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from hived.cells.topology import BoolArray
from hived.values.events import Offer
from hived.values.specs import BindInfo, ClusterSpec, PodRequest, count_pods, sizes_of
from hived_config.rules import Moving
from hived_extender.api.defrag import InputGroup, InputJob, InputLoss, InputPlace, InputPod, InputRules, Inputs
from hived_extender.jobs.annotations import spec_fields
from hived_extender.kube.clocks import wall_s
from hived_extender.kube_rules.demands import Demands, RuledPod
from hived_extender.kube_rules.mates import Surroundings, mate_rules
from hived_extender.kube_rules.nodes import NOT_THERE, NodeRules, RuledNode
from hived_extender.kube_rules.residents import Residents, takers
from hived_extender.kube_rules.selectors import PODS
from hived_extender.machine.core import Placed, StateInputs, reservations
from hived_extender.machine.offers import Asking
from hived_extender.machine.pods import PodRecord
from hived_extender.machine.service import Service
from hived_extender.reconfiguration.change import waiting_jobs
from hived_extender.reconfiguration.judging import Waiting

ONLY_KUBE_SCHEDULER = "only kube-scheduler knows its nodes"


class FactsNoted:
    """The facts of a cluster as they are noted, pod by pod; `rules` makes them an input."""

    def __init__(
        self, nodes: Iterable[RuledNode], namespaces: Mapping[str, Mapping[str, str]], *, is_apart: bool
    ) -> None:
        """`is_apart`: no rule of any pod is about its neighbours, so pods that no group has count together by node."""
        self._nodes = [_plain(node) for node in nodes]
        self._namespaces = {name: dict(labels) for name, labels in namespaces.items()}
        self._is_apart = is_apart
        self._kinds: list[Any] = []
        self._numbers: dict[object, int] = {}
        self._pods: list[tuple[str, str, int]] = []
        self._rest: dict[str, dict[str, int]] = {}
        self._wanted: dict[str, list[list[int]]] = {}
        self._offered: dict[str, list[str]] = {}

    def put(self, uid: str, node: str, pod: RuledPod, *, is_of_group: bool) -> None:
        """A pod runs on a node."""
        if is_of_group or not self._is_apart or pod.demands.ports:
            self._pods.append((uid, node, self._number(pod)))
            return
        used = self._rest.setdefault(node, {PODS: -1})  # it counts as one pod itself
        for resource, count in ((PODS, 1), *pod.demands.requests):
            used[resource] = used.get(resource, 0) + count

    def want(self, job: str, slots: Sequence[Sequence[RuledPod]], offered: Collection[str] | None) -> None:
        """A job waits, with the pods of the slots of each of its requests. `offered`: see `InputRules`."""
        self._wanted[job] = [[self._number(pod) for pod in each] for each in slots]
        if offered is not None:
            self._offered[job] = sorted(offered)

    def rules(self) -> InputRules:
        """All that was noted."""
        pods = list(self._pods)
        for node, used in self._rest.items():
            requests = tuple(sorted((name, count) for name, count in used.items() if count))
            pods.append((f"rest of {node}", node, self._number(RuledPod("", {}, Demands(requests=requests)))))
        return InputRules(
            nodes=self._nodes, kinds=self._kinds, pods=pods, wanted=self._wanted, offered=self._offered,
            namespaces=self._namespaces,
        )  # fmt: skip

    def _number(self, pod: RuledPod) -> int:
        key = pod.namespace, tuple(sorted(pod.labels.items())), pod.demands
        if key not in self._numbers:
            self._numbers[key] = len(self._kinds)
            self._kinds.append(_plain(pod))
        return self._numbers[key]


class KubeFacts:
    """The pods of one copy, as they leave and come. `names` are the configured nodes, `leaf_counts` their leaves."""

    def __init__(self, rules: InputRules, names: Sequence[str], leaf_counts: Any) -> None:
        """Cost O(nodes + pods). Raises msgspec.ValidationError for facts that are none."""
        self._names, self._index = tuple(names), {name: index for index, name in enumerate(names)}
        self._nodes = NodeRules(names)
        for ruled in msgspec.convert(rules.nodes, list[RuledNode]):
            self._nodes.put(ruled)
        self._namespaces = rules.namespaces
        self._residents = Residents(names)
        kinds = msgspec.convert(rules.kinds, list[RuledPod])
        self._pods = {uid: kinds[kind] for uid, _, kind in rules.pods}
        for uid, node, kind in rules.pods:
            self._residents.put(uid, node, kinds[kind])
        self._wanted = {
            f"wanted/{job}/{number}": [kinds[kind] for kind in slots]
            for job, each in rules.wanted.items()
            for number, slots in enumerate(each)
        }
        self._offered = {
            f"wanted/{job}/{number}": frozenset(nodes)
            for job, nodes in rules.offered.items()
            for number in range(len(rules.wanted.get(job, ())))
        }
        self._around = Surroundings(self._nodes, leaf_counts, self._residents, namespace_labels=self._namespaces)

    # Pods that run

    def leave(self, uids: Iterable[str]) -> None:
        """These pods are gone."""
        for uid in uids:
            self._residents.remove(uid)

    def come(self, places: Sequence[tuple[PodRequest, str]], *, is_forced: bool = False) -> tuple[str, str]:
        """Pods come to nodes, in any order. (node, reason) of one that Kubernetes would not let come; ("", "") if none.

        One that is refused stays away, unless they are forced.
        """
        left = [(request.uid, pod, node) for request, node in places if (pod := self._ruled(request)) is not None]
        return self._come(left, is_forced=is_forced)

    def _come(self, left: list[tuple[str, RuledPod, str]], *, is_forced: bool = False) -> tuple[str, str]:
        while left:
            refused = [self._refusal(pod, node) for _, pod, node in left]
            taken = 0 if is_forced else next((i for i, reason in enumerate(refused) if not reason), None)
            if taken is None:
                return left[0][2], refused[0]
            uid, pod, node = left.pop(taken)
            self._residents.put(uid, node, pod)
        return "", ""

    def refused_for_good(
        self, requests: Sequence[PodRequest], gone: Collection[str], *, in_doubt: bool = True
    ) -> list[frozenset[int]]:
        """For each pod, the nodes that it may not come to, though all of `gone` leave, by number.

        Affinity and spread are left out: who comes may change them. `in_doubt`: is a pod refused of which only
        kube-scheduler knows the nodes? Cost O(nodes) for each kind of pod.
        """
        known: dict[int, frozenset[int]] = {}
        found = []
        for request in requests:
            pod = self._ruled(request)
            if pod is None:
                found.append(frozenset[int]())
                continue
            if id(pod) not in known:
                is_unknown = in_doubt and pod.demands.beyond
                everywhere = frozenset(range(len(self._names)))
                known[id(pod)] = everywhere if is_unknown else self._refused_for_good(pod, gone)
            found.append(known[id(pod)])
        return found

    def _refused_for_good(self, pod: RuledPod, gone: Collection[str]) -> frozenset[int]:
        demands = msgspec.structs.replace(pod.demands, affinity=(), spread=())
        with self._residents.supposing(gone, {}):
            found = takers(
                msgspec.structs.replace(pod, demands=demands),
                self._names, self._nodes.present, self._residents, self._namespaces,
            )  # fmt: skip
        return frozenset(i for i, name in enumerate(self._names) if name not in found or found[name] is not None)

    def _ruled(self, request: PodRequest) -> RuledPod | None:
        return None if request.spec.ignore_suggested_nodes else self._pods.get(request.uid)

    def _refusal(self, pod: RuledPod, node: str) -> str:
        found = takers(pod, [node], self._nodes.present, self._residents, self._namespaces)
        refusal = found.get(node, None)
        if node not in found:
            return NOT_THERE
        return "" if refusal is None else ", ".join(refusal.reasons)

    # Pods that are wanted

    def wanted_refused(self, request: PodRequest, gone: Collection[str]) -> dict[int, frozenset[int]]:
        """By size, the nodes that no pod of this size of a wanted request may come to, though all of `gone` leave."""
        found: dict[int, frozenset[int]] = {}
        for (pod, offered), size in zip(self._slots(request), sizes_of(request.spec.group.members), strict=False):
            refused = self._refused_for_good(pod, gone) | self._not_offered(offered)
            found[size] = found[size] & refused if size in found else refused
        return {size: refused for size, refused in found.items() if refused}

    def offer(self, request: PodRequest) -> Offer | None:
        """The nodes that Kubernetes offers to a wanted request now; None if any will do. Cost O(pods x nodes)."""
        slots, sizes = self._slots(request), sizes_of(request.spec.group.members)
        if not slots:
            return None
        known: dict[int, BoolArray] = {}
        rows = []
        for pod, offered in slots:
            if id(pod) not in known:
                known[id(pod)] = self._takers(pod, offered)
            rows.append(known[id(pod)])
        nodes = np.array(rows)
        after = ~nodes
        for slot, (pod, offered) in enumerate(slots):
            after[slot] &= self._nodes.mask(pod.demands)
            after[slot, sorted(self._not_offered(offered))] = False
        return Offer(nodes, after, mate_rules([pod for pod, _ in slots], sizes, self._around))

    def seat(self, request: PodRequest, info: BindInfo) -> str:
        """The pods of a wanted request come to their places, in any order; "" if Kubernetes lets them, else why not."""
        places = [one for size in info.members for one in size]
        node, reason = self._come(
            [
                (f"{request.uid}#{slot}", pod, place.node)
                for slot, ((pod, _), place) in enumerate(zip(self._slots(request), places, strict=False))
            ]
        )
        return f"{node}: {reason}" if reason else ""

    def obstacle(self, requests: Iterable[PodRequest], gone: Collection[str]) -> str:
        """A node that could never take the first pod of a wanted request, with the reason; "" if all could."""
        for pod, offered in (first for request in requests for first in self._slots(request)[:1]):
            refused = sorted(self._refused_for_good(pod, gone) | self._not_offered(offered))
            with self._residents.supposing(gone, {}):
                for node in refused:
                    name = self._names[node]
                    return f"{name}: {self._refusal(pod, name) or ONLY_KUBE_SCHEDULER}"
        return ""

    def unknown_of(self, requests: Iterable[PodRequest]) -> str:
        """Return why only kube-scheduler knows the nodes of one of these pods that run, "" if that is not so."""
        pods = (self._ruled(request) for request in requests)
        return next((pod.demands.beyond for pod in pods if pod is not None and pod.demands.beyond), "")

    def _takers(self, pod: RuledPod, offered: frozenset[str] | None) -> BoolArray:
        found = takers(pod, self._names, self._nodes.present, self._residents, self._namespaces)
        mask = np.array([name in found and found[name] is None for name in self._names], np.bool_)
        mask[sorted(self._not_offered(offered))] = False
        return mask

    def _not_offered(self, offered: frozenset[str] | None) -> frozenset[int]:
        if offered is None:
            return frozenset()
        return frozenset(index for name, index in self._index.items() if name not in offered)

    def _slots(self, request: PodRequest) -> list[tuple[RuledPod, frozenset[str] | None]]:
        """The pod of each slot, and the nodes that it is offered where only kube-scheduler knows them."""
        if request.spec.ignore_suggested_nodes:
            return []
        offered = self._offered.get(request.uid)
        return [(pod, offered if pod.demands.beyond else None) for pod in self._wanted.get(request.uid, ())]


def _plain(value: RuledNode | RuledPod) -> Any:
    """As JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value))


class Facts(msgspec.Struct, frozen=True):
    """Facts that the service knows of a pod beside its request: see `InputGroup`."""

    gang: str = ""
    may_move: bool = False


NO_FACTS = Facts()


def inputs_of(
    held: StateInputs,
    node_names: Iterable[str],
    *,
    configuration: str,
    at: float,
    losses: Iterable[InputLoss] = (),
    facts: Mapping[str, Facts] | None = None,
    waiting: Iterable[Waiting] = (),
    rules: InputRules | None = None,
) -> Inputs:
    """The inputs as one value that can be written to a file. `facts` are by uid. Cost O(nodes + pods)."""
    placed: dict[str, list[Placed]] = {}
    for one in held.placed.values():
        placed.setdefault(one.request.spec.group.name, []).append(one)
    known = facts or {}
    groups = [_group(pods, known) for pods in placed.values()]
    groups += [
        _group([Placed(pod, reserved.info) for pod in reserved.pods], known, is_reserved=True)
        for name, reserved in held.reserved.items()
        if name not in placed
    ]
    return Inputs(
        at=at,
        configuration=configuration,
        bad_nodes=[name for name in node_names if name not in held.healthy_nodes],
        losses=list(losses),
        groups=groups,
        waiting=[_job(job) for job in waiting if job.parts],
        rules=rules,
    )


def _group(pods: Sequence[Placed], facts: Mapping[str, Facts], *, is_reserved: bool = False) -> InputGroup:
    """One group. It may move if all its pods may; its work is counted as the core does (rule 8.12)."""
    info, known = pods[0].info, [facts.get(one.request.uid, NO_FACTS) for one in pods]
    return InputGroup(
        spec=spec_fields(pods[0].request.spec),
        chain=info.cell_chain,
        places=[
            [InputPlace(one.node, one.leaf_cell_indices, one.preassigned_cell_types) for one in size]
            for size in info.members
        ],
        pods=[
            InputPod(
                one.request.uid, one.request.namespace, one.request.name, one.info.node, one.info.leaf_cell_indices
            )
            for one in pods
        ],
        gang=known[0].gang,
        may_move=all(one.may_move for one in known),
        started_at=min((one.times.started_s for one in pods if one.times.started_s is not None), default=None),
        checkpointed_at=max((one.times.saved_s for one in pods if one.times.saved_s is not None), default=None),
        is_reserved=is_reserved,
    )


def _job(job: Waiting) -> InputJob:
    return InputJob(job.name, list(job.pods), [spec_fields(request.spec) for request in job.requests])


AT_ONCE = 500
"""Pods looked at under the lock; others are served in between."""


class Collected(msgspec.Struct, frozen=True):
    """Inputs, with their configuration read."""

    inputs: Inputs
    cluster: ClusterSpec
    moving: Moving


def collect(service: Service, configuration: str) -> Collected:
    """The inputs of now. Pods that come or go meanwhile may be in them or not: plans are checked before they are made
    true. Raises NotLeadingError.
    """
    service.check_leads()
    waiting = waiting_jobs(service)
    with service.runner.exclusive() as machine:
        core = machine.verbs.core
        spec, moving = core.state.spec, machine.interpreter.rules.moving
        reserved, names = reservations(core.state), core.node_names
    time.sleep(0)  # let another waiter have the lock first
    with service.runner.exclusive() as machine:
        healthy = frozenset(machine.cache.nodes.healthy)
        losses = [InputLoss(one.node, one.leaf_type, one.lost_count, one.known) for one in machine.cache.devices.losses]
    time.sleep(0)
    with service.runner.exclusive() as machine:
        records = list(machine.cache.pods)
    placed: dict[str, Placed] = {}
    facts: dict[str, Facts] = {}
    for first in range(0, len(records), AT_ONCE):
        with service.runner.exclusive() as machine:
            for record in records[first : first + AT_ONCE]:
                if machine.cache.pods.get(record.uid) is record:
                    _note(record, placed, facts)
        time.sleep(0)
    rules = _rules_of(service, waiting, facts)
    held = StateInputs(healthy, placed, reserved)
    inputs = inputs_of(
        held,
        names,
        configuration=configuration,
        at=float(int(wall_s())),
        losses=losses,
        facts=facts,
        waiting=waiting,
        rules=rules,
    )
    return Collected(inputs, spec, moving)


def _note(record: PodRecord, placed: dict[str, Placed], facts: dict[str, Facts]) -> None:
    request, info = record.request, record.place.info
    if request is not None and info is not None and record.is_in_core:
        placed[record.uid] = Placed(request, info, record.progress.times)
        facts[record.uid] = Facts(str(record.gang) if record.gang is not None else "", record.progress.may_move)


def _rules_of(service: Service, waiting: Sequence[Waiting], of_groups: Collection[str]) -> InputRules:
    """The facts for Kubernetes' own rules; `of_groups` are the uids of pods with cells. Pods that leave are gone."""
    with service.runner.exclusive() as machine:
        residents, offers = machine.cache.nodes.residents, machine.cache.offers
        uids = residents.uids()
        asking = [pod for job in waiting for part in job.parts for pod in _of_slots(part)]
        asking += [found.pod for uid in of_groups if (found := residents.get(uid)) is not None]
        is_apart = not residents.repelling and not any(pod.demands.has_neighbour_rules for pod in asking)
        noted = FactsNoted(list(offers.nodes.values()), offers.namespace_labels, is_apart=is_apart)
    time.sleep(0)
    for first in range(0, len(uids), AT_ONCE):
        with service.runner.exclusive() as machine:
            residents = machine.cache.nodes.residents
            for uid in uids[first : first + AT_ONCE]:
                found = residents.get(uid)
                if found is not None and not found.is_leaving:
                    noted.put(uid, found.node, found.pod, is_of_group=uid in of_groups)
        time.sleep(0)
    for job in waiting:
        if job.parts:
            ruled = [_of_slots(part) for part in job.parts]
            is_beyond = any(pod.demands.beyond for part in ruled for pod in part)
            noted.want(job.name, ruled, (job.offered or ()) if is_beyond else None)
    return noted.rules()


def _of_slots(part: Asking) -> Sequence[RuledPod]:
    """The pod of each slot; none if one is not known."""
    count = count_pods(part.request.spec.group.members)
    return () if len(part.ruled) < len(part.fit) else part.ruled * (count // len(part.ruled))
