"""Admission: the parts of a pod that only hived writes, and the admission webhook.

The rules are those of config/deploy/base/pod-policy.yaml, with the same words. A rule is a function from a write to
the reason to refuse it, "" if there is none. The first rule that is broken counts.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from hived.values.errors import UserError
from hived_extender.jobs.admission import Admission
from hived_extender.jobs.amounts import DEVICE_REQUESTS
from hived_extender.jobs.annotations import BIND_INFO, LEAF_CELL_ISOLATION, OLD_LEAF_CELL_ISOLATION, PREFIX
from hived_extender.jobs.bind_info import POD_GANG, PROOF
from hived_extender.jobs.device_words import VARIABLES
from hived_extender.jobs.progress import CHECKPOINTED_AT, MAY_MOVE
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.machine.writes.binding import RETRY_ANNOTATION
from hived_lab.embedded.apiserver import bodies
from hived_lab.embedded.apiserver.bodies import Body, forbidden
from hived_lab.embedded.apiserver.patches import json_patch
from hived_lab.embedded.apiserver.resources import JOB_OBJECTS, PODS, QUOTA_TREES, ResourceType

WRITTEN_BY_HIVED = (
    BIND_INFO,
    LEAF_CELL_ISOLATION,
    OLD_LEAF_CELL_ISOLATION,
    POD_GANG,
    PROOF,
    RETRY_ANNOTATION,
    DEVICE_REQUESTS,
)
"""Annotations. The last one is the admission webhook's, which adds it in the name of the user who creates the pod."""

OF_OWNERS = (CHECKPOINTED_AT, MAY_MOVE)
"""Annotations that the owner of a pod that runs may change."""

_POD_POLICY, _BINDING_POLICY = "hived-pods", "hived-bindings"
"""The names of the policies and of their bindings."""

_VARIABLE = VARIABLES[-1]
_ISOLATION_PATH = f"metadata.annotations['{LEAF_CELL_ISOLATION}']"


@dataclass(frozen=True, slots=True)
class Write:
    """A pod that is to be stored in place of `old`, which is None for a new pod."""

    old: Body | None
    new: Body

    @property
    def is_new(self) -> bool:
        """True if the pod is created."""
        return self.old is None

    @property
    def advice(self) -> str:
        """The end of a reason."""
        return "leave it out" if self.is_new else "leave it as it is"

    def changed(self, field: str) -> list[str]:
        """The keys of hived's that are added, changed or removed in a field of the metadata."""
        old, new = _metadata(self.old or {}, field), _metadata(self.new, field)
        return [
            key for key in sorted(old.keys() | new.keys()) if key.startswith(PREFIX) and old.get(key) != new.get(key)
        ]


def _annotations(write: Write) -> str:
    changed = set(write.changed("annotations"))
    if write.is_new:
        changed.discard(DEVICE_REQUESTS)
    written = [key for key in WRITTEN_BY_HIVED if key in changed]
    return f"{', '.join(written)}: only hived writes this annotation; {write.advice}" if written else ""


def _label(write: Write) -> str:
    is_written = RETRY_ANNOTATION in write.changed("labels")
    return f"{RETRY_ANNOTATION}: only hived writes this label; {write.advice}" if is_written else ""


def _device_requests(write: Write) -> str:
    if not write.is_new or DEVICE_REQUESTS not in _metadata(write.new, "annotations") or _is_isolated(write.new):
        return ""
    return (
        f"{DEVICE_REQUESTS}: only hived's admission webhook writes this annotation, with the variable {_VARIABLE}; "
        "leave it out"
    )


def _node_name(write: Write) -> str:
    if not write.is_new or not write.new["spec"].get("nodeName") or not _is_for_hived(write.new):
        return ""
    return (
        "spec.nodeName: hived chooses the node of this pod; leave the field out, or else the limit "
        f"{ENABLE_LIMIT} and all annotations below {PREFIX}"
    )


def _bound(write: Write) -> str:
    changed = [key for key in write.changed("annotations") if key not in OF_OWNERS]
    if write.old is None or not write.old["spec"].get("nodeName") or not changed:
        return ""
    return f"{', '.join(changed)}: the pod has a node, and keeps the annotations that it got it by; create another pod"


Rule = Callable[[Write], str]
RULES: tuple[Rule, ...] = (_annotations, _label, _device_requests, _node_name, _bound)
"""In the order of the policy."""


def check_pod(old: Body | None, new: Body) -> None:
    """Raise ApiError (403) unless every user may store `new` in place of `old`, which is None for a new pod."""
    write = Write(old, new)
    for rule in RULES:
        if reason := rule(write):
            raise _refusal(_POD_POLICY, new["metadata"]["name"], reason)


def check_binding(name: str, binding: Body) -> None:
    """Raise ApiError (403) unless every user may hand over to a pod what the metadata of `binding` has."""
    given = {**_metadata(binding, "annotations"), **_metadata(binding, "labels")}
    if written := [key for key in given if key.startswith(PREFIX)]:
        raise _refusal(
            _BINDING_POLICY, name, f"{', '.join(written)}: only hived writes this with a binding; leave it out"
        )


def _refusal(policy: str, name: str, reason: str) -> bodies.ApiError:
    why = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {reason}"
    return bodies.forbidden("pods", name, why)


def _metadata(body: Body, field: str) -> Mapping[str, str]:
    found: Mapping[str, str] = body.get("metadata", {}).get(field) or {}
    return found


def _containers(pod: Body) -> Iterator[Body]:
    for field in ("containers", "initContainers"):
        yield from pod["spec"].get(field) or ()


def _is_isolated(pod: Body) -> bool:
    """True if the pod is as the admission webhook leaves it: containers get the devices of its cells only."""
    return any(
        variable.get("name") == _VARIABLE
        and variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") == _ISOLATION_PATH
        for container in _containers(pod)
        for variable in container.get("env") or ()
    )


def _is_for_hived(pod: Body) -> bool:
    has_limit = any(ENABLE_LIMIT in (one.get("resources", {}).get("limits") or {}) for one in _containers(pod))
    return has_limit or any(key.startswith(PREFIX) for key in _metadata(pod, "annotations"))


Admitted = tuple[Body, tuple[str, ...]]
"""An object as it is to be stored, and warnings for its author."""


def admitted(admission: Admission, resource: ResourceType, body: Body, old: Body | None = None) -> Admitted:
    """A pod or a job that is created, or a quota tree that is created or takes the place of `old`; others stay.

    Raises ApiError (403) for one that is refused.
    """
    if resource is PODS and old is None:
        return _admitted_pod(admission, body)
    named = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
    if resource in JOB_OBJECTS and old is None:
        answer = admission.admit_job(named)
    elif resource is QUOTA_TREES:
        answer = admission.admit_tree(named, old)
    else:
        return body, ()
    _refuse(resource, body, answer.refusal)
    return json_patch(named, [*map(dict, answer.patch)]), answer.warnings


def _admitted_pod(admission: Admission, pod: Body) -> Admitted:
    try:
        answer = admission.admit(pod)
    except UserError:
        return pod, ()  # the API server says what is wrong with it
    _refuse(PODS, pod, answer.refusal)
    return dict(answer.pod), answer.warnings


def _refuse(resource: ResourceType, body: Mapping[str, Body], refusal: str) -> None:
    if refusal:
        name = body.get("metadata", {}).get("name", "")
        raise forbidden(resource.label, name, f"the admission webhook denied the request: {refusal}")
