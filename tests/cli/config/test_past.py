"""A recorded past is told in a few lines, most telling first."""

import click

from hived_cli.config.plan import draw_past
from hived_extender.api.past import DecisionCount, MovedStart, OtherDecision, RecordedPast

WAITED = "insufficient capacity when scheduling in VC b"
PAST = RecordedPast(
    "run", "hived", 2, 12_345, 3_210,
    [DecisionCount("preempt", "bind", 2), DecisionCount("wait", "bind", 1_000)],
    [OtherDecision("run-0001.jsonl:7", "uid-two", "ns/two", "b", "wait", "bind", WAITED, "n3")],
    [MovedStart("ns/two", "b", "run-0001.jsonl:90", "run-0001.jsonl:7")],
    [MovedStart(f"ns/late-{i}", "b", "run-0001.jsonl:8", "") for i in range(12)],
    ["ns/victim"], ["ns/spared"], 3,
)  # fmt: skip


def test_differences_are_counted_and_named() -> None:
    assert click.unstyle(draw_past(PAST)).splitlines() == [
        "Recorded past with rules 2, instead of hived",
        "  run run: 12,345 operations, 3,210 decisions compared",
        "  jobs that would not have had to leave: 1 (ns/spared)",
        "  jobs that would have had to leave, and did not: 1 (ns/victim)",
        "  jobs that would have started earlier: 1 (ns/two run-0001.jsonl:90 -> run-0001.jsonl:7)",
        "  jobs that would have started later, or not before they ended: 12 ("
        + ", ".join(f"ns/late-{i} run-0001.jsonl:8 -> never" for i in range(8))
        + " and 4 more)",
        "  decisions that differ: 1,002",
        "    preempt -> bind: 2",
        "    wait -> bind: 1,000",
        "  the first of them, by pod, other places last:",
        f"    run-0001.jsonl:7 ns/two (b, pod uid-two): wait {WAITED} -> bind n3",
        "  lines of the record that could not be followed: 3",
    ]


def test_all_of_them_are_named_if_asked_for() -> None:
    assert "ns/late-11 run-0001.jsonl:8 -> never)" in draw_past(PAST, full=True)


def test_a_run_that_nobody_has_asked_is_not_called_equal() -> None:
    lines = draw_past(RecordedPast("run", "hived", 2, 65, 0)).splitlines()
    assert lines[2:] == ["  no pod has asked for a place in this run: there is nothing to compare"]


def test_starts_that_move_most_are_named_first() -> None:
    def moved(name: str, old: str, new: str) -> MovedStart:
        return MovedStart(
            name, "b", old and "r:9", new and "r:7", old and f"2026-01-01T{old}Z", new and f"2026-01-01T{new}Z"
        )

    earlier = [
        moved("same", "10:00:00", "10:00:00"),
        moved("little", "10:00:05", "10:00:00"),
        moved("much", "12:00:00", "10:00:00"),
        moved("never", "", "10:00:00"),
    ]
    lines = draw_past(RecordedPast("run", "hived", 2, 9, 9, earlier=earlier)).splitlines()
    assert lines[2] == (
        "  jobs that would have started earlier: 4 (never never -> 2026-01-01T10:00:00Z, "
        "much by 2.0 h: 2026-01-01T12:00:00Z -> 2026-01-01T10:00:00Z, "
        "little by 5 s: 2026-01-01T10:00:05Z -> 2026-01-01T10:00:00Z, same within the second of 2026-01-01T10:00:00Z)"
    )
