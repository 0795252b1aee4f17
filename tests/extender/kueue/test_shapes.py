"""What is read and written of Kueue's objects against Kueue's own definitions: every field is there, of that type.

The module has to be there. `published.py` says where from; a newer version is tried by another pin.
"""

from collections.abc import Iterator
from typing import Any

import jsonschema
import msgspec
import pytest

from hived_extender.kueue.checks import Said, Write, with_states
from hived_extender.kueue.cohorts import QueueObject
from hived_extender.kueue.names import VERSIONS
from hived_extender.kueue.workloads import CheckObject, FlavorObject, WorkloadObject, workload_of
from tests.extender.kueue.published import closed, schema
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

Json = dict[str, Any]

READ = {
    "workloads": WorkloadObject,
    "admissionchecks": CheckObject,
    "resourceflavors": FlavorObject,
    "clusterqueues": QueueObject,
}

OF_ONE_VERSION = {
    "v1beta1": {
        "spec.cohortName",
        "spec.priorityClassRef",
        "status.admission.podSetAssignments.topologyAssignment.slices",
    },
    "v1beta2": {
        "spec.admissionChecks",
        "spec.cohort",
        "spec.priorityClassName",
        "spec.priorityClassSource",
        "status.admission.podSetAssignments.topologyAssignment.domains",
    },
}
"""Fields that are read and that the version does not have, as the other one does."""

WORDS = {msgspec.inspect.StrType: "string", msgspec.inspect.IntType: "integer", msgspec.inspect.BoolType: "boolean"}


def differences(kind: Any, published: Json, path: str = "") -> Iterator[str]:
    """The fields that are read and not published, and, with their types, those that are published otherwise."""
    if isinstance(kind, msgspec.inspect.UnionType):
        kinds = [each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)]
        if len(kinds) > 1 and published.get("x-kubernetes-int-or-string"):
            return
        (kind,) = kinds
    if isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            here = f"{path}.{field.encode_name}".removeprefix(".")
            if here == "metadata":
                continue  # it is Kubernetes' own
            there = published.get("properties", {}).get(field.encode_name)
            if there is None:
                yield here
            else:
                yield from differences(field.type, there, here)
    elif isinstance(kind, msgspec.inspect.ListType):
        if published["type"] != "array":
            yield f"{path}: {published['type']}"
        else:
            yield from differences(kind.item_type, published["items"], path)
    elif isinstance(kind, msgspec.inspect.DictType):
        if published["type"] != "object":
            yield f"{path}: {published['type']}"
    elif published.get("type") != WORDS[type(kind)]:
        yield f"{path}: {published['type']}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("plural", READ)
def test_every_field_that_is_read_is_published(plural: str, version: str) -> None:
    found = set(differences(msgspec.inspect.type_info(READ[plural]), schema(plural, version)))
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
    jsonschema.validate({key: item[key] for key in item if key != "metadata"}, closed(schema(plural, "v1beta2")))


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
    jsonschema.validate(status, closed(schema("workloads", "v1beta2")["properties"]["status"]))
