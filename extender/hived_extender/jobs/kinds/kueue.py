"""Kueue: groups of plain pods, and topology wishes, whose levels are labels of nodes."""

from hived_extender.jobs.document import Part, count, name
from hived_extender.jobs.kinds.description import Description, GangKey, Lookup, wish
from hived_extender.jobs.kinds.kind import ANNOTATIONS, EITHER, LABELS, Dialect, Source, ignores, reads, refuses
from hived_extender.jobs.wire import Pod

GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
TOPOLOGY_GATE = "kueue.x-k8s.io/topology"
GATES = ("kueue.x-k8s.io/admission", TOPOLOGY_GATE, "kueue.x-k8s.io/elastic-job")
"""Scheduling gates of pods that Kueue has not admitted, or whose nodes it has not chosen."""

NOT_ADMITTED = "Kueue has not admitted it yet"

HOST = "kubernetes.io/hostname"
SLICE_REQUIRED = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_LAYERS = "kueue.x-k8s.io/podset-slice-required-topology-constraints"


def _is_open(_value: str, pod: Pod, _has_gang: bool) -> bool:
    """Is the pod's domain still open? With a Topology Kueue chooses it, by the pod's nodeSelector."""
    if TOPOLOGY_GATE in pod.gates:
        return False  # it is about to
    said = " ".join(pod.annotations.get(key, "") for key in (SLICE_REQUIRED, SLICE_LAYERS))
    selector = (pod.spec and pod.spec.node_selector) or {}
    return not any(label == HOST or label in said for label in selector)


def _is_joint(_value: str, pod: Pod, has_gang: bool) -> bool:
    """Does the pod require one domain with others, while no dialect names its gang?"""
    return not has_gang and REQUIRED in pod.annotations and _is_open(_value, pod, has_gang)


_VOCABULARY = (
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


def _describe(pod: Pod, _objects: Lookup) -> Description | None:
    """All pods of a group start together."""
    annotations = Part("annotation ", pod.annotations)
    group = Part("label ", pod.labels).read(GROUP_NAME, name)
    total = annotations.read(TOTAL, count)
    within = wish(annotations, REQUIRED, PREFERRED)
    if group is None and total is None and within is None:
        return None
    gang = None if group is None else GangKey(pod.metadata.namespace, group)
    return Description(KUEUE.name, gang=gang, minimum=total, within=within)


KUEUE = Dialect("Kueue", _VOCABULARY, _describe, frozenset({GROUP_NAME, TOTAL, REQUIRED, PREFERRED}))
SOURCE = Source(dialects=(KUEUE,))
