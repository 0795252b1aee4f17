"""Work without a `suspend`: Deployments and gangs of plain pods are held by a scheduling gate on every pod.

Kubernetes lets a gate be taken away, never added. So pods are born with it. To hold a Deployment back again, its pods
are deleted: the ReplicaSet makes others, which have the gate of the template. Plain pods that are called back are gone,
as preempted pods always are.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hived_extender.job_kinds import marks
from hived_extender.job_kinds.job import Document, Job, JobRef, JobState, Role
from hived_extender.job_kinds.kind import Kind, Patch, job_of, mark_held, role_of, root_of
from hived_extender.job_kinds.parts import Part
from hived_extender.job_kinds.writes import Verb, Write, merge
from hived_extender.kube.client import pod_path
from hived_extender.pods.progress import seconds_of

GATE = marks.QUEUE
"""The name of the gate."""

GANG = "Gang"
"""The kind of a gang of plain pods, for which there is no object."""


def has_gate(pod: Document) -> bool:
    """Does a pod, or a template, have our gate? Raises UserError if that cannot be read."""
    return _is_gated(Part(pod, "the pod").part("spec"))


def lift(namespace: str, name: str, uid: str) -> Write:
    """Take our gate from a pod; no effect on one without it."""
    gates: list[dict[str, Any]] = [{"name": GATE, "$patch": "delete"}]
    return Write(
        Verb.PATCH_LISTS, pod_path(namespace, name), {"metadata": {"uid": uid}, "spec": {"schedulingGates": gates}}, uid
    )


def remove(namespace: str, name: str, uid: str) -> Write:
    """Delete a pod of a job that is called back."""
    return Write(Verb.DELETE, pod_path(namespace, name), uid=uid, may_be_missing=True)


def gang_of(namespace: str, name: str, pods: Sequence[Document]) -> Job:
    """A gang of plain pods, the first of which is there; a role each.

    It is one job as long as its oldest pod, by creation and uid, is there. Raises UserError.
    """
    roots = sorted((root_of(pod) for pod in pods), key=_age)
    first = roots[0].part("metadata")
    ref = JobRef("v1", GANG, namespace, name, first.text("uid"))
    return Job(
        ref,
        first.text("resourceVersion"),
        seconds_of(first.text("creationTimestamp")) or 0.0,
        first.texts("labels"),
        first.texts("annotations"),
        tuple(Role(root.part("metadata").text("name"), 1, _template(root)) for root in roots if not _is_over(root)),
        _gang_state(roots),
    )


def _age(root: Part) -> tuple[float, str]:
    metadata = root.part("metadata")
    return seconds_of(metadata.text("creationTimestamp")) or 0.0, metadata.text("uid")


def _template(root: Part) -> Document:
    metadata = root.part("metadata")
    said = {"labels": metadata.texts("labels"), "annotations": metadata.texts("annotations")}
    return {"metadata": said, "spec": root.plain("spec")}


def _is_over(root: Part) -> bool:
    return root.part("status").text("phase") in ("Succeeded", "Failed")


def _gang_state(roots: Iterable[Part]) -> JobState:
    roots = list(roots)
    phases = [root.part("status").text("phase") for root in roots]
    if all(_is_over(root) for root in roots):
        return JobState.FAILED if "Failed" in phases else JobState.SUCCEEDED
    left = [root for root in roots if not _is_over(root)]
    if all(_is_gated(root.part("spec")) for root in left):
        return JobState.HELD
    return JobState.LET_GO


def _is_gated(spec: Part) -> bool:
    return any(each.text("name") == GATE for each in spec.parts("schedulingGates"))


def _read(document: Document) -> Job:
    root = root_of(document)
    spec = root.part("spec")
    role = role_of(spec, root.part("metadata").text("name"), spec.whole("replicas", 1))
    state = JobState.LET_GO
    if root.part("metadata").texts("annotations").get(marks.HELD) == "true":
        state = JobState.LEAVING if root.part("status").whole("readyReplicas", 0) else JobState.HELD
    return job_of(root, [role], state)


def _suspend(job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
    return (merge(job, "deployments", {}, {**annotations, marks.HELD: "true"}, version),)


def _resume(job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
    return (merge(job, "deployments", {}, {marks.SUSPEND: None, **annotations, marks.HELD: None}, version),)


def _hold(document: Document) -> Patch:
    root = root_of(document)
    patch = mark_held(root)
    spec = root.part("spec").part("template").part("spec")
    if _is_gated(spec):
        return patch
    gates = "/spec/template/spec/schedulingGates"
    if "schedulingGates" in spec:
        return [*patch, {"op": "add", "path": f"{gates}/-", "value": {"name": GATE}}]
    return [*patch, {"op": "add", "path": gates, "value": [{"name": GATE}]}]


DEPLOYMENT = Kind("apps", "Deployment", "deployments", ("v1",), _read, _suspend, _resume, _hold, has_gates=True)
