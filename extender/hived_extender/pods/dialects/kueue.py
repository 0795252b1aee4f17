"""Kueue: groups of plain pods, and topology wishes, whose levels are labels of nodes."""

from hived_extender.pods.dialects.description import Description, GangKey
from hived_extender.pods.dialects.kinds import Lookup
from hived_extender.pods.dialects.words import Words, count, name, wish
from hived_extender.pods.wire import Pod

NAME = "Kueue"
GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology", "kueue.x-k8s.io/elastic-job")
"""Scheduling gates of pods that Kueue has not admitted, or whose nodes it has not chosen."""

NOT_ADMITTED = "Kueue has not admitted it yet"

KEYS = frozenset({GROUP_NAME, TOTAL, REQUIRED, PREFERRED})


def describe(pod: Pod, _objects: Lookup) -> Description | None:
    """The gang and the topology wish of labels and annotations; all pods of a group start together."""
    annotations = Words("annotation ", pod.annotations)
    group = Words("label ", pod.labels).read(GROUP_NAME, name)
    total = annotations.read(TOTAL, count)
    within = wish(annotations, REQUIRED, PREFERRED)
    if group is None and total is None and within is None:
        return None
    gang = None if group is None else GangKey(pod.metadata.namespace, group)
    return Description(NAME, gang=gang, minimum=total, within=within)
