"""Replays a log of operations on a scheduler and records what it did, operation by operation.

A scenario is a JSON-lines file: a header, then one operation per line (docs/replay.md lists them). Its trace has one
record per operation: what was decided and, if asked for, what changed in the cells and groups. The same scenario
always gives the same bytes. The scheduler is anything with the few methods of `Scheduler`, so that the core and the
tests' oracle are driven by one program.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from hived import scheduler, status
from hived.decisions import Applied, Bind, Decision, Preempt, Wait
from hived.errors import InvariantError, UserError
from hived.events import (
    Event,
    GroupReserved,
    GroupSplit,
    LeavesLost,
    NodeHealthChanged,
    Phase,
    PodAllocated,
    PodDeleted,
    ScheduleRequested,
)
from hived.specs import BindInfo, ClusterSpec, PodRequest
from hived.split import split_bind_info
from hived_extender.pods import annotations
from hived_extender.recording.recorded_offer import Names, OfferText, from_text, mask_of

Json: TypeAlias = dict[str, Any]
Snapshot: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]

NAMESPACE = "ns"
NO_TIME = "T"
"""Stands for every time in a trace, because a replay has no clock."""

_MAPS = ("p", "v", "g")
_BESIDE = "beside"


class Scheduler(Protocol):
    """What a replay needs of a scheduler; the methods raise UserError where an operation is refused."""

    @property
    def node_names(self) -> tuple[str, ...]:
        """All configured nodes, ascending."""

    def handle(self, event: Event) -> Decision:
        """Take one event in."""

    def plan(self, pods: Sequence[PodRequest], suggested: npt.NDArray[np.bool_] | None) -> list[Decision]:
        """What would be decided of each pod, one after the other, with those before bound; changes nothing."""

    def snapshot(self) -> Snapshot:
        """The non-default physical cells, virtual cells and groups (rule 16.2)."""

    def inspect(self, what: str) -> Any:
        """groups, group:NAME, cluster, physical, vcs or vc:NAME, JSON-ready."""

    def check(self) -> None:
        """Raise InvariantError if the state breaks a rule."""


class ScenarioError(UserError):
    """The scenario itself cannot be read or followed; the message names file and line."""


class CoreScheduler:
    """The product's own core behind the methods of `Scheduler`."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.state = scheduler.new_state(spec)

    @property
    def node_names(self) -> tuple[str, ...]:
        """All configured nodes, ascending."""
        return self.state.topology.node_names

    def handle(self, event: Event) -> Decision:
        """Take one event in."""
        return scheduler.handle(self.state, event)

    def plan(self, pods: Sequence[PodRequest], suggested: npt.NDArray[np.bool_] | None) -> list[Decision]:
        """What would be decided of each pod, one after the other, with those before bound; changes nothing."""
        return scheduler.plan_together(self.state, pods, suggested)

    def snapshot(self) -> Snapshot:
        """The non-default physical cells, virtual cells and groups. Cost O(cells)."""
        return status.snapshot(self.state)

    def inspect(self, what: str) -> Any:
        """What the service's inspect paths answer; UserError if `what` names nothing."""
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
    """How much state a record carries."""

    FULL = "full"
    HASH = "hash"
    NONE = "none"


# --- operations: rule 16.1 --------------------------------------------------------------------------------------------


class _Beside(msgspec.Struct):
    beside: str = ""


class _Op(msgspec.Struct, tag_field="op", rename="camel"):
    """One line of a scenario, told apart by its key "op"."""


class Header(_Op, tag="header"):
    """The first line; it describes the scenario and does nothing."""


class New(_Op, tag="new"):
    """Start afresh from a configuration, with every node bad."""

    config: str


class AddNodes(_Op, tag="addNodes"):
    """Report nodes as healthy, in order; all configured ones by default."""

    nodes: list[str] | None = None


class AddNode(_Op, tag="addNode"):
    """Report one node."""

    node: str
    healthy: bool


class UpdateNode(_Op, tag="updateNode"):
    """Report that a node's health changed; ignored if it did not."""

    node: str
    old: bool
    new: bool


class DeleteNode(_Op, tag="deleteNode"):
    """Report that a node is gone."""

    node: str


class LoseLeaves(_Op, tag="loseLeaves"):
    """Report how many leaf cells of a type on a node cannot be had, although it is healthy; 0 if all can."""

    node: str
    leaf_type: str
    count: int
    known: list[int] = []


class Schedule(_Op, tag="schedule"):
    """Ask where a pod could run; with `commit`, a binding is carried out."""

    pod: str
    phase: Literal["Filtering", "Preempting"]
    suggested: Names
    offer: OfferText | None = None
    spec: msgspec.Raw = msgspec.Raw(b"")
    annotation: str | None = None
    commit: bool = False


class Delete(_Op, tag="delete"):
    """Report that a pod is gone."""

    pod: str


class Restart(_Op, tag="restart"):
    """Start afresh and replay nodes and bound pods, in one order or the other."""

    config: str
    order: Literal["nodesFirst", "podsFirst"]
    bad_nodes: list[str]
    pods: list[str]


class AddBound(_Op, tag="addBound"):
    """Report a bound pod with this bind info annotation, whatever it says."""

    pod: str
    node: str
    spec: msgspec.Raw
    bind_info: str = ""


class OnePod(msgspec.Struct):
    """One of several pods that an operation names."""

    pod: str
    spec: msgspec.Raw


class Split(_Op, tag="split"):
    """Report that the pods of an allocated group go on as groups of their own, one per slot."""

    group: str
    pods: list[OnePod]


class Reserve(_Op, tag="reserve"):
    """Report that a group had reserved the cells of this bind info annotation, and that these pods of it wait."""

    pods: list[OnePod]
    node: str = ""
    bind_info: str = ""


class Plan(_Op, tag="plan"):
    """Ask where several pods could run at once; nothing is carried out."""

    pods: list[OnePod]
    suggested: Names = "all"


class Inspect(_Op, tag="inspect"):
    """Ask for a view of the state."""

    what: str


Operation: TypeAlias = (
    New
    | AddNodes
    | AddNode
    | UpdateNode
    | DeleteNode
    | LoseLeaves
    | Schedule
    | Delete
    | Restart
    | AddBound
    | Split
    | Reserve
    | Plan
    | Inspect
)
_decoder = msgspec.json.Decoder(Header | Operation)
_encoder = msgspec.json.Encoder(order="sorted")


def decode_operation(line: bytes) -> Operation | Header:
    """Read one line of a scenario. Raises UserError if it is no operation."""
    try:
        operation: Operation | Header = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UserError(str(error)) from None
    return operation


def read_scenario(path: Path) -> Iterator[tuple[int, Operation]]:
    """Yield (line number, operation) without the header. Raises ScenarioError at a line that is no operation."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    operation = decode_operation(line)
                except UserError as error:
                    raise ScenarioError(f"{path}:{number}: {error}") from None
                if not isinstance(operation, Header):
                    yield number, operation
                elif number != 1:
                    raise ScenarioError(f"{path}:{number}: a header may stand on the first line only")
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from None


def encode_record(record: Json) -> bytes:
    """One line of a trace; keys are sorted, so equal records are equal bytes."""
    return _encoder.encode(record) + b"\n"


# --- the replay ------------------------------------------------------------------------------------------------------


class Replay:
    """One scenario's run: the scheduler, which pods were seen and bound, and the state last recorded.

    Parameters
    ----------
    new_scheduler : makes a scheduler with all nodes bad
    load_config : reads the configuration of that name; UserError if it cannot be used
    detail : how much state records carry; FULL and HASH take a snapshot per operation, O(cells)
    check : run the scheduler's invariants after each operation
    """

    def __init__(
        self,
        new_scheduler: Callable[[ClusterSpec], Scheduler],
        load_config: Callable[[str], ClusterSpec],
        detail: StateDetail = StateDetail.FULL,
        check: bool = False,
    ) -> None:
        self._new_scheduler = new_scheduler
        self._load_config = load_config
        self._detail = detail
        self._check = check
        self._scheduler: Scheduler | None = None
        self._pods: dict[str, PodRequest | None] = {}
        self._bound: dict[str, dict[str, str]] = {}
        self._last: Snapshot = ({}, {}, {})

    @property
    def scheduler(self) -> Scheduler | None:
        """As it is now; None before a sound configuration."""
        return self._scheduler

    def placed(self) -> dict[str, tuple[PodRequest, BindInfo]]:
        """The pods that are bound, by uid: what each asked for, and where it was bound."""
        return {
            pod: (_request(pod, texts), annotations.bind_info(texts))
            for pod, texts in self._bound.items()
            if pod in self._pods
        }

    def waiting(self) -> list[PodRequest]:
        """What the other pods ask for that were seen and are not gone."""
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
        if self._check and self._scheduler is not None:
            self._scheduler.check()
        record: Json = {"i": i, "op": op, "result": result}
        if self._detail is not StateDetail.NONE:
            record["state"] = self._state(isinstance(operation, New | Restart))
        return record

    def _apply(self, operation: Operation) -> Json:
        if isinstance(operation, New):
            self._pods, self._bound = {}, {}
            self._start(operation.config)
            return {"kind": "ok"}
        if isinstance(operation, Restart):
            return self._restart(operation)
        if self._scheduler is None:
            return {"kind": "noalgo"}
        match operation:
            case Schedule():
                return self._schedule(self._scheduler, operation)
            case Delete():
                return self._delete(self._scheduler, operation.pod)
            case AddBound():
                return self._add_bound(self._scheduler, operation)
            case Split():
                return self._split(self._scheduler, operation)
            case Reserve():
                return self._reserve(self._scheduler, operation)
            case Plan():
                return self._plan(self._scheduler, operation)
            case Inspect():
                return {"kind": "json", "json": self._scheduler.inspect(operation.what)}
            case _:
                for event in node_events(operation, self._scheduler.node_names):
                    self._scheduler.handle(event)
                return {"kind": "ok"}

    def _start(self, config: str) -> Scheduler:
        """A fresh scheduler; while the configuration is refused there is none."""
        self._scheduler = None
        self._scheduler = self._new_scheduler(self._load_config(config))
        return self._scheduler

    def _restart(self, operation: Restart) -> Json:
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
                        self._allocate(scheduler, pod, bound[pod])
                    except UserError as error:
                        errors.append(error_result(error) | {"pod": pod})

        steps = (add_nodes, add_pods) if operation.order == "nodesFirst" else (add_pods, add_nodes)
        for step in steps:
            step()
        return {"kind": "ok", "errors": errors} if errors else {"kind": "ok"}

    def _allocate(self, scheduler: Scheduler, pod: str, texts: dict[str, str]) -> None:
        request = _request(pod, texts)
        info = annotations.bind_info(texts, request.label)
        scheduler.handle(PodAllocated(request, info))
        self._pods[pod] = request
        self._bound[pod] = texts

    def _add_bound(self, scheduler: Scheduler, operation: AddBound) -> Json:
        self._pods.setdefault(operation.pod, None)
        texts = {
            annotations.SCHEDULING_SPEC: bytes(operation.spec).decode(),
            annotations.BIND_INFO: operation.bind_info,
        }
        self._allocate(scheduler, operation.pod, texts)
        return {"kind": "ok"}

    def _split(self, scheduler: Scheduler, operation: Split) -> Json:
        """The pods that the group had, or the stand-in for them, are forgotten: a restart replays its parts."""
        parts = _requests(operation.pods)
        scheduler.handle(GroupSplit(operation.group, tuple(parts.values())))
        infos: list[BindInfo] = []
        for pod, texts in list(self._bound.items()):
            if _request(pod, texts).spec.group.name == operation.group:
                infos = split_bind_info(annotations.bind_info(texts))
                self._bound.pop(pod)
                self._pods.pop(pod, None)
        self._pods |= parts
        for one, info in zip(operation.pods, infos, strict=False):  # none if those pods are unknown by now
            spec = {annotations.SCHEDULING_SPEC: bytes(one.spec).decode()}
            self._bound[one.pod] = spec | annotations.bind_annotations(info)
        return {"kind": "ok"}

    def _reserve(self, scheduler: Scheduler, operation: Reserve) -> Json:
        """The pods exist, whether or not they get their reservation again."""
        pods = _requests(operation.pods)
        self._pods |= pods
        info = annotations.bind_info({annotations.BIND_INFO: operation.bind_info})
        scheduler.handle(GroupReserved(tuple(pods.values()), info))
        return {"kind": "ok"}

    def _plan(self, scheduler: Scheduler, operation: Plan) -> Json:
        suggested = suggestion_mask(operation.suggested, scheduler.node_names)
        decisions = scheduler.plan(list(_requests(operation.pods).values()), suggested)
        return {"kind": "plan", "decisions": list(map(decision_result, decisions))}

    def _schedule(self, scheduler: Scheduler, operation: Schedule) -> Json:
        text = bytes(operation.spec).decode() if operation.annotation is None else operation.annotation
        self._pods[operation.pod] = None
        request = _request(operation.pod, {annotations.SCHEDULING_SPEC: text})
        self._pods[operation.pod] = request
        suggested = suggestion_mask(operation.suggested, scheduler.node_names)
        offer = None if operation.offer is None else from_text(operation.offer, scheduler.node_names)
        decision = scheduler.handle(ScheduleRequested(request, Phase(operation.phase), suggested, offer))
        result = decision_result(decision)
        if operation.commit and isinstance(decision, Bind):
            try:
                scheduler.handle(PodAllocated(request, decision.bind_info, decision.lazily_preempted))
            except UserError as error:
                result["commit"] = error_result(error)
            else:
                spec = {annotations.SCHEDULING_SPEC: text}
                self._bound[operation.pod] = spec | annotations.bind_annotations(decision.bind_info)
        return result

    def _delete(self, scheduler: Scheduler, pod: str) -> Json:
        if pod not in self._pods:
            return {"kind": "unknownPod"}
        request = self._pods.pop(pod)
        self._bound.pop(pod, None)
        if request is not None:
            scheduler.handle(PodDeleted(request))
        return {"kind": "ok"}

    def _state(self, is_fresh: bool) -> Json | None:
        if self._scheduler is None:
            return None
        current = self._scheduler.snapshot()
        state: Json = {"hash": {name: hash_map(entries) for name, entries in zip(_MAPS, current, strict=True)}}
        if self._detail is StateDetail.FULL:
            before: Snapshot = ({}, {}, {}) if is_fresh else self._last
            changes = zip(_MAPS, map(diff_maps, before, current), strict=True)
            state["diff"] = {name: diff for name, diff in changes if diff}
            self._last = current
        return state


def _request(pod: str, texts: dict[str, str]) -> PodRequest:
    """What a pod asks for: its annotation, and the group that the service wants it beside, which has no annotation."""
    request = annotations.pod_request(pod, pod, NAMESPACE, texts, ignores_by_default=True)
    if _BESIDE not in texts[annotations.SCHEDULING_SPEC]:
        return request
    with suppress(msgspec.MsgspecError):
        beside = msgspec.json.decode(texts[annotations.SCHEDULING_SPEC], type=_Beside).beside
        return replace(request, spec=replace(request.spec, beside=beside))
    return request


def _requests(pods: Iterable[OnePod]) -> dict[str, PodRequest]:
    texts = {one.pod: {annotations.SCHEDULING_SPEC: bytes(one.spec).decode()} for one in pods}
    return {pod: _request(pod, text) for pod, text in texts.items()}


def node_events(operation: Operation, configured: tuple[str, ...]) -> Iterator[NodeHealthChanged | LeavesLost]:
    """What an operation on nodes tells the scheduler; `updateNode` says nothing if nothing changed."""
    match operation:
        case AddNodes():
            for node in configured if operation.nodes is None else operation.nodes:
                yield NodeHealthChanged(node, True)
        case AddNode():
            yield NodeHealthChanged(operation.node, operation.healthy)
        case UpdateNode():
            if operation.old != operation.new:
                yield NodeHealthChanged(operation.node, operation.new)
        case DeleteNode():
            yield NodeHealthChanged(operation.node, False)
        case LoseLeaves():
            yield LeavesLost(operation.node, operation.leaf_type, operation.count, tuple(operation.known))


def suggestion_mask(suggested: Names, node_names: tuple[str, ...]) -> npt.NDArray[np.bool_] | None:
    """A bool per node; None suggests every node."""
    return None if suggested == "all" else mask_of(suggested, node_names)


# --- records: rule 16.2 -----------------------------------------------------------------------------------------------


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
            return {"kind": "preempt", "victimsByNode": by_node, "node": node, "victims": by_node[node]}
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
    """Entries that are new or changed, and None for those that are gone."""
    changed: Json = {key: value for key, value in after.items() if before.get(key) != value}
    return changed | {key: None for key in before if key not in after}
