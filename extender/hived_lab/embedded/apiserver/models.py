"""Typed views of the objects: exactly the fields that this cluster reads.

An object is kept as the JSON it was sent as, with all its fields. Converting it to its view checks the type of every
field that some code reads, so that nothing behind the door has to; fields that nobody reads are kept and ignored.
"""

from typing import Any, TypeVar

import msgspec

from hived_extender.kube_rules.demands import AffinitySpec, SpreadSpec
from hived_lab.embedded.apiserver.statuses import bad_request

Body = dict[str, Any]
Quantity = str | int | float

MAX_DEPTH = 64


class Model(msgspec.Struct, rename="camel", kw_only=True):
    """Base of all views; an absent field has its zero value, as in Go. Nobody changes a view."""


class OwnerReference(Model):
    """An object that another one belongs to."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Model):
    """What all objects have."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    deletion_grace_period_seconds: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []
    owner_references: list[OwnerReference] = []


class KubeObject(Model):
    """What every kind has; the concrete kinds add the rest."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class Condition(Model):
    """One condition of a pod or a node."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class ResourceRequirements(Model):
    """What a container asks for."""

    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class ContainerPort(Model):
    """A port of a container, and perhaps of its node."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class Container(Model):
    """A container of a pod."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    restart_policy: str = ""
    ports: list[ContainerPort] = []


class SchedulingGate(Model):
    """Something that keeps a pod from being scheduled."""

    name: str = ""


class Toleration(Model):
    """A taint that a pod bears, for so many seconds if it ends pods."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class WorkloadRef(Model):
    """The pod group of a Workload."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class SchedulingGroup(Model):
    """The PodGroup of a pod."""

    pod_group_name: str = ""


class PodSpec(Model):
    """What a pod shall be."""

    node_name: str = ""
    scheduler_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    node_selector: dict[str, str] = {}
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = ""
    service_account_name: str = ""
    termination_grace_period_seconds: int = 30
    scheduling_gates: list[SchedulingGate] = []
    tolerations: list[Toleration] = []
    affinity: AffinitySpec | None = None
    topology_spread_constraints: list[SpreadSpec] = []
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    overhead: dict[str, Quantity] = {}
    volumes: list[dict[str, Any]] = []
    resource_claims: list[dict[str, Any]] = []
    host_network: bool = False
    workload_ref: WorkloadRef = msgspec.field(default_factory=WorkloadRef)
    scheduling_group: SchedulingGroup = msgspec.field(default_factory=SchedulingGroup)


class StateReason(Model):
    """Why a container is in a state."""

    reason: str = ""
    exit_code: int = 0


class ContainerState(Model):
    """The state that a container is in: one of the three."""

    waiting: StateReason | None = None
    running: StateReason | None = None
    terminated: StateReason | None = None


class ContainerStatus(Model):
    """How far a container has come."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodStatus(Model):
    """How far a pod has come."""

    phase: str = ""
    reason: str = ""
    start_time: str = ""
    conditions: list[Condition] = []
    container_statuses: list[ContainerStatus] = []
    nominated_node_name: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")


class Pod(KubeObject):
    """v1 Pod."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)

    @property
    def is_finished(self) -> bool:
        """Whether it has ended for good."""
        return self.status.phase in ("Succeeded", "Failed")


class Taint(Model):
    """A taint of a node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Model):
    """What is wanted of a node."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeAddress(Model):
    """An address of a node."""

    type: str = ""
    address: str = ""


class NodeInfo(Model):
    """The software of a node."""

    kubelet_version: str = ""
    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(Model):
    """What a node reports."""

    conditions: list[Condition] = []
    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    addresses: list[NodeAddress] = []
    node_info: NodeInfo = msgspec.field(default_factory=NodeInfo)


class Node(KubeObject):
    """v1 Node."""

    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class ObjectReference(Model):
    """Points to another object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(Model):
    """Who wrote an event."""

    component: str = ""
    host: str = ""


class EventSeries(Model):
    """How often an event came again."""

    count: int = 0
    last_observed_time: str = ""


class Event(KubeObject):
    """v1 Event."""

    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    source: EventSource = msgspec.field(default_factory=EventSource)
    reporting_component: str = ""
    first_timestamp: str = ""
    last_timestamp: str = ""
    event_time: str = ""
    series: EventSeries | None = None


class LeaseSpec(Model):
    """Who holds a lease, and until when."""

    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(KubeObject):
    """coordination.k8s.io/v1 Lease."""

    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class ConfigMap(KubeObject):
    """v1 ConfigMap."""

    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    immutable: bool = False


class PriorityClass(KubeObject):
    """scheduling.k8s.io/v1 PriorityClass."""

    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str = ""


class PodGroupSpec(Model):
    """How many pods of a gang start together."""

    min_member: int = 0
    min_task_member: dict[str, int] = {}
    schedule_timeout_seconds: int = 0
    queue: str = ""
    priority_class_name: str = ""


class PodGroupStatus(Model):
    """How far a gang has come."""

    phase: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(KubeObject):
    """PodGroup of scheduler-plugins or Volcano."""

    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class GangObject(KubeObject):
    """PodGroup or Workload of scheduling.k8s.io; nothing in here reads what it says."""

    spec: dict[str, Any] = {}


class NamespaceStatus(Model):
    """Whether a namespace is Active or Terminating."""

    phase: str = ""


class Namespace(KubeObject):
    """v1 Namespace."""

    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


class Binding(KubeObject):
    """v1 Binding: sent to bind a pod, never stored."""

    target: ObjectReference = msgspec.field(default_factory=ObjectReference)


class Preconditions(Model):
    """Which version of an object a deletion means."""

    uid: str = ""
    resource_version: str = ""


class DeleteOptions(Model):
    """How to delete an object."""

    api_version: str = ""
    kind: str = ""
    grace_period_seconds: int | None = None
    propagation_policy: str = ""
    orphan_dependents: bool | None = None
    preconditions: Preconditions = msgspec.field(default_factory=Preconditions)
    dry_run: list[str] = []


class Eviction(KubeObject):
    """policy/v1 Eviction: sent to delete a pod politely, never stored."""

    delete_options: DeleteOptions = msgspec.field(default_factory=DeleteOptions)


View = TypeVar("View", bound=Model)


def decode(text: bytes) -> Any:
    """Return the JSON value in `text`; ApiError (400) if it is not JSON or nests deeper than MAX_DEPTH."""
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    if _is_deeper_than(value, MAX_DEPTH):
        raise bad_request(f"the body nests deeper than {MAX_DEPTH} levels")
    return value


def encode(value: Any) -> bytes:
    """Return `value` as JSON; ApiError (400) if it holds a number that JSON clients could not read back."""
    try:
        return msgspec.json.encode(value)
    except (OverflowError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise bad_request(f"the object cannot be stored: {error}") from error


def view_of(body: Any, model: type[View]) -> View:
    """Return `body` as a `model`; ApiError (400) naming the first field of a wrong type."""
    try:
        return msgspec.convert(body, model)
    except msgspec.ValidationError as error:
        raise bad_request(f"the object cannot be read as {model.__name__}: {error}") from error


def without_nulls(value: Any) -> Any:
    """Return a copy of `value` without null members: to Kubernetes null and absent are the same."""
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _is_deeper_than(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth == 0 or any(_is_deeper_than(member, depth - 1) for member in value.values())
    if isinstance(value, list):
        return depth == 0 or any(_is_deeper_than(item, depth - 1) for item in value)
    return False
