"""Kubernetes' own objects, and the messages of its scheduler, in every version that hived knows."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from hived_extender.jobs import wire
from hived_extender.jobs.job import JobName
from hived_extender.jobs.kinds import gangs
from hived_extender.jobs.wire import NodeSelector
from hived_extender.kube import answers, events, lease
from hived_extender.kube.priority_classes import PriorityClass
from hived_extender.kube_rules import demands
from hived_extender.kube_rules.demands import AffinitySpec, SpreadSpec
from hived_extender.machine.devices import dra
from tests.e2e.tools.sources import KUBERNETES
from tests.extender.published import go_types
from tests.extender.published.reading import differences, differences_of_struct, keys_in, reads_of
from tests.extender.published.schemas import Json, filled, validate

CORE, META = "k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/apis/meta/v1"
STRUCTS = {
    wire.Pod: (CORE, "Pod"),
    wire.Node: (CORE, "Node"),
    AffinitySpec: (CORE, "Affinity"),
    SpreadSpec: (CORE, "TopologySpreadConstraint"),
    NodeSelector: (CORE, "NodeSelector"),
    events._Counted: (CORE, "Event"),
    lease._Lease: ("k8s.io/api/coordination/v1", "Lease"),
    PriorityClass: ("k8s.io/api/scheduling/v1", "PriorityClass"),
    answers._Status: (META, "Status"),
    answers._ListMeta: (META, "ListMeta"),
}
MESSAGES = {
    wire.FilterArgs: "ExtenderArgs",
    wire.FilterResult: "ExtenderFilterResult",
    wire.PreemptArgs: "ExtenderPreemptionArgs",
    wire.PreemptResult: "ExtenderPreemptionResult",
    wire.BindArgs: "ExtenderBindingArgs",
    wire.BindResult: "ExtenderBindingResult",
}
DEVICES = {dra.ResourceSlice: "ResourceSlice", dra.DeviceClass: "DeviceClass", dra.ResourceClaim: "ResourceClaim"}

OF_PODS = {"spec.workloadRef", "spec.schedulingGroup"}
LACKING = {folder: {"spec.workloadRef"} for folder in KUBERNETES} | {
    "v1.33": OF_PODS,
    "kueue": {"spec.schedulingGroup"},
}
"""Fields that a version of Kubernetes does not have, as another one does."""

LACKING_FOR_DEVICES = {
    "v1": {"spec.devices[].basic", "spec.devices.requests[].deviceClassName"},
    "v1beta2": {"spec.devices[].basic", "spec.devices.requests[].deviceClassName"},
    "v1beta1": {"spec.devices[].attributes", "spec.devices[].taints", "spec.devices.requests[].exactly"},
}

OF_VOLUMES = ("name", "persistentVolumeClaim", "ephemeral", *demands._DISKS)


@pytest.mark.parametrize("folder", KUBERNETES)
@pytest.mark.parametrize("kind", STRUCTS)
def test_every_field_of_an_object_is_published(kind: type[Any], folder: str) -> None:
    package, name = STRUCTS[kind]
    found = set(differences_of_struct(kind, go_types.schema(folder, package, name)))
    assert found == (LACKING[folder] if kind is wire.Pod else set())


@pytest.mark.parametrize("folder", [each for each in KUBERNETES if each != "kueue"])
@pytest.mark.parametrize("kind", MESSAGES)
def test_every_field_of_a_message_is_published(kind: type[Any], folder: str) -> None:
    schema = go_types.schema(folder, "k8s.io/kube-scheduler/extender/v1", MESSAGES[kind])
    assert differences_of_struct(kind, schema) == []


@pytest.mark.parametrize("folder", KUBERNETES)
@pytest.mark.parametrize("version", dra.VERSIONS)
@pytest.mark.parametrize("kind", DEVICES)
def test_every_field_of_devices_is_published(kind: type[Any], version: str, folder: str) -> None:
    if (version, folder) == ("v1", "v1.33"):
        pytest.skip("this Kubernetes has no such version of these objects")
    schema = go_types.schema(folder, f"k8s.io/api/resource/{version}", DEVICES[kind])
    assert set(differences_of_struct(kind, schema)) <= LACKING_FOR_DEVICES[version]


def test_no_field_is_lacking_in_every_version() -> None:
    assert set.intersection(*LACKING.values()) | set.intersection(*LACKING_FOR_DEVICES.values()) == set()


@pytest.mark.parametrize("folder", KUBERNETES)
def test_every_field_of_a_pod_of_a_gang_is_published(folder: str) -> None:
    schema = go_types.schema(folder, CORE, "Pod")
    name = JobName("", gangs.KIND, "team", "train")
    forms: list[Json] = [{}, {"status.phase": "Failed"}, {"metadata.deletionTimestamp": None}]
    reads = {each for form in forms for each in reads_of(partial(gangs.read, name, [filled(schema, form)]))}
    assert differences(schema, reads) == []
    assert keys_in(gangs) - {path.rpartition(".")[2] for path, _ in reads} == set()


@pytest.mark.parametrize("folder", KUBERNETES)
def test_every_volume_is_published(folder: str) -> None:
    schema = go_types.schema(folder, CORE, "Pod")
    assert differences(schema, {(f"spec.volumes[].{each}", "") for each in OF_VOLUMES}) == []


class Api:
    """Takes one event."""

    event: Mapping[str, Any] | None = None

    def create(self, _path: str, body: Mapping[str, Any]) -> None:
        self.event = body


@pytest.mark.parametrize("folder", KUBERNETES)
def test_an_event_is_as_published(folder: str) -> None:
    api = Api()
    recorder = events.EventRecorder(api, "hived")  # type: ignore[arg-type]  # nothing else is called
    recorder.record(events.NodeRef("a"), "Warning", "Bad", "it is", about="Node")
    validate(api.event, go_types.schema(folder, CORE, "Event"))
