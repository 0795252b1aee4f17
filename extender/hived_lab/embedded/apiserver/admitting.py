"""The admission webhook as the API server calls it: for the objects that hived's manifests register it for."""

from collections.abc import Mapping

from hived.errors import UserError
from hived_extender.pods.admission import Admission
from hived_lab.embedded.apiserver.bodies import Body
from hived_lab.embedded.apiserver.patches import json_patch
from hived_lab.embedded.apiserver.resources import JOB_OBJECTS, PODS, QUOTA_TREES, ResourceType
from hived_lab.embedded.apiserver.statuses import forbidden

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
