"""A job that gives borrowed cells back again and again rests longer each time (rule 31.8)."""

import pytest

from hived_extender.kube.clocks import timestamp
from hived_extender.queues.reasons import told
from hived_extender.queues.table import FIRST_S, Kept, Returned
from tests.extender.machine.small_jobs import job
from tests.extender.queues.by_hand import QueuesByHand
from tests.extender.queues.small import Desk, unit
from tests.extender.queues.test_announcing import Case, ref


def evicted(desk: Desk, number: int) -> None:
    """The owner of the cells that `over` borrows comes, and goes a minute later."""
    desk.come(unit(f"b{number}", "B", at=desk.now))
    assert desk.leaving == ["over"]
    assert desk.leave() == [f"b{number}"]
    desk.now += 60
    assert "over" not in desk.turn()


def desk_of_a_borrower() -> Desk:
    """A and C use all that they have; a second job of A borrows what B has."""
    desk = Desk(borrows=True)
    assert sorted(desk.come(unit("a"), unit("c", "C", pods=2), unit("over"))) == ["a", "c", "over"]
    return desk


def test_a_job_borrows_again_at_once_then_after_rests_that_grow() -> None:
    desk = desk_of_a_borrower()
    evicted(desk, 0)
    assert desk.end("b0", desk.now) == ["over"]
    rest_s = FIRST_S
    for number in (1, 2, 3):
        evicted(desk, number)
        came_back_s = desk.now - 60
        assert desk.end(f"b{number}", desk.now) == []
        assert desk.queues.next_own_end_s() == came_back_s + rest_s
        desk.now = came_back_s + rest_s - 1
        assert desk.turn() == []
        desk.now += 1
        assert desk.turn() == ["over"]
        rest_s *= Returned.FACTOR


def test_a_job_that_rests_starts_when_its_own_turn_comes() -> None:
    desk = desk_of_a_borrower()
    evicted(desk, 0)
    desk.end("b0", desk.now)
    evicted(desk, 1)
    assert desk.end("a", desk.now) == ["over"]


def test_others_borrow_while_one_like_it_rests() -> None:
    desk = desk_of_a_borrower()
    evicted(desk, 0)
    desk.end("b0", desk.now)
    evicted(desk, 1)
    desk.end("b1", desk.now)
    assert desk.come(unit("like", at=desk.now)) == ["like"]


def test_a_job_that_rests_is_told_how_often_it_gave_cells_back_and_until_when() -> None:
    desk = desk_of_a_borrower()
    evicted(desk, 0)
    desk.end("b0", desk.now)
    evicted(desk, 1)
    desk.end("b1", desk.now)
    text = told(desk.queues.why("over"), str).sentence
    assert "it gave borrowed cells back 2 times, and borrows again at 1970-01-01T00:16:00Z" in text


def test_later_queues_go_on_with_a_rest() -> None:
    desk = desk_of_a_borrower()
    desk.queues.removed("over")
    desk.live.release("over")
    desk.queues.arrived(unit("over"), Kept(returned=Returned(2, 900.0, FIRST_S)))
    assert desk.turn() == []
    desk.now = 900.0
    assert desk.turn() == ["over"]


def test_a_rest_is_over_if_the_clock_was_set_back_meanwhile() -> None:
    assert Returned(2, 100_000.0, FIRST_S).goes_on(100_000.0 - FIRST_S)
    assert not Returned(2, 100_000.0, FIRST_S).goes_on(100_000.0 - FIRST_S - 1)


def test_no_rest_is_longer_than_the_longest() -> None:
    assert Returned(10_000).after(0.0, FIRST_S).until_s == Returned.LONGEST_S


def test_a_job_that_loses_its_cells_to_nobody_does_not_rest() -> None:
    desk = desk_of_a_borrower()
    for _ in range(3):
        desk.live.release("over")
        desk.queues.evicted("over", desk.now)
        assert desk.turn() == ["over"]


def evicted_by_hand(queues: QueuesByHand, owner: str) -> None:
    """Job `lent` runs on all nodes; an owner comes, runs for a minute and ends."""
    queues.bring_pods("lent")
    queues.look()
    queues.create(owner, 1)
    for _ in range(3):
        queues.look()
    assert queues.let_go() == [owner]
    queues.bring_pods(owner)
    queues.now += 60
    queues.look()
    queues.delete_pods(owner)
    queues.delete(owner)
    for _ in range(3):
        queues.look()


def by_hand() -> QueuesByHand:
    """An opportunistic job on all nodes has given its cells back twice."""
    queues = QueuesByHand()
    queues.create("lent", 4, priority=-1)
    queues.look()
    evicted_by_hand(queues, "first")
    assert queues.let_go() == ["lent"]
    evicted_by_hand(queues, "second")
    return queues


def returned(queues: QueuesByHand) -> Returned:
    return queues.turns.queues.entries[job("lent").key].kept.returned


def test_the_owner_of_a_job_that_rests_is_told_until_when() -> None:
    queues = by_hand()
    assert queues.let_go() == []
    entry = queues.turns.queues.entries[job("lent").key]
    until = timestamp(returned(queues).until_s)
    assert entry.kept.rest_notice(queues.now) == f"it borrows no cells before {until}"
    text = told(queues.turns.queues.why(entry.key), str).sentence
    rests = f"it gave borrowed cells back 2 times, and borrows again at {until}"
    assert text == f"can only borrow idle cells, but cannot now: {rests}"
    assert not queues.turns.queues.may_borrow(entry.key)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_rest_goes_on_in_another_term_and_is_counted_once(restarts: bool) -> None:
    queues = by_hand()
    before = returned(queues)
    if restarts:
        queues.restart()
    else:
        queues.begin_anew()
    queues.look()
    assert returned(queues) == before
    queues.now = before.until_s - 5
    queues.look()
    assert queues.let_go() == []
    queues.now += 5
    queues.look()
    assert queues.let_go() == ["lent"]


def test_a_leader_that_ends_while_a_job_leaves_has_counted_it() -> None:
    queues = by_hand()
    queues.now = returned(queues).until_s
    queues.look()
    queues.bring_pods("lent")
    queues.deaf.append("lent")
    queues.create("third", 1)
    for _ in range(3):
        queues.look()
    before = returned(queues)
    assert before.count == 3
    queues.restart()
    queues.look()
    assert returned(queues) == before


def test_events_say_until_when_a_job_rests() -> None:
    case = Case()
    case.events.evicted(ref(), "root/a", "", 0.0, Returned(1).after(0.0, FIRST_S).notice)
    case.write()
    ((_, text),) = case.api.told()
    assert text.endswith("; it waits again in queue root/a, and it borrows no cells before 1970-01-01T00:15:00Z")
