"""Volcano: annotations on pods, PodGroups, and its Job (batch.volcano.sh/v1alpha1), which has no `suspend`.

Its PodGroup controller makes a PodGroup for every other pod of the schedulers that it is run for, and names it in the
pod's annotation. No author asked for that, so other dialects override it, and it is no gang by itself.

The Job controller copies the annotations of a job onto the PodGroup, and makes no pods before the PodGroup is admitted:
hived admits it, unless it is marked as held. A Command aborts a running job, another resumes it. Volcano counts each
resumption as a retry. So a new job is held by the mark alone, and can be requeued `maxRetry` - 1 times. A Command has
an effect in one phase only, so a repeated one has none.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from hived_extender.jobs.document import Part, count, name, one_of, whole
from hived_extender.jobs.job import Document, Job, JobRef, JobState, PodTally
from hived_extender.jobs.kinds.description import (
    Description,
    GangKey,
    Lookup,
    ObjectKind,
    ObjectRef,
    Within,
    agreed,
    find,
    level,
)
from hived_extender.jobs.kinds.kind import (
    ANNOTATIONS,
    EITHER,
    LABELS,
    Dialect,
    Kind,
    Patch,
    Source,
    Verb,
    Write,
    ignores,
    job_of,
    left_of,
    mark_held,
    merge,
    path_of,
    reads,
    refuses,
    role_of,
    root_of,
    says,
)
from hived_extender.jobs.kinds.marks import HELD, SUSPEND
from hived_extender.jobs.wire import Owner, Pod

GROUP_NAMES = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
MINIMUM = "scheduling.volcano.sh/group-min-member"
QUEUE = "scheduling.volcano.sh/queue-name"
TASK = "volcano.sh/task-spec"
TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
HIGHEST_TIER = "volcano.sh/network-topology-highest-tier"
PODGROUPS = ObjectKind("scheduling.volcano.sh", "podgroups", ("v1beta1",))
SCHEDULER = "volcano"
_KEYS = frozenset({*GROUP_NAMES, MINIMUM, QUEUE, TASK, TOPOLOGY_MODE, HIGHEST_TIER})
_FIELD = "PodGroup field"
_SUBGROUPS = "subGroupPolicy"
_VOCABULARY = (
    *reads(ANNOTATIONS, *GROUP_NAMES, MINIMUM, QUEUE, TASK, TOPOLOGY_MODE, HIGHEST_TIER),
    *reads(_FIELD, "minMember", "minTaskMember", "queue", "priorityClassName", "networkTopology"),
    *ignores(_FIELD, "pods are counted, and their requests summed up, one by one", "minResources"),
    *refuses(_FIELD, "subgroups that start as a whole or lie within one domain", _SUBGROUPS),
    *refuses(
        ANNOTATIONS, "one NUMA node", "volcano.sh/numa-topology-policy", when=says("restricted", "single-numa-node")
    ),
    *ignores(
        ANNOTATIONS,
        "pods are counted, and their requests summed up, one by one",
        "scheduling.volcano.sh/group-min-resources",
    ),
    *ignores(ANNOTATIONS, "hived admits by queues of its own", "scheduling.volcano.sh/queue-allocation-gate"),
    *ignores(ANNOTATIONS, "a wish for its own queues", "volcano.sh/sla-waiting-time"),
    *ignores(
        EITHER,
        "priorities say who leaves, PodDisruptionBudgets how many",
        "volcano.sh/preemptable",
        "volcano.sh/cooldown-time",
        "volcano.sh/revocable-zone",
        "volcano.sh/jdb-min-available",
        "volcano.sh/jdb-max-unavailable",
    ),
    *ignores(EITHER, "read by its agent on the node", "volcano.sh/qos-level"),
    *ignores(LABELS, "its controllers put the queue into the PodGroup", "volcano.sh/queue-name"),
    *ignores(
        EITHER,
        "names that its controllers give",
        "volcano.sh/job-name",
        "volcano.sh/job-namespace",
        "volcano.sh/job-version",
        "volcano.sh/job-type",
        "volcano.sh/job-retry-count",
        "volcano.sh/task-index",
        "volcano.sh/template-uid",
        "volcano.sh/topology-decision",
    ),
)

_DEFAULT_QUEUE = "default"
"""The queue of every PodGroup that names none, so it says nothing."""

MADE = "podgroup-{}"
"""The name of a PodGroup of the controller; the uid in it is that of the pod's controlling owner, else of the pod."""

TIER = "volcano-tier-{}"
"""The name of a tier of its HyperNodes in `topologyLevels` of a configuration."""


ABORT, RESUME = "AbortJob", "ResumeJob"
_BUS = "bus.volcano.sh/v1alpha1"
_PODGROUP_VERSION = f"{PODGROUPS.group}/{PODGROUPS.versions[0]}"
_ENDS = {
    "Completed": JobState.SUCCEEDED,
    "Failed": JobState.FAILED,
    "Terminated": JobState.FAILED,
}
_QUIET = ("", "Pending", "Aborted")


# ---- pods


def _describe(pod: Pod, objects: Lookup) -> Description | None:
    """The gang of the annotations and of the PodGroup that they name, which overrides them."""
    if _KEYS.isdisjoint(pod.annotations):
        return None
    words = Part("annotation ", pod.annotations)
    group = agreed({f"annotation {key}": words.read(key, name) for key in GROUP_NAMES})
    source = None if group is None else PODGROUPS.ref(pod.metadata.namespace, group)
    found = None if source is None else find(objects, source)
    spec = Part(f"{source}: spec.", None if found is None else found.get("spec"))
    minimum = spec.read("minMember", whole) or words.read(MINIMUM, count)
    if found is not None and is_made(pod) and (minimum or 1) == 1 and "minTaskMember" not in spec:
        group = source = minimum = None
    return Description(
        VOLCANO.name,
        gang=None if group is None else GangKey(pod.metadata.namespace, group),
        minimum=minimum,
        task=words.read(TASK, name),
        task_minimums=_task_minimums(spec),
        within=_within(spec.part("networkTopology")) or _within_of_pod(words),
        queue=_queue(spec.read("queue", name)) or _queue(words.read(QUEUE, name)),
        priority_class=spec.read("priorityClassName", name),
        source=source,
        missing=True if source is not None and found is None else None,
        refused=None if source is None else _refused_subgroups(spec, source),
    )


def is_made(pod: Pod) -> bool:
    """Does the pod name a PodGroup that Volcano's controller made for it unasked?"""
    uid = pod.owner.uid if pod.owner is not None else pod.metadata.uid
    names = [pod.annotations[key] for key in GROUP_NAMES if key in pod.annotations]
    return bool(uid and names) and MINIMUM not in pod.annotations and all(name == MADE.format(uid) for name in names)


def drop_made_gang(pod: Pod, said: list[Description]) -> list[Description]:
    """The descriptions, without the gang that Volcano's controller made if another dialect names one (rule 23.6)."""
    if not is_made(pod) or not any(each.gang for each in said if each.dialect != VOLCANO.name):
        return said
    words = Part("annotation ", pod.annotations)
    own = Description(
        VOLCANO.name, within=_within_of_pod(words), task=words.read(TASK, name), queue=_queue(words.read(QUEUE, name))
    )
    return [own if each.dialect == VOLCANO.name else each for each in said]


def _task_minimums(spec: Part) -> Mapping[str, int] | None:
    minimums = spec.part("minTaskMember")
    return {task: least for task in minimums if (least := minimums.read(task, whole))} or None


def _queue(queue: str | None) -> str | None:
    return None if queue == _DEFAULT_QUEUE else queue


def _within(topology: Part) -> Within | None:
    mode = topology.read("mode", one_of("hard", "soft"))
    return _wish(mode, topology.read("highestTierName", level), topology.read("highestTierAllowed", count))


def _within_of_pod(words: Part) -> Within | None:
    """The topology that Volcano's controller would write into a PodGroup for a pod without one."""
    return _wish(words.read(TOPOLOGY_MODE, one_of("hard", "soft")), None, words.read(HIGHEST_TIER, count))


def _wish(mode: str | None, tier_name: str | None, tier: int | None) -> Within | None:
    if mode is None and tier_name is None and tier is None:
        return None
    highest = tier_name or (None if tier is None else TIER.format(tier))
    if mode == "soft":
        return Within(highest or "", is_required=False)
    return Within(highest or TIER.format(1), is_required=True)


def _refused_subgroups(spec: Part, source: ObjectRef) -> str | None:
    """Refuse what a PodGroup requires of its subgroups; None if it requires nothing."""
    for part in spec.parts(_SUBGROUPS):
        topology = part.part("networkTopology")
        is_hard = any(topology) and topology.read("mode", one_of("hard", "soft")) != "soft"
        needed = part.read("minSubGroups", whole)
        if is_hard or needed:
            (key,) = (each for each in _VOCABULARY if each.name == _SUBGROUPS)
            return key.refusal(f"{source}: spec.", part.read("name", name) or "a subgroup")
    return None


# ---- jobs


def _read(document: Document) -> Job:
    root = root_of(document)
    spec = root.part("spec")
    tasks = {each.text("name") or f"default{index}": each for index, each in enumerate(spec.parts("tasks"))}
    phases = root.part("status").members("taskStatusCount")
    done = {name: each.part("phase").whole("Succeeded", 0) for name, each in phases.items()}
    failed = sum(each.part("phase").whole("Failed", 0) for each in phases.values())
    wanted = {name: each.whole("replicas", 1) for name, each in tasks.items()}
    counts = left_of(wanted, done)
    roles = [
        replace(role_of(each, name, counts[name]), least=min(each.whole("minAvailable", counts[name]), counts[name]))
        for name, each in tasks.items()
    ]
    return job_of(
        root,
        roles,
        _state(root),
        priority_class=spec.text("priorityClassName"),
        min_count=spec.whole("minAvailable", 0) or None,
        queue=spec.text("queue"),
        scheduler=spec.text("schedulerName") or SCHEDULER,
        tally=PodTally(sum(wanted.values()), sum(done.values()), failed),
    )


def _state(root: Part) -> JobState:
    status = root.part("status")
    phase = status.part("state").text("phase")
    if phase in _ENDS:
        return _ENDS[phase]
    is_aborted = phase in ("Aborted", "Aborting")
    if not is_aborted and root.part("metadata").texts("annotations").get(HELD) != "true":
        return JobState.RESUMED
    pods = sum(status.whole(key, 0) for key in ("pending", "running", "terminating", "unknown"))
    return JobState.HELD if phase in _QUIET and not pods else JobState.LEAVING


def _suspend(job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
    return (merge(job, "jobs", {}, {HELD: "true", **annotations}, version), _command(job, ABORT))


def _resume(job: JobRef, annotations: Mapping[str, str | None], version: str = "") -> tuple[Write, ...]:
    """Removes the mark first from the job, which a later PodGroup copies, then from the present PodGroup."""
    admitted = [
        Write(
            Verb.PATCH,
            path_of(_PODGROUP_VERSION, PODGROUPS.plural, job.namespace, name),
            {"metadata": {"annotations": {HELD: None}}},
            may_be_missing=True,
        )
        for name in (f"{job.name}-{job.uid}", job.name)
    ]
    marks = {SUSPEND: None, **annotations, HELD: None}
    return (merge(job, "jobs", {}, marks, version), *admitted, _command(job, RESUME))


def _command(job: JobRef, action: str) -> Write:
    target: dict[str, Any] = {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
    }
    metadata = {
        "generateName": f"{job.name}-{action.lower()}-",
        "namespace": job.namespace,
        "ownerReferences": [target],
    }
    body = {"apiVersion": _BUS, "kind": "Command", "metadata": metadata, "action": action, "target": target}
    return Write(Verb.CREATE, path_of(_BUS, "commands", job.namespace), body)


def _hold(document: Document) -> Patch:
    return mark_held(root_of(document))


def _job_of_pod(labels: Mapping[str, str], owner: Owner) -> str:
    """By the owner's version, or by its label for an owner without one."""
    is_labelled = not owner.api_version and labels.get("volcano.sh/job-name") == owner.name
    return owner.name if owner.api_version.startswith("batch.volcano.sh/") or is_labelled else ""


VOLCANO_JOB = Kind(
    "batch.volcano.sh", "Job", "jobs", ("v1alpha1",), _read, _suspend, _resume, _hold, owners={"Job": _job_of_pod}
)


def _refusal(_gang: GangKey, _pod: str, minimum: int, reason: str) -> str:
    return f"pod group is not ready, {minimum} minAvailable: {reason}"


VOLCANO = Dialect(
    "Volcano",
    _VOCABULARY,
    _describe,
    _KEYS,
    PODGROUPS,
    refusal=_refusal,
)
SOURCE = Source(jobs=(VOLCANO_JOB,), dialects=(VOLCANO,))
