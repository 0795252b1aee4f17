"""The admission webhook: it changes pods that are created, so that their devices are HiveD's to give.

A device plugin picks any free devices of the node for a pod that asks for its resource. So the resource is taken out of
the pod, and the counts are kept in an annotation. A variable of the containers reads the devices from the annotation
that binding writes. Containers that ask for no device get none: a runtime would give them whatever their image says
(`device_words`). Nothing happens beside the change of the pod: it stays as it is where a change would not be sound, if
need be with a warning to its creator. A second review changes nothing.

Three kinds of pods are refused: pods that ask for more than their namespace may have, pods that are larger than any
cell they could have, and pods that would take devices past the scheduler, unless `foreignDevices` says otherwise.
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
from hived_extender.jobs.access import LabelsOf, Permissions, Refusals, Sizes
from hived_extender.jobs.annotations import SCHEDULING_SPEC, read_spec
from hived_extender.jobs.asks import DEVICE_REQUESTS, DeviceRequests
from hived_extender.jobs.device_words import DeviceWords, is_numbered, plugin_word
from hived_extender.jobs.kinds.description import NoObjects
from hived_extender.jobs.kinds.table import describe, is_marked
from hived_extender.jobs.requests import most_at_once
from hived_extender.jobs.wire import ENABLE_LIMIT, Container, Pod, encode

QUOTA_TREE = "ElasticQuotaTree"
"""The kind of objects that are looked at when they are changed, too."""

REVIEW_VERSION = "admission.k8s.io/v1"
MAX_COUNT = 10**10 - 1
"""Devices of a container. Greater counts are not read: no cluster has so many, and Python refuses to convert some."""

MOST_PARTS = 2**18
"""Of a review: commas and brackets, those in texts included. A pod has thousands. Millions take seconds to read."""

KUBELETS = frozenset({"system:nodes", "system:masters"})
"""Groups of users; kubelets of clusters without node authorization may be of the second."""

T = TypeVar("T")

_COUNT = re.compile(r"[0-9]{1,10}")

GATES, GRACE = "schedulingGates", "terminationGracePeriodSeconds"
CONTAINER_LISTS = ("initContainers", "containers")
EPHEMERAL = "ephemeralContainers"
EPHEMERAL_SUBRESOURCE = "ephemeralcontainers"


class Admitted(msgspec.Struct, frozen=True):
    """A pod as it is to be stored, and what to tell its creator; with a `refusal`, why it is not to be."""

    pod: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    refusal: str = ""


class Answered(msgspec.Struct, frozen=True):
    """Operations of a JSON patch by which an object is changed, and the rest as in `Admitted`."""

    patch: tuple[Mapping[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    refusal: str = ""


class Admission:
    """Changes pods that are for the scheduler of this cluster, and no others.

    `serves_every_name`: there is no other scheduler that pods could be for. `labels_of` has the labels of namespaces.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        rules: PodRules,
        *,
        serves_every_name: bool = False,
        labels_of: LabelsOf | None = None,
    ) -> None:
        self._serves_every_name = serves_every_name
        self._labels_of = labels_of
        self.configure(cluster, rules)

    def configure(self, cluster: ClusterSpec, rules: PodRules) -> None:
        """Go by another configuration from now on."""
        self._names = frozenset(names_for(rules.scheduler_names, cluster.virtual_clusters))
        resources = rules.resources_in(cluster)
        self._resources = frozenset(resources.values())
        numbered = {name for name, resource in resources.items() if is_numbered(resource)}
        self._unnumbered = (cluster.sku_types.keys() | resources.keys()) - numbered
        self._words = DeviceWords(self._resources)
        self._refusals = Refusals(cluster, rules, self._labels_of)
        self._permissions = Permissions(cluster, rules, self._labels_of)
        self._sizes = Sizes(cluster, rules, self._labels_of)

    def admit(self, pod: Mapping[str, Any], namespace: str = "", *, is_by_kubelet: bool = False) -> Admitted:
        """The pod with the limit that makes it ours and with the variables, without the resource of devices.

        `namespace` is where it is created, if that is not written in it; `is_by_kubelet` says who creates it. Raises
        UserError for what is no pod.
        """
        view: Pod = decoded(pod, Pod)
        view.metadata.namespace = view.metadata.namespace or namespace
        spec = view.spec
        if spec is None:
            return Admitted(pod)
        is_ours = view.is_ours or self._serves(spec.scheduler_name or "")
        refusal = self._refusals.refusal(view, is_ours=is_ours, is_by_kubelet=is_by_kubelet)
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
        """A pod that gets ephemeral containers: the new ones see no device, unless they read those of the pod's cells.

        Kubernetes lets nobody change ephemeral containers that are there, in `old`. Raises UserError as `admit` does.
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

    def admit_job(self, document: Mapping[str, Any], namespace: str = "") -> Answered:
        """An object that is no pod: it stays as it is, unless jobs wait in queues (`job_kinds.admission`)."""
        return Answered()

    def admit_tree(self, document: Mapping[str, Any], old: Mapping[str, Any] | None) -> Answered:
        """A quota tree that is created, or changed from `old` (`job_kinds.admission`)."""
        return Answered()

    def _hurried(self, pod: Mapping[str, Any], view: Pod) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """(the pod with no more time to leave lent cells than it may take, what of it was changed)."""
        most_s = self._permissions.most_grace_s(view)
        if most_s is None:
            return pod, ()
        said = f"{GRACE} is {most_s} now, as much as an opportunistic pod has to leave"
        return {**pod, "spec": {**pod["spec"], GRACE: most_s}}, (said,)

    def _isolated(
        self, pod: Mapping[str, Any], view: Pod, resource: str, *, has_cells: bool
    ) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """(the pod whose containers see the devices of its cells or none, what of them was replaced).

        `resource` is the one that it asks for, "" if it asks for none now. A container keeps what it has of a device
        plugin: devices of a second kind, or on a node that its pod names itself.
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
        """A container without devices in its pod's counts. It may read those of the cells, if the pod `has_cells`."""
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
        """Will binding write the devices of its cells, so that nobody else's text stands in the annotation?"""
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
        return admission.admit_job(given, request.namespace)
    if request.sub_resource:
        debugged = admission.admit_ephemeral(given, request.old_object or {})
        return Answered(tuple(_patch(given, debugged.pod)), debugged.warnings)
    is_by_kubelet = not KUBELETS.isdisjoint(request.user.groups or ())
    admitted = admission.admit(given, request.namespace, is_by_kubelet=is_by_kubelet)
    return Answered(tuple(_patch(given, admitted.pod)), admitted.warnings, admitted.refusal)


def _patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """JSON Patch from one to the other, of what `Admission` changes; "add" replaces what is there."""
    annotations = new["metadata"].get("annotations")
    if annotations != old["metadata"].get("annotations"):
        yield {"op": "add", "path": "/metadata/annotations", "value": annotations}
    for key in (*CONTAINER_LISTS, EPHEMERAL):
        both = zip(old["spec"].get(key) or (), new["spec"].get(key) or (), strict=True)
        for index, (before, after) in enumerate(both):
            for part in ("env", "resources"):
                if before.get(part) != after.get(part):
                    yield {"op": "add", "path": f"/spec/{key}/{index}/{part}", "value": after[part]}
    for field in (GATES, GRACE):
        if new["spec"].get(field) != old["spec"].get(field):
            yield {"op": "add", "path": f"/spec/{field}", "value": new["spec"][field]}


def _mistakes(pod: Pod) -> tuple[str, ...]:
    """Mistakes in how a pod names its gang: told now, its creator need not look for events."""
    try:
        describe(pod, NoObjects())  # whether the object that describes the gang exists does not matter yet
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
    """How many devices each container asks for, where any; None if Kubernetes would not have it that way."""
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
    """The pod with the annotation that keeps its counts of devices."""
    # Another webhook may have added a container since the first time.
    counts = _saved_counts(view.annotations, view, resource) | counts
    assert view.spec is not None  # else nobody has counted
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
    """The counts in `DEVICE_REQUESTS`, none if it is not sound: anybody may have written it."""
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
