"""PodGroups and Workloads, as dialects read them and as their statuses are written."""

from collections.abc import Mapping
from typing import Any

import pytest

from hived_extender.jobs.kinds import coscheduling, koordinator, native, volcano
from hived_extender.jobs.kinds.description import ObjectKind
from hived_extender.jobs.wire import Pod, PodMetadata, PodSpec, SchedulingGroup, WorkloadRef
from hived_extender.machine.gangs.plans import GangState
from hived_extender.machine.writes.statuses import status_patch
from tests.extender.published import go_types
from tests.extender.published.reading import Read, differences, reads_of
from tests.extender.published.schemas import Json, definition, filled, module, validate

CRDS = "config/crd/bases/{}_podgroups.yaml"
CASES = [
    ("podgroup", "controllers", "v1alpha1"),
    ("podgroup_old", "published", "v1alpha1"),
    ("volcano", "published", "v1beta1"),
    ("workload", "kueue", "v1alpha1"),
    ("native_podgroup", "v1.36", "v1alpha2"),
    ("native_podgroup", "v1.37", "v1alpha3"),
    ("native_podgroup", "v1.37", "v1beta1"),
    ("native_podgroup", "v1.38", "v1alpha3"),
    ("native_podgroup", "v1.38", "v1beta1"),
]
"""Dialect, folder with the pin, version of the kind."""

DIALECTS: dict[str, Any] = {
    "podgroup": coscheduling.POD_GROUP,
    "podgroup_old": coscheduling.OLD_POD_GROUP,
    "volcano": volcano.VOLCANO,
    "workload": native.WORKLOAD,
    "native_podgroup": native.POD_GROUP,
}
PODS = {
    "podgroup": Pod(PodMetadata(namespace="team", labels={coscheduling.LABEL: "g"})),
    "podgroup_old": Pod(PodMetadata(namespace="team", labels={koordinator.PODGROUP_LABEL: "g"})),
    "volcano": Pod(PodMetadata(namespace="team", annotations={volcano.GROUP_NAMES[1]: "g"})),
    "workload": Pod(PodMetadata(namespace="team"), PodSpec(workload_ref=WorkloadRef("g", "text"))),
    "native_podgroup": Pod(PodMetadata(namespace="team"), PodSpec(scheduling_group=SchedulingGroup("g"))),
}
"""One that names the object, by dialect."""

CHOSEN: Json = {"metadata.labels": {}, "metadata.annotations": {}, "networkTopology.mode": "hard", "maxCount": 1}
FORMER = {("native_podgroup", "v1.36"): {"spec.parentCompositePodGroupName"}}
"""Fields of later versions alone."""


class One:
    """The only object that there is."""

    def __init__(self, item: Json) -> None:
        self.item = item

    def get(self, _kind: str, _namespace: str, _name: str, /) -> Mapping[str, Any]:
        return self.item


def schema_of(dialect: str, folder: str, version: str) -> Json:
    kind: ObjectKind = DIALECTS[dialect].objects
    name = "Workload" if dialect == "workload" else "PodGroup"
    if dialect in ("podgroup", "podgroup_old"):
        path = "sigs.k8s.io/scheduler-plugins" if dialect == "podgroup" else "github.com/koordinator-sh/koordinator"
        read = definition(module(folder, path) / CRDS.format(kind.group), name, version)
        metadata = go_types.schema("v1.36", "k8s.io/apimachinery/pkg/apis/meta/v1", "ObjectMeta")
        return {**read, "properties": {**read["properties"], "metadata": metadata}}
    package = "volcano.sh/apis/pkg/apis" if dialect == "volcano" else "k8s.io/api"
    return go_types.schema(folder, f"{package}/scheduling/{version}", name)


def reads(dialect: str, folder: str, version: str) -> set[Read]:
    """All that is read of an object that has every field."""
    objects = One(object_of(dialect, folder, version))
    return reads_of(lambda: DIALECTS[dialect].describe(PODS[dialect], objects))


def object_of(dialect: str, folder: str, version: str) -> Json:
    item: Json = filled(schema_of(dialect, folder, version), CHOSEN)
    return {**item, "apiVersion": f"{DIALECTS[dialect].objects.group}/{version}"}


@pytest.mark.parametrize(("dialect", "folder", "version"), CASES)
def test_every_field_that_is_read_is_published(dialect: str, folder: str, version: str) -> None:
    schema = schema_of(dialect, folder, version)
    assert set(differences(schema, reads(dialect, folder, version))) == FORMER.get((dialect, folder), set())
    assert version in DIALECTS[dialect].objects.versions


STATES = [
    GangState(pod_count=0),
    GangState(pod_count=2, scheduled=1),
    GangState(pod_count=2, scheduled=2, running=2),
    GangState(pod_count=2, succeeded=2),
]


@pytest.mark.parametrize(("dialect", "folder", "version"), CASES)
def test_every_status_that_is_written_is_published(dialect: str, folder: str, version: str) -> None:
    schema = schema_of(dialect, folder, version)["properties"].get("status", {})
    found = {**object_of(dialect, folder, version), "status": {}}
    for state in STATES:
        status = status_patch(DIALECTS[dialect].objects.name, state, found, "2026-11-29T12:00:00Z")
        validate(status, schema)
        found["status"] = {**found["status"], **status}
    assert bool(found["status"]) == (dialect != "workload")
