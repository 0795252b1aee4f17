"""Kueue's objects as far as the admission check needs them: a Workload, an AdmissionCheck, a ResourceFlavor.

v1beta1 and v1beta2 are alike in all of these fields, but for the priority class of a Workload.

Names that Kueue has given, and ours towards it. Those of its API versions v1beta1 and v1beta2.

Nodes that Kueue has chosen itself: a topology assignment, as labels of nodes with a number of pods each.

v1beta1 lists domains one by one. v1beta2 has slices of them, whose values and numbers of pods are one for all domains
(`universal`) or one for each (`individual`, values with what they have in common left out).

ClusterQueues that may borrow quota of a cohort: Kueue then gives quota where the virtual cluster has no cells.

Kueue takes such quota back by evicting Workloads, also where those that want it find no cells. So cells idle.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.job import JobRef
from hived_extender.jobs.kinds.kueue import HOST
from hived_extender.jobs.progress import seconds_of
from hived_extender.jobs.wire import Metadata, PodMetadata, StatusCondition
from hived_extender.kube.watch import ObjectKind

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")

CONTROLLER = PREFIX + "admission-check"
"""`spec.controllerName` of an AdmissionCheck that is ours."""

MANAGER = "hived-admission-check"
"""The field manager of our writes, as `managedFields` names it."""

# Conditions of a Workload.
QUOTA_RESERVED, EVICTED, FINISHED, PODS_READY = "QuotaReserved", "Evicted", "Finished", "PodsReady"

# States of an admission check.
PENDING, READY, RETRY, REJECTED = "Pending", "Ready", "Retry", "Rejected"

ACTIVE = "Active"
"""The condition of an AdmissionCheck whose controller is at work."""

WORKLOAD_PRIORITY_CLASS = "WorkloadPriorityClass"


WORKLOADS, CHECKS, FLAVORS, QUEUES = (
    ObjectKind(GROUP, plural, VERSIONS)
    for plural in ("workloads", "admissionchecks", "resourceflavors", "clusterqueues")
)
KINDS = (FLAVORS, QUEUES, CHECKS, WORKLOADS)


Domain = tuple[Mapping[str, str], int]
"""Labels of nodes, and how many pods go there."""

MOST_DOMAINS = 2**14


class Individual(msgspec.Struct):
    """The values of one level, one for each domain: what is between `prefix` and `suffix`."""

    roots: list[str]
    prefix: str | None = None
    suffix: str | None = None


class Values(msgspec.Struct):
    """The values of one level: the same for all domains of a slice, or one for each."""

    universal: str | None = None
    individual: Individual | None = None

    def all(self, count: int) -> list[str]:
        """The value of each of `count` domains. Raises ValueError for other numbers of values, or for none."""
        if self.universal is not None:
            return [self.universal] * count
        if self.individual is None or len(self.individual.roots) != count:
            raise ValueError
        return [f"{self.individual.prefix or ''}{root}{self.individual.suffix or ''}" for root in self.individual.roots]


class PodCounts(msgspec.Struct):
    """The numbers of pods: the same for all domains of a slice, or one for each."""

    universal: int | None = None
    individual: list[int] | None = None

    def all(self, count: int) -> list[int]:
        """Return the number for each of `count` domains. Raises ValueError for other numbers of them, or for none."""
        if self.universal is not None:
            return [self.universal] * count
        if self.individual is None or len(self.individual) != count:
            raise ValueError
        return self.individual


class Slice(msgspec.Struct, rename="camel"):
    """Some of the domains of an assignment of v1beta2."""

    domain_count: int
    values_per_level: list[Values]
    pod_counts: PodCounts


class OneDomain(msgspec.Struct):
    """One domain of an assignment of v1beta1."""

    values: list[str]
    count: int


class Assignment(msgspec.Struct):
    """`topologyAssignment` of a pod set, in either version."""

    levels: list[str]
    slices: list[Slice] | None = None
    domains: list[OneDomain] | None = None


def domains_of(assignment: Assignment) -> tuple[Domain, ...]:
    """The domains in their order: pods go to the first ones first. Raises UserError for one that is none."""
    try:
        return tuple(_domains(assignment))
    except ValueError:
        raise UserError("its topology assignment has other numbers of values than of domains") from None


def assignment_on(nodes: Mapping[str, int]) -> dict[str, Any]:
    """An assignment of v1beta2 that has so many pods on each node."""
    values = {"individual": {"roots": list(nodes)}}
    counts = {"individual": list(nodes.values())}
    part = {"domainCount": len(nodes), "valuesPerLevel": [values], "podCounts": counts}
    return {"levels": [HOST], "slices": [part]}


def _domains(assignment: Assignment) -> Iterator[Domain]:
    levels = assignment.levels
    for each in assignment.domains or ():
        yield dict(zip(levels, each.values, strict=True)), each.count
    for part in assignment.slices or ():
        count = part.domain_count
        if count > MOST_DOMAINS:
            raise UserError(f"its topology assignment has more than {MOST_DOMAINS} domains")
        by_level = [each.all(count) for each in part.values_per_level]
        for place, pods in enumerate(part.pod_counts.all(count)):
            yield dict(zip(levels, [values[place] for values in by_level], strict=True)), pods


Object = dict[str, Any]


class _Metadata(PodMetadata):
    generation: int = 0


class _Set(msgspec.Struct, rename="camel"):
    name: str = "main"
    count: int = 1
    template: dict[str, Any] | None = None


class _ClassRef(msgspec.Struct):
    group: str = ""
    kind: str = ""
    name: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    pod_sets: list[_Set] | None = None
    queue_name: str = ""
    priority: int | None = None
    priority_class_ref: _ClassRef | None = None
    priority_class_name: str = ""  # of v1beta1
    priority_class_source: str = ""
    active: bool | None = None


class _Assignment(msgspec.Struct, rename="camel"):
    name: str = "main"
    flavors: dict[str, str] | None = None
    count: int | None = None
    topology_assignment: Assignment | None = None


class _Admission(msgspec.Struct, rename="camel"):
    cluster_queue: str = ""
    pod_set_assignments: list[_Assignment] | None = None


class _Status(msgspec.Struct, rename="camel"):
    conditions: list[StatusCondition] | None = None
    admission: _Admission | None = None
    admission_checks: list[dict[str, Any]] | None = None


class WorkloadObject(msgspec.Struct):
    """A Workload, as far as it is read."""

    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Conditions(msgspec.Struct, rename="camel"):
    conditions: list[StatusCondition] | None = None


class _Progress(_Conditions, rename="camel"):
    admission_checks: list[dict[str, Any]] | None = None


class _Outline(msgspec.Struct):
    """As much of a Workload as says whether it waits for a check of ours: the same in every version so far."""

    metadata: _Metadata
    status: _Progress = msgspec.field(default_factory=_Progress)


class PodSet(msgspec.Struct, frozen=True):
    """`count` pods of one template, as many as Kueue has reserved quota for.

    `flavors` are names of ResourceFlavors. `domains` are there if Kueue has chosen the nodes itself.
    """

    name: str
    count: int
    template: Mapping[str, Any]
    flavors: tuple[str, ...] = ()
    domains: tuple[Domain, ...] = ()


class CheckState(msgspec.Struct, frozen=True):
    """The state of one admission check, as it stands in a Workload."""

    name: str
    state: str
    message: str = ""
    retry_count: int = 0


class Workload(msgspec.Struct, frozen=True):
    """A Workload. Times are in seconds since 1970.

    `written` are all its admission checks as they stand there. `class_name` is that of its PriorityClass, or, if it
    `has_workload_class`, of its WorkloadPriorityClass. One with a `mistake` could not be read any further.
    `admission` is what Kueue has given it, as it stands there.
    """

    job: JobRef
    version: str
    created_s: float
    pod_sets: tuple[PodSet, ...]
    written: tuple[Mapping[str, Any], ...] = ()
    queue: str = ""
    cluster_queue: str = ""
    priority: int = 0
    class_name: str = ""
    has_workload_class: bool = False
    is_active: bool = True
    is_leaving: bool = False
    reserved_s: float | None = None
    true: frozenset[str] = frozenset()
    mistake: str = ""
    admission: Mapping[str, Any] = {}

    @property
    def key(self) -> str:
        """Of its hold: unique for all time."""
        return f"{self.job}/{self.job.uid}"

    @property
    def wants_cells(self) -> bool:
        """Has it a quota, and nothing that takes it back?

        Kueue sets checks back as it evicts a Workload. A state written after that would keep it out for ever.
        """
        is_over = EVICTED in self.true or FINISHED in self.true
        return QUOTA_RESERVED in self.true and self.is_active and not self.is_leaving and not is_over

    @property
    def has_started(self) -> bool:
        """Do all its pods run? Kueue says so only where it waits for pods to be ready."""
        return PODS_READY in self.true

    def check(self, name: str) -> CheckState | None:
        """One of its admission checks, None if it has none of this name."""
        return next((state for each in self.written if (state := _check_state(each)).name == name), None)

    @property
    def check_names(self) -> tuple[str, ...]:
        """The names of its admission checks."""
        return tuple(_check_state(each).name for each in self.written)


def workload_of(item: Object) -> Workload:
    """A Workload as JSON has it, perhaps with a mistake. Raises UserError if it is none, or has no name."""
    outline = converted(item, _Outline, "Workload")
    meta, status = outline.metadata, outline.status
    conditions = {each.type: each for each in status.conditions or () if each.status == "True"}
    reserved = conditions.get(QUOTA_RESERVED)
    version = item.get("apiVersion", f"{GROUP}/v1beta1")
    known = Workload(
        JobRef(version, "Workload", meta.namespace, meta.name, meta.uid),
        meta.version,
        seconds_of(meta.created or "") or 0.0,
        (),
        tuple(status.admission_checks or ()),
        is_leaving=bool(meta.deletion_timestamp),
        reserved_s=None if reserved is None else seconds_of(reserved.changed or ""),
        true=frozenset(conditions),
    )
    try:
        found = _filled_in(known, converted(item, WorkloadObject, "Workload"))
        return replace(found, admission=(item.get("status") or {}).get("admission") or {})
    except UserError as error:
        return replace(known, mistake=error.message)


def _filled_in(known: Workload, found: WorkloadObject) -> Workload:
    """The same with what it asks for, and what Kueue has given it. Raises UserError."""
    spec, admission = found.spec, found.status.admission or _Admission()
    assigned = {each.name: each for each in admission.pod_set_assignments or ()}
    ref = spec.priority_class_ref
    kind = ref.kind if ref is not None else spec.priority_class_source
    return replace(
        known,
        pod_sets=tuple(_pod_set(each, assigned.get(each.name)) for each in spec.pod_sets or ()),
        queue=spec.queue_name,
        cluster_queue=admission.cluster_queue,
        priority=spec.priority or 0,
        class_name=ref.name if ref is not None else spec.priority_class_name,
        has_workload_class=WORKLOAD_PRIORITY_CLASS.lower() in kind.lower(),
        is_active=spec.active is not False,
    )


def flavor_labels(item: Object) -> tuple[str, dict[str, str]]:
    """The name of a ResourceFlavor, and the labels of its nodes. Raises UserError."""
    found = converted(item, FlavorObject, "ResourceFlavor")
    return found.metadata.name, found.spec.node_labels or {}


class _FlavorSpec(msgspec.Struct, rename="camel"):
    node_labels: dict[str, str] | None = None


class FlavorObject(msgspec.Struct):
    """A ResourceFlavor, as far as it is read."""

    metadata: _Metadata
    spec: _FlavorSpec = msgspec.field(default_factory=_FlavorSpec)


class _CheckSpec(msgspec.Struct, rename="camel"):
    controller_name: str = ""


class CheckObject(msgspec.Struct):
    """An AdmissionCheck, as far as it is read."""

    metadata: _Metadata
    spec: _CheckSpec = msgspec.field(default_factory=_CheckSpec)
    status: _Conditions = msgspec.field(default_factory=_Conditions)


class Check(msgspec.Struct, frozen=True):
    """An AdmissionCheck: is it ours, and does its condition say that we are at work, in which words?"""

    name: str
    is_ours: bool
    is_active: bool
    message: str = ""
    version: str = ""
    generation: int = 0
    conditions: tuple[Mapping[str, Any], ...] = ()


def check_of(item: Object) -> Check:
    """An AdmissionCheck as JSON has it. Raises UserError."""
    found = converted(item, CheckObject, "AdmissionCheck")
    said = [each for each in found.status.conditions or () if each.type == ACTIVE and each.status == "True"]
    conditions = (item.get("status") or {}).get("conditions") or ()
    is_ours = found.spec.controller_name == CONTROLLER
    meta = found.metadata
    message = (said[0].message or "") if said else ""
    return Check(meta.name, is_ours, bool(said), message, meta.version, meta.generation, tuple(conditions))


def _pod_set(found: _Set, assigned: _Assignment | None) -> PodSet:
    count = found.count if assigned is None or assigned.count is None else assigned.count
    flavors = () if assigned is None else tuple(sorted({*(assigned.flavors or {}).values()}))
    topology = None if assigned is None else assigned.topology_assignment
    try:
        domains = () if topology is None else domains_of(topology)
    except UserError as error:
        raise UserError(f"pod set {found.name}: {error.message}") from None
    return PodSet(found.name, count, found.template or {}, flavors, domains)


def _check_state(found: Mapping[str, Any]) -> CheckState:
    return CheckState(
        str(found.get("name", "")),
        str(found.get("state", PENDING)),
        str(found.get("message", "")),
        int(found.get("retryCount") or 0),
    )


def converted(item: Object, kind: type[Any], name: str) -> Any:
    """An object of Kueue's as a struct. Raises UserError."""
    try:
        return msgspec.convert(item, kind)
    except msgspec.ValidationError as error:
        named = (item.get("metadata") or {}).get("name", "") if isinstance(item, dict) else ""
        raise UserError(f"{name} {named!r} is not as Kueue's v1beta1 and v1beta2 have it: {error}") from None


MOST_NAMED = 5
"""ClusterQueues that are named in a warning."""


class ClusterQueue(msgspec.Struct, frozen=True):
    """A ClusterQueue: its `checks`, and the resources of which it `may_borrow` quota."""

    name: str
    checks: tuple[str, ...] = ()
    may_borrow: frozenset[str] = frozenset()


def cluster_queue_of(item: Object) -> ClusterQueue:
    """A ClusterQueue as JSON has it, of either version. Raises UserError."""
    found = converted(item, QueueObject, "ClusterQueue")
    spec = found.spec
    rules = spec.admission_checks_strategy.admission_checks if spec.admission_checks_strategy is not None else None
    borrowed: frozenset[str] = frozenset()
    if spec.cohort_name or spec.cohort:
        flavors = [flavor for group in spec.resource_groups or () for flavor in group.flavors]
        quotas = [quota for flavor in flavors for quota in flavor.resources]
        borrowed = frozenset(quota.name for quota in quotas if str(quota.borrowing_limit) != "0")
    checks = (*(each.name for each in rules or ()), *(spec.admission_checks or ()))
    return ClusterQueue(found.metadata.name, checks, borrowed)


def warning(check: str, queues: Iterable[ClusterQueue], devices: Collection[str]) -> str:
    """Return which ClusterQueues with a check may borrow quota of devices, and what to do; "" if none may."""
    found = sorted(one.name for one in queues if check in one.checks and one.may_borrow & frozenset(devices))
    if not found:
        return ""
    rest = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return (
        f"ClusterQueues {', '.join(found[:MOST_NAMED])}{rest} may borrow quota of their cohort, and no cells: "
        "Kueue may evict running jobs for Workloads that then wait. Set borrowingLimit: 0 for their devices"
    )


class _Quota(msgspec.Struct, rename="camel"):
    name: str
    borrowing_limit: str | int | None = None


class _Flavor(msgspec.Struct):
    resources: list[_Quota]


class _Group(msgspec.Struct):
    flavors: list[_Flavor]


class _Rule(msgspec.Struct):
    name: str


class _Strategy(msgspec.Struct, rename="camel"):
    admission_checks: list[_Rule] | None = None


class _QueueSpec(msgspec.Struct, rename="camel"):
    cohort_name: str = ""
    cohort: str = ""  # of v1beta1
    resource_groups: list[_Group] | None = None
    admission_checks_strategy: _Strategy | None = None
    admission_checks: list[str] | None = None  # of v1beta1


class QueueObject(msgspec.Struct):
    """A ClusterQueue, as far as it is read."""

    metadata: Metadata
    spec: _QueueSpec = msgspec.field(default_factory=_QueueSpec)
