"""What is read and written of Kueue's objects against Kueue's own definitions: every field is there, of that type."""

from typing import Any

import pytest

from hived_extender.kueue.checks import Said, Write, with_states
from hived_extender.kueue.workloads import VERSIONS, CheckObject, FlavorObject, QueueObject, WorkloadObject, workload_of
from tests.extender.kueue.workload_objects import (
    AT,
    CHECK,
    admission_check,
    assigned_topology,
    check_state,
    cluster_queue,
    condition,
    flavor,
    workload,
)
from tests.extender.published import go_types
from tests.extender.published.reading import differences_of_struct
from tests.extender.published.schemas import definition, module, validate

Json = dict[str, Any]

READ = {
    "workloads": WorkloadObject,
    "admissionchecks": CheckObject,
    "resourceflavors": FlavorObject,
    "clusterqueues": QueueObject,
}

KINDS = {
    "workloads": "Workload",
    "admissionchecks": "AdmissionCheck",
    "resourceflavors": "ResourceFlavor",
    "clusterqueues": "ClusterQueue",
}

OF_ONE_VERSION = {
    "v1beta1": {
        "spec.cohortName",
        "spec.priorityClassRef",
        "status.admission.podSetAssignments[].topologyAssignment.slices",
    },
    "v1beta2": {
        "spec.admissionChecks",
        "spec.cohort",
        "spec.priorityClassName",
        "spec.priorityClassSource",
        "status.admission.podSetAssignments[].topologyAssignment.domains",
    },
}
"""Fields that are read and that the version does not have, as the other one does."""


def schema(plural: str, version: str) -> Json:
    file = module("kueue", "sigs.k8s.io/kueue") / f"config/components/crd/bases/kueue.x-k8s.io_{plural}.yaml"
    read = definition(file, KINDS[plural], version)
    metadata = go_types.schema("kueue", "k8s.io/apimachinery/pkg/apis/meta/v1", "ObjectMeta")
    return {**read, "properties": {**read["properties"], "metadata": metadata}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("plural", READ)
def test_every_field_that_is_read_is_published(plural: str, version: str) -> None:
    found = set(differences_of_struct(READ[plural], schema(plural, version)))
    assert found <= OF_ONE_VERSION[version]


WAITS = workload(checks=(check_state(state="Retry", retryCount=2, requeueAfterSeconds=30),))
CHOSEN = assigned_topology(workload(), [("rack", ["a", "b"])], [1, 1])


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("plural", "item"),
    [
        ("workloads", workload()),
        ("workloads", WAITS),
        ("workloads", CHOSEN),
        ("workloads", workload(conditions=(condition("QuotaReserved"), condition("Evicted")), priority=5)),
        ("admissionchecks", admission_check(is_active=True)),
        ("resourceflavors", flavor(gpu="a100")),
        ("clusterqueues", cluster_queue("a", limit=0, cohortName="all")),
    ],
)
def test_the_objects_of_these_tests_are_such_as_kueue_defines(plural: str, item: Json) -> None:
    validate({key: item[key] for key in item if key != "metadata"}, schema(plural, "v1beta2"))


@pytest.mark.parametrize(
    "said",
    [
        Said("Ready", "held", ({"name": "main", "annotations": {"a": "b"}},)),
        Said("Retry", "lost", requeue_s=30),
        Said("Rejected", "never"),
    ],
)
def test_what_is_written_is_defined(said: Said) -> None:
    found = workload_of(workload(checks=(check_state("other"), check_state(retryCount=1))))
    status = {"admissionChecks": with_states(found.written, Write(found, (CHECK,), said), AT)}
    validate(status, schema("workloads", "v1beta2")["properties"]["status"])
