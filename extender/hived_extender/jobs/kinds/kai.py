"""KAI: the queue of a pod, and topology wishes, whose levels are labels of nodes. Its gangs come from other keys."""

from hived_extender.jobs.document import Part, name
from hived_extender.jobs.kinds.description import Description, Lookup, wish
from hived_extender.jobs.kinds.kind import (
    ANNOTATIONS,
    EITHER,
    LABELS,
    Dialect,
    Source,
    ignores,
    reads,
    refuses,
    without_gang,
)
from hived_extender.jobs.wire import Pod

QUEUE = "kai.scheduler/queue"
REQUIRED = "kai.scheduler/topology-required-placement"
PREFERRED = "kai.scheduler/topology-preferred-placement"
SEGMENT_SIZE = "kai.scheduler/segment-size"
SEGMENT_REQUIRED = "kai.scheduler/segment-topology-required-placement"
SEGMENT_PREFERRED = "kai.scheduler/segment-topology-preferred-placement"


def _is_required(_value: str, pod: Pod, _has_gang: bool) -> bool:
    return SEGMENT_PREFERRED not in pod.annotations or SEGMENT_REQUIRED in pod.annotations


def _is_larger_gang(value: str, _pod: Pod, has_gang: bool) -> bool:
    return not has_gang and value != "1"


_VOCABULARY = (
    *reads(LABELS, QUEUE),
    *reads(ANNOTATIONS, REQUIRED, PREFERRED),
    *refuses(ANNOTATIONS, "each segment of the gang within one domain", SEGMENT_REQUIRED),
    *refuses(ANNOTATIONS, "each segment of the gang within one domain", SEGMENT_SIZE, when=_is_required),
    *ignores(ANNOTATIONS, "a preference", SEGMENT_PREFERRED),
    *refuses(LABELS, "a subgroup of a gang that no dialect names", "kai.scheduler/subgroup-name", when=without_gang),
    *refuses(
        ANNOTATIONS,
        "pods that start together, in a gang that no dialect names",
        "kai.scheduler/batch-min-member",
        when=_is_larger_gang,
    ),
    *refuses(ANNOTATIONS, "part of a GPU", "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices"),
    *refuses(LABELS, "nodes of one pool of its own", "kai.scheduler/node-pool"),
    *ignores(ANNOTATIONS, "levels are known by labels of nodes", "kai.scheduler/topology"),
    *ignores(ANNOTATIONS, "an index of pods within segments", "kai.scheduler/pod-index-label"),
    *ignores(ANNOTATIONS, "written by its pod grouper, for objects that hived does not read", "pod-group-name"),
    *ignores(EITHER, "priorities say who leaves", "kai.scheduler/preemptibility", "kai.scheduler/preemption-delay"),
    *ignores(ANNOTATIONS, "about its own grouping", "kai.scheduler/top-owner-metadata"),
    *ignores(ANNOTATIONS, "about its own grouping", "kai.scheduler/ignore-workload-api"),
)


def _describe(pod: Pod, _objects: Lookup) -> Description | None:
    queue = Part("label ", pod.labels).read(QUEUE, name)
    within = wish(Part("annotation ", pod.annotations), REQUIRED, PREFERRED)
    return None if queue is None and within is None else Description(KAI.name, queue=queue, within=within)


KAI = Dialect("KAI", _VOCABULARY, _describe, frozenset({QUEUE, REQUIRED, PREFERRED}))
SOURCE = Source(dialects=(KAI,))
