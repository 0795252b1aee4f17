"""Gangs as pods of other schedulers and job controllers describe them, in one common description.

Adding a dialect: one module here with the parts of `Dialect`, its line in the table, and one table-driven test. A pod
with our own annotation is not asked.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from msgspec.structs import replace

from hived.values.errors import UserError
from hived_extender.jobs.dialects import (
    coscheduling_labels,
    grove,
    jobset,
    kai,
    koordinator,
    kueue,
    leaderworkerset,
    native_podgroup,
    own,
    podgroup,
    podgroup_old,
    volcano,
    workload,
    yunikorn,
)
from hived_extender.jobs.dialects.description import Description, Lookup, ObjectRef, merged
from hived_extender.jobs.dialects.vocabulary import Key, Use
from hived_extender.jobs.wire import Pod, PodSpec


class Dialect(Protocol):
    """A module of this folder.

    `KEYS` are the labels and annotations without which it has nothing to say; `VOCABULARY` has every key that its users
    write, also if it is not read.
    """

    NAME: str
    KEYS: frozenset[str]
    VOCABULARY: tuple[Key, ...]

    def describe(self, pod: Pod, _objects: Lookup, /) -> Description | None:
        """The dialect's description of the pod, None if it has none. UserError if the pod or its object is no good."""


DIALECTS: tuple[Dialect, ...] = (
    coscheduling_labels,
    koordinator,
    podgroup,
    podgroup_old,
    volcano,
    native_podgroup,
    workload,
    yunikorn,
    kueue,
    kai,
    own,
)
KINDS = (podgroup.KIND, podgroup_old.KIND, volcano.KIND, native_podgroup.KIND, workload.KIND)

KEYS = frozenset[str]().union(*(dialect.KEYS for dialect in DIALECTS))
"""Labels and annotations that have a meaning in some dialect."""

VOCABULARY: dict[str, tuple[Key, ...]] = {
    **{each.NAME: each.VOCABULARY for each in DIALECTS},
    jobset.NAME: jobset.VOCABULARY,
    leaderworkerset.NAME: leaderworkerset.VOCABULARY,
    grove.NAME: grove.VOCABULARY,
}
"""Every key of each dialect, and of job controllers whose keys are about placement."""

_REFUSED = {
    key.name: key
    for keys in VOCABULARY.values()
    for key in keys
    if key.use is Use.REFUSED and not key.place.endswith("field")
}
_MARKS = KEYS | _REFUSED.keys()

_WAITING_S = {dialect.NAME: dialect.WAITING_S for dialect in (koordinator, podgroup, podgroup_old)}
"""The waiting time of a gang that has none itself, by dialect; the others have none."""


def is_marked(pod: Pod) -> bool:
    """Does any dialect have something to say of the pod? Costs less than 2 us."""
    metadata, spec = pod.metadata, pod.spec
    if spec is not None and (spec.scheduling_group is not None or spec.workload_ref is not None):
        return True
    labels, annotations = metadata.labels or (), metadata.annotations or ()
    if _MARKS.isdisjoint(labels) and _MARKS.isdisjoint(annotations):
        return False
    return not (KEYS.isdisjoint(labels) and KEYS.isdisjoint(annotations)) or bool(_refusal(pod, has_gang=False))


def is_marked_by_author(pod: Pod) -> bool:
    """The same, where what Volcano's controller writes onto every pod does not count."""
    if not is_marked(pod):
        return False
    spec = pod.spec or PodSpec()
    marks = (pod.labels.keys() | pod.annotations.keys()) & KEYS - set(volcano.GROUP_NAMES)
    has_field = spec.scheduling_group is not None or spec.workload_ref is not None
    return bool(marks) or has_field or not volcano.is_made(pod) or bool(_refusal(pod, has_gang=False))


def describe(pod: Pod, objects: Lookup) -> Description | None:
    """The description of the pod by all dialects, None if it is marked by none.

    Raises UserError if two of them disagree, a value is not valid, something is said of a gang without a name, or a pod
    without a node requires what is not built.
    `missing` only remains where nothing but the object that is not there could say the minimum.
    """
    if not is_marked(pod):
        return None
    said = [each for dialect in DIALECTS if (each := dialect.describe(pod, objects)) is not None]
    said = own.prevail(volcano.give_way(pod, said))
    result = merged(said)
    if result is not None and result.missing and result.minimum is not None:
        result = merged(replace(each, source=None, missing=None) if each.missing else each for each in said)
    has_gang = result is not None and result.gang is not None
    why = "" if pod.node else _refusal(pod, has_gang=has_gang) or (result is not None and result.refused)
    if why:
        raise UserError(why)
    result = None if result is None else replace(result, refused=None)
    return None if result is None else _completed(pod, result, [_WAITING_S.get(each.dialect) for each in said])


def objects_of(pod: Pod) -> frozenset[ObjectRef]:
    """The objects that the pod names: its description may change when one of them does."""
    asked = _Asked()
    if is_marked(pod):
        for dialect in DIALECTS:
            with suppress(UserError):
                dialect.describe(pod, asked)
    return frozenset(asked.refs)


def _refusal(pod: Pod, *, has_gang: bool) -> str:
    """Why a pod has to wait for what it requires, "" if everything is understood."""
    places = (("annotation ", pod.metadata.annotations), ("label ", pod.metadata.labels))
    return "; ".join(
        key.refusal(place, values[name])
        for place, values in places
        if values and not _REFUSED.keys().isdisjoint(values)
        for name, key in _REFUSED.items()
        if name in values and key.requires(values[name], pod, has_gang=has_gang)
    )


class _Asked:
    """Has no objects, and notes which were asked for."""

    def __init__(self) -> None:
        self.refs: list[ObjectRef] = []

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        self.refs.append(ObjectRef(kind, namespace, name))
        return None


def _completed(pod: Pod, said: Description, waiting_s: list[float | None]) -> Description:
    if said.gang is None:
        if said.minimum or said.total or said.groups or said.match_policy:
            raise UserError(
                f"it says something of a gang ({said.dialect}), but not which: set label "
                f"{coscheduling_labels.GROUP_NAME}, annotation {koordinator.GANG_NAME}, or what else names one there"
            )
        return said
    return replace(
        said,
        total=None if said.total is None else max(said.total, said.minimum or 1),
        groups=None if said.groups is None else tuple(sorted({*said.groups, said.gang})),
        job_part=jobset.part_of(pod),
        waiting_s=said.waiting_s or next((each for each in waiting_s if each is not None), None),
    )
