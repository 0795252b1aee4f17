"""Pods and objects for the tests of dialects, and what they are expected to say."""

from collections.abc import Mapping
from typing import Any

from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.description import Description, GangKey, ObjectRef
from hived_extender.jobs.wire import Owner, Pod, PodMetadata, PodSpec

NAMESPACE = "team"
UID = "11111111-2222-3333-4444-555555555555"
VOCABULARY = {dialect.name: dialect.vocabulary for dialect in table.DIALECTS}
"""Every key of each dialect, and of job controllers whose keys are about placement."""

TRAIN = GangKey(NAMESPACE, "train")


class Cluster:
    """Objects that exist."""

    def __init__(self, found: Mapping[ObjectRef, Mapping[str, Any]] | None = None) -> None:
        self._found = found or {}

    def get(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """The object, None if there is none."""
        return self._found.get(ObjectRef(kind, namespace, name))


def podgroups(group: str, spec: Any, metadata: Any = None, name: str = "train") -> Cluster:
    """A cluster with one PodGroup in it."""
    return Cluster({podgroup_ref(group, name): {"spec": spec, "metadata": metadata or {}}})


def podgroup_ref(group: str, name: str = "train") -> ObjectRef:
    """The PodGroup of an API group."""
    return ObjectRef(f"podgroups.{group}", NAMESPACE, name)


def make_pod(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    spec: PodSpec | None = None,
    owner: Owner | None = None,
) -> Pod:
    """A pod as the watch tells of it; its uid is UID."""
    owners = [owner] if owner is not None else None
    metadata = PodMetadata(
        name="pod", namespace=NAMESPACE, uid=UID, labels=labels, annotations=annotations, owners=owners
    )
    return Pod(metadata, spec or PodSpec())


def describe(
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    objects: Cluster | None = None,
    spec: PodSpec | None = None,
    owner: Owner | None = None,
) -> Description | None:
    """The description that all dialects give of a pod."""
    return table.describe(make_pod(labels, annotations, spec, owner), objects or Cluster())
