"""Moves as text."""

import click

from hived_cli.defrag.helpers.following import tell
from hived_extender.api.defrag import AutomaticMoves, LastLook, MoveState, MovingReport


def test_a_stop_is_told_with_its_reason_and_each_group() -> None:
    moves = [MoveState(1, "ns:a", "done"), MoveState(2, "ns:b", "given up")]
    report = MovingReport(state="stopped", who="ann", vc="v", reason="ns:b has not left in 60 s", moves=moves)
    assert tell(report) == (
        "stopped: ns:b has not left in 60 s; 1 of 2 groups of v moved for ann\n"
        "  step 1: ns:a done\n"
        "  step 2: ns:b given up"
    )


def test_budgets_are_shown_with_the_last_look() -> None:
    look = LastLook(1_000_000_000.0, "over budget", "ns:big", "2.00 GPU-hours would be lost")
    limited = AutomaticMoves(vc="a", max_gpu_hours=4.0, left_gpu_hours=1.5, max_groups=6, left_groups=4, last_look=look)
    fresh = AutomaticMoves(vc="b", max_gpu_hours=1.0, left_gpu_hours=1.0)
    assert click.unstyle(tell(MovingReport(automatic=[limited, fresh]))) == (
        "Nobody has been moved since this replica began to lead.\n"
        "\n"
        "BY ITSELF   GPU-H LEFT THIS HOUR   GROUPS LEFT   LOOKED AT              JOB      OUTCOME\n"
        "a                      1.50 of 4        4 of 6   2001-09-09T01:46:40Z   ns:big   over budget\n"
        "b                      1.00 of 1             -   -                      -        -\n"
        "a: 2.00 GPU-hours would be lost"
    )
