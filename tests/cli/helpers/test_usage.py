"""Sums of GPU-hours over jobs: by owner, within a time, and what of it was lost."""

from datetime import UTC, datetime

from hived_cli.helpers.usage import NOBODY, usage_of
from hived_extender.api.waiting import MASKED, Ended, EndState, Job, Preempted, Used

NOW = datetime(2026, 1, 8, tzinfo=UTC)
DAY_S = 86_400.0


def ended(
    name: str, hours: float, state: EndState = "Completed", at: str = "2026-01-07T12:00:00Z", user: str = ""
) -> Job:
    end = Ended(at=at, gpus=4 if hours else 0, gpu_hours=hours)
    return Job(name=name, state=state, vc="lang", user=user, ended=end)


def running(name: str, hours: float, gpus: int = 2, user: str = "") -> Job:
    return Job(name=name, state="Running", vc="vision", user=user, used=Used(gpus=gpus, gpu_hours=hours, queue="q"))


def rows(jobs: list[Job], by: str = "vc", since_s: float = DAY_S) -> list[tuple[str, float, float, float, int, int]]:
    return [
        (one.name, one.gpu_hours, one.share, one.lost_gpu_hours, one.jobs, one.gpus)
        for one in usage_of(jobs, by, NOW, since_s)
    ]


def test_the_hours_of_jobs_are_put_together_by_owner_the_largest_first() -> None:
    jobs = [ended("a", 1.0), ended("b", 2.0, "Failed"), running("c", 9.0), ended("never ran", 0.0)]
    assert rows(jobs) == [("vision", 9.0, 75.0, 0.0, 1, 2), ("lang", 3.0, 25.0, 2.0, 2, 0)]
    assert rows(jobs, "queue") == [("q", 9.0, 75.0, 0.0, 1, 2), (NOBODY, 3.0, 25.0, 2.0, 2, 0)]


def test_a_job_that_began_before_the_time_counts_in_part() -> None:
    assert rows([ended("long", 1000.0)]) == [("lang", 48.0, 100.0, 0.0, 1, 0)]  # 4 GPUs until noon
    assert rows([running("long", 1000.0)]) == [("vision", 48.0, 100.0, 0.0, 1, 2)]
    assert rows([running("long", 1000.0)], since_s=7 * DAY_S)[0][1] == 336.0


def test_jobs_that_failed_or_were_preempted_have_lost_their_hours() -> None:
    again = Job(
        name="d", state="Waiting", vc="lang", used=Used(gpu_hours=8.0), preempted=Preempted(at="2026-01-07T00:00:00Z")
    )
    states: tuple[EndState, ...] = ("Failed", "Preempted", "Evicted", "Completed", "Deleted", "Unknown")
    jobs = [ended(state, 2.0**place, state) for place, state in enumerate(states)]
    assert rows(jobs) == [("lang", 63.0, 100.0, 7.0, 6, 0)]
    assert rows([again]) == [("lang", 8.0, 100.0, 8.0, 1, 0)]


def test_jobs_that_the_caller_may_not_see_count_for_their_virtual_cluster_and_are_one_row_else() -> None:
    jobs = [ended(MASKED, 1.0), running(MASKED, 2.0), ended("a", 1.0, user="ann"), ended("b", 4.0)]
    assert [each[:2] for each in rows(jobs, "user")] == [(NOBODY, 4.0), (MASKED, 3.0), ("ann", 1.0)]
    assert [each[:2] for each in rows(jobs)] == [("lang", 6.0), ("vision", 2.0)]
