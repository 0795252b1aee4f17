"""KAI: the queue of a pod, and topology wishes, whose levels are labels of nodes. Its gangs come from other keys."""

from hived_extender.pods.dialects.description import Description
from hived_extender.pods.dialects.kinds import Lookup
from hived_extender.pods.dialects.words import Words, name, wish
from hived_extender.pods.wire import Pod

NAME = "KAI"
QUEUE = "kai.scheduler/queue"
REQUIRED = "kai.scheduler/topology-required-placement"
PREFERRED = "kai.scheduler/topology-preferred-placement"
KEYS = frozenset({QUEUE, REQUIRED, PREFERRED})


def describe(pod: Pod, _objects: Lookup) -> Description | None:
    """The queue and the topology wish of the pod."""
    queue = Words("label ", pod.labels).read(QUEUE, name)
    within = wish(Words("annotation ", pod.annotations), REQUIRED, PREFERRED)
    return None if queue is None and within is None else Description(NAME, queue=queue, within=within)
