"""The messages of the extender protocol, and the parts of Kubernetes objects that we read: raw JSON stops here.

Keys of the extender protocol are Go field names; what kube-scheduler leaves unset arrives as `null`, and what Go leaves
unset is sent as `null` by us. Decoding knows the exact names only, and tries again without regard to case, as Go does,
when a message does not fit. The node names of a call, up to tens of thousands, stay undecoded (`node_names`).

A node selector is read where it names one node by its field, as in pods of DaemonSets and in allocated claims.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from hived.values.errors import UserError
from hived_config.quantities import is_positive
from hived_extender.jobs.annotations import PREFIX

ENABLE_LIMIT = PREFIX + "pod-scheduling-enable"
"""The resource limit that makes a pod ours (rule 2.1)."""

WAITING_KEY = "hivedscheduler"
"""Stands for a node in `FailedNodes` when no particular node is to blame."""

T = TypeVar("T")


class Metadata(msgspec.Struct):
    """Of any object: who it is, and which `version` (resourceVersion) of it this is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")
    deletion_timestamp: str | None = msgspec.field(name="deletionTimestamp", default=None)
    deletion_grace_s: int | None = msgspec.field(name="deletionGracePeriodSeconds", default=None)
    annotations: dict[str, str] | None = None


class Owner(msgspec.Struct, frozen=True):
    """An owner of a pod, of which one at most is its `controller`."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    api_version: str = msgspec.field(name="apiVersion", default="")


class LabelledMetadata(Metadata):
    """The same, with its labels."""

    labels: dict[str, str] | None = None


class PodMetadata(LabelledMetadata):
    """Of a pod, as a watch tells of it."""

    owners: list[Owner] | None = msgspec.field(name="ownerReferences", default=None)
    created: str | None = msgspec.field(name="creationTimestamp", default=None)


class Resources(msgspec.Struct):
    """Of a container; a quantity is text or a number."""

    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class ContainerPort(msgspec.Struct, rename="camel"):
    """A port; `host_port` is one of the node's own, which two pods of a node cannot both have."""

    container_port: int = 0
    host_port: int | None = None
    host_ip: str | None = msgspec.field(name="hostIP", default=None)
    protocol: str | None = None


class Container(msgspec.Struct, rename="camel"):
    """Its requests; an init container whose `restart_policy` is Always runs beside the others."""

    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: list[ContainerPort] | None = None


class Toleration(msgspec.Struct, rename="camel"):
    """A taint that a pod bears; an empty key with operator Exists means every taint."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Taint(msgspec.Struct):
    """A mark of a node that keeps pods away which do not tolerate it."""

    key: str = ""
    value: str | None = None
    effect: str = ""
    time_added: str | None = msgspec.field(name="timeAdded", default=None)


class WorkloadRef(msgspec.Struct, rename="camel"):
    """Of Kubernetes 1.35: the pod group of a Workload, and which replica of it."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str | None = None


class SchedulingGroup(msgspec.Struct, rename="camel"):
    """Of Kubernetes 1.36 and later: the PodGroup that the pod belongs to."""

    pod_group_name: str | None = None


class PodSpec(msgspec.Struct, rename="camel"):
    """`node_name` is empty until the pod is bound."""

    node_name: str | None = None
    scheduler_name: str | None = None
    scheduling_gates: list[dict[str, Any]] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    node_selector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[dict[str, Any]] | None = None
    volumes: list[dict[str, Any]] | None = None
    resource_claims: list[dict[str, Any]] | None = None
    resources: Resources | None = None
    overhead: dict[str, str | int | float] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    workload_ref: WorkloadRef | None = None
    scheduling_group: SchedulingGroup | None = None


class StatusCondition(msgspec.Struct):
    """One of the conditions of any object, which has this status since it `changed`."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    changed: str | None = msgspec.field(name="lastTransitionTime", default=None)


class Terminated(msgspec.Struct):
    """The end of a container, as its kubelet saw it."""

    exit_code: int = msgspec.field(name="exitCode", default=0)
    reason: str | None = None
    finished: str | None = msgspec.field(name="finishedAt", default=None)


class ContainerState(msgspec.Struct):
    """The state of a container; only its end is read."""

    terminated: Terminated | None = None


class ContainerStatus(msgspec.Struct):
    """The state of one container."""

    state: ContainerState | None = None


class PodStatus(msgspec.Struct):
    """The status of a pod. `reason` is that of its kubelet or of the node's controller, such as `Evicted`."""

    phase: str | None = None
    conditions: list[StatusCondition] | None = None
    nominated_node: str | None = msgspec.field(name="nominatedNodeName", default=None)
    started: str | None = msgspec.field(name="startTime", default=None)
    reason: str | None = None
    containers: list[ContainerStatus] | None = msgspec.field(name="containerStatuses", default=None)
    init_containers: list[ContainerStatus] | None = msgspec.field(name="initContainerStatuses", default=None)


class AskedPod(msgspec.Struct):
    """The pod that kube-scheduler asks about. The watch knows the pod; `spec` helps if it does not yet."""

    metadata: PodMetadata
    spec: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))

    @property
    def annotations(self) -> Mapping[str, str]:
        """Never null."""
        return self.metadata.annotations or {}

    def whole(self) -> "Pod":
        """The pod as a watch would tell of it, but for its status. Raises UserError if it is none."""
        try:
            return Pod(self.metadata, msgspec.json.decode(self.spec, type=PodSpec | None))
        except ValueError as error:
            raise UserError(f"the spec of pod {self.metadata.namespace}/{self.metadata.name}: {error}") from None


class Pod(msgspec.Struct):
    """A Kubernetes pod, as far as scheduling needs it."""

    metadata: PodMetadata
    spec: PodSpec | None = None
    status: PodStatus | None = None

    @property
    def node(self) -> str:
        """The node it is bound to, "" if none."""
        return (self.spec.node_name or "") if self.spec else ""

    @property
    def annotations(self) -> Mapping[str, str]:
        """Never null."""
        return self.metadata.annotations or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """Never null."""
        return self.metadata.labels or {}

    @property
    def owner(self) -> Owner | None:
        """The object whose controller made the pod, None if there is none."""
        return next((each for each in self.metadata.owners or () if each.controller), None)

    @property
    def is_ours(self) -> bool:
        """True if a container or init container has the enabling limit (rule 2.1)."""
        for containers in () if self.spec is None else (self.spec.containers, self.spec.init_containers):
            for container in containers or ():
                limits = container.resources.limits if container.resources is not None else None
                if limits and is_positive(limits.get(ENABLE_LIMIT, 0)):
                    return True
        return False

    @property
    def is_held(self) -> bool:
        """True if it has a scheduling gate: kube-scheduler leaves it alone."""
        return bool(self.spec and self.spec.scheduling_gates)

    @property
    def gates(self) -> tuple[str, ...]:
        """The names of its scheduling gates."""
        return tuple(str(gate.get("name", "")) for gate in (self.spec and self.spec.scheduling_gates) or ())

    @property
    def is_over(self) -> bool:
        """True if it will never run again and so holds nothing (rule 27.16): it has completed, or is being deleted and
        has no node, nor will the API server let it have one.
        """
        return self.has_completed or bool(self.metadata.deletion_timestamp and not self.node)

    @property
    def has_completed(self) -> bool:
        """True if all its containers have ended, well or not."""
        return self.status is not None and self.status.phase in {"Succeeded", "Failed"}

    @property
    def has_succeeded(self) -> bool:
        """True if all its containers have ended well."""
        return self.status is not None and self.status.phase == "Succeeded"

    @property
    def is_running(self) -> bool:
        """True if one of its containers runs, or is about to again."""
        return self.status is not None and self.status.phase == "Running"

    def condition(self, kind: str) -> StatusCondition | None:
        """Its condition of this type, None if it has none."""
        return next((each for each in (self.status and self.status.conditions) or () if each.type == kind), None)


class SetSpec(msgspec.Struct):
    """The fields of a node's spec that a client has set, as far as we look."""

    unschedulable: dict[str, Any] | None = msgspec.field(name="f:unschedulable", default=None)


class SetFields(msgspec.Struct):
    """The fields of a node that a client has set."""

    spec: SetSpec | None = msgspec.field(name="f:spec", default=None)


class FieldsOfManager(msgspec.Struct):
    """When a client has changed a node last, and what it has set."""

    time: str | None = None
    fields: SetFields | None = msgspec.field(name="fieldsV1", default=None)


class NodeMetadata(LabelledMetadata):
    """Of a node, with what clients have set."""

    managers: list[FieldsOfManager] | None = msgspec.field(name="managedFields", default=None)


class NodeSpec(msgspec.Struct):
    """`unschedulable` is what `kubectl cordon` sets."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(msgspec.Struct):
    """The status as the kubelet reports it; `allocatable` has the amounts that pods may use."""

    conditions: list[StatusCondition] | None = None
    allocatable: dict[str, str | int | float] | None = None


class Node(msgspec.Struct):
    """A Kubernetes node, as far as scheduling needs it."""

    metadata: NodeMetadata
    spec: NodeSpec | None = None
    status: NodeStatus | None = None

    @property
    def is_healthy(self) -> bool:
        """Ready, and not cordoned (rule 2.12)."""
        if self.spec is not None and self.spec.unschedulable:
            return False
        return any(
            each.type == "Ready" and each.status == "True" for each in (self.status and self.status.conditions) or ()
        )

    def cordoned_at(self, key: str) -> str:
        """The moment at which it was cordoned, by the taint with this key, else by managed fields; "" if unknown."""
        taints = (self.spec.taints or ()) if self.spec is not None else ()
        of_taint = [one.time_added or "" for one in taints if one.key == key]
        of_field = [
            one.time or ""
            for one in self.metadata.managers or ()
            if one.fields is not None and one.fields.spec is not None and one.fields.spec.unschedulable is not None
        ]
        return next(filter(None, (*of_taint, *of_field)), "")


class FilterArgs(msgspec.Struct, rename="pascal"):
    """filter: which of these nodes can take the pod?"""

    pod: AskedPod
    node_names: msgspec.Raw

    def offered(self) -> list[str]:
        """The names of the nodes."""
        return decode_names(self.node_names)


class FilterResult(msgspec.Struct, rename="pascal"):
    """Exactly one of `node_names`, `failed_nodes` and `error` is filled."""

    nodes: None = None
    node_names: list[str] | None = None
    failed_nodes: dict[str, str] | None = None
    failed_and_unresolvable_nodes: dict[str, str] | None = None
    error: str = ""


class PreemptArgs(msgspec.Struct, rename="pascal"):
    """preempt: the candidate nodes are the keys of whichever of the two maps is given."""

    pod: AskedPod
    node_name_to_victims: dict[str, msgspec.Raw] | None = None
    node_name_to_meta_victims: dict[str, msgspec.Raw] | None = None

    @property
    def candidates(self) -> list[str]:
        """The nodes on which kube-scheduler could preempt, ascending."""
        return sorted({*(self.node_name_to_victims or ()), *(self.node_name_to_meta_victims or ())})


class MetaPod(msgspec.Struct):
    """A victim."""

    uid: str = msgspec.field(name="UID", default="")


class MetaVictims(msgspec.Struct):
    """The victims on one node."""

    pods: list[MetaPod] = msgspec.field(name="Pods", default_factory=list)
    pdb_violation_count: int = msgspec.field(name="NumPDBViolations", default=0)


class PreemptResult(msgspec.Struct, rename="pascal"):
    """A node that is left out is rejected; none of the entries may be without victims."""

    node_name_to_meta_victims: dict[str, MetaVictims] | None = None


class BindArgs(msgspec.Struct, rename="pascal"):
    """bind: write this binding."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str


class BindResult(msgspec.Struct, rename="pascal"):
    """An empty error means bound."""

    error: str = ""


_object_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


def decode_args(body: bytes, kind: type[T]) -> T:
    """Decode a verb's arguments; unknown keys are ignored. Raises UserError, whatever the bytes."""
    decoder: msgspec.json.Decoder[T] = _decoder_of(kind)  # type: ignore[arg-type]  # `cache` forgets T
    try:
        return decoder.decode(body)
    except (ValueError, RecursionError) as error:
        try:
            return decoder.decode(_with_exact_keys(body, kind))
        except (ValueError, RecursionError):
            raise UserError(f"the request is not valid {kind.__name__} JSON: {error}") from None


@cache
def _decoder_of(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def decode_names(raw: msgspec.Raw) -> list[str]:
    """A list of names. Raises UserError if it is none."""
    try:
        return msgspec.json.decode(raw, type=list[str] | None) or []
    except ValueError as error:
        raise UserError(f"node names must be a list of strings: {error}") from None


def encode(value: Any) -> bytes:
    """JSON text of a struct or of plain values, in UTF-8."""
    return _encoder.encode(value)


def _with_exact_keys(body: bytes, kind: type[Any]) -> bytes:
    """The same object with its top-level keys spelt as `kind` spells them."""
    exact = {name.lower(): name for name in kind.__struct_encode_fields__}
    members = _object_decoder.decode(body)
    return _encoder.encode({exact.get(key.lower(), key): value for key, value in members.items()})


class _Field(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Term(msgspec.Struct, rename="camel"):
    match_fields: list[_Field] | None = None


class NodeSelector(msgspec.Struct, rename="camel"):
    """Terms of which a node meets one; labels are left out."""

    node_selector_terms: list[_Term] | None = None

    @property
    def only_node(self) -> str:
        """The node that its one term names, "" if it has others, or names none or several."""
        terms = self.node_selector_terms or ()
        named = [
            field.values or ()
            for term in terms
            for field in term.match_fields or ()
            if (field.key, field.operator) == ("metadata.name", "In")
        ]
        return named[0][0] if len(terms) == len(named) == 1 and len(named[0]) == 1 else ""
