"""Work without a `suspend`: Deployments are held by a scheduling gate on every pod, as `gangs` of plain pods are.

Kubernetes lets a gate be taken away, never added. So pods are born with it. To hold a Deployment back again, its pods
are deleted: the ReplicaSet makes others, which have the gate of the template.
"""

from collections.abc import Mapping
from typing import Any

from hived_extender.jobs.job import Document, Job, JobRef, JobState
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.kinds.kind import Kind, Part, Patch, Verb, Write, job_of, mark_held, merge, role_of, root_of
from hived_extender.kube.client import pod_path

GATE = marks.QUEUE
"""The name of the gate."""


def lift(namespace: str, name: str, uid: str) -> Write:
    """Take our gate from a pod; no effect on one without it."""
    gates: list[dict[str, Any]] = [{"name": GATE, "$patch": "delete"}]
    return Write(
        Verb.PATCH_LISTS, pod_path(namespace, name), {"metadata": {"uid": uid}, "spec": {"schedulingGates": gates}}, uid
    )


def remove(namespace: str, name: str, uid: str) -> Write:
    """Delete a pod of a job that is called back."""
    return Write(Verb.DELETE, pod_path(namespace, name), uid=uid, may_be_missing=True)


def is_gated(spec: Part) -> bool:
    """Has the spec of a pod, or of a template, our gate? Raises UserError if that cannot be read."""
    return any(each.text("name") == GATE for each in spec.parts("schedulingGates"))


def _read(document: Document) -> Job:
    root = root_of(document)
    spec = root.part("spec")
    role = role_of(spec, root.part("metadata").text("name"), spec.whole("replicas", 1))
    state = JobState.LET_GO
    if root.part("metadata").texts("annotations").get(marks.HELD) == "true":
        state = JobState.LEAVING if root.part("status").whole("readyReplicas", 0) else JobState.HELD
    return job_of(root, [role], state, grows=True)  # by rolling updates and autoscalers


def _suspend(job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
    return (merge(job, "deployments", {}, {**annotations, marks.HELD: "true"}, version),)


def _resume(job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
    return (merge(job, "deployments", {}, {marks.SUSPEND: None, **annotations, marks.HELD: None}, version),)


def _hold(document: Document) -> Patch:
    root = root_of(document)
    patch = mark_held(root)
    spec = root.part("spec").part("template").part("spec")
    if is_gated(spec):
        return patch
    gates = "/spec/template/spec/schedulingGates"
    if "schedulingGates" in spec:
        return [*patch, {"op": "add", "path": f"{gates}/-", "value": {"name": GATE}}]
    return [*patch, {"op": "add", "path": gates, "value": [{"name": GATE}]}]


DEPLOYMENT = Kind("apps", "Deployment", "deployments", ("v1",), _read, _suspend, _resume, _hold, has_gates=True)
