"""Parts of a trace."""

import pytest

from hived.errors import UserError
from hived_simulator.traces.changing import between, first_part, of_tenants, some
from hived_simulator.traces.jobs import Job, Pods, Trace

TRACE = Trace(
    "t",
    tuple(
        Job(f"j{n:03d}", "red" if n % 3 else "blue", n * 10.0, 5.0, (Pods(1, 1),), started_s=n * 10.0 + 1)
        for n in range(100)
    ),
    1508112000.0,
    ("made",),
)  # fmt: skip


def test_jobs_of_a_time_begin_with_the_first_of_them() -> None:
    part = between(TRACE, 95.0, 130.0)
    assert [job.name for job in part.jobs] == ["j010", "j011", "j012"]
    assert (part.start, part.jobs[0].submitted_s, part.jobs[0].started_s) == (1508112100.0, 0.0, 1.0)
    assert part.notes == (
        "made",
        "sample: of 100 jobs those submitted from 2017-10-16 00:01:35+00:00 to 2017-10-16 00:02:10+00:00",
    )


def test_a_span_is_counted_from_the_first_job() -> None:
    assert len(first_part(between(TRACE, 95.0, None), 20.0).jobs) == 2


def test_jobs_of_some_tenants() -> None:
    assert {job.tenant for job in of_tenants(TRACE, ["blue"]).jobs} == {"blue"}
    with pytest.raises(UserError, match="no job is of tenant 'green'; there are 'blue', 'red'"):
        of_tenants(TRACE, ["blue", "green"])


def test_the_same_seed_takes_the_same_jobs() -> None:
    names = [job.name for job in some(TRACE, 5, 1).jobs]
    assert names == [job.name for job in some(TRACE, 5, 1).jobs] == ["j009", "j013", "j020", "j035", "j091"]
    assert names != [job.name for job in some(TRACE, 5, 2).jobs]
    assert len(some(TRACE, 100).jobs) == 100
    with pytest.raises(UserError, match="has 100 jobs, 101 are wanted"):
        some(TRACE, 101)


def test_a_part_without_jobs_is_an_error() -> None:
    with pytest.raises(UserError, match="no job is left"):
        between(TRACE, 5000.0, None)
