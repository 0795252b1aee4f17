"""The kinds of objects of queues that we ship: an API server with them keeps every field that is written."""

from collections.abc import Mapping
from typing import Any

import pytest

from hived_deploy.installation import kinds_of_queues
from hived_extender.jobs.job import JobRef
from hived_extender.queues import records

JOB = JobRef("batch/v1", "Job", "research", "train", "uid-1")
UNIT = records.UnitRecord(
    JOB, "root/research", 5, {"nvidia.com/gpu": "8"}, records.Phase.RESERVED, "cells are held", 1, 0, 2, "a/b", "high"
)
QUEUE = records.QueueRecord("root/research", (("research", "train", 5),))
TREE = {
    "name": "root",
    "min": {"cpu": 1},
    "children": [{"name": "leaf", "namespaces": ["a"], "attributes": {"b": "c"}}],
}
OBJECTS = {
    "Queue": {
        **records.queue_object(QUEUE),
        "spec": {"queuePolicy": "Block", "priority": 2},
        "status": records.queue_status(QUEUE),
    },
    "QueueUnit": {
        **records.unit_object(UNIT),
        "status": records.unit_status(UNIT, {}, "2026-01-01T00:00:00Z"),
    },
    "ElasticQuotaTree": {"spec": {"root": TREE}},
}


def kept(value: Any, schema: Mapping[str, Any]) -> Any:
    """The part of a value that an API server with this structural schema stores."""
    if isinstance(value, list):
        return [kept(each, schema["items"]) for each in value]
    if not isinstance(value, dict) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    return {
        key: kept(each, known.get(key, others)) for key, each in value.items() if key in known or others is not None
    }


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_kind_keeps_every_field_that_is_written(kind: str) -> None:
    (definition,) = [each for each in kinds_of_queues() if each.get("spec", {}).get("names", {}).get("kind") == kind]
    (version,) = definition["spec"]["versions"]
    written = {part: OBJECTS[kind][part] for part in ("spec", "status") if part in OBJECTS[kind]}
    assert kept(written, version["schema"]["openAPIV3Schema"]) == written
