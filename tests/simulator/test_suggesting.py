"""Steps lead to better sizes, as good as the best ones of all divisions of small clusters."""

from itertools import product

from hived.specs import ClusterSpec
from hived_simulator.loop import Manner
from hived_simulator.suggesting import Goal, Sizes, Step, applied, resized
from hived_simulator.traces.jobs import Job
from tests.simulator.builders import NODE, cluster_of, job

PLACE = ("RACK", 1)
WAITING = [job(f"{number}", "b", 0, 100, (1, 4)) for number in range(4)]
IDLE = [job("x", "a", 0, 100, (1, 4))]


def sizes(spec: ClusterSpec, jobs: list[Job], most: int = 100) -> Sizes:
    return Sizes(spec, jobs, {each.tenant: each.tenant for each in jobs}, Manner(), most)


def test_cells_go_from_those_that_do_not_need_them() -> None:
    found = resized(sizes(cluster_of(2, a={NODE: 3}, b={NODE: 1}), [*IDLE, *WAITING]), Goal.DELAY)
    assert found.steps == (Step(2, PLACE, "a", "b"),)
    assert found.table == {"a": {PLACE: 1}, "b": {PLACE: 3}}
    assert found.is_complete


def test_cells_that_nobody_is_promised_go_first_and_nobody_is_worse_off() -> None:
    found = resized(sizes(cluster_of(2, a={NODE: 1}, b={NODE: 1}), [*IDLE, *WAITING]), Goal.FAIR)
    assert found.steps == (Step(2, PLACE, "", "b"),)


def test_a_fair_division_takes_nothing_that_is_missed() -> None:
    busy = [job(f"a{number}", "a", 0, 100, (1, 4)) for number in range(4)]
    found = resized(sizes(cluster_of(2, a={NODE: 2}, b={NODE: 2}), [*busy, *WAITING]), Goal.FAIR)
    assert found.steps == ()


def test_the_least_delay_is_that_of_all_divisions() -> None:
    jobs = [
        *(job(f"a{number}", "a", 20 * number, 90, (1, 4)) for number in range(5)),
        *(job(f"b{number}", "b", 30 * number, 50, (1, 4)) for number in range(4)),
        *(job(f"c{number}", "c", 10 * number, 40, (1, 2)) for number in range(6)),
    ]
    one = sizes(cluster_of(3, a={NODE: 1}, b={NODE: 1}, c={NODE: 4}), jobs)
    found = resized(one, Goal.DELAY)

    def total(counts: tuple[int, ...]) -> float:
        return sum(one.delay(vc, {PLACE: count}).total_s for vc, count in zip("abc", counts, strict=True))

    best = min(total(counts) for counts in product(range(1, 5), repeat=3) if sum(counts) == 6)
    assert sum(one.delay(vc, counts).total_s for vc, counts in found.table.items()) == best


def test_the_search_ends_where_its_budget_does() -> None:
    found = resized(sizes(cluster_of(2, a={NODE: 3}, b={NODE: 1}), [*IDLE, *WAITING], most=2), Goal.DELAY)
    assert (found.steps, found.is_complete) == ((), False)


def test_a_step_leaves_the_table_before_as_it_was() -> None:
    before = {"a": {PLACE: 3}, "b": {PLACE: 1}}
    assert applied(before, Step(1, PLACE, "a", "b")) == {"a": {PLACE: 2}, "b": {PLACE: 2}}
    assert before["a"] == {PLACE: 3}
