"""Objects of queues that are known are kept small: a long queue has tens of thousands."""

import tracemalloc
from typing import cast

import msgspec

from hived_extender.jobs.job import JobRef
from hived_extender.kube.client import KubeClient
from hived_extender.queues.publishing import QUEUES, UNITS, Publisher
from hived_extender.queues.records import (
    PATH,
    Object,
    Phase,
    QueueRecord,
    UnitRecord,
    queue_object,
    queue_status,
    unit_object,
    unit_status,
)
from tests.extender.machine.small_cluster import FakeKube

COUNT, MOST_BYTES = 500, 2500
NOW = "2026-11-28T12:00:00Z"


def publisher() -> Publisher:
    return Publisher(cast(KubeClient, FakeKube()), lambda: 0.0)


def told(made: Object, status: Object) -> bytes:
    """An object as a watch tells it."""
    return msgspec.json.encode({**made, "metadata": {**made["metadata"], "uid": "u"}, "status": status})


def test_a_unit_that_is_known_takes_little_memory() -> None:
    texts: list[bytes] = []
    for number in range(COUNT):
        job = JobRef("batch/v1", "Job", "default", f"job-{number}", f"uid-{number:032}")
        record = UnitRecord(job, "research", 0, {"nvidia.com/gpu": "8"}, Phase.ENQUEUED)
        texts.append(told(unit_object(record), unit_status(record, {}, NOW)))
    found = publisher()
    tracemalloc.start()
    try:
        for text in texts:
            found.seen(UNITS, msgspec.json.decode(text))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used < COUNT * MOST_BYTES


def test_a_queue_that_is_known_is_told_with_the_words_of_its_users() -> None:
    record = QueueRecord("root/team", [("default", "job-1", 0)])
    item = msgspec.json.decode(told(queue_object(record), queue_status(record)))
    item["spec"] = {"queuePolicy": "Block"}
    found = publisher()
    found.listed(QUEUES, [item])
    (known,) = found.queue_items()
    assert (known.path, known.uid, known.spec) == ("root/team", "u", {"queuePolicy": "Block"})
    assert known.annotations[PATH] == "root/team"
