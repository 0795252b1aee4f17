"""A trace in numbers."""

from hived_simulator.traces.describing import describe
from hived_simulator.traces.jobs import Job, Pods, Trace

TRACE = Trace(
    "t",
    (
        Job("a", "red", 0.0, 3600.0, (Pods(1, 1),), user="u", started_s=10.0),
        Job("b", "blue", 1800.0, 7200.0, (Pods(2, 8),), leaf_type="V100", priority=-1),
        Job("c", "red", 3600.0, 60.0, (Pods(1, 1),), user="v", started_s=3630.0),
    ),
    1508112000.0,
    ("left out, never ran: 3 (first: line 2)",),
)  # fmt: skip


def test_a_trace_in_numbers() -> None:
    found = describe(TRACE, "table", 100)
    assert (found.format, found.start, found.end) == ("table", "2017-10-16T00:00:00+00:00", "2017-10-16T01:00:00+00:00")
    assert (found.span_s, found.jobs, found.gangs, found.opportunistic) == (3600.0, 3, 1, 1)
    assert (found.gpu_hours, found.most_gpus_at_once) == (33.017, 17)
    assert found.load == round((3600 + 16 * 7200 + 60) / (3600 * 100), 4)
    assert found.leaf_types == {"V100": 1}
    assert [(row.tenant, row.jobs, row.users, row.gpu_hours, row.sizes) for row in found.tenants] == [
        ("blue", 1, 0, 32.0, {"16": 1}),
        ("red", 2, 2, 1.017, {"1": 2}),
    ]
    assert [(row.gpus, row.jobs) for row in found.sizes] == [(1, 2), (16, 1)]
    assert found.notes == TRACE.notes


def test_percentiles_are_values_of_jobs() -> None:
    jobs = tuple(Job(f"j{n:03d}", "", float(n), n + 1.0, (Pods(1, 1),)) for n in range(200))
    spread = describe(Trace("t", jobs)).durations
    assert spread.percentiles == {
        "5": 10.0, "25": 50.0, "50": 100.0, "75": 150.0, "90": 180.0, "95": 190.0, "99": 198.0, "100": 200.0,
    }  # fmt: skip
    assert spread.mean == 100.5


def test_waits_are_told_where_starts_are_known() -> None:
    waits = describe(TRACE).waits
    assert waits is not None
    assert (waits.mean, waits.percentiles["100"]) == (20.0, 30.0)
    assert describe(Trace("t", TRACE.jobs[1:2])).waits is None
