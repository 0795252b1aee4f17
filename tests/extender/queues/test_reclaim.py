"""The order in which borrowers leave (rules 31.4 to 31.6, 31.12)."""

from functools import partial
from random import Random

import pytest
from msgspec.structs import replace

from hived_extender.jobs.quotas.tree import Quota, QuotaTree
from hived_extender.queues.ledger import CELLS, Borrower, Exchanges, Shares, TreeLedger, for_borrower, for_entitled
from hived_extender.queues.policies import QueueRules, Rules
from hived_extender.queues.queues import Queues
from hived_extender.queues.table import Kept
from hived_extender.queues.units import Unit
from tests.extender.queues.small import SPEC, Desk, unit

GUARANTEED = {"A": 4.0, "B": 4.0, "C": 8.0}


def shares_of(running: list[Unit]) -> Shares:
    shares = Shares({CELLS: 16.0}, lambda queue: {CELLS: GUARANTEED[queue]}, lambda queue: 1.0)
    for each in running:
        shares.take(each)
    return shares


def keys(borrowers: list[Borrower]) -> list[str]:
    return [each.unit.key for each in borrowers]


def test_the_queue_most_over_its_share_gives_first_and_of_it_the_newest_start() -> None:
    running = [unit("a1"), unit("a2"), unit("a3"), unit("b1", "B")]
    borrowers = [Borrower(each, float(start)) for start, each in enumerate(running)]
    assert keys(for_entitled(borrowers, shares_of(running), 10.0)) == ["a3", "a2", "b1", "a1"]


def taken_by(
    winner: Unit, borrowers: list[Borrower], shares: Shares, exchanges: Exchanges, now: float
) -> list[Borrower]:
    by_queue = dict[str, list[Borrower]]()
    for each in borrowers:
        by_queue.setdefault(each.unit.queue, []).append(each)
    return for_borrower(winner, by_queue, shares, exchanges, now)


def test_a_job_that_is_due_but_runs_on_borrowed_cells_leaves_last() -> None:
    running = [unit("a1"), unit("b1", "B")]
    borrowers = [Borrower(running[0], 5.0, is_entitled=True), Borrower(running[1], 1.0)]
    assert keys(for_entitled(borrowers, shares_of(running), 10.0)) == ["b1", "a1"]


def test_of_equal_starts_the_one_that_loses_least_work_leaves_first() -> None:
    running = [unit("large", gpus=4), unit("small", gpus=1)]
    borrowers = [Borrower(each, 1.0) for each in running]
    assert keys(for_entitled(borrowers, shares_of(running), 10.0)) == ["small", "large"]


def test_a_borrower_takes_nothing_from_a_queue_that_would_fall_below_its_own() -> None:
    running = [unit("a1"), unit("a2")]
    borrowers = [Borrower(each, 1.0) for each in running]
    assert taken_by(unit("b2", "B"), borrowers, shares_of([*running, unit("b1", "B")]), Exchanges(), 9.0) == []
    assert keys(taken_by(unit("b1", "B"), borrowers, shares_of(running), Exchanges(), 9.0)) == ["a1"]


def test_the_example_of_the_rules_on_borrowing() -> None:
    """Two queues with 4 of 12 cells each: a gives 2 of its 4 borrowed cells back, and keeps the others (rules 31)."""
    shares = Shares({CELLS: 12.0}, lambda queue: {CELLS: 4.0}, lambda queue: 1.0)
    lent = [unit("a2", gpus=2), unit("a3", gpus=2)]
    for each in (unit("a1", gpus=4), unit("b1", "B", gpus=4), *lent):
        shares.take(each)
    assert (shares.share("A"), shares.share("B")) == (1 / 3, 0.0)
    borrowers, winner = [Borrower(each, 1.0) for each in lent], unit("b2", "B", gpus=2)
    assert keys(taken_by(winner, borrowers, shares, Exchanges(), 9.0)) == ["a2"]
    shares.give(lent[0])
    shares.take(winner)
    assert taken_by(unit("b3", "B", gpus=2), borrowers[1:], shares, Exchanges(), 9.0) == []


def test_of_its_own_queue_a_borrower_takes_the_cells_of_lower_priorities_lowest_and_newest_first() -> None:
    running = [unit("a1", priority=3), unit("a2", priority=-1), unit("a3"), unit("a4"), unit("due", priority=-1)]
    borrowers = [Borrower(each, float(at), each.key == "due") for at, each in enumerate(running)]
    winner, shares = unit("a5", priority=3), shares_of(running)
    assert keys(taken_by(winner, borrowers, shares, Exchanges(), 9.0)) == ["a2", "a4", "a3"]
    assert taken_by(unit("a6", priority=-1), borrowers, shares, Exchanges(), 9.0) == []


def test_a_borrower_never_evicts_one_that_has_evicted_it() -> None:
    running = [unit("a1"), unit("a2"), unit("a3")]
    borrowers, exchanges = [Borrower(running[2], 1.0)], Exchanges()
    exchanges.evicted(victim="b1", winner="a3")
    assert taken_by(unit("b1", "B"), borrowers, shares_of(running), exchanges, 9.0) == []
    assert exchanges.forget()
    assert not exchanges.forget()
    assert keys(taken_by(unit("b1", "B"), borrowers, shares_of(running), exchanges, 9.0)) == ["a3"]


def test_exchanges_alone_come_to_an_end_with_shares_within_one_job_of_each_other() -> None:
    for seed in range(50):
        random = Random(seed)
        jobs = [unit(f"j{i}", random.choice("AB")) for i in range(12)]
        running, exchanges = jobs[: random.randint(1, 12)], Exchanges()
        for _ in range(100):
            shares = shares_of(running)
            borrowers = [Borrower(each, 0.0) for each in running]
            moves = [
                (each, found[0].unit)
                for each in jobs
                if each not in running and (found := taken_by(each, borrowers, shares, exchanges, 1.0))
            ]
            if not moves:
                break
            winner, victim = moves[0]
            running[running.index(victim)] = winner
            exchanges.evicted(victim.key, winner.key)
        else:
            raise AssertionError(f"seed {seed}: exchanges go on and on")
        counts = [sum(each.queue == queue for each in running) for queue in "AB"]
        waiting = {each.queue for each in jobs if each not in running}
        if waiting == {"A", "B"}:
            assert abs(counts[0] - counts[1]) <= 1


def test_a_queue_of_a_tree_that_uses_no_more_than_its_min_has_no_share() -> None:
    leaves = {name: Quota(name, "root", min={"gpu": least}) for name, least in (("root/a", 8.0), ("root/b", 4.0))}
    tree = QuotaTree({"root": Quota("root", children=tuple(leaves)), **leaves})
    queues = Queues(SPEC)
    queues.told_rules(Rules(), partial(TreeLedger, tree))
    for key, queue in (("a1", "root/a"), ("a2", "root/a"), ("b1", "root/b"), ("b2", "root/b")):
        queues.arrived(replace(unit(key), queue=queue, request={"gpu": 4.0}))
        queues.started(key, 0.0, is_borrowed=False)
    assert queues.shares() == {"root/a": 0.0, "root/b": pytest.approx(4 / 12)}


def under_a_full_root(most_running: int | None = None) -> Desk:
    """Queue A has borrowed up to the max of the root, and B uses its min alone."""
    least = {"root/A": 4.0, "root/B": 4.0, "root/C": 8.0}
    most = {"gpu": 16.0}
    leaves = {name: Quota(name, "root", min={"gpu": amount}, max=most) for name, amount in least.items()}
    tree = QuotaTree({"root": Quota("root", min=most, max=most, children=tuple(leaves)), **leaves})
    desk = Desk()
    desk.queues.told_rules(
        Rules(default=QueueRules(borrows=None, most_running=most_running)), partial(TreeLedger, tree)
    )
    desk.come(*(of_tree(f"a{at}", "A", at, user=f"user-{at}") for at in range(4)))
    desk.come(of_tree("b0", "B", 9))
    desk.leave()
    return desk


def of_tree(key: str, vc: str, at: int, user: str = "") -> Unit:
    return replace(unit(key, vc, at=at, user=user), queue=f"root/{vc}", request={"gpu": 4.0})


def test_a_queue_takes_back_its_share_where_the_root_has_no_quota_left() -> None:
    desk = under_a_full_root()
    assert desk.come(of_tree("b1", "B", 10)) == []
    assert len(desk.leaving) == 1, "A has borrowed two nodes, B none"
    assert desk.leave() == ["b1"]
    assert desk.queues.shares()["root/A"] == desk.queues.shares()["root/B"]
    assert desk.turn() == []
    assert not desk.leaving


def test_nobody_leaves_for_a_borrower_whose_user_has_as_many_jobs_as_the_queue_allows() -> None:
    desk = under_a_full_root(most_running=1)
    desk.come(of_tree("b1", "B", 10))
    assert not desk.leaving


def test_a_queue_has_no_more_leave_at_once_than_its_share() -> None:
    desk = Desk()
    desk.come(*(unit(f"b{at}", "B", priority=-1, at=at) for at in range(4)))
    desk.come(*(unit(f"a{at}", "A", priority=-1, at=10 + at, limit_s=100.0 + at) for at in range(4)))
    assert len(desk.leaving) == 2, "each queue is promised one node of four, and so may borrow one more"
    assert desk.leave() == ["a0", "a1"]
    assert not desk.leaving


@pytest.mark.parametrize(("evicted_s", "leaves"), [(5.0, "b2"), (3.0, "b3")])
def test_two_jobs_do_not_take_turns_after_a_restart_either_unless_a_job_has_come_since(
    evicted_s: float, leaves: str
) -> None:
    desk = Desk()
    full = [unit(f"b{at}", "B", priority=-1, at=at) for at in range(4)]
    desk.come(*full)
    desk.queues = Queues(SPEC)
    for at, each in enumerate(full):
        desk.queues.arrived(each, Kept(is_borrowed=True), runs_since_s=float(at))
    desk.queues.arrived(unit("a", "A", priority=-1, at=4), Kept(since_s=evicted_s, evicted_for="b3"))
    desk.turn()
    assert desk.leaving == [leaves]
