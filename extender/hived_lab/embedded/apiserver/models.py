"""Typed views of the objects: exactly the fields that this cluster reads; and the rules for objects of every kind.

An object is kept as the JSON it was sent as, with all its fields. Converting it to its view checks the type of every
field that some code reads. Other fields are kept and ignored.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from hived_config.quantities import QUANTITY
from hived_extender.kube_rules.demands import AffinitySpec, SpreadSpec
from hived_lab.embedded.apiserver.bodies import Body, Cause

Quantity = Annotated[str, msgspec.Meta(pattern=rf"^{QUANTITY}\Z")] | int | float


class Model(msgspec.Struct, rename="camel", kw_only=True):
    """Base of all views, which are never changed; an absent field has its zero value, as in Go."""


class OwnerReference(Model):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Model):
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
    """The fields of every kind; the concrete kinds add the rest."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class Condition(Model):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class ResourceRequirements(Model):
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class ContainerPort(Model):
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class Container(Model):
    name: str = ""
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    restart_policy: str = ""
    ports: list[ContainerPort] = []


class SchedulingGate(Model):
    name: str = ""


class Toleration(Model):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class WorkloadRef(Model):
    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class SchedulingGroup(Model):
    pod_group_name: str = ""


class PodSpec(Model):
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
    reason: str = ""
    exit_code: int = 0


class ContainerState(Model):
    waiting: StateReason | None = None
    running: StateReason | None = None
    terminated: StateReason | None = None


class ContainerStatus(Model):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = msgspec.field(default_factory=ContainerState)


class PodStatus(Model):
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
        """True if all its containers have ended."""
        return self.status.phase in ("Succeeded", "Failed")


class Taint(Model):
    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Model):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeAddress(Model):
    type: str = ""
    address: str = ""


class NodeInfo(Model):
    kubelet_version: str = ""
    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""


class NodeStatus(Model):
    conditions: list[Condition] = []
    capacity: dict[str, Quantity] = {}
    allocatable: dict[str, Quantity] = {}
    addresses: list[NodeAddress] = []
    node_info: NodeInfo = msgspec.field(default_factory=NodeInfo)


class Node(KubeObject):
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class ObjectReference(Model):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(Model):
    component: str = ""
    host: str = ""


class EventSeries(Model):
    count: int = 0
    last_observed_time: str = ""


class Event(KubeObject):
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
    holder_identity: str = ""
    lease_duration_seconds: int | None = None
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(KubeObject):
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class ConfigMap(KubeObject):
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    immutable: bool = False


class PriorityClass(KubeObject):
    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str = ""


class PodGroupSpec(Model):
    min_member: int = 0
    min_task_member: dict[str, int] = {}
    schedule_timeout_seconds: int = 0
    queue: str = ""
    priority_class_name: str = ""


class PodGroupStatus(Model):
    phase: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(KubeObject):
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


class LabelSelector(Model, omit_defaults=True):
    match_labels: dict[str, str] = {}
    match_expressions: list[dict[str, Any]] = []


class PodTemplate(Model):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class JobSpec(Model):
    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    max_failed_indexes: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    pod_replacement_policy: str = ""
    pod_failure_policy: dict[str, Any] | None = None
    success_policy: dict[str, Any] | None = None
    suspend: bool = False
    managed_by: str | None = None
    manual_selector: bool = False
    selector: LabelSelector = msgspec.field(default_factory=LabelSelector)
    template: PodTemplate = msgspec.field(default_factory=PodTemplate)


class Job(KubeObject):
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: dict[str, Any] = {}


class JobTemplate(Model):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: JobSpec = msgspec.field(default_factory=JobSpec)


class Dependency(Model):
    name: str
    status: Literal["Ready", "Complete"]


class ReplicatedJob(Model):
    name: str
    template: JobTemplate
    group_name: str = "default"
    replicas: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 1
    depends_on: list[Dependency] = []


class FailureRule(Model):
    action: Literal["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"]
    on_job_failure_reasons: list[str] = []
    on_job_failure_message_patterns: list[str] = []
    target_replicated_jobs: list[str] = []


class FailurePolicy(Model):
    max_restarts: int = 0
    restart_strategy: Literal["Recreate", "BlockingRecreate"] = "Recreate"
    rules: list[FailureRule] = []


class SuccessPolicy(Model):
    """Which Jobs complete a JobSet; no targets are all."""

    operator: Literal["All", "Any"] = "All"
    target_replicated_jobs: list[str] = []


class StartupPolicy(Model):
    startup_policy_order: Literal["AnyOrder", "InOrder"] = "AnyOrder"


class Network(Model):
    enable_dns_hostnames: bool = msgspec.field(default=True, name="enableDNSHostnames")
    subdomain: str = ""


class JobSetSpec(Model):
    replicated_jobs: list[ReplicatedJob] = []
    suspend: bool = False
    success_policy: SuccessPolicy = msgspec.field(default_factory=SuccessPolicy)
    failure_policy: FailurePolicy | None = None
    startup_policy: StartupPolicy = msgspec.field(default_factory=StartupPolicy)
    network: Network = msgspec.field(default_factory=Network)
    managed_by: str | None = None
    ttl_seconds_after_finished: int | None = None


class JobSet(KubeObject):
    spec: JobSetSpec = msgspec.field(default_factory=JobSetSpec)
    status: dict[str, Any] = {}


class OpenObject(KubeObject):
    """PodGroup or Workload of scheduling.k8s.io, a job, a queue, an object of Kueue; nothing reads what it says."""

    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class NamespaceStatus(Model):
    phase: str = ""


class Namespace(KubeObject):
    status: NamespaceStatus = msgspec.field(default_factory=NamespaceStatus)


class Binding(KubeObject):
    """v1 Binding: sent to bind a pod, never stored."""

    target: ObjectReference = msgspec.field(default_factory=ObjectReference)


class Preconditions(Model):
    """Which version of an object a deletion means."""

    uid: str = ""
    resource_version: str = ""


class DeleteOptions(Model):
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


MAX_ANNOTATION_BYTES = 256 * 1024

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
DNS_LABEL_RULE = "a lowercase RFC 1123 label must have letters a-z, digits and '-', and begin and end with no '-'"
_DNS_RULE = "a lowercase RFC 1123 subdomain must have labels of letters a-z, digits and '-', with '.' between them"
_KEY_RULE = "name part must consist of letters, digits, '-', '_' or '.', and begin and end with a letter or digit"
_VALUE_RULE = "a valid label must be empty, or be as the name of a key: letters, digits and '-', '_', '.' between them"
_KEY_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Every field of these objects is read by a view.
_WHOLE = (
    Pod, WorkloadRef, SchedulingGroup, Toleration, Node, Lease,
    ConfigMap, PriorityClass, PodGroup,
)  # fmt: skip
# Fields that Kubernetes knows in these objects and that no view reads. Objects that are not listed may have any field.
_UNREAD_FIELDS: dict[type[Model], frozenset[str]] = {
    **dict.fromkeys(_WHOLE, frozenset()),
    ObjectMeta: frozenset({"generation", "managedFields", "selfLink"}),
    OwnerReference: frozenset({"apiVersion", "blockOwnerDeletion"}),
    PodSpec: _names(
        "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
        "ephemeralContainers hostAliases hostIPC hostPID hostUsers hostname hostnameOverride "
        "imagePullSecrets os readinessGates runtimeClassName securityContext serviceAccount "
        "setHostnameAsFQDN shareProcessNamespace subdomain"
    ),
    Container: _names(
        "args command env envFrom imagePullPolicy lifecycle livenessProbe readinessProbe resizePolicy "
        "restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath "
        "terminationMessagePolicy tty volumeDevices volumeMounts workingDir"
    ),
    ResourceRequirements: frozenset({"claims"}),
    ContainerPort: frozenset({"name"}),
    Taint: frozenset({"timeAdded"}),
    NodeSpec: frozenset({"configSource", "externalID", "podCIDR", "podCIDRs", "providerID"}),
    Event: frozenset({"action", "related", "reportingInstance"}),
    LeaseSpec: frozenset({"preferredHolder", "strategy"}),
    PodGroupSpec: frozenset({"minResources", "networkTopology", "subGroupPolicy"}),
    OpenObject: frozenset({"status"}),
    Job: frozenset(),
    JobSpec: frozenset(),
    Namespace: frozenset({"spec"}),
}


def is_dns_label(text: str) -> bool:
    """True if `text` is one part of a DNS name."""
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """True if `text` is a DNS name."""
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def metadata_causes(meta: ObjectMeta, is_label_name: bool) -> Iterator[Cause]:
    """Yield what is wrong with name, labels and annotations; `is_label_name` asks for a DNS label as the name."""
    if not (is_dns_label(meta.name) if is_label_name else is_dns_subdomain(meta.name)):
        yield Cause("metadata.name", f'Invalid value: "{meta.name}": {DNS_LABEL_RULE if is_label_name else _DNS_RULE}')
    yield from label_causes(meta, "metadata")
    for key in meta.annotations:
        if not is_qualified_name(key.lower()):
            yield Cause("metadata.annotations", f'Invalid value: "{key}": {_KEY_RULE}')
    size = sum(len(key.encode()) + len(value.encode()) for key, value in meta.annotations.items())
    if size > MAX_ANNOTATION_BYTES:
        message = f"Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"
        yield Cause("metadata.annotations", message, "FieldValueTooLong")


def label_causes(meta: ObjectMeta, path: str) -> Iterator[Cause]:
    """Yield what is wrong with the labels of an object, or of a template."""
    for key, value in meta.labels.items():
        if not is_qualified_name(key):
            yield Cause(f"{path}.labels", f'Invalid value: "{key}": {_KEY_RULE}')
        if value and (len(value) > 63 or not _KEY_NAME.fullmatch(value)):
            yield Cause(f"{path}.labels", f'Invalid value: "{value}": {_VALUE_RULE}')


def is_qualified_name(text: str) -> bool:
    """True if `text` may be a label key: a name of at most 63 characters behind an optional DNS prefix and `/`."""
    prefix, slash, name = text.rpartition("/")
    return (not slash or is_dns_subdomain(prefix)) and len(name) <= 63 and _KEY_NAME.fullmatch(name) is not None


def unknown_fields(body: Body, model: type[Model], path: str = "") -> Iterator[str]:
    """Yield the paths of fields that Kubernetes does not have where they stand; most are misspelt.

    Looks only into the objects that have a view; `$` begins a directive of a strategic merge patch.
    """
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(model)}
    for key, value in body.items():
        if key in fields:
            yield from _unknown_inside(value, fields[key], f"{path}{key}")
        elif model in _UNREAD_FIELDS and key not in _UNREAD_FIELDS[model] and not key.startswith("$"):
            yield f"{path}{key}"


def _unknown_inside(value: Any, declared: Any, path: str) -> Iterator[str]:
    if isinstance(declared, type) and issubclass(declared, Model) and isinstance(value, Mapping):
        yield from unknown_fields(dict(value), declared, f"{path}.")
    elif get_origin(declared) is list and isinstance(value, list):
        (item_type,) = get_args(declared)
        for index, item in enumerate(value):
            yield from _unknown_inside(item, item_type, f"{path}[{index}]")
