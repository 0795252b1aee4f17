"""CronJobs of the embedded cluster: when they run, and which of their Jobs stay."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from hived_lab.embedded import cron_jobs
from hived_lab.embedded.apiserver.store import Key
from hived_lab.embedded.batch_jobs import Step

TEMPLATE = {"metadata": {"labels": {"team": "x"}}, "spec": {"parallelism": 1}}
DONE = {"conditions": [{"type": "Complete", "status": "True"}]}


def revision(name: str, body: dict[str, Any]) -> Any:
    """An object as its controller has it."""
    metadata = SimpleNamespace(uid=f"uid-{name}", creation_timestamp=name)
    body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, **body}
    return SimpleNamespace(body=body, key=Key("default", name), view=SimpleNamespace(metadata=metadata))


def step_at(moment: str, *jobs: Any, **spec: Any) -> Step:
    """The step of a CronJob that was looked at half a minute before."""
    now_s = datetime.fromisoformat(moment).replace(tzinfo=UTC).timestamp()
    cron = revision("cron", {"spec": {"schedule": "* * * * *", "jobTemplate": TEMPLATE, **spec}})
    return cron_jobs.next_step(cron, jobs, now_s - 30.0, now_s=now_s, loop_s=0.0)


@pytest.mark.parametrize(
    ("schedule", "moment", "is_due"),
    [
        ("* * * * *", "2026-11-30T12:00:05", True),
        ("* * * * *", "2026-11-30T12:00:45", False),  # it was looked at since this minute began
        ("*/15 * * * *", "2026-11-30T12:45:00", True),
        ("*/15 * * * *", "2026-11-30T12:46:00", False),
        ("5,10-12 * * * *", "2026-11-30T12:11:00", True),
        ("5,10-12 * * * *", "2026-11-30T12:13:00", False),
        ("10/20 * * * *", "2026-11-30T12:30:00", True),
        ("@hourly", "2026-11-30T13:00:00", True),
        ("@daily", "2026-11-30T13:00:00", False),
        ("0 0 * * 1", "2026-11-30T00:00:00", True),
        ("0 0 * * 7", "2026-11-29T00:00:00", True),
        ("0 0 * * 0", "2026-11-30T00:00:00", False),
        ("0 0 1 * 1", "2026-11-30T00:00:00", True),  # either day will do
        ("0 0 1 * *", "2026-11-30T00:00:00", False),
        ("0 0 30 11 *", "2026-11-30T00:00:00", True),
    ],
)
def test_a_job_is_made_when_its_time_comes(schedule: str, moment: str, is_due: bool) -> None:
    made = step_at(moment, schedule=schedule).made
    assert [(each["metadata"]["labels"], each["spec"]) for each in made] == (
        [(TEMPLATE["metadata"]["labels"], TEMPLATE["spec"])] if is_due else []
    )


@pytest.mark.parametrize("schedule", ["", "* * * *", "60 * * * *", "x * * * *", "5-1 * * * *", "*/0 * * * *"])
def test_a_schedule_that_cannot_be_read_runs_nothing(schedule: str) -> None:
    assert step_at("2026-11-30T12:00:00", schedule=schedule).made == []


def test_it_looks_again_at_the_next_minute() -> None:
    assert step_at("2026-11-30T12:00:20").again_s == 40.0


def test_one_that_is_suspended_makes_none() -> None:
    assert step_at("2026-11-30T12:00:00", suspend=True).made == []


@pytest.mark.parametrize(("policy", "made", "deleted"), [("Allow", 1, []), ("Forbid", 0, []), ("Replace", 1, ["old"])])
def test_a_job_that_still_runs_counts_by_the_policy(policy: str, made: int, deleted: list[str]) -> None:
    step = step_at("2026-11-30T12:00:00", revision("old", {}), concurrencyPolicy=policy)
    assert (len(step.made), [each["metadata"]["name"] for each in step.deleted]) == (made, deleted)
    assert [each["name"] for each in step.status["active"]] == ["old"]


def test_so_many_that_have_ended_stay() -> None:
    jobs = [revision(name, {"status": DONE}) for name in ("b", "a", "d", "c")]
    step = step_at("2026-11-30T12:00:45", *jobs, successfulJobsHistoryLimit=2)
    assert [each["metadata"]["name"] for each in step.deleted] == ["a", "b"]
