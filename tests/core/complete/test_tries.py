"""How much a decision may search."""

from hived.complete.assignment import MOST_IN_A_SEARCH, Tries


def test_a_search_ends_and_another_one_may_follow_until_all_tries_are_over() -> None:
    tries = Tries(MOST_IN_A_SEARCH + 10)
    for most in (MOST_IN_A_SEARCH, 10, 0):
        tries.pods.start()
        assert tries.pods.are_over() == (most == 0)
        tries.pods.count += most
    assert tries.gave_up
    assert tries.given_up_after == MOST_IN_A_SEARCH + 10


def test_a_part_of_a_decision_that_gives_up_is_told_with_its_own_number() -> None:
    tries = Tries(100)
    part = tries.fewer(7)
    assert tries.fewer(1000).most == 100
    assert not tries.gave_up
    part.domains.start()
    part.domains.count += 7
    assert part.domains.are_over()
    assert tries.gave_up
    assert tries.given_up_after == 7
