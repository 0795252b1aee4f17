"""Volcano: annotations on pods, and PodGroups, which its own job controller and Kubeflow's operators make.

Its PodGroup controller makes a PodGroup for every other pod of the schedulers that it is run for, and names it in the
pod's annotation. Nobody asked for that, so it gives way to other dialects, and is no gang by itself.
"""

from collections.abc import Mapping

from hived_extender.jobs.dialects.description import Description, GangKey, Kind, Lookup, ObjectRef, Within, find
from hived_extender.jobs.dialects.vocabulary import ANNOTATIONS, EITHER, LABELS, ignores, reads, refuses, says
from hived_extender.jobs.dialects.words import Words, agreed, count, level, name, one_of, whole
from hived_extender.jobs.wire import Pod

NAME = "Volcano"
GROUP_NAMES = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
MINIMUM = "scheduling.volcano.sh/group-min-member"
QUEUE = "scheduling.volcano.sh/queue-name"
TASK = "volcano.sh/task-spec"
TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
HIGHEST_TIER = "volcano.sh/network-topology-highest-tier"
KIND = Kind("scheduling.volcano.sh", "podgroups", ("v1beta1",))
SCHEDULER = "volcano"
KEYS = frozenset({*GROUP_NAMES, MINIMUM, QUEUE, TASK, TOPOLOGY_MODE, HIGHEST_TIER})
FIELD = "PodGroup field"
SUBGROUPS = "subGroupPolicy"
VOCABULARY = (
    *reads(ANNOTATIONS, *GROUP_NAMES, MINIMUM, QUEUE, TASK, TOPOLOGY_MODE, HIGHEST_TIER),
    *reads(FIELD, "minMember", "minTaskMember", "queue", "priorityClassName", "networkTopology"),
    *ignores(FIELD, "pods are counted, and their requests summed up, one by one", "minResources"),
    *refuses(FIELD, "subgroups that start as a whole or lie within one domain", SUBGROUPS),
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

DEFAULT_QUEUE = "default"
"""Stands on every PodGroup that names no queue, so it says nothing."""

MADE = "podgroup-{}"
"""The name of a PodGroup of the controller; the uid in it is that of the pod's controlling owner, else of the pod."""

TIER = "volcano-tier-{}"
"""The name of a tier of its HyperNodes in a configuration, which says which cells are meant."""


def describe(pod: Pod, objects: Lookup) -> Description | None:
    """The gang of the annotations and of the PodGroup that they name, which prevails."""
    if KEYS.isdisjoint(pod.annotations):
        return None
    words = Words("annotation ", pod.annotations)
    group = agreed({f"annotation {key}": words.read(key, name) for key in GROUP_NAMES})
    source = None if group is None else KIND.ref(pod.metadata.namespace, group)
    found = None if source is None else find(objects, source)
    spec = Words(f"{source}: spec.", None if found is None else found.get("spec"))
    minimum = spec.read("minMember", whole) or words.read(MINIMUM, count)
    if found is not None and is_made(pod) and (minimum or 1) == 1 and not spec.has("minTaskMember"):
        group = source = minimum = None
    return Description(
        NAME,
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
    """Does the pod name a PodGroup that Volcano's controller made for it, and no author asked for?"""
    uid = pod.owner.uid if pod.owner is not None else pod.metadata.uid
    names = [pod.annotations[key] for key in GROUP_NAMES if key in pod.annotations]
    return bool(uid and names) and MINIMUM not in pod.annotations and all(name == MADE.format(uid) for name in names)


def give_way(pod: Pod, said: list[Description]) -> list[Description]:
    """The same descriptions; if another dialect names a gang, without the one that Volcano's controller made."""
    if not is_made(pod) or not any(each.gang for each in said if each.dialect != NAME):
        return said
    words = Words("annotation ", pod.annotations)
    own = Description(
        NAME, within=_within_of_pod(words), task=words.read(TASK, name), queue=_queue(words.read(QUEUE, name))
    )
    return [own if each.dialect == NAME else each for each in said]


def _task_minimums(spec: Words) -> Mapping[str, int] | None:
    minimums = spec.part("minTaskMember")
    return {task: least for task in minimums if (least := minimums.read(task, whole))} or None


def _queue(queue: str | None) -> str | None:
    return None if queue == DEFAULT_QUEUE else queue


def _within(topology: Words) -> Within | None:
    mode = topology.read("mode", one_of("hard", "soft"))
    return _wish(mode, topology.read("highestTierName", level), topology.read("highestTierAllowed", count))


def _within_of_pod(words: Words) -> Within | None:
    """The topology that Volcano's own controller would write into a PodGroup for a pod without one."""
    return _wish(words.read(TOPOLOGY_MODE, one_of("hard", "soft")), None, words.read(HIGHEST_TIER, count))


def _wish(mode: str | None, tier_name: str | None, tier: int | None) -> Within | None:
    if mode is None and tier_name is None and tier is None:
        return None
    highest = tier_name or (None if tier is None else TIER.format(tier))
    if mode == "soft":
        return Within(highest or "", is_required=False)
    return Within(highest or TIER.format(1), is_required=True)


def _refused_subgroups(spec: Words, source: ObjectRef) -> str | None:
    """Why the pods wait for what the PodGroup requires of its subgroups, None if it only prefers something."""
    for part in spec.parts(SUBGROUPS):
        topology = part.part("networkTopology")
        is_hard = any(True for _ in topology) and topology.read("mode", one_of("hard", "soft")) != "soft"
        needed = part.read("minSubGroups", whole)
        if is_hard or needed:
            (key,) = (each for each in VOCABULARY if each.name == SUBGROUPS)
            return key.refusal(f"{source}: spec.", part.read("name", name) or "a subgroup")
    return None
