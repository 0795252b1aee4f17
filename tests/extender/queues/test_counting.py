"""Counts of queues, from queues of jobs, as pages and Prometheus read them."""

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from hived_extender.jobs.job import JobRef
from hived_extender.jobs.kinds import gangs
from hived_extender.kube.metrics import Metrics
from hived_extender.queues.controller import QueueCount, count, gauges
from hived_extender.queues.queued_jobs import QueuedJobs
from hived_extender.queues.table import Kept
from tests.extender.queues.small import SPEC
from tests.extender.queues.test_queued_jobs import HELD, UNIT

NOW_S = 1000.0


class Counted(QueuedJobs):
    """Jobs that wait in one queue, by name and time of creation; the turn of these has come."""

    def __init__(self, started_there: Collection[str] = (), **created_s: float) -> None:
        super().__init__(SPEC)
        self.started_there = started_there
        for name, moment in created_s.items():
            ref = JobRef("batch/v1", "Job", "team", name, f"uid-{name}")
            unit = replace(UNIT, key=ref.key, request={"nvidia.com/gpu": 8.0})
            self.job_seen(replace(HELD, ref=ref, created_s=moment), unit, Kept(), NOW_S)

    def entitled_since(self, key: str) -> float | None:
        return 500.0 if key.split("/")[2] in self.started_there else None

    def shares(self, names: Iterable[str] | None = None) -> dict[str, float]:
        return {"root/vc": -0.5}


def test_waiting_jobs_are_counted_and_the_oldest_is_known() -> None:
    assert count(Counted(one=300.0, two=200.0)) == {
        "root/vc": QueueCount("vc", waiting=2, waiting_pods=2, oldest_s=200.0)
    }


def test_the_age_of_a_job_does_not_begin_anew_with_another_term() -> None:
    assert count(Counted(one=300.0))["root/vc"].oldest_s == 300.0 != NOW_S


def test_a_job_that_was_called_back_waits_since_then() -> None:
    queues = Counted(one=300.0)
    entry = next(iter(queues.entries.values()))
    entry.kept = replace(entry.kept, since_s=700.0)
    assert count(queues)["root/vc"].oldest_s == 700.0


def test_a_job_with_cells_counts_what_it_uses_and_waits_no_more() -> None:
    queues = Counted(one=300.0, two=200.0)
    for key, is_borrowed in zip(list(queues.entries), (True, False), strict=True):
        queues.resume(key, NOW_S, is_borrowed=is_borrowed)
    found = count(queues)["root/vc"]
    assert (found.waiting, found.running, found.borrowed, found.oldest_s) == (0, 2, 1, None)
    assert found.used == {"nvidia.com/gpu": 16.0}


def test_pods_that_are_there_are_not_counted_as_those_that_a_job_will_have() -> None:
    queues = Counted(one=300.0)
    for entry in queues.entries.values():
        entry.job = replace(entry.job, ref=replace(entry.job.ref, kind=gangs.KIND))
    assert count(queues)["root/vc"].waiting_pods == 0


def test_a_job_whose_turn_has_come_has_borrowed_nothing() -> None:
    queues = Counted(["one"], one=300.0, two=200.0)
    for key in queues.entries:
        queues.resume(key, NOW_S, is_borrowed=True)
    assert count(queues)["root/vc"].borrowed == 1


def test_prometheus_gets_each_job_in_one_state() -> None:
    queues = Counted(one=300.0, two=200.0, three=400.0)
    queues.resume(next(iter(queues.entries)), NOW_S, is_borrowed=True)
    metrics = Metrics()
    metrics.observe_queues(lambda: gauges(count(queues), queues.shares(), NOW_S))
    lines = metrics.text().decode().splitlines()
    assert 'hived_queued_jobs{queue="root/vc",state="waiting"} 2.0' in lines
    assert 'hived_queued_jobs{queue="root/vc",state="running"} 0.0' in lines
    assert 'hived_queued_jobs{queue="root/vc",state="borrowed"} 1.0' in lines
    assert 'hived_queue_oldest_wait_seconds{queue="root/vc"} 800.0' in lines
    assert 'hived_queue_share{queue="root/vc"} -0.5' in lines
