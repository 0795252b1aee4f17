"""Plans as text: gaps and work that waits are said."""

import click

from hived_cli.defrag.helpers.drawing import draw
from hived_extender.api.defrag import DefragPlan, Move, PlannedPod, WantedOutcome

PLAN = DefragPlan(
    outcome="plan",
    vc="a",
    solver="search",
    wanted=[
        WantedOutcome(shape="1xNODE", is_met=True, places=[PlannedPod("n0", (0, 1, 2, 3))], preempts=["lent"]),
        WantedOutcome(shape="1xNODE", is_met=False),
    ],
    moves=[
        Move(
            step=1, group="guest", vc="b", priority=-1, is_guaranteed=False, was=[PlannedPod("n1", (0, 2, 3))],
            becomes=[], lost_gpu_hours=1.5,
        )
    ],
    gap_gpu_hours=1.0,
    gap_wanted=1,
)  # fmt: skip


def test_a_gap_is_said_in_words() -> None:
    assert draw(PLAN).splitlines()[-1] == (
        "The plan may not be optimal (search): a better one could meet 1 more or lose 1.00 GPU-hours less at most."
    )


def test_an_opportunistic_group_without_a_place_waits() -> None:
    assert "guest   opportunistic   n1:0,2-3   waits         1.50" in click.unstyle(draw(PLAN))


def test_what_gets_no_room_is_shown() -> None:
    assert "1xNODE   no room" in click.unstyle(draw(PLAN))
