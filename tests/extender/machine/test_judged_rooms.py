"""Random small clusters: whoever leaves helps, nobody leaves without need, and nobody waits where a set would help."""

import pytest

from tests.extender.machine.judged_rooms import JudgedRooms


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", [*range(24), 1806, 3002, 3290, 3598])
def test_who_leaves_is_one_of_the_sets_that_the_judge_finds(seed: int) -> None:
    rooms = JudgedRooms(seed)
    try:
        assert rooms.play() == ""
    finally:
        rooms.close()
