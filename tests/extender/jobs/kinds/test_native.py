"""Gangs by the Workloads and PodGroups of Kubernetes itself."""

from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.jobs.kinds import native
from hived_extender.jobs.kinds.description import Description, GangKey, ObjectRef, Within
from hived_extender.jobs.wire import PodSpec, SchedulingGroup, WorkloadRef
from tests.extender.jobs.kinds.descriptions import TRAIN, Cluster, describe, podgroup_ref, podgroups

IN_PODGROUP = PodSpec(scheduling_group=SchedulingGroup("train"))
PODGROUP = podgroup_ref("scheduling.k8s.io")
WORKLOAD = ObjectRef("workloads.scheduling.k8s.io", "team", "train")
GROUPS = [{"name": "ps", "policy": {"basic": {}}}, {"name": "worker", "policy": {"gang": {"minCount": 4}}}]


def in_workload(group: str, replica: str | None = None) -> PodSpec:
    """A pod of a pod group of the Workload."""
    return PodSpec(workload_ref=WorkloadRef("train", group, replica))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"schedulingPolicy": {"gang": {"minCount": 4}}}, {"gang": TRAIN, "minimum": 4}),
        (
            {
                "schedulingPolicy": {"gang": {"minCount": 4}},
                "schedulingConstraints": {"topology": [{"key": "example.com/rack"}]},
                "priorityClassName": "high",
                "disruptionMode": "PodGroup",
            },
            {
                "gang": TRAIN,
                "minimum": 4,
                "within": Within("example.com/rack", is_required=True),
                "priority_class": "high",
            },
        ),
        ({"schedulingPolicy": {"basic": {}}}, {}),
        (
            {"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}},
            {"gang": TRAIN, "within": Within("rack", is_required=True)},
        ),
        ({"schedulingPolicy": {"basic": {}}, "schedulingConstraints": {"topology": []}}, {}),
    ],
)
def test_a_podgroup_says(spec: Any, said: dict[str, Any]) -> None:
    expected = Description(native.POD_GROUP.name, source=PODGROUP, **said)
    assert describe(objects=podgroups("scheduling.k8s.io", spec), spec=IN_PODGROUP) == expected


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (in_workload("worker"), {"gang": GangKey("team", "train/worker"), "minimum": 4}),
        (in_workload("worker", "2"), {"gang": GangKey("team", "train/worker/2"), "minimum": 4}),
        (in_workload("ps"), {}),
    ],
)
def test_a_workload_says(wanted: PodSpec, said: dict[str, Any]) -> None:
    cluster = Cluster({WORKLOAD: {"spec": {"podGroups": GROUPS}}})
    assert describe(objects=cluster, spec=wanted) == Description(native.WORKLOAD.name, source=WORKLOAD, **said)


@pytest.mark.parametrize(
    ("wanted", "source", "gang"),
    [(IN_PODGROUP, PODGROUP, TRAIN), (in_workload("worker"), WORKLOAD, GangKey("team", "train/worker"))],
)
def test_an_object_that_is_not_there_is_missing(wanted: PodSpec, source: ObjectRef, gang: GangKey) -> None:
    said = describe(spec=wanted)
    assert said is not None
    assert (said.gang, said.source, said.missing) == (gang, source, True)


@pytest.mark.parametrize(
    ("wanted", "source", "spec", "message"),
    [
        (
            IN_PODGROUP,
            PODGROUP,
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            "spec.schedulingPolicy.gang.minCount is 0: expected a whole number from 1",
        ),
        (
            IN_PODGROUP,
            PODGROUP,
            {"schedulingConstraints": {"topology": "rack"}},
            "spec.schedulingConstraints.topology is 'rack': expected a list",
        ),
        (
            in_workload("chief"),
            WORKLOAD,
            {"podGroups": GROUPS},
            "no pod group 'chief', which the pod is of: it has ps, w",
        ),
        (in_workload("chief"), WORKLOAD, {}, "it has none"),
        (
            in_workload("a"),
            WORKLOAD,
            {"podGroups": [{"name": "a", "policy": {"gang": {"minCount": -1}}}]},
            "spec.podGroups[0].policy.gang.minCount is -1: expected a whole number from 1",
        ),
    ],
)
def test_bad_objects_are_told(wanted: PodSpec, source: ObjectRef, spec: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        describe(objects=Cluster({source: {"spec": spec}}), spec=wanted)
    assert str(error.value).startswith(str(source))
    assert message in str(error.value)
