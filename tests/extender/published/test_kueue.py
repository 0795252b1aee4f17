"""What is read and written of Kueue's objects against Kueue's own definitions: every field is there, of that type."""

from collections.abc import Iterator
from typing import Any

import pytest

from hived_cli.migrate.fields import FIELDS
from hived_extender.queues.kueue.checks import Said, Write, with_states
from hived_extender.queues.kueue.workloads import (
    VERSIONS,
    CheckObject,
    FlavorObject,
    QueueObject,
    WorkloadObject,
    workload_of,
)
from tests.extender.published import go_types
from tests.extender.published.reading import differences_of_struct
from tests.extender.published.schemas import at, definition, module, validate
from tests.extender.queues.kueue.workload_objects import (
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


CONVERTED = {
    "ResourceFlavor": "resourceflavors", "Topology": "topologies", "ClusterQueue": "clusterqueues", "Cohort": "cohorts",
    "LocalQueue": "localqueues", "WorkloadPriorityClass": "workloadpriorityclasses",
    "AdmissionCheck": "admissionchecks",
}  # fmt: skip
LATER = {
    "spec.resourceWeights", "spec.concurrentAdmissionPolicy", "spec.wallTimePolicy",
}  # fmt: skip
"""Fields of Kueue after the version that is pinned."""

OF_V1BETA1 = {"spec.cohort", "spec.admissionChecks[]", "spec.retryDelayMinutes"}
OF_V1BETA2 = {"spec.cohortName"}


def leaves(schema: Json, path: str = "") -> Iterator[str]:
    """The paths of all fields of a schema that have none below."""
    below = schema.get("properties", {})
    if schema.get("type") == "array":
        yield from leaves(schema["items"], f"{path}[]")
    elif below:
        for name, each in below.items():
            yield from leaves(each, f"{path}.{name}".removeprefix("."))
    else:
        yield path


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", CONVERTED)
def test_migration_knows_every_field_and_no_other(kind: str, version: str) -> None:
    file = module("kueue", "sigs.k8s.io/kueue") / f"config/components/crd/bases/kueue.x-k8s.io_{CONVERTED[kind]}.yaml"
    published = definition(file, kind, version)
    own = {name: each for name, each in published["properties"].items() if name not in NOT_CONVERTED}
    known = FIELDS[kind].keys()
    missing = [path for path in leaves({"properties": own}) if not any(is_at(path, each) for each in known)]
    unpublished = {path for path in known if at(published, path) is None}
    assert (missing, unpublished - LATER - (OF_V1BETA2 if version == "v1beta1" else OF_V1BETA1)) == ([], set())


NOT_CONVERTED = {"apiVersion", "kind", "metadata", "status"}


def is_at(path: str, field: str) -> bool:
    """Is a path that of a field, or below it?"""
    return path == field or path.startswith((f"{field}.", f"{field}["))
