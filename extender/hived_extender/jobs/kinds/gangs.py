"""Gangs of plain pods that were created with our gate: they queue as one job that has no object.

A pod belongs to one while it has the gate, and then by the mark that it gets when the gate is removed. Pods of a job in
the table do not: their job queues. A gate cannot be added again. So a gang is requeued by deleting its pods, and only
if a controller creates them anew, with the gate. Other gangs never run on borrowed cells, unless they ask for
opportunistic priority themselves.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hived.values.errors import UserError
from hived.values.specs import count_pods
from hived_extender.jobs.annotations import SCHEDULING_SPEC, is_quickly_read, read_spec
from hived_extender.jobs.bind_info import asks_in_own_words
from hived_extender.jobs.document import Part
from hived_extender.jobs.job import Document, Job, JobName, JobRef, JobState, Role
from hived_extender.jobs.kinds import gates, marks
from hived_extender.jobs.kinds.description import Description, GangKey, NoObjects
from hived_extender.jobs.kinds.kind import Verb, Write, root_of
from hived_extender.jobs.kinds.table import describe, job_of_pod
from hived_extender.jobs.progress import seconds_of
from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import pod_path

KIND = "Gang"
"""The kind of these jobs."""

_NOT_PLAIN = re.compile(r"[^a-z0-9.-]+")


def gang_of(pod: Pod) -> JobName | None:
    """The gang of a pod, None for one that has neither gate nor mark, or belongs to another job.

    A pod whose gang cannot be read is a gang of its own. Cost of a pod without gate and mark: 1 us.
    """
    annotations = pod.annotations
    if marks.GANG in annotations:
        name, _, _ = annotations[marks.GANG].partition("/")
    elif gates.GATE in pod.gates:
        name = _name_of(pod)
    else:
        return None
    namespace = pod.metadata.namespace
    if not marks.may_queue(pod.labels, annotations) or job_of_pod(pod.labels, pod.metadata.owners or (), namespace):
        return None
    return JobName("", KIND, namespace, plain(name))


def uids_of(pod: Pod) -> set[str]:
    """The uids that the gang of a pod may have: of its mark, of the object that makes its pods, of the pod itself."""
    owners = {owner.uid for owner in pod.metadata.owners or () if owner.controller}
    marked = pod.annotations.get(marks.GANG, "").partition("/")[2]
    return ({marked, pod.metadata.uid} | owners) - {""}


def names_gang(pod: Pod) -> bool:
    """Is a pod a member of a gang, in the words of a dialect?"""
    try:
        said = describe(pod, NoObjects())
    except UserError:
        return False
    return said is not None and said.gang is not None


def read(name: JobName, pods: Sequence[Document]) -> Job:
    """The job of a gang, with a role for each pod that is there. Raises UserError.

    It stays one job as long as the object that makes its pods exists. Without such an object its oldest pod names it,
    and a mark keeps that name. State is not written onto pods that have ended, so their annotations count only where no
    other pod has them.
    """
    roots = sorted((root_of(pod) for pod in pods), key=_age)
    maker = _maker(name, roots)
    first = roots[0].part("metadata")
    state = _state(roots)
    by_weight = sorted(roots, key=_is_over)
    annotations = {key: text for root in reversed(by_weight) for key, text in _annotations(root).items()}
    owner = maker or JobRef("v1", "Pod", name.namespace, first.text("name"), first.text("uid"))
    left = [root for root in roots if not _is_over(root) and not _is_leaving(root)]
    left = [root for root in left if not _other_gates(root.part("spec"))] or left
    marked = annotations.get(marks.GANG, "").partition("/")[2]
    return Job(
        JobRef("v1", KIND, name.namespace, name.name, owner.uid if maker else marked or owner.uid),
        first.text("resourceVersion"),
        seconds_of(first.text("creationTimestamp")) or 0.0,
        first.texts("labels"),
        annotations | ({marks.HELD: "true"} if state is JobState.HELD else {}),
        tuple(Role(root.part("metadata").text("name"), 1, _template(root)) for root in left),
        state,
        owner=owner,
        comes_back=maker is not None,
        grows=True,
    )


_FEW = "it waits for the others"
_NO_GROUP = "which says how many pods start together, is not there yet"
_ALONE = "with which it starts together, waits as a part of it"


def missing(job: JobRef, members: Sequence[tuple[GangKey | None, int, bool]], groups: Sequence[GangKey]) -> str:
    """Return why a gang is not complete yet (rule 24.12), "" if it is.

    `members` has, for each pod, its gang, how many pods that needs, and whether gates of others keep the pod from being
    scheduled; `groups` are the gangs that start together.
    """
    counts = Counter(gang for gang, _, is_gated in members if not is_gated)
    least: dict[GangKey | None, int] = {}
    for gang, minimum, _ in members:
        least[gang] = max(least.get(gang, 0), minimum)
    for gang, minimum in least.items():
        if counts[gang] < minimum:
            gated = sum(is_gated and each == gang for each, _, is_gated in members)
            more = f", and {gated} with a scheduling gate of others" if gated else ""
            return f"{counts[gang]} of the {minimum} pods of its gang {_is(counts[gang])} there{more}: {_FEW}"
    absent = [str(gang) for gang in groups if gang not in least]
    return f"no pod of {', '.join(absent)}, {_ALONE}" if absent else ""


def waits_for_pods(problem: str) -> bool:
    """Does a gang wait for pods, or for the object that counts them, rather than being mistaken?"""
    return problem.endswith((_FEW, _ALONE, _NO_GROUP))


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def members_of(pod: Pod, said: Description | None) -> tuple[GangKey | None, int]:
    """The gang of a pod, and how many pods that needs. Raises UserError while its object is not there."""
    if asks_in_own_words(pod.annotations):
        group = read_spec(pod.annotations[SCHEDULING_SPEC]).group
        return None, count_pods(group.members)
    if said is None or said.gang is None:
        return None, 1
    if said.missing and said.minimum is None:
        raise UserError(f"{said.source}, {_NO_GROUP}")
    tasks = sum((said.task_minimums or {}).values())
    return said.gang, max(said.minimum or 1, tasks)


def remove_gate(namespace: str, name: str, uid: str, gang: JobRef, annotations: Mapping[str, str | None]) -> Write:
    """Removes our gate from a pod and writes the mark and these annotations."""
    write = gates.remove_gate(namespace, name, uid)
    metadata = {**write.body["metadata"], "annotations": {**annotations, marks.GANG: f"{gang.name}/{gang.uid}"}}
    return Write(write.verb, write.path, {**write.body, "metadata": metadata}, uid, may_be_missing=True)


def annotate(namespace: str, name: str, uid: str, annotations: Mapping[str, str | None], version: str = "") -> Write:
    """Writes annotations onto a pod; None removes one. With `version` refused if the pod has changed since."""
    metadata = {"uid": uid, "annotations": dict(annotations)} | ({"resourceVersion": version} if version else {})
    body = {"metadata": metadata}
    return Write(Verb.PATCH, pod_path(namespace, name), body, uid, may_be_missing=True)


def plain(name: str) -> str:
    """A valid name of an object: other characters are replaced, and a digest keeps different names apart."""
    found = _NOT_PLAIN.sub("-", name.lower()).strip("-.")[:200]
    return found if found == name else f"{found or 'gang'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _name_of(pod: Pod) -> str:
    own = pod.metadata.name
    try:
        if asks_in_own_words(pod.annotations):
            text = pod.annotations[SCHEDULING_SPEC]
            return (is_quickly_read(text) and read_spec(text).group.name) or own
        said = describe(pod, NoObjects())
    except UserError:
        return own
    if said is None or said.gang is None:
        return own
    return min(
        (each.name for each in said.groups or () if each.namespace == said.gang.namespace), default=said.gang.name
    )


def _age(root: Part) -> tuple[float, str]:
    metadata = root.part("metadata")
    return seconds_of(metadata.text("creationTimestamp")) or 0.0, metadata.text("uid")


def _annotations(root: Part) -> dict[str, str]:
    return root.part("metadata").texts("annotations")


def _maker(name: JobName, roots: Sequence[Part]) -> JobRef | None:
    """The one object whose controller makes all pods, None if there is none."""
    makers = {_maker_of(name.namespace, root.part("metadata")) for root in roots}
    return makers.pop() if len(makers) == 1 else None


def _maker_of(namespace: str, metadata: Part) -> JobRef | None:
    owner = next((each for each in metadata.parts("ownerReferences") if each.flag("controller")), None)
    if owner is None:
        return None
    return JobRef(owner.text("apiVersion"), owner.text("kind"), namespace, owner.text("name"), owner.text("uid"))


def _template(root: Part) -> Document:
    """The pod as it was created: without our gate and the node that it has at the moment."""
    metadata = root.part("metadata")
    spec: dict[str, Any] = root.plain("spec")
    for key in ("schedulingGates", "nodeName"):
        spec.pop(key, None)
    others = _other_gates(root.part("spec"))
    spec |= {"schedulingGates": [{"name": name} for name in others]} if others else {}
    return {
        "metadata": {"labels": metadata.texts("labels"), "annotations": metadata.texts("annotations")},
        "spec": spec,
    }


def _other_gates(spec: Part) -> list[str]:
    """Gates of others: kube-scheduler skips the pod, which may never start and takes no cells."""
    return [name for each in spec.parts("schedulingGates") if (name := each.text("name")) != gates.GATE]


def _is_over(root: Part) -> bool:
    return root.part("status").text("phase") in ("Succeeded", "Failed")


def _is_leaving(root: Part) -> bool:
    return bool(root.part("metadata").text("deletionTimestamp"))


def _state(roots: Sequence[Part]) -> JobState:
    if all(_is_over(root) for root in roots):
        failed = any(root.part("status").text("phase") == "Failed" for root in roots)
        return JobState.FAILED if failed else JobState.SUCCEEDED
    is_held = all(gates.is_gated(root.part("spec")) for root in roots if not _is_over(root))
    return JobState.HELD if is_held else JobState.RESUMED
