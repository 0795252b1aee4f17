"""Kueue: groups of plain pods, and topology wishes, whose levels are labels of nodes."""

from hived_extender.jobs.dialects.description import Description, GangKey, Lookup
from hived_extender.jobs.dialects.vocabulary import ANNOTATIONS, EITHER, LABELS, ignores, reads, refuses
from hived_extender.jobs.dialects.words import Words, count, name, wish
from hived_extender.jobs.wire import Pod

NAME = "Kueue"
GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
TOPOLOGY_GATE = "kueue.x-k8s.io/topology"
GATES = ("kueue.x-k8s.io/admission", TOPOLOGY_GATE, "kueue.x-k8s.io/elastic-job")
"""Scheduling gates of pods that Kueue has not admitted, or whose nodes it has not chosen."""

NOT_ADMITTED = "Kueue has not admitted it yet"

KEYS = frozenset({GROUP_NAME, TOTAL, REQUIRED, PREFERRED})
HOST = "kubernetes.io/hostname"
SLICE_REQUIRED = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_LAYERS = "kueue.x-k8s.io/podset-slice-required-topology-constraints"


def _is_open(_value: str, pod: Pod, _has_gang: bool) -> bool:
    """Has nobody chosen the domain of the pod, as Kueue does with a Topology by the pod's selector of nodes?"""
    if TOPOLOGY_GATE in pod.gates:
        return False  # it is about to
    said = " ".join(pod.annotations.get(key, "") for key in (SLICE_REQUIRED, SLICE_LAYERS))
    selector = (pod.spec and pod.spec.node_selector) or {}
    return not any(label == HOST or label in said for label in selector)


def _is_joint(_value: str, pod: Pod, has_gang: bool) -> bool:
    """Does the pod require a domain together with others, of which no gang knows?"""
    return not has_gang and REQUIRED in pod.annotations and _is_open(_value, pod, has_gang)


VOCABULARY = (
    *reads(LABELS, GROUP_NAME),
    *reads(ANNOTATIONS, TOTAL, REQUIRED, PREFERRED),
    *refuses(
        ANNOTATIONS,
        "each slice of the gang within one domain",
        SLICE_REQUIRED,
        SLICE_LAYERS,
        "kueue.x-k8s.io/podset-slice-size",
        when=_is_open,
    ),
    *refuses(
        ANNOTATIONS,
        "a domain for several sets of pods, of which no gang knows",
        "kueue.x-k8s.io/podset-group-name",
        when=_is_joint,
    ),
    *ignores(ANNOTATIONS, "it wishes for nothing", "kueue.x-k8s.io/podset-unconstrained-topology"),
    *ignores(EITHER, "gates say whether Kueue has admitted the pod", "kueue.x-k8s.io/queue-name"),
    *ignores(
        EITHER,
        "for Kueue alone",
        "kueue.x-k8s.io/workload",
        "kueue.x-k8s.io/managed",
        "kueue.x-k8s.io/podset",
        "kueue.x-k8s.io/tas",
        "kueue.x-k8s.io/role-hash",
        "kueue.x-k8s.io/priority-class",
        "kueue.x-k8s.io/retriable-in-group",
        "kueue.x-k8s.io/pod-group-fast-admission",
        "kueue.x-k8s.io/pod-group-serving",
        "kueue.x-k8s.io/pod-group-pod-index",
        "kueue.x-k8s.io/pod-group-pod-index-label",
        "kueue.x-k8s.io/pod-group-role",
        "kueue.x-k8s.io/pod-group-sets",
        "kueue.x-k8s.io/pod-suspending-parent",
        "kueue.x-k8s.io/is-group-workload",
    ),
)


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
