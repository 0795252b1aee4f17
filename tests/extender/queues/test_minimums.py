"""Units that may start with fewer pods than they have (rule 32.4)."""

from msgspec.structs import replace

from hived.values.specs import GroupSpec, MemberSpec, PodSpec
from hived_extender.jobs.job import Minimum, PodKind
from hived_extender.queues.units import Unit, largest, no_larger, pods_of, smallest
from tests.extender.queues.small import Desk, unit


def elastic(key: str, *sizes: int, least: int, vc: str = "A", priority: int = 0, at: float = 0.0) -> Unit:
    """A job of pods of these sizes, of which some have to start."""
    kinds: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        kinds.setdefault(size, []).append(place)
    members = tuple(MemberSpec(len(places), size) for size, places in sorted(kinds.items()))
    spec = PodSpec(vc, priority, max(sizes), GroupSpec(key, members))
    minimum = Minimum(
        least, tuple(PodKind(len(each), 0, size, tuple(each), {"gpu": size}) for size, each in kinds.items())
    )
    return Unit(key, vc, spec, at, request={"gpu": float(sum(sizes))}, minimum=minimum)


def test_the_largest_set_is_chosen_and_of_two_the_older_one() -> None:
    job = elastic("j", 2, 1, 1, least=2)
    found = largest(job, lambda one: one.leaf_count <= 2)
    assert found is not None
    assert (found.chosen, found.request, found.leaf_count) == ((0, 2), {"gpu": 2.0}, 2)
    older = largest(job, lambda one: one.leaf_count <= 3)
    assert older is not None
    assert pods_of(older, [1, 1, 1]) == [1, 1, 0]
    assert largest(job, lambda one: one.leaf_count <= 1) is None
    assert smallest(job).leaf_count == 2
    assert no_larger(job, 3) == older
    assert no_larger(job, 4) is job


def test_a_job_that_never_fits_whole_starts_with_the_pods_that_fit() -> None:
    desk = Desk()
    assert desk.come(elastic("j", 4, 2, 2, least=2)) == ["j"]
    found = desk.queues.running_unit("j")
    assert found is not None
    assert found.leaf_count == 4


def test_it_starts_whole_where_all_pods_fit() -> None:
    desk = Desk()
    assert desk.come(elastic("j", 2, 1, 1, least=2)) == ["j"]
    found = desk.queues.running_unit("j")
    assert found is not None
    assert not found.chosen


def test_it_starts_with_fewer_beside_another_job() -> None:
    desk = Desk()
    desk.come(unit("first", gpus=2))
    assert desk.come(elastic("j", 1, 1, 1, least=2, at=1)) == ["j"]
    found = desk.queues.running_unit("j")
    assert found is not None
    assert found.leaf_count == 2


def test_none_leaves_for_more_than_the_minimum() -> None:
    desk = Desk()
    desk.come(unit("low", gpus=2, priority=0))
    assert desk.come(elastic("j", 1, 1, 1, 1, least=2, priority=5, at=1)) == ["j"]
    assert desk.leaving == []


def test_it_waits_where_too_few_fit_and_is_whole_again() -> None:
    desk = Desk()
    desk.come(unit("first", gpus=3))
    assert desk.come(elastic("j", 1, 1, 1, least=2, at=1)) == []
    assert desk.end("first", 5) == ["j"]
    found = desk.queues.running_unit("j")
    assert found is not None
    assert found.leaf_count == 3


def test_it_borrows_with_fewer_pods() -> None:
    desk = Desk(borrows=True)
    assert desk.come(*(unit(f"f{n}", vc=vc, at=n) for n, vc in enumerate("ABC"))) == ["f0", "f1", "f2"]
    desk.come(unit("half", vc="C", gpus=2, at=4))
    assert desk.come(elastic("j", 1, 1, 1, least=2, at=5)) == ["j"]


def test_one_that_lost_its_cells_asks_for_all_pods_again() -> None:
    desk = Desk()
    desk.come(unit("first", gpus=2))
    job = elastic("j", 1, 1, 1, least=2, at=1)
    desk.come(job)
    desk.live.release("j")
    desk.queues.evicted("j", 2.0)
    desk.queues.changed(job)
    desk.end("first", 3)
    desk.turn()
    found = desk.queues.running_unit("j")
    assert found is not None
    assert found.leaf_count == 3
    assert replace(found, chosen=()) == job
