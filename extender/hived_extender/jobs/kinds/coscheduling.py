"""Coscheduling of scheduler-plugins: PodGroups of both of its API groups, and labels that need no object.

Koordinator has PodGroups of the earlier group, ACK the labels, and Kubeflow's operators make PodGroups of the present
one. Keys of the labels beyond name and minimum may stand on PodGroups and beside other dialects as well. The API server
refuses JSON in labels, so each of these keys is read among the annotations too.
"""

from msgspec.structs import replace

from hived_extender.jobs.document import Part, count, name, whole
from hived_extender.jobs.kinds import koordinator
from hived_extender.jobs.kinds.description import (
    Description,
    GangKey,
    Lookup,
    ObjectKind,
    agreed,
    find,
    gangs,
    match_policy,
    merged,
)
from hived_extender.jobs.kinds.kind import EITHER, LABELS, Dialect, Source, ignores, reads
from hived_extender.jobs.kinds.koordinator import GROUP_NAME, MIN_AVAILABLE, PODGROUP_LABEL
from hived_extender.jobs.wire import Pod, PodMetadata

LABEL = "scheduling.x-k8s.io/pod-group"
PODGROUPS = ObjectKind("scheduling.x-k8s.io", "podgroups", ("v1alpha1",))
OLD_PODGROUPS = ObjectKind("scheduling.sigs.k8s.io", "podgroups", ("v1alpha1",))
GROUPS = "pod-group.scheduling.sigs.k8s.io/groups"
MATCH_POLICY = "pod-group.scheduling.sigs.k8s.io/match-policy"
_FIELD = "PodGroup field"
_WAITING_S = 60.0


def _describe_labels(pod: Pod, _objects: Lookup) -> Description | None:
    """None also for a pod that has the name alone: that is the name of a PodGroup."""
    labels = Part("label ", pod.labels)
    minimum = labels.read(MIN_AVAILABLE, count)
    said = _options(labels, Part("annotation ", pod.annotations))
    if minimum is None and said == Description(LABELLED.name):
        return None
    group = labels.read(GROUP_NAME, name)
    return Description(
        LABELLED.name,
        gang=None if group is None else GangKey(pod.metadata.namespace, group),
        minimum=minimum,
        groups=said.groups,
        match_policy=said.match_policy,
    )


def _options(labels: Part, annotations: Part) -> Description:
    """The gang as labels and annotations of a pod or a PodGroup describe it, without name and minimum."""
    places = {"label": labels, "annotation": annotations}
    return Description(
        LABELLED.name,
        groups=agreed({f"{place} {GROUPS}": words.read(GROUPS, gangs) for place, words in places.items()}),
        match_policy=agreed(
            {f"{place} {MATCH_POLICY}": words.read(MATCH_POLICY, match_policy) for place, words in places.items()}
        ),
    )


def _describe(pod: Pod, objects: Lookup) -> Description | None:
    group = Part("label ", pod.labels).read(LABEL, name)
    return None if group is None else _read(POD_GROUP, GangKey(pod.metadata.namespace, group), objects)


def _describe_old(pod: Pod, objects: Lookup) -> Description | None:
    """No object is needed if labels have the minimum too."""
    labels = Part("label ", pod.labels)
    group = labels.read(PODGROUP_LABEL, name) or labels.read(GROUP_NAME, name)
    if group is None:
        return None
    has_minimum = MIN_AVAILABLE in labels
    said = _read(OLD_POD_GROUP, GangKey(pod.metadata.namespace, group), objects, is_alone=has_minimum)
    return None if said.missing and has_minimum else said


def _read(dialect: Dialect, gang: GangKey, objects: Lookup, *, is_alone: bool = False) -> Description:
    """The gang of a PodGroup, the labels and annotations on it included.

    Of the dialect's own kind, else, unless that `is_alone`, of the other one: ACK from 1.31 on has the labels of the
    earlier kind beside PodGroups of the present one.
    """
    kinds = sorted((PODGROUPS, OLD_PODGROUPS), key=lambda kind: kind is not dialect.objects)
    refs = [kind.ref(gang.namespace, gang.name) for kind in kinds[: 1 if is_alone else 2]]
    there = [(ref, one) for ref in refs if (one := find(objects, ref)) is not None]
    if not there:
        return Description(dialect.name, gang=gang, source=refs[0], missing=True)
    source, found = there[0]
    spec, metadata = (Part(f"{source}: {part}.", found.get(part)) for part in ("spec", "metadata"))
    labels, annotations = metadata.part("labels"), metadata.part("annotations")
    own = Description(
        dialect.name,
        gang=gang,
        minimum=spec.read("minMember", count),
        waiting_s=spec.read("scheduleTimeoutSeconds", whole) or None,
        source=source,
        refused=_refusal(f"{source}: metadata.annotations.", annotations),
    )
    said = merged([own, _options(labels, annotations), koordinator.options(annotations)])
    return own if said is None else replace(said, dialect=dialect.name)


def _refusal(place: str, annotations: Part) -> str | None:
    key = koordinator.NETWORK_TOPOLOGY
    value = annotations.read(key.name, str)
    return key.refusal(place, value) if value and key.requires(value, Pod(PodMetadata()), has_gang=True) else None


def _refusal_of_gang(gang: GangKey, _pod: str, _minimum: int, reason: str) -> str:
    return f"rejected by podgroup/{gang}: {reason}"


LABELLED = Dialect(
    "coscheduling labels",
    (*reads(LABELS, GROUP_NAME, MIN_AVAILABLE), *reads(EITHER, GROUPS, MATCH_POLICY)),
    _describe_labels,
    frozenset({GROUP_NAME, MIN_AVAILABLE, GROUPS, MATCH_POLICY}),
    refusal=_refusal_of_gang,
)
POD_GROUP = Dialect(
    "PodGroup (scheduling.x-k8s.io)",
    (
        *reads(LABELS, LABEL),
        *reads(_FIELD, "minMember", "scheduleTimeoutSeconds"),
        *ignores(_FIELD, "pods are counted, and their requests summed up, one by one", "minResources"),
    ),
    _describe,
    frozenset({LABEL}),
    PODGROUPS,
    _WAITING_S,
    _refusal_of_gang,
)
OLD_POD_GROUP = Dialect(
    "PodGroup (scheduling.sigs.k8s.io)",
    reads(LABELS, PODGROUP_LABEL, GROUP_NAME),
    _describe_old,
    frozenset({PODGROUP_LABEL, GROUP_NAME}),
    OLD_PODGROUPS,
    _WAITING_S,
    _refusal_of_gang,
)
SOURCE = Source(dialects=(LABELLED, POD_GROUP, OLD_POD_GROUP))
