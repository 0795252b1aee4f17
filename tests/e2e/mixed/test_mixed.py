"""A minute and a half of everything at once; `make e2e-mixed` goes on for twenty minutes."""

from pathlib import Path

from tests.e2e.mixed.run import run
from tests.e2e.plane import ControlPlane

SEED = 2
"""The leader is killed, and then the controller manager."""
LASTS_S = 90.0
BREAK_GAP_S = 12.0
BREAK_COUNT = 2


def test_nothing_is_where_it_may_not_be_and_nothing_waits_in_vain(plane: ControlPlane, tmp_path: Path) -> None:
    outcome = run(plane, tmp_path, SEED, LASTS_S, BREAK_GAP_S, BREAK_COUNT)
    print(outcome.counts, outcome.broken)
    assert outcome.mistakes() == []
    seen = {"bound in gangs", "bound apart", "bound with volumes", "bound of others", "taints", "devices lost"}
    assert seen <= outcome.counts.keys()
    assert len(outcome.broken) == BREAK_COUNT
