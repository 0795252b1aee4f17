"""Views of the objects: exactly the fields that this cluster reads; and the rules for objects of every kind.

An object is kept as the JSON it was sent as, with all its fields. Converting it to its view checks the type of every
field that some code reads, so that nothing behind the door has to. Views of kinds are built from the table `_ROWS`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from hived_config.quantities import QUANTITY
from hived_extender.kube_rules.demands import AffinitySpec, SpreadSpec
from hived_extender.kube_rules.resource_rules import Fault
from hived_lab.embedded.apiserver.bodies import Body

Quantity = Annotated[str, msgspec.Meta(pattern=rf"^{QUANTITY}\Z")] | int | float
View = Any
"""An object, or a part of one, by the table below; attributes are in lower case, such as `pod.spec.node_name`."""


class Model(msgspec.Struct, rename="camel", kw_only=True):
    """Base of all views, which are never changed; an absent field has its zero value, as in Go."""


class OwnerReference(Model):
    """An object that another one belongs to."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Model):
    """The metadata of every object."""

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


class Preconditions(Model):
    """The version of an object that a deletion means."""

    uid: str = ""
    resource_version: str = ""


class DeleteOptions(Model):
    """The options of a deletion."""

    api_version: str = ""
    kind: str = ""
    grace_period_seconds: int | None = None
    propagation_policy: str = ""
    orphan_dependents: bool | None = None
    preconditions: Preconditions = msgspec.field(default_factory=Preconditions)
    dry_run: list[str] = []


# A row has the fields of a view, of an object if its name begins with @; ~ is written without defaults. A field is a
# text, or has its type after a colon: * is a list, ? may be absent, a/b are the values that it may have, ! has to be
# there, = gives a default. Fields behind | are known to Kubernetes, and not read; * there lets any field be.
_ROWS = """
Condition: type status reason message lastTransitionTime | *
ResourceRequirements: limits:quantities requests:quantities | claims
ContainerPort: containerPort:number hostPort:number hostIP protocol | name
Container: name image resources:ResourceRequirements restartPolicy ports:ContainerPort*
    | args command env envFrom imagePullPolicy lifecycle livenessProbe readinessProbe resizePolicy restartPolicyRules
    securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices
    volumeMounts workingDir
SchedulingGate: name | *
Toleration: key operator value effect tolerationSeconds:number?
WorkloadRef: name podGroup podGroupReplicaKey
SchedulingGroup: podGroupName
PodSpec: nodeName schedulerName containers:Container* initContainers:Container* nodeSelector:texts priority:number?
    priorityClassName preemptionPolicy restartPolicy serviceAccountName terminationGracePeriodSeconds:number=30
    schedulingGates:SchedulingGate* tolerations:Toleration* affinity:affinity? topologySpreadConstraints:spread*
    resources:ResourceRequirements overhead:quantities volumes:object* resourceClaims:object* hostNetwork:flag
    workloadRef:WorkloadRef schedulingGroup:SchedulingGroup
    | activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks ephemeralContainers
    hostAliases hostIPC hostPID hostUsers hostname hostnameOverride imagePullSecrets os readinessGates runtimeClassName
    securityContext serviceAccount setHostnameAsFQDN shareProcessNamespace subdomain
StateReason: reason exitCode:number | *
ContainerState: waiting:StateReason? running:StateReason? terminated:StateReason? | *
ContainerStatus: name ready:flag restartCount:number state:ContainerState | *
PodStatus: phase reason startTime conditions:Condition* containerStatuses:ContainerStatus* nominatedNodeName podIP | *
@Pod: spec:PodSpec status:PodStatus
Taint: key value effect | timeAdded
NodeSpec: unschedulable:flag taints:Taint* | configSource externalID podCIDR podCIDRs providerID
NodeAddress: type address | *
NodeInfo: kubeletVersion osImage kernelVersion containerRuntimeVersion | *
NodeStatus: conditions:Condition* capacity:quantities allocatable:quantities addresses:NodeAddress* nodeInfo:NodeInfo
    | *
@Node: spec:NodeSpec status:NodeStatus
ObjectReference: apiVersion kind namespace name uid resourceVersion fieldPath | *
EventSource: component host | *
EventSeries: count:number lastObservedTime | *
@Event: involvedObject:ObjectReference reason message type count:number source:EventSource reportingComponent
    firstTimestamp lastTimestamp eventTime series:EventSeries? | action related reportingInstance
LeaseSpec: holderIdentity leaseDurationSeconds:number? acquireTime renewTime leaseTransitions:number
    | preferredHolder strategy
@Lease: spec:LeaseSpec
@ConfigMap: data:texts binaryData:texts immutable:flag
@PriorityClass: value:number globalDefault:flag description preemptionPolicy
PodGroupSpec: minMember:number minTaskMember:numbers scheduleTimeoutSeconds:number queue priorityClassName
    | minResources networkTopology subGroupPolicy
PodGroupStatus: phase running:number succeeded:number failed:number | *
@PodGroup: spec:PodGroupSpec status:PodGroupStatus
~LabelSelector: matchLabels:texts matchExpressions:object* | *
PodTemplate: metadata:ObjectMeta spec:PodSpec | *
JobSpec: parallelism:number? completions:number? completionMode backoffLimit:number? backoffLimitPerIndex:number?
    maxFailedIndexes:number? activeDeadlineSeconds:number? ttlSecondsAfterFinished:number? podReplacementPolicy
    podFailurePolicy:object? successPolicy:object? suspend:flag managedBy:text? manualSelector:flag
    selector:LabelSelector template:PodTemplate
@Job: spec:JobSpec status:object
JobTemplate: metadata:ObjectMeta spec:JobSpec | *
Dependency: name! status!:Ready/Complete | *
ReplicatedJob: name! template!:JobTemplate groupName=default replicas:replicas=1 dependsOn:Dependency* | *
FailureRule: action!:FailJobSet/RestartJobSet/RestartJobSetAndIgnoreMaxRestarts onJobFailureReasons:text*
    onJobFailureMessagePatterns:text* targetReplicatedJobs:text* | *
FailurePolicy: maxRestarts:number restartStrategy:Recreate/BlockingRecreate rules:FailureRule* | *
SuccessPolicy: operator:All/Any targetReplicatedJobs:text* | *
StartupPolicy: startupPolicyOrder:AnyOrder/InOrder | *
Network: enableDNSHostnames:flag=true subdomain | *
JobSetSpec: replicatedJobs:ReplicatedJob* suspend:flag successPolicy:SuccessPolicy failurePolicy:FailurePolicy?
    startupPolicy:StartupPolicy network:Network managedBy:text? ttlSecondsAfterFinished:number? | *
@JobSet: spec:JobSetSpec status:object | *
@OpenObject: spec:object status:object
NamespaceStatus: phase | *
@Namespace: status:NamespaceStatus | spec
@Binding: target:ObjectReference | *
@Eviction: deleteOptions:DeleteOptions | *
"""
_TYPES: dict[str, Any] = {
    "text": str, "number": int, "flag": bool, "texts": dict[str, str], "numbers": dict[str, int],
    "object": dict[str, Any], "quantities": dict[str, Quantity], "affinity": AffinitySpec, "spread": SpreadSpec,
    "replicas": Annotated[int, msgspec.Meta(ge=0, le=10_000)], "ObjectMeta": ObjectMeta, "DeleteOptions": DeleteOptions,
}  # fmt: skip
# The fields beside those of a view that Kubernetes knows; an object that is not listed may have any field.
_UNREAD: dict[type[msgspec.Struct], frozenset[str]] = {
    ObjectMeta: frozenset({"generation", "managedFields", "selfLink"}),
    OwnerReference: frozenset({"apiVersion", "blockOwnerDeletion"}),
}


def _field(text: str) -> tuple[str, Any, Any]:
    """Read a field of a row: its attribute, its type, and its name and default."""
    name, _, kind = text.partition("=")[0].partition(":")
    encoded, kind = name.rstrip("!"), kind or "text"
    declared: Any = _TYPES.get(kind.rstrip("*?")) or Literal[tuple(kind.split("/"))]
    default: dict[str, Any] = {"default_factory": get_origin(declared) or declared}
    if kind.endswith("*"):
        declared, default = list[declared], {"default_factory": list}
    elif kind.endswith("?"):
        declared, default = declared | None, {"default": None}
    elif "/" in kind:
        default = {"default": kind.partition("/")[0]}
    if "=" in text:
        given = text.partition("=")[2]
        default = {"default": given if kind == "text" else msgspec.json.decode(given)}
    attribute = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", encoded).lower()
    return attribute, declared, msgspec.field(name=encoded, **({} if name.endswith("!") else default))


def _build_views() -> None:
    for row in re.split(r"\n(?=\S)", _ROWS.strip()):
        name, _, fields = row.partition(":")
        read, _, unread = fields.partition("|")
        base, bare = (KubeObject if name.startswith("@") else Model), name.lstrip("@~")
        columns, is_terse = map(_field, read.split()), name.startswith("~")
        view = msgspec.defstruct(bare, columns, bases=(base,), kw_only=True, omit_defaults=is_terse)
        _TYPES[bare] = view
        if unread.strip() != "*":
            _UNREAD[view] = frozenset(unread.split())


_build_views()


def __getattr__(name: str) -> Any:
    """Return the view of this name."""
    if name not in _TYPES:
        raise AttributeError(name)
    return _TYPES[name]


MAX_ANNOTATION_BYTES = 256 * 1024

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_DNS_LABEL = re.compile(_LABEL)
_DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
DNS_LABEL_RULE = "a lowercase RFC 1123 label must have letters a-z, digits and '-', and begin and end with no '-'"
_DNS_RULE = "a lowercase RFC 1123 subdomain must have labels of letters a-z, digits and '-', with '.' between them"
_KEY_RULE = "name part must consist of letters, digits, '-', '_' or '.', and begin and end with a letter or digit"
_VALUE_RULE = "a valid label must be empty, or be as the name of a key: letters, digits and '-', '_', '.' between them"
_KEY_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")


def is_dns_label(text: str) -> bool:
    """True if `text` is one part of a DNS name."""
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """True if `text` is a DNS name."""
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def metadata_causes(meta: ObjectMeta, is_label_name: bool) -> Iterator[Fault]:
    """Yield what is wrong with name, labels and annotations; `is_label_name` asks for a DNS label as the name."""
    if not (is_dns_label(meta.name) if is_label_name else is_dns_subdomain(meta.name)):
        yield Fault("metadata.name", f'Invalid value: "{meta.name}": {DNS_LABEL_RULE if is_label_name else _DNS_RULE}')
    yield from label_causes(meta, "metadata")
    for key in meta.annotations:
        if not is_qualified_name(key.lower()):
            yield Fault("metadata.annotations", f'Invalid value: "{key}": {_KEY_RULE}')
    size = sum(len(key.encode()) + len(value.encode()) for key, value in meta.annotations.items())
    if size > MAX_ANNOTATION_BYTES:
        message = f"Too long: may not be more than {MAX_ANNOTATION_BYTES} bytes"
        yield Fault("metadata.annotations", message, "FieldValueTooLong")


def label_causes(meta: ObjectMeta, path: str) -> Iterator[Fault]:
    """Yield what is wrong with the labels of an object, or of a template."""
    for key, value in meta.labels.items():
        if not is_qualified_name(key):
            yield Fault(f"{path}.labels", f'Invalid value: "{key}": {_KEY_RULE}')
        if value and (len(value) > 63 or not _KEY_NAME.fullmatch(value)):
            yield Fault(f"{path}.labels", f'Invalid value: "{value}": {_VALUE_RULE}')


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
        elif model in _UNREAD and key not in _UNREAD[model] and not key.startswith("$"):
            yield f"{path}{key}"


def _unknown_inside(value: Any, declared: Any, path: str) -> Iterator[str]:
    if isinstance(declared, type) and issubclass(declared, Model) and isinstance(value, Mapping):
        yield from unknown_fields(dict(value), declared, f"{path}.")
    elif get_origin(declared) is list and isinstance(value, list):
        (item_type,) = get_args(declared)
        for index, item in enumerate(value):
            yield from _unknown_inside(item, item_type, f"{path}[{index}]")
