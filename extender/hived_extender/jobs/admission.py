"""The admission webhook: it changes new pods so that their devices are HiveD's to give, and holds new jobs that queue.

A device plugin picks any free devices of the node for a pod that asks for its resource. So the resource is removed from
the pod, and the counts are kept in an annotation. A variable of the containers reads the devices from the annotation
that binding writes. Containers that ask for no device get none: a runtime would give them whatever their image says
(`device_words`). A pod stays as it is where a change would not be sound, if need be with a warning to its creator. A
second review changes nothing.

Three kinds of pods are refused (`access`): pods without permission, pods that are larger than any cell they could have,
and pods that would take devices past the scheduler, unless `foreignDevices` allows it.

Jobs that are ours to queue are created held, so no pod of theirs exists before its turn. Plain pods of a gang get our
gate. A job that slips through, as while no webhook answers, is suspended by the queues; such plain pods are in no
queue. Quota trees are checked here too. Jobs and pods that name no user get the name of their creator.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.quantities import is_positive
from hived_config.rules import PodRules, names_for
from hived_extender.jobs.access import ForeignDevices, Permissions, Sizes
from hived_extender.jobs.amounts import DEVICE_REQUESTS, DeviceRequests, most_at_once
from hived_extender.jobs.annotations import SCHEDULING_SPEC, read_spec
from hived_extender.jobs.asks import LabelsOf, no_labels
from hived_extender.jobs.device_words import DeviceWords, is_numbered, plugin_word
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.job import JobState
from hived_extender.jobs.kinds import gangs, gates, kueue, marks, table
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.kinds.table import describe, is_marked, job_of_pod, workload_of
from hived_extender.jobs.misspelt import misplaced
from hived_extender.jobs.needs import is_ours, need_of
from hived_extender.jobs.quotas.backing import Beside, judge
from hived_extender.jobs.wire import ENABLE_LIMIT, Container, Pod, encode

KUEUES = frozenset((kueue.GROUP_NAME, "kueue.x-k8s.io/managed"))
"""Labels of pods that Kueue starts."""

QUOTA_TREE = "ElasticQuotaTree"
"""The kind of objects that are looked at when they are changed, too."""

REVIEW_VERSION = "admission.k8s.io/v1"
MAX_COUNT = 10**10 - 1
"""Devices of a container. Greater counts are not read: no cluster has so many, and Python refuses to convert some."""

MOST_PARTS = 2**18
"""Of a review: commas and brackets, those in texts included. A pod has thousands. Millions take seconds to read."""

KUBELETS = frozenset({"system:nodes", "system:masters"})
"""Groups of users; kubelets of clusters without node authorization may be of the second."""

OF_PROGRAMS = "system:"
"""The beginning of the names of service accounts and components, which say nothing of people."""

T = TypeVar("T")

_COUNT = re.compile(r"[0-9]{1,10}")

GATES, GRACE = "schedulingGates", "terminationGracePeriodSeconds"
CONTAINER_LISTS = ("initContainers", "containers")
EPHEMERAL = "ephemeralContainers"
EPHEMERAL_SUBRESOURCE = "ephemeralcontainers"


class Admitted(msgspec.Struct, frozen=True):
    """The pod to be stored and warnings to its creator; or the reason of a refusal."""

    pod: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    refusal: str = ""


class Answered(msgspec.Struct, frozen=True):
    """Operations of a JSON patch of an object, and the rest as in `Admitted`."""

    patch: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str = ""


class Admission:
    """Reviews pods, job objects of the kinds in the table, and quota trees.

    `serves_every_name`: no other scheduler serves pods here. `labels_of` has the labels of namespaces. `beside_tree`
    gives warnings about trees that follow from the present jobs; None while these are not known.
    """

    beside_tree: Beside | None = None

    def __init__(
        self,
        cluster: ClusterSpec,
        rules: PodRules,
        *,
        serves_every_name: bool = False,
        labels_of: LabelsOf = no_labels,
    ) -> None:
        self._serves_every_name = serves_every_name
        self._labels_of = labels_of
        self.configure(cluster, rules)

    def configure(self, cluster: ClusterSpec, rules: PodRules) -> None:
        """Uses another configuration from now on."""
        self._names = frozenset(names_for(rules.scheduler_names, cluster.virtual_clusters))
        resources = rules.resources_in(cluster)
        self._resources = frozenset(resources.values())
        numbered = {name for name, resource in resources.items() if is_numbered(resource)}
        self._unnumbered = (cluster.sku_types.keys() | resources.keys()) - numbered
        self._words = DeviceWords(self._resources)
        self._foreign = ForeignDevices(cluster, rules, self._labels_of)
        self._permissions = Permissions(cluster, rules, self._labels_of)
        self._sizes = Sizes(cluster, rules, self._labels_of)
        self._cluster, self._tree_resources = cluster, resources
        self._has_queues = rules.queueing.is_enabled
        self._interpreter = Interpreter(
            cluster, rules, NoObjects(), serves_every_name=self._serves_every_name, labels_of=self._labels_of
        )

    def admit(
        self, pod: Mapping[str, Any], namespace: str = "", *, is_by_kubelet: bool = False, creator: str = ""
    ) -> Admitted:
        """The pod with the limit that makes it ours and with the variables, without the resource of devices.

        A pod of a gang of plain pods that queues gets our gate as well, and one that names no user its `creator`.
        `namespace` is where it is created, if it does not say so itself. Raises UserError for a malformed pod.
        """
        admitted = self._admit(pod, namespace, is_by_kubelet=is_by_kubelet)
        if admitted.refusal or not (creator or self._has_queues):
            return admitted
        view = decoded(pod, Pod)
        if view.spec is not None and self._serves(view.spec.scheduler_name or ""):
            named = _named(admitted.pod, creator, user_said=marks.user_said(view.labels, view.annotations))
            admitted = Admitted(named, admitted.warnings)
        if not self._has_queues or not self._is_to_wait(view, namespace):
            return admitted
        spec = admitted.pod["spec"]
        gated = {**spec, GATES: [*(spec.get(GATES) or ()), {"name": gates.GATE}]}
        return Admitted({**admitted.pod, "spec": gated}, admitted.warnings)

    def _admit(self, pod: Mapping[str, Any], namespace: str, *, is_by_kubelet: bool) -> Admitted:
        view: Pod = decoded(pod, Pod)
        view.metadata.namespace = view.metadata.namespace or namespace
        spec = view.spec
        if spec is None:
            return Admitted(pod)
        is_ours = view.is_ours or self._serves(spec.scheduler_name or "")
        refusal = self._foreign.refusal(view, is_ours=is_ours, is_by_kubelet=is_by_kubelet)
        if not refusal and self._permissions.concerns(view, is_served=self._serves(spec.scheduler_name or "")):
            refusal = self._permissions.refusal(view) or self._sizes.refusal(view)
        if refusal:
            return Admitted(pod, refusal=refusal)
        if not self._serves(spec.scheduler_name or ""):
            return Admitted(pod)
        pod, slow = self._hurried(pod, view)
        if view.node:  # binding never writes the devices of its cells
            return Admitted(*self._isolated(pod, view, "", has_cells=False))
        warnings = (*_mistakes(view), *slow)
        if over := self._sizes.warning(view):
            warnings = (*warnings, over)
        containers = [*(spec.init_containers or ()), *(spec.containers or ())]
        named = sorted(self._resources & {name for each in containers for name in _limits(each)})
        asked = {resource: counts for resource in named if (counts := _counts(containers, resource)) != {}}
        if None in asked.values():
            return Admitted(pod, warnings)  # the API server refuses it, in its own words
        if len(asked) > 1:
            pod, replaced = self._isolated(pod, view, "", has_cells=False)
            return Admitted(pod, (*warnings, f"it asks for {' and '.join(asked)}; keep only one", *replaced))
        given = {resource: counts or {} for resource, counts in asked.items() if is_numbered(resource)}
        for resource, counts in given.items():
            pod = _counted(pod, view, resource, counts)
        pod, replaced = self._isolated(pod, view, next(iter(given), ""), has_cells=bool(given) or self._has_cells(view))
        warnings = (*warnings, *replaced)
        is_enabled = (
            asked or is_marked(view) or not view.annotations.keys().isdisjoint((SCHEDULING_SPEC, DEVICE_REQUESTS))
        )
        return Admitted(_enabled(pod) if is_enabled else pod, warnings)

    def admit_ephemeral(self, pod: Mapping[str, Any], old: Mapping[str, Any]) -> Admitted:
        """A pod with new ephemeral containers, which see no device, unless they read those of the pod's cells.

        Kubernetes does not let the present ones, in `old`, change. Raises UserError as `admit` does.
        """
        view: Pod = decoded(pod, Pod)
        spec = view.spec
        if spec is None or not self._resources or not self._serves(spec.scheduler_name or ""):
            return Admitted(pod)
        known = decoded(((old.get("spec") or {}).get(EPHEMERAL)) or [], list[_Named])
        names, replaced, has_cells = {each.name for each in known}, list[str](), self._has_cells(view)
        changed = [
            each if each.get("name") in names else self._seen(each, has_cells, replaced)
            for each in decoded(pod["spec"].get(EPHEMERAL) or [], list[dict[str, Any]])
        ]
        return Admitted({**pod, "spec": {**pod["spec"], EPHEMERAL: changed}} if changed else pod, tuple(replaced))

    def admit_job(self, document: Mapping[str, Any], namespace: str = "", *, creator: str = "") -> Answered:
        """The change that holds a new job that is ours to queue (rule 24.9), and warnings. Never raises.

        A job that names no user gets the name of its `creator` as well.
        """
        if not self._has_queues or table.find_kind(document.get("apiVersion"), document.get("kind")) is None:
            return Answered()
        try:
            given = _placed(document, namespace)
            job = table.read(given)
            if not is_ours(job, self._interpreter):
                return Answered()
        except UserError as error:
            return Answered(warnings=(f"it waits in no queue: {error.message}",))
        named = _named(given, creator, user_said=marks.user_said(job.labels, job.annotations))
        patch = _annotated(given, named)
        try:
            patch += table.hold_at_creation(dict(named)) if job.state is JobState.RESUMED else []
        except UserError as error:
            return Answered(refusal=error.message)
        warning = ""
        try:
            if job.roles_in is None and (need := need_of(job, self._interpreter)) is not None:
                warning = misplaced(job, (pod for pod, _ in need.pods))
        except UserError as error:
            warning = f"it waits until this is put right: {error.message}"
        return Answered(tuple(patch), (warning,) if warning else ())

    def admit_tree(self, document: Mapping[str, Any], old: Mapping[str, Any] | None) -> Answered:
        """Refuses a quota tree that breaks rules (rule 25.1), and warns of likely mistakes. Never raises."""
        if not self._has_queues:
            return Answered()  # of another controller
        found = judge(document, old, self._cluster, self._tree_resources, self.beside_tree)
        return Answered(warnings=found.warnings, refusal=found.refusal)

    def _is_to_wait(self, pod: Pod, namespace: str) -> bool:
        """Is a pod a member of a gang that queues, and has not our gate yet?"""
        spec = pod.spec
        if spec is None or pod.node or gates.GATE in pod.gates or not self._serves(spec.scheduler_name or ""):
            return False
        place = pod.metadata.namespace or namespace
        may_wait = marks.may_queue(pod.labels, pod.annotations) and not pod.labels.keys() & KUEUES
        is_of_other = job_of_pod(pod.labels, pod.metadata.owners or (), place) or workload_of(pod.annotations, place)
        return may_wait and not is_of_other and gangs.names_gang(pod)

    def _hurried(self, pod: Mapping[str, Any], view: Pod) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """(the pod with at most the time that it may take to leave lent cells, a warning if that is less)."""
        most_s = self._permissions.most_grace_s(view)
        if most_s is None:
            return pod, ()
        said = f"{GRACE} is {most_s} now, as much as an opportunistic pod has to leave"
        return {**pod, "spec": {**pod["spec"], GRACE: most_s}}, (said,)

    def _isolated(
        self, pod: Mapping[str, Any], view: Pod, resource: str, *, has_cells: bool
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """(the pod whose containers see the devices of its cells or none, warnings about replaced variables).

        `resource` is the one that it asks for, "" if it asks for none now. A container keeps devices of a device
        plugin: of a second kind, or on a node that its pod names itself.
        """
        if not self._resources:
            return pod, ()
        counts, resource = _found_counts(pod, view, resource) if has_cells else ({}, "")
        replaced = list[str]()
        spec = dict(pod["spec"])
        for key in (*CONTAINER_LISTS, EPHEMERAL):
            if key in spec:
                spec[key] = [
                    _without_resource(self._guarded(self._words.given, each, resource, replaced), resource)
                    if each.get("name", "") in counts
                    else self._seen(each, has_cells, replaced)
                    for each in spec[key] or ()
                ]
        return {**pod, "spec": spec}, tuple(replaced)

    def _seen(self, container: Mapping[str, Any], has_cells: bool, replaced: list[str]) -> dict[str, Any]:
        """A container that counts no devices; it may read those of the cells if the pod `has_cells`."""
        limits = _limits(decoded(container, Container))
        plugged = {plugin_word(name, self._resources) for name, count in limits.items() if is_positive(count)} - {""}
        if plugged:
            return self._guarded(self._words.left_to_plugin, container, plugged, replaced)
        if has_cells and self._guarded(self._words.reads_cells, container):
            return self._guarded(self._words.kept, container, replaced)
        return self._guarded(self._words.withheld, container, replaced)

    @staticmethod
    def _guarded(change: Callable[..., T], *given: Any) -> T:
        try:
            return change(*given)
        except (ValueError, RecursionError) as error:
            raise UserError(f"expected a pod, found one that cannot be read: {error}") from None

    def _has_cells(self, pod: Pod) -> bool:
        """Will binding write the devices of its cells, over any other text in the annotation?"""
        if DEVICE_REQUESTS in pod.annotations:
            return True
        text = pod.annotations.get(SCHEDULING_SPEC)
        if text is None:
            return False
        with suppress(UserError):
            return read_spec(text).leaf_cell_type not in self._unnumbered
        return True

    def _serves(self, scheduler_name: str) -> bool:
        return self._serves_every_name or scheduler_name in self._names


class _User(msgspec.Struct):
    username: str = ""
    groups: list[str] | None = None


class _Kind(msgspec.Struct):
    kind: str = "Pod"


class _Request(msgspec.Struct):
    uid: str
    kind: _Kind = msgspec.field(default_factory=_Kind)
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = msgspec.field(name="oldObject", default=None)
    namespace: str = ""
    operation: str = ""
    sub_resource: str = msgspec.field(name="subResource", default="")
    user: _User = msgspec.field(name="userInfo", default_factory=_User)


class _Review(msgspec.Struct):
    api_version: str = msgspec.field(name="apiVersion")
    kind: str
    request: _Request


_review_decoder = msgspec.json.Decoder(_Review)


def review(admission: Admission, body: bytes) -> bytes:
    """The answer to an AdmissionReview of the API server. Raises UserError for anything else."""
    parts = sum(map(body.count, (b",", b"[", b"{")))
    if parts > MOST_PARTS:
        raise UserError(f"the review has {parts} commas and brackets, at most {MOST_PARTS} are read")
    try:
        asked = _review_decoder.decode(body)
    except (ValueError, RecursionError) as error:
        raise UserError(f"expected an AdmissionReview, found JSON that is none: {error}") from None
    if (asked.api_version, asked.kind) != (REVIEW_VERSION, "AdmissionReview"):
        raise UserError(f"expected an AdmissionReview of {REVIEW_VERSION}, found {asked.api_version} {asked.kind}")
    request = asked.request
    answer: dict[str, Any] = {"uid": request.uid, "allowed": True}
    operations = ("CREATE", "UPDATE") if request.kind.kind == QUOTA_TREE else ("CREATE",)
    is_ephemeral = (request.kind.kind, request.operation, request.sub_resource) == (
        "Pod", "UPDATE", EPHEMERAL_SUBRESOURCE,
    )  # fmt: skip
    is_whole = request.operation in operations and not request.sub_resource
    if request.object is not None and (is_whole or is_ephemeral):
        admitted = _admitted(admission, request, request.object)
        if admitted.patch:
            answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(encode(admitted.patch)).decode()}
        if admitted.refusal:
            answer |= {"allowed": False, "status": {"code": 403, "message": f"hived: {admitted.refusal}"}}
        if admitted.warnings:
            answer["warnings"] = [f"hived: {warning}" for warning in admitted.warnings]
    return encode({"apiVersion": REVIEW_VERSION, "kind": "AdmissionReview", "response": answer})


def _admitted(admission: Admission, request: _Request, given: Mapping[str, Any]) -> Answered:
    """The answer to a review, of a pod or of another object, as a patch."""
    if request.kind.kind == QUOTA_TREE:
        return admission.admit_tree(given, request.old_object)
    if request.kind.kind != "Pod":
        return admission.admit_job(given, request.namespace, creator=request.user.username)
    if request.sub_resource:
        debugged = admission.admit_ephemeral(given, request.old_object or {})
        return Answered(tuple(_patch(given, debugged.pod)), debugged.warnings)
    is_by_kubelet = not KUBELETS.isdisjoint(request.user.groups or ())
    admitted = admission.admit(given, request.namespace, is_by_kubelet=is_by_kubelet, creator=request.user.username)
    return Answered(tuple(_patch(given, admitted.pod)), admitted.warnings, admitted.refusal)


def _patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The JSON Patch of the fields that `Admission` changes; "add" replaces a present value."""
    yield from _annotated(old, new)
    for key in (*CONTAINER_LISTS, EPHEMERAL):
        both = zip(old["spec"].get(key) or (), new["spec"].get(key) or (), strict=True)
        for index, (before, after) in enumerate(both):
            for part in ("env", "resources"):
                if before.get(part) != after.get(part):
                    yield {"op": "add", "path": f"/spec/{key}/{index}/{part}", "value": after[part]}
    for field in (GATES, GRACE):
        if new["spec"].get(field) != old["spec"].get(field):
            yield {"op": "add", "path": f"/spec/{field}", "value": new["spec"][field]}


def _annotated(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same of annotations."""
    annotations = new["metadata"].get("annotations")
    if annotations == old["metadata"].get("annotations"):
        return []
    return [{"op": "add", "path": "/metadata/annotations", "value": annotations}]


def _named(document: Mapping[str, Any], creator: str, *, user_said: str) -> Mapping[str, Any]:
    """The object with its creator as its user, unless its author says one, or another object made it (rule 24.20)."""
    metadata = document["metadata"]
    if not creator or creator.startswith(OF_PROGRAMS) or user_said or metadata.get("ownerReferences"):
        return document
    annotations = {**(metadata.get("annotations") or {}), marks.USER: creator}
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def _placed(document: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """The object with the namespace in which it is created, if it does not say that itself."""
    metadata = document.get("metadata")
    if not namespace or not isinstance(metadata, dict) or metadata.get("namespace"):
        return dict(document)
    return {**document, "metadata": {**metadata, "namespace": namespace}}


def _mistakes(pod: Pod) -> tuple[str, ...]:
    """Mistakes in the keys of a pod's gang, so that its creator learns of them at once."""
    try:
        describe(pod, NoObjects())  # the object that describes the gang may come later
    except UserError as error:
        return (error.message,)
    return ()


def decoded(value: Any, kind: type[T]) -> T:
    """A part of a pod, read as this type. Raises UserError."""
    try:
        return msgspec.convert(value, kind)
    except (ValueError, RecursionError) as error:
        raise UserError(f"expected a pod, found one that cannot be read: {error}") from None


def _limits(container: Container) -> Mapping[str, str | int | float]:
    return (container.resources.limits if container.resources else None) or {}


def _counts(containers: Iterable[Container], resource: str) -> dict[str, int] | None:
    """The devices that each container asks for, if any; None if Kubernetes would refuse the counts."""
    counts = {}
    for container in containers:
        limit = str(_limits(container).get(resource, 0))
        requests = (container.resources.requests if container.resources else None) or {}
        if not _COUNT.fullmatch(limit) or str(requests.get(resource, limit)) != limit:
            return None
        if int(limit):
            counts[container.name] = int(limit)
    return counts


class _Named(msgspec.Struct):
    name: str = ""


def _counted(pod: Mapping[str, Any], view: Pod, resource: str, counts: dict[str, int]) -> Mapping[str, Any]:
    """The pod with the annotation that keeps its counts of devices (rule 22.1)."""
    # Another webhook may have added a container since the first time.
    counts = _saved_counts(view.annotations, view, resource) | counts
    assert view.spec is not None  # else there are no counts
    total = most_at_once(view.spec, lambda each: [(resource, counts.get(each.name, 0))])[resource]
    requests = DeviceRequests(resource, int(total), counts)
    annotations = dict(view.annotations) | {DEVICE_REQUESTS: encode(requests).decode()}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def _found_counts(pod: Mapping[str, Any], view: Pod, resource: str) -> tuple[dict[str, int], str]:
    """(devices of each container that has any, their resource), by the annotation that keeps them."""
    annotations = pod["metadata"].get("annotations") or {}
    if not resource:
        with suppress(ValueError, RecursionError):
            resource = msgspec.json.decode(annotations.get(DEVICE_REQUESTS, ""), type=DeviceRequests).resource
    return _saved_counts(annotations, view, resource), resource


def _saved_counts(annotations: Mapping[str, str], pod: Pod, resource: str) -> dict[str, int]:
    """The counts in `DEVICE_REQUESTS`, none if it is malformed: any author may write it."""
    try:
        saved = msgspec.json.decode(annotations.get(DEVICE_REQUESTS, ""), type=DeviceRequests)
    except (ValueError, RecursionError):
        return {}
    spec = pod.spec
    names = {each.name for each in (*(spec.init_containers or ()), *(spec.containers or ()))} if spec else set()
    known = saved.containers.items() if saved.resource == resource else ()
    return {name: count for name, count in known if name in names and 0 < count <= MAX_COUNT}


def _without_resource(container: dict[str, Any], resource: str) -> dict[str, Any]:
    resources = {
        key: {name: quantity for name, quantity in (value or {}).items() if name != resource}
        if key in ("limits", "requests")
        else value
        for key, value in (container.get("resources") or {}).items()
    }
    return {**container, "resources": resources}


def _enabled(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod with the limit that makes it ours, on its first container unless one has it."""
    containers = [each for key in CONTAINER_LISTS for each in pod["spec"].get(key) or ()]
    limits = [((each.get("resources") or {}).get("limits") or {}) for each in containers]
    main = pod["spec"].get("containers")
    if not main or any(is_positive(limit.get(ENABLE_LIMIT, 0)) for limit in limits):
        return pod
    resources = main[0].get("resources") or {}
    limit = {**(resources.get("limits") or {}), ENABLE_LIMIT: 1}
    first = {**main[0], "resources": {**resources, "limits": limit}}
    return {**pod, "spec": {**pod["spec"], "containers": [first, *main[1:]]}}
