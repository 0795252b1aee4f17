"""Deployments, which have no `suspend`: a scheduling gate on every pod holds them, as it does `gangs` of plain pods.

Kubernetes lets a gate be removed, never added. So pods are created with it. To suspend a Deployment again, its pods are
deleted: the ReplicaSet makes others, which have the gate of the template.
"""

from collections.abc import Mapping
from typing import Any

from hived_extender.jobs.document import Part
from hived_extender.jobs.job import Document, Job, JobRef, JobState
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.kinds.kind import Kind, Patch, Source, Verb, Write, job_of, mark_held, merge, role_of, root_of
from hived_extender.jobs.wire import Owner
from hived_extender.kube.client import pod_path

GATE = marks.QUEUE
"""The name of the gate."""


def remove_gate(namespace: str, name: str, uid: str) -> Write:
    """Removes our gate from a pod; no effect on one without it."""
    gates: list[dict[str, Any]] = [{"name": GATE, "$patch": "delete"}]
    return Write(
        Verb.PATCH_LISTS, pod_path(namespace, name), {"metadata": {"uid": uid}, "spec": {"schedulingGates": gates}}, uid
    )


def delete_pod(namespace: str, name: str, uid: str) -> Write:
    """Deletes a pod of a job that is suspended again (rule 24.11)."""
    return Write(Verb.DELETE, pod_path(namespace, name), uid=uid, may_be_missing=True)


def is_gated(spec: Part) -> bool:
    """Has the spec of a pod, or of a template, our gate? Raises UserError if that cannot be read."""
    return any(each.text("name") == GATE for each in spec.parts("schedulingGates"))


def _read(document: Document) -> Job:
    root = root_of(document)
    spec = root.part("spec")
    role = role_of(spec, root.part("metadata").text("name"), spec.whole("replicas", 1))
    state = JobState.RESUMED
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


def _job_of_pod(labels: Mapping[str, str], owner: Owner) -> str:
    """The Deployment of a ReplicaSet, by the hash at the end of the ReplicaSet's name."""
    name = owner.name.removesuffix("-" + labels.get("pod-template-hash", ""))
    return "" if name == owner.name else name


DEPLOYMENT = Kind(
    "apps", "Deployment", "deployments", ("v1",), _read, _suspend, _resume, _hold,
    has_gates=True, serves=True, owners={"ReplicaSet": _job_of_pod},
)  # fmt: skip
SOURCE = Source(jobs=(DEPLOYMENT,))
