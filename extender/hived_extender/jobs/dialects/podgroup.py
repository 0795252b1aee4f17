"""PodGroups of scheduler-plugins, of the group `scheduling.x-k8s.io`; Kubeflow's operators make them too."""

from msgspec.structs import replace

from hived_extender.jobs.dialects import coscheduling_labels, koordinator
from hived_extender.jobs.dialects.description import Description, GangKey, Kind, Lookup, find, merged
from hived_extender.jobs.dialects.vocabulary import LABELS, ignores, reads
from hived_extender.jobs.dialects.words import Words, count, name, whole
from hived_extender.jobs.wire import Pod, PodMetadata

NAME = "PodGroup (scheduling.x-k8s.io)"
LABEL = "scheduling.x-k8s.io/pod-group"
KIND = Kind("scheduling.x-k8s.io", "podgroups", ("v1alpha1",))
KEYS = frozenset({LABEL})
WAITING_S = 60.0
FIELD = "PodGroup field"
VOCABULARY = (
    *reads(LABELS, LABEL),
    *reads(FIELD, "minMember", "scheduleTimeoutSeconds"),
    *ignores(FIELD, "pods are counted, and their requests summed up, one by one", "minResources"),
)


def describe(pod: Pod, objects: Lookup) -> Description | None:
    """The gang of the PodGroup that the pod's label names."""
    group = Words("label ", pod.labels).read(LABEL, name)
    return None if group is None else read(NAME, KIND, GangKey(pod.metadata.namespace, group), objects)


def read(dialect: str, kind: Kind, gang: GangKey, objects: Lookup) -> Description:
    """The gang of a PodGroup of either kind, the labels and annotations on it included."""
    source = kind.ref(gang.namespace, gang.name)
    found = find(objects, source)
    if found is None:
        return Description(dialect, gang=gang, source=source, missing=True)
    spec, metadata = (Words(f"{source}: {part}.", found.get(part)) for part in ("spec", "metadata"))
    labels, annotations = metadata.part("labels"), metadata.part("annotations")
    own = Description(
        dialect,
        gang=gang,
        minimum=spec.read("minMember", count),
        waiting_s=spec.read("scheduleTimeoutSeconds", whole) or None,
        source=source,
        refused=_refusal(f"{source}: metadata.annotations.", annotations),
    )
    said = merged([own, coscheduling_labels.options(labels, annotations), koordinator.options(annotations)])
    return own if said is None else replace(said, dialect=dialect)


def _refusal(place: str, annotations: Words) -> str | None:
    key = koordinator.NETWORK_TOPOLOGY
    value = annotations.read(key.name, str)
    return key.refusal(place, value) if value and key.requires(value, Pod(PodMetadata()), has_gang=True) else None
