"""Rows of queues."""

from hived_extender.api.queues import QueuedJob, folded


def job(name: str, position: int, part_of: str = "", queue: str = "q") -> QueuedJob:
    return QueuedJob(
        name=name,
        namespace="ns",
        queue=queue,
        vc="a",
        user="",
        priority=0,
        position=position,
        state="Waiting",
        since=0.0,
        reason="",
        gpus=8,
        part_of=part_of,
    )


def test_parts_of_a_job_are_one_row_at_the_place_of_the_first() -> None:
    rows = folded(
        [job("Pod/ns/s-0", 1, "StatefulSet/ns/s"), job("Job/ns/x", 2), job("Pod/ns/s-1", 3, "StatefulSet/ns/s")]
    )
    assert [(row.name, row.position, row.gpus) for row in rows] == [("StatefulSet/ns/s", 1, 16), ("Job/ns/x", 2, 8)]


def test_jobs_whose_names_are_masked_stay_rows_of_their_own() -> None:
    rows = folded([job("(another tenant's)", 1), job("Job/ns/x", 2), job("(another tenant's)", 3)])
    assert [row.position for row in rows] == [1, 2, 3]


def test_parts_in_two_queues_are_two_rows() -> None:
    parts = [job(f"Pod/ns/s-{number}", 1, "StatefulSet/ns/s", queue) for number, queue in enumerate("qr")]
    assert [(row.queue, row.gpus) for row in folded(parts)] == [("q", 8), ("r", 8)]
