"""CronJobs between their runs are rows, which say when the next run is."""

import json
from datetime import datetime
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.api.waiting import Job, When
from hived_extender.kube.client import KubeClient
from hived_jobs.schedules import cron_jobs, read_schedule
from tests.stub_server import Request, StubServer

NOW = "2026-11-30T12:00:00+00:00"
GPU = {"limits": {"nvidia.com/gpu": 1}}


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("0 2 * * *", "2026-12-01T02:00"),
        ("*/15 * * * *", "2026-11-30T12:15"),
        ("0 12 * * *", "2026-12-01T12:00"),
        ("30 6 * * mon-fri", "2026-12-01T06:30"),
        ("0 0 * * 7", "2026-12-06T00:00"),
        ("0 0 1 JAN ?", "2027-01-01T00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 13 * 5", "2026-12-04T00:00"),  # either day will do
        ("@weekly", "2026-12-06T00:00"),
        ("0 0 30 2 *", None),
    ],
)
def test_the_next_run_is_that_of_the_schedule(schedule: str, expected: str | None) -> None:
    found = read_schedule(schedule).next_after(datetime.fromisoformat(NOW))
    assert (None if found is None else f"{found:%Y-%m-%dT%H:%M}") == expected


@pytest.mark.parametrize("schedule", ["", "@every 1h", "x * * * *", "61 * * * *"])
def test_a_schedule_that_cannot_be_read_is_refused(schedule: str) -> None:
    with pytest.raises(UserError, match="schedule"):
        read_schedule(schedule)


def row_of(
    monkeypatch: pytest.MonkeyPatch,
    resources: dict[str, Any] = GPU,
    status: dict[str, Any] | None = None,
    template: dict[str, Any] | None = None,
    **spec: Any,
) -> Job | None:
    """The row of a CronJob at noon."""
    monkeypatch.setattr("hived_jobs.schedules.wall_s", lambda: datetime.fromisoformat(NOW).timestamp())
    containers = {"containers": [{"name": "m", "resources": resources}]}
    job = {"parallelism": 2, "template": {"metadata": template or {}, "spec": containers}}
    metadata = {"name": "nightly", "namespace": "ns", "creationTimestamp": "2026-11-01T00:00:00Z"}
    whole = {"schedule": "0 2 * * *", "jobTemplate": {"spec": job}, **spec}
    body = json.dumps({"items": [{"metadata": metadata, "spec": whole, "status": status or {}}], "metadata": {}})

    def answer(request: Request) -> tuple[int, bytes]:
        return 200, body.encode()

    with StubServer(answer) as server:
        return next(iter(cron_jobs(KubeClient.connect(server.url))), None)


def test_a_cron_job_is_held_until_its_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    annotations = {"hivedscheduler.microsoft.com/virtual-cluster": "research"}
    row = row_of(monkeypatch, template={"annotations": annotations, "labels": {"userName": "ann"}})
    assert row is not None
    assert (row.name, row.state, row.vc, row.user, row.counts.wanted) == (
        "CronJob/ns/nightly",
        "Held",
        "research",
        "ann",
        2,
    )
    assert row.sentence == "its next run is at 2026-12-01T02:00:00Z, by its schedule '0 2 * * *'; it has not run yet"
    assert row.when == When(kind="unknown", because="not before 2026-12-01T02:00:00Z", earliest="2026-12-01T02:00:00Z")


@pytest.mark.parametrize(
    ("spec", "sentence", "kind"),
    [
        ({"suspend": True}, "it is suspended: hived release nightly -n ns lets it run again", "unknown"),
        ({"schedule": "0 0 30 2 *"}, "it never runs by its schedule '0 0 30 2 *'", "never"),
        ({"schedule": "@every 1h"}, "it runs by its schedule '@every 1h', which hived cannot read", "unknown"),
        (
            {"timeZone": "Asia/Tokyo"},
            "its next run is at 2026-11-30T17:00:00Z, by its schedule '0 2 * * *' in Asia/Tokyo",
            "unknown",
        ),
        (
            {"timeZone": "Nowhere/Else"},
            "it runs by its schedule '0 2 * * *' in Nowhere/Else, which hived cannot read",
            "unknown",
        ),
    ],
)
def test_a_cron_job_says_why_it_does_not_run(
    monkeypatch: pytest.MonkeyPatch, spec: dict[str, Any], sentence: str, kind: str
) -> None:
    row = row_of(monkeypatch, status={"lastScheduleTime": "2026-11-30T02:00:00Z"}, **spec)
    assert row is not None
    assert row.when is not None
    assert (row.sentence, row.when.kind, row.since) == (sentence, kind, "2026-11-30T02:00:00Z")


def test_a_cron_job_with_a_run_or_without_devices_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    assert row_of(monkeypatch, status={"active": [{"name": "nightly-1"}]}) is None
    assert row_of(monkeypatch, resources={"limits": {"cpu": 1}}) is None
