"""Moves as text."""

from hived_cli.defrag.helpers.following import tell
from hived_extender.api.defrag import MoveState, MovingReport


def test_a_stop_is_told_with_its_reason_and_each_group() -> None:
    moves = [MoveState(1, "ns:a", "done"), MoveState(2, "ns:b", "given up")]
    report = MovingReport(state="stopped", who="ann", vc="v", reason="ns:b has not left in 60 s", moves=moves)
    assert tell(report) == (
        "stopped: ns:b has not left in 60 s; 1 of 2 groups of v moved for ann\n"
        "  step 1: ns:a done\n"
        "  step 2: ns:b given up"
    )
