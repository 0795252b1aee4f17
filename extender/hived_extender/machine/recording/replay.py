"""Replays a log of operations on a scheduler and records its answers, operation by operation.

A scenario is a JSON-lines file: a header, then one operation per line (docs/replay.md lists them). Its trace has one
record per operation: the decision and, if asked for, the changes in the cells and groups (rule 16.2). The same scenario
always gives the same bytes. The scheduler is anything with the few methods of `Scheduler`, so that the core and the
tests' oracle are driven by one program.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from hived import scheduler
from hived.life import status
from hived.life.allocation import split_bind_info
from hived.scenario import Asked, Scenario
from hived.values.decisions import Applied, Bind, Decision, Preempt, Wait
from hived.values.errors import InvariantError, UserError
from hived.values.events import (
    Event,
    GangChanged,
    GroupReserved,
    GroupSplit,
    GroupsUpgraded,
    LeavesLost,
    NodeHealthChanged,
    Phase,
    PodAllocated,
    PodDeleted,
    PodProgressed,
)
from hived.values.specs import NO_TIMES, BindInfo, ClusterSpec, PodRequest, WorkTimes
from hived_extender.jobs import annotations
from hived_extender.jobs.bind_info import bind_info
from hived_extender.machine.recording import operations as ops
from hived_extender.machine.recording.operations import Operation, ScenarioError
from hived_extender.machine.recording.recorded_offer import from_text, suggestion_mask

Json: TypeAlias = dict[str, Any]

_encoder = msgspec.json.Encoder(order="sorted")


def encode_record(record: Json) -> bytes:
    """One line of a trace; keys are sorted, so equal records are equal bytes."""
    return _encoder.encode(record) + b"\n"


def error_result(error: UserError) -> Json:
    """A refusal as a record shows it; every refusal of an operation counts as a bad request."""
    return {"kind": "error", "code": 400, "message": error.message}


def decision_result(decision: Decision) -> Json:
    """The part of a record that tells the decision."""
    match decision:
        case Bind():
            return {"kind": "bind", "bind": bind_json(decision.bind_info)}
        case Preempt():
            by_node = {node: sorted(victims) for node, victims in decision.victims_by_node.items()}
            node = min(by_node)
            found = {"kind": "preempt", "victimsByNode": by_node, "node": node, "victims": by_node[node]}
            return found | {"gaveUp": True} if decision.gave_up else found
        case Wait():
            return {"kind": "wait", "reason": decision.reason}
        case Applied():
            raise InvariantError("a request to schedule was answered as a fact")


def bind_json(info: BindInfo) -> Json:
    """A bind info in the words of its annotation."""
    return {
        "node": info.node,
        "leafCellIsolation": info.leaf_cell_indices,
        "cellChain": info.cell_chain,
        "affinityGroupBindInfo": [
            {
                "podPlacements": [
                    {
                        "physicalNode": placement.node,
                        "physicalLeafCellIndices": placement.leaf_cell_indices,
                        "preassignedCellTypes": placement.preassigned_cell_types,
                    }
                    for placement in member
                ]
            }
            for member in info.members
        ],
    }


def hash_map(entries: Mapping[str, Any]) -> str:
    """The first 16 hex digits of sha256 over the map's JSON, keys sorted, without spaces."""
    return hashlib.sha256(_encoder.encode(entries)).hexdigest()[:16]


def diff_maps(before: Mapping[str, Any], after: Mapping[str, Any]) -> Json:
    """Entries that are new or changed, and None for entries that are gone."""
    changed: Json = {key: value for key, value in after.items() if before.get(key) != value}
    return changed | {key: None for key in before if key not in after}


Snapshot: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]

NAMESPACE = "ns"
NO_TIME = "T"
"""Stands for every time in a trace, because a replay has no clock."""

_MAPS = ("p", "v", "g")
_BESIDE = "beside"


class Scheduler(Protocol):
    """A scheduler as a replay needs it; the methods raise UserError where an operation is refused."""

    node_names: tuple[str, ...]
    """All configured nodes, ascending."""

    def handle(self, event: Event) -> Decision:
        """Take one event in."""

    def plan(self, pods: Sequence[PodRequest], suggested: npt.NDArray[np.bool_] | None) -> list[Decision]:
        """The decision for each pod in turn, with earlier ones bound; changes nothing. Raises the first UserError."""

    def snapshot(self) -> Snapshot:
        """The non-default physical cells, virtual cells and groups (rule 16.2)."""

    def inspect(self, what: str) -> Any:
        """groups, group:NAME, cluster, physical, vcs or vc:NAME, JSON-ready."""

    def check(self) -> None:
        """Raise InvariantError if the state breaks a rule."""


class CoreScheduler:
    """The product's own core behind the methods of `Scheduler`."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.state = scheduler.new_state(spec)
        self.node_names = self.state.topology.node_names

    def handle(self, event: Event) -> Decision:
        """Take one event in."""
        return scheduler.handle(self.state, event)

    def plan(self, pods: Sequence[PodRequest], suggested: npt.NDArray[np.bool_] | None) -> list[Decision]:
        """The decision for each pod in turn, with earlier ones bound; changes nothing. Raises the first UserError."""
        decisions: list[Decision] = []
        for found in Scenario(self.state).plan([[Asked(pod, suggested)] for pod in pods]):
            if isinstance(found, UserError):
                raise found
            decisions += found
        return decisions

    def snapshot(self) -> Snapshot:
        """The non-default physical cells, virtual cells and groups. Cost O(cells)."""
        return status.snapshot(self.state)

    def inspect(self, what: str) -> Any:
        """The answer of the service's inspect paths; UserError if `what` names nothing."""
        kind, _, name = what.partition(":")
        match kind:
            case "groups":
                return status.affinity_groups(self.state, dict.fromkeys(self.state.groups, NO_TIME))
            case "group":
                return status.affinity_group(self.state, name, {name: NO_TIME})
            case "cluster":
                return status.cluster_status(self.state)
            case "physical":
                return status.physical_cluster(self.state)
            case "vcs":
                return status.virtual_clusters(self.state)
            case "vc":
                return status.virtual_cluster(self.state, name)
            case _:
                raise ScenarioError(f"nothing to inspect is called {what!r}")

    def check(self) -> None:
        """Raise InvariantError if the state breaks a rule. Cost O(cells)."""
        scheduler.check_invariants(self.state)


class StateDetail(Enum):
    """The amount of state that a record carries."""

    FULL = "full"
    HASH = "hash"
    NONE = "none"


S = TypeVar("S", bound=Scheduler)


class Bound(NamedTuple):
    """A bound pod, and its place."""

    request: PodRequest
    info: BindInfo


class _Beside(msgspec.Struct):
    beside: str = ""


class Replay(Generic[S]):
    """One scenario's run: `scheduler`, None before a sound configuration, the pods seen and bound, the last state.

    Parameters
    ----------
    new_scheduler : makes a scheduler with all nodes bad
    load_config : reads the configuration of that name; UserError if it cannot be used
    detail : how much state records carry; FULL and HASH take a snapshot per operation, O(cells)
    check : run the scheduler's invariants after each operation
    """

    def __init__(
        self,
        new_scheduler: Callable[[ClusterSpec], S],
        load_config: Callable[[str], ClusterSpec],
        detail: StateDetail = StateDetail.FULL,
        check: bool = False,
    ) -> None:
        self._new_scheduler = new_scheduler
        self._load_config = load_config
        self._detail = detail
        self._check = check
        self.scheduler: S | None = None
        self._pods: dict[str, PodRequest | None] = {}  # seen and not gone; None if the request was refused
        self._bound: dict[str, Bound] = {}
        self._times: dict[str, WorkTimes] = {}
        self._last: Snapshot = ({}, {}, {})

    def placed(self) -> dict[str, Bound]:
        """The bound pods, by uid."""
        return dict(self._bound)

    def request(self, pod: str) -> PodRequest | None:
        """The request of a pod that was seen and is not gone; None if it was refused, or is unknown."""
        return self._pods.get(pod)

    def times(self, pod: str) -> WorkTimes:
        """The times that were told of a pod, by uid, since it came."""
        return self._times.get(pod, NO_TIMES)

    def waiting(self) -> list[PodRequest]:
        """The requests of the other pods that were seen and are not gone."""
        return [request for pod, request in self._pods.items() if request is not None and pod not in self._bound]

    def run(self, operations: Iterable[tuple[int, Operation]], file: str = "scenario") -> Iterator[Json]:
        """Yield the record of each operation. Raises InvariantError naming file and line if a rule is broken."""
        for i, (line, operation) in enumerate(operations):
            try:
                yield self.record(i, operation)
            except InvariantError as error:
                raise InvariantError(f"{file}:{line}: {error}") from error
            except ScenarioError as error:
                raise ScenarioError(f"{file}:{line}: {error}") from None

    def record(self, i: int, operation: Operation) -> Json:
        """Carry out one operation; its record. `i` counts operations from 0."""
        op = operation.__struct_config__.tag
        try:
            result = self._apply(operation)
        except ScenarioError:
            raise
        except UserError as error:
            result = error_result(error)
        if self._check and self.scheduler is not None:
            self.scheduler.check()
        record: Json = {"i": i, "op": op, "result": result}
        if self._detail is not StateDetail.NONE:
            record["state"] = self._state(isinstance(operation, ops.New | ops.Restart))
        return record

    def _apply(self, operation: Operation) -> Json:
        if isinstance(operation, ops.New):
            return self._begin(operation.config)
        if isinstance(operation, ops.Restart):
            return self._restart(operation)
        if self.scheduler is None:
            return {"kind": "noalgo"}
        match operation:
            case ops.Schedule():
                return self._schedule(self.scheduler, operation)
            case ops.Progress():
                return self._progress(self.scheduler, operation)
            case ops.Delete():
                return self._delete(self.scheduler, operation.pod)
            case ops.AddBound():
                return self._add_bound(self.scheduler, operation)
            case ops.Split():
                return self._split(self.scheduler, operation)
            case ops.Upgrade():
                return self._upgrade(self.scheduler, operation)
            case ops.Gang():
                self.scheduler.handle(GangChanged(operation.told))
                return {"kind": "ok"}
            case ops.Reserve():
                return self._reserve(self.scheduler, operation)
            case ops.Plan():
                return self._plan(self.scheduler, operation)
            case ops.Inspect():
                return {"kind": "json", "json": self.scheduler.inspect(operation.what)}
            case _:
                for event in node_events(operation, self.scheduler.node_names):
                    self.scheduler.handle(event)
                return {"kind": "ok"}

    def _begin(self, config: str) -> Json:
        self._pods, self._bound, self._times = {}, {}, {}
        self._start(config)
        return {"kind": "ok"}

    def _start(self, config: str) -> S:
        """A fresh scheduler; while the configuration is refused there is none."""
        self.scheduler = None
        self.scheduler = self._new_scheduler(self._load_config(config))
        return self.scheduler

    def _restart(self, operation: ops.Restart) -> Json:
        bound = self._bound
        self._bound = {}
        scheduler = self._start(operation.config)
        bad = set(operation.bad_nodes)
        errors: list[Json] = []

        def add_nodes() -> None:
            for node in scheduler.node_names:
                scheduler.handle(NodeHealthChanged(node, node not in bad))

        def add_pods() -> None:
            for pod in operation.pods:
                if pod in bound:
                    try:
                        self._allocate(scheduler, bound[pod], times=self._times.get(pod))
                    except UserError as error:
                        errors.append(error_result(error) | {"pod": pod})

        steps = (add_nodes, add_pods) if operation.order == "nodesFirst" else (add_pods, add_nodes)
        for step in steps:
            step()
        return {"kind": "ok", "errors": errors} if errors else {"kind": "ok"}

    def _allocate(
        self, scheduler: S, bound: Bound, lazily_preempted: tuple[str, ...] = (), times: WorkTimes | None = None
    ) -> None:
        """Bind a pod. Raises UserError if the scheduler refuses it."""
        scheduler.handle(PodAllocated(*bound, lazily_preempted, times))
        self._pods[bound.request.uid] = bound.request
        self._bound[bound.request.uid] = bound

    def _add_bound(self, scheduler: S, operation: ops.AddBound) -> Json:
        self._pods.setdefault(operation.pod, None)
        self._allocate(scheduler, bound_pod(operation), times=self._times.get(operation.pod))
        return {"kind": "ok"}

    def _split(self, scheduler: S, operation: ops.Split) -> Json:
        """The pods that the group had, or the stand-in for them, are forgotten: a restart replays its parts."""
        parts, slots = requests_of(operation.pods), operation.slots_of_pods
        scheduler.handle(GroupSplit(operation.group, tuple(parts.values()), slots))
        infos: list[BindInfo] = []
        for pod, bound in list(self._bound.items()):
            if bound.request.spec.group.name == operation.group:
                infos = split_bind_info(bound.info, [*parts.values()], slots)
                del self._bound[pod]
                self._pods.pop(pod, None)
        self._pods |= parts
        for (pod, request), info in zip(parts.items(), infos, strict=False):  # none if the pods are unknown by now
            self._bound[pod] = Bound(request, info)
        return {"kind": "ok"}

    def _upgrade(self, scheduler: S, operation: ops.Upgrade) -> Json:
        pods = requests_of(operation.pods)
        scheduler.handle(GroupsUpgraded(tuple(pods.values()), np.array(operation.own, np.int32)))
        self._pods |= pods
        for one in operation.pods:
            self._bound[one.pod] = bound_pod(one)
        return {"kind": "ok"}

    def _reserve(self, scheduler: S, operation: ops.Reserve) -> Json:
        """The pods exist, whether or not they get their reservation again."""
        pods = requests_of(operation.pods)
        self._pods |= pods
        info = bind_info({annotations.BIND_INFO: operation.bind_info})
        scheduler.handle(GroupReserved(tuple(pods.values()), info, operation.may_be_free is True))
        return {"kind": "ok"}

    def _plan(self, scheduler: S, operation: ops.Plan) -> Json:
        suggested = suggestion_mask(operation.suggested, scheduler.node_names)
        decisions = scheduler.plan(list(requests_of(operation.pods).values()), suggested)
        return {"kind": "plan", "decisions": list(map(decision_result, decisions))}

    def _schedule(self, scheduler: S, operation: ops.Schedule) -> Json:
        self._pods[operation.pod] = None
        self._pods[operation.pod] = request = request_of(operation.pod, operation.text)
        now_s = None if operation.now is msgspec.UNSET else operation.now
        asked = asked_of(operation, request, scheduler.node_names)
        decision = scheduler.handle(asked.at(Phase(operation.phase), now_s))
        result = decision_result(decision)
        if operation.commit and isinstance(decision, Bind):
            try:
                self._allocate(scheduler, Bound(request, decision.bind_info), decision.lazily_preempted)
            except UserError as error:
                result["commit"] = error_result(error)
        return result

    def _progress(self, scheduler: S, operation: ops.Progress) -> Json:
        request = self._pods.get(operation.pod)
        if request is None:
            return {"kind": "unknownPod"}
        times = WorkTimes(operation.started, operation.saved)
        scheduler.handle(PodProgressed(request, times))
        self._times[operation.pod] = times
        return {"kind": "ok"}

    def _delete(self, scheduler: S, pod: str) -> Json:
        if pod not in self._pods:
            return {"kind": "unknownPod"}
        request = self._pods.pop(pod)
        self._bound.pop(pod, None)
        self._times.pop(pod, None)
        if request is not None:
            scheduler.handle(PodDeleted(request))
        return {"kind": "ok"}

    def _state(self, is_fresh: bool) -> Json | None:
        if self.scheduler is None:
            return None
        current = self.scheduler.snapshot()
        state: Json = {"hash": {name: hash_map(entries) for name, entries in zip(_MAPS, current, strict=True)}}
        if self._detail is StateDetail.FULL:
            before: Snapshot = ({}, {}, {}) if is_fresh else self._last
            changes = zip(_MAPS, map(diff_maps, before, current), strict=True)
            state["diff"] = {name: diff for name, diff in changes if diff}
            self._last = current
        return state


def request_of(pod: str, text: str) -> PodRequest:
    """The request of a pod: its annotation, and the group that the service wants it beside, which has no annotation."""
    texts = {annotations.SCHEDULING_SPEC: text}
    request = annotations.pod_request(pod, pod, NAMESPACE, texts, ignores_by_default=True)
    if _BESIDE not in text:
        return request
    with suppress(msgspec.MsgspecError):
        beside = msgspec.json.decode(text, type=_Beside).beside
        return replace(request, spec=replace(request.spec, beside=beside))
    return request


def requests_of(pods: Iterable[ops.NamedPod]) -> dict[str, PodRequest]:
    """The requests of several pods, by uid, in their order."""
    return {one.pod: request_of(one.pod, bytes(one.spec).decode()) for one in pods}


def bound_pod(operation: ops.AddBound | ops.BoundPod) -> Bound:
    """A pod as its annotations have it. Raises UserError if they cannot be read."""
    request = request_of(operation.pod, bytes(operation.spec).decode())
    return Bound(request, bind_info({annotations.BIND_INFO: operation.bind_info}, request.label))


def asked_of(operation: ops.Schedule, request: PodRequest, node_names: Sequence[str]) -> Asked:
    """The question of an operation about a pod. Raises UserError for an offer that cannot be read."""
    offer = from_text(operation.offer, node_names) if operation.offer else None
    return Asked(request, suggestion_mask(operation.suggested, node_names), offer, operation.own_cells)


def node_events(operation: Operation, configured: tuple[str, ...]) -> Iterator[NodeHealthChanged | LeavesLost]:
    """The events of an operation on nodes; `updateNode` has none if nothing changed."""
    match operation:
        case ops.AddNodes():
            for node in configured if operation.nodes is None else operation.nodes:
                yield NodeHealthChanged(node, True)
        case ops.AddNode():
            yield NodeHealthChanged(operation.node, operation.healthy)
        case ops.UpdateNode():
            if operation.old != operation.new:
                yield NodeHealthChanged(operation.node, operation.new)
        case ops.DeleteNode():
            yield NodeHealthChanged(operation.node, False)
        case ops.LoseLeaves():
            yield LeavesLost(operation.node, operation.leaf_type, operation.count, tuple(operation.known))
