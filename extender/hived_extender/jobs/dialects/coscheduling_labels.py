"""Labels that make a gang without any object: of ACK, and of scheduler-plugins before it had PodGroups.

Their keys beyond name and minimum may stand on PodGroups and beside other dialects as well. The API server refuses JSON
in labels, so that each of these keys is read among the annotations too.
"""

from hived_extender.jobs.dialects.description import Description, GangKey, Lookup
from hived_extender.jobs.dialects.vocabulary import EITHER, LABELS, reads
from hived_extender.jobs.dialects.words import Words, agreed, count, gangs, match_policy, name
from hived_extender.jobs.wire import Pod

NAME = "coscheduling labels"
GROUP_NAME = "pod-group.scheduling.sigs.k8s.io/name"
MIN_AVAILABLE = "pod-group.scheduling.sigs.k8s.io/min-available"
GROUPS = "pod-group.scheduling.sigs.k8s.io/groups"
MATCH_POLICY = "pod-group.scheduling.sigs.k8s.io/match-policy"
KEYS = frozenset({GROUP_NAME, MIN_AVAILABLE, GROUPS, MATCH_POLICY})
VOCABULARY = (*reads(LABELS, GROUP_NAME, MIN_AVAILABLE), *reads(EITHER, GROUPS, MATCH_POLICY))


def describe(pod: Pod, _objects: Lookup) -> Description | None:
    """None also for a pod that has the name alone: that is the name of a PodGroup (`podgroup_old`)."""
    labels = Words("label ", pod.labels)
    minimum = labels.read(MIN_AVAILABLE, count)
    said = options(labels, Words("annotation ", pod.annotations))
    if minimum is None and said == Description(NAME):
        return None
    group = labels.read(GROUP_NAME, name)
    return Description(
        NAME,
        gang=None if group is None else GangKey(pod.metadata.namespace, group),
        minimum=minimum,
        groups=said.groups,
        match_policy=said.match_policy,
    )


def options(labels: Words, annotations: Words) -> Description:
    """The gang as labels and annotations of a pod or a PodGroup describe it, name and minimum left aside."""
    places = {"label": labels, "annotation": annotations}
    return Description(
        NAME,
        groups=agreed({f"{place} {GROUPS}": words.read(GROUPS, gangs) for place, words in places.items()}),
        match_policy=agreed(
            {f"{place} {MATCH_POLICY}": words.read(MATCH_POLICY, match_policy) for place, words in places.items()}
        ),
    )
