"""PodGroups of the group `scheduling.sigs.k8s.io`: of earlier scheduler-plugins, and of Koordinator."""

from hived_extender.jobs.dialects.coscheduling_labels import GROUP_NAME, MIN_AVAILABLE
from hived_extender.jobs.dialects.description import Description, GangKey, Kind, Lookup
from hived_extender.jobs.dialects.koordinator import PODGROUP_LABEL
from hived_extender.jobs.dialects.podgroup import read
from hived_extender.jobs.dialects.vocabulary import LABELS, reads
from hived_extender.jobs.dialects.words import Words, name
from hived_extender.jobs.wire import Pod

NAME = "PodGroup (scheduling.sigs.k8s.io)"
KIND = Kind("scheduling.sigs.k8s.io", "podgroups", ("v1alpha1",))
KEYS = frozenset({PODGROUP_LABEL, GROUP_NAME})
WAITING_S = 60.0
VOCABULARY = reads(LABELS, PODGROUP_LABEL, GROUP_NAME)


def describe(pod: Pod, objects: Lookup) -> Description | None:
    """The gang of the PodGroup that one of the labels names; none is needed where labels have the minimum too."""
    labels = Words("label ", pod.labels)
    group = labels.read(PODGROUP_LABEL, name) or labels.read(GROUP_NAME, name)
    if group is None:
        return None
    said = read(NAME, KIND, GangKey(pod.metadata.namespace, group), objects)
    return None if said.missing and labels.has(MIN_AVAILABLE) else said
