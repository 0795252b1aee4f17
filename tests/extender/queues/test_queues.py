"""Queues by sentence, on a real core (rules 29, 30 and 31)."""

from functools import partial

import pytest
from msgspec.structs import replace

from hived.life.groups import nodes_of_slots
from hived.values.decisions import Bind, Wait
from hived.values.errors import UserError
from hived_extender.jobs.quotas.tree import Quota, QuotaTree
from hived_extender.queues.explaining import Known
from hived_extender.queues.ledger import TreeLedger
from hived_extender.queues.own_schedule import Certainty, Learned
from hived_extender.queues.own_turn import SLACK_S
from hived_extender.queues.policies import Policy, QueueRules, Rules
from hived_extender.queues.queues import Queues
from hived_extender.queues.reasons import (
    QUOTA_KEPT,
    Held,
    Impossible,
    MakingRoom,
    NeverFits,
    NotItsTurn,
    NotPromised,
    OverQuota,
    OverUserLimit,
    Running,
    told,
)
from hived_extender.queues.room import Ask, Pending
from hived_extender.queues.table import Kept, Table
from hived_extender.queues.units import Start, Unit
from tests.extender.queues.live import Live
from tests.extender.queues.small import SPEC, Desk, unit


def test_a_job_starts_at_once_where_its_virtual_cluster_has_room() -> None:
    assert Desk().come(unit("a")) == ["a"]


def test_a_second_job_waits_until_the_first_has_ended() -> None:
    desk = Desk()
    assert desk.come(unit("a"), unit("b", at=1)) == ["a"]
    assert desk.queues.position("b") == 1
    assert desk.end("a", 5.0) == ["b"]


def test_nobody_is_called_back_for_a_job_that_preempts_nobody() -> None:
    desk = Desk()
    assert desk.come(unit("low")) == ["low"]
    assert desk.come(unit("never", priority=5, at=1, preempts=False), unit("later", at=2)) == []
    assert desk.leaving == []
    assert desk.queues.position("never") == 1
    assert desk.end("low", 5.0) == ["never"]


def test_a_job_before_it_that_preempts_is_not_kept_from_it() -> None:
    desk = Desk()
    desk.come(unit("low"))
    desk.come(unit("never", priority=5, at=1, preempts=False))
    desk.come(unit("high", priority=9, at=2))
    assert desk.leaving == ["low"]
    assert desk.leave() == ["high"]


def test_a_job_that_preempts_nobody_takes_its_own_cells_back() -> None:
    desk = Desk(borrows=True)
    desk.come(*(unit(f"lent-{number}", "B", at=number) for number in range(4)))
    desk.come(unit("never", at=5, preempts=False))
    assert len(desk.leaving) == 1
    assert desk.leave() == ["never"]


def test_higher_priority_goes_first_and_equals_by_creation() -> None:
    desk = Desk()
    desk.come(unit("first", priority=5))
    desk.come(unit("late", at=3), unit("early", at=2), unit("high", at=4, priority=1))
    assert desk.queues.order("A") == ["high", "early", "late"]
    assert desk.queues.position("late") == 3


def test_a_job_of_higher_priority_takes_the_place_of_another_in_its_virtual_cluster() -> None:
    desk = Desk()
    desk.come(unit("low"))
    assert desk.come(unit("high", at=1, priority=1)) == []
    assert desk.leaving == ["low"]
    assert desk.leave() == ["high"]
    assert desk.queues.order("A") == ["low"]


def test_a_small_job_does_not_go_past_a_gang_that_has_just_lost_its_place() -> None:
    desk = Desk()
    assert desk.come(unit("gang")) == ["gang"]
    assert desk.come(unit("small", gpus=1, at=1)) == []
    assert desk.come(unit("high", gpus=2, priority=5, at=2)) == []
    assert desk.leaving == ["gang"]
    assert desk.leave() == ["high"]
    assert desk.turn() == []


def test_a_small_job_does_not_go_past_a_gang_onto_the_cells_reserved_for_it() -> None:
    desk = Desk()
    desk.come(unit("half", gpus=2))
    assert desk.come(unit("gang", at=1), unit("small", gpus=2, at=2)) == []
    reason = desk.queues.why("gang")
    assert isinstance(reason, NotItsTurn)
    assert reason.is_first
    assert desk.queues.why("small") == NotItsTurn(1, behind="cells")


def test_a_job_that_is_held_is_before_nobody() -> None:
    desk = Desk()
    desk.come(unit("runs"), unit("held", at=1), unit("other", at=2), unit("last", at=3))
    desk.queues.held("held", True)
    desk.turn()
    assert [desk.queues.position(key) for key in ("held", "other", "last")] == [1, 2, 3]
    said = "is first in line for cells of its virtual cluster (1 job before it can have none), and these are in use"
    assert told(desk.queues.why("other"), str).sentence == said
    assert told(desk.queues.why("last"), str).sentence == "1 job is before it in its queue, besides 1 that cannot start"
    desk.queues.held("held", False)
    desk.turn()
    assert told(desk.queues.why("last"), str).sentence == "2 jobs are before it in its queue"


def test_a_job_that_may_borrow_is_told_what_keeps_it_from_idle_cells() -> None:
    reason = NotItsTurn(1, borrowing="insufficient capacity when scheduling in physical cluster")
    assert told(reason, str).sentence == (
        "1 job is before it in its queue; it may borrow idle cells earlier, but cannot now: no idle cells have room "
        "for it"
    )


def test_the_first_for_cells_is_told_that_one_before_it_can_only_borrow() -> None:
    said = "is first in line for cells of its virtual cluster (1 job before it can have none), and these are in use"
    assert told(NotItsTurn(1, is_first=True), str).sentence == said


def test_a_first_job_is_told_which_borrower_that_has_ended_its_virtual_cluster_still_counts() -> None:
    desk = Desk(borrows=True)
    assert desk.come(unit("runs"), unit("borrows", at=1)) == ["runs", "borrows"]
    desk.end("borrows", 100.0)
    desk.end("runs", 200.0)
    desk.come(unit("stays", at=2, is_preemptible=False))
    sentence = told(desk.queues.why("stays"), str).sentence
    said = "is first; borrows, which borrowed cells and has ended, counts against its virtual cluster until "
    assert sentence.startswith(said)
    desk.now = 301.0
    assert desk.turn() == ["stays"]


def debtor(*, is_over: bool = True) -> Desk:
    """Two jobs ran in A; the one that borrowed is played until 300, or is yet to be, as another one runs on."""
    desk = Desk(borrows=True)
    desk.come(unit("runs"), unit("ahead", at=1))
    desk.end("ahead", 100.0)
    if is_over:
        desk.end("runs", 200.0)
    return desk


def test_a_borrower_that_was_deleted_is_played_no_further_so_later_jobs_run_on_the_cells_of_their_own() -> None:
    desk = Desk(borrows=True)
    assert desk.come(unit("runs"), unit("ahead", at=1)) == ["runs", "ahead"]
    desk.now = 100.0
    for key in ("ahead", "runs"):
        desk.live.release(key)
        desk.queues.removed(key)
    assert desk.come(unit("next", at=100)) == ["next"]
    assert desk.queues.why("next") == Running(is_borrowed=False, is_entitled=True)


def test_a_borrower_is_told_which_ended_job_keeps_it_from_the_free_cells_of_its_own() -> None:
    desk = debtor()
    assert desk.come(unit("lent", at=200)) == ["lent"]
    said = "runs on borrowed cells, which may be reclaimed; ahead, which borrowed cells and has ended, counts against "
    assert told(desk.queues.why("lent"), str).sentence.startswith(f"{said}its virtual cluster until ")
    desk.now = 301.0
    desk.turn()
    assert desk.queues.why("lent") == Running(is_borrowed=False, is_entitled=True)


def test_an_opportunistic_job_leaves_at_once_although_the_own_schedule_plays_one_that_has_ended() -> None:
    desk = debtor()
    assert desk.come(unit("low", pods=4, priority=-1, at=200)) == ["low"]
    assert desk.come(unit("own", at=201)) == []
    assert desk.leaving == ["low"]
    assert told(desk.queues.why("own"), str).sentence == "starts on borrowed cells when low has left"
    assert desk.leave() == ["own"]


def test_jobs_that_borrowed_and_have_ended_are_named_where_others_run_too_or_where_they_come_first() -> None:
    desk = debtor(is_over=False)
    desk.come(unit("stays", at=2, is_preemptible=False))
    said = "is first; ahead, which borrowed cells and has ended, has yet to count against its virtual cluster"
    assert told(desk.queues.why("stays"), str).sentence == said
    both = NotItsTurn(0, is_first=True, played=("ahead", 300.0), others_run=True)
    said = (
        "is first, and some cells of its virtual cluster are in use; ahead, which borrowed cells and has ended, counts "
    )
    assert told(both, str).sentence.startswith(said)


def test_a_small_job_goes_past_if_by_its_limit_it_ends_before_the_reserved_start() -> None:
    desk = Desk()
    desk.come(unit("half", gpus=2, limit_s=100.0))
    started = desk.come(unit("gang", at=1), unit("long", gpus=2, at=2, limit_s=200.0))
    assert started == []
    assert desk.come(unit("short", gpus=2, at=3, limit_s=50.0)) == ["short"]
    reason = desk.queues.why("gang")
    assert isinstance(reason, NotItsTurn)
    assert (reason.start_s, reason.certainty) == (100.0, Certainty.BOUNDED)


def start_of(desk: Desk, key: str) -> tuple[float | None, Certainty]:
    """The reserved start of a unit, and how sure it is."""
    reason = desk.queues.why(key)
    assert isinstance(reason, NotItsTurn)
    return reason.start_s, reason.certainty


def test_the_start_of_the_first_job_is_estimated_by_earlier_runs_of_those_on_its_cells() -> None:
    desk = Desk(learned=lambda vc, leaves, ran_s: (100.0 * leaves - ran_s, 200.0 * leaves))
    desk.come(unit("half", gpus=2), unit("quarter", gpus=1))
    desk.now = 30.0
    desk.come(unit("gang", at=30))
    assert start_of(desk, "gang") == (200.0, Certainty.ESTIMATED)
    desk.end("half", 40.0)
    assert start_of(desk, "gang") == (100.0, Certainty.ESTIMATED)


def past_the_gang() -> Desk:
    """`short` has promised to end before `gang` starts, and runs on."""
    desk = Desk()
    desk.come(unit("half", "C", limit_s=1000.0))
    assert desk.come(unit("gang", "C", pods=2, at=1), unit("short", "C", at=2, limit_s=1.0)) == ["short"]
    return desk


def test_a_job_that_went_past_by_its_limit_and_breaks_it_leaves_once_the_first_one_would_start() -> None:
    desk = past_the_gang()
    desk.now = 500.0
    assert (desk.turn(), desk.leaving) == ([], [])  # the first one does not fit in any case
    assert (desk.end("half", 900.0), desk.leaving) == ([], ["short"])
    assert desk.leave() == ["gang"]


def test_it_leaves_when_it_breaks_its_promise_and_has_a_minute_to_end_by_itself() -> None:
    desk = past_the_gang()
    desk.end("half", 2.0 + SLACK_S)
    assert desk.leaving == []
    desk.now = 2.0 + 1.0 + SLACK_S  # it was created at 2
    desk.turn()
    assert desk.leaving == ["short"]


def test_a_promise_outlives_a_restart_and_a_limit_that_is_raised_meanwhile() -> None:
    desk = past_the_gang()
    promised_s = desk.queues.promised("short")
    after = Queues(SPEC)
    after.told_rules(Rules(QueueRules(borrows=False)))
    after.arrived(unit("half", "C", limit_s=1000.0), Kept(entitled_s=0.0), runs_since_s=0.0)
    after.arrived(unit("gang", "C", pods=2, at=1))
    after.arrived(
        unit("short", "C", at=2, limit_s=9999.0), Kept(entitled_s=2.0, promised_s=promised_s), runs_since_s=2.0
    )
    desk.queues = after
    desk.end("half", 900.0)
    assert desk.leaving == ["short"]


def test_a_job_that_only_takes_longer_than_its_limit_stays() -> None:
    desk = Desk()
    desk.come(unit("half", "C", limit_s=1.0))
    desk.come(unit("gang", "C", pods=2, at=1))
    desk.now = 5000.0
    assert (desk.turn(), desk.leaving) == ([], [])


def test_a_declared_limit_counts_rather_than_earlier_runs() -> None:
    desk = Desk(learned=lambda vc, leaves, ran_s: (10.0, 20.0))
    desk.come(unit("half", gpus=2, limit_s=500.0))
    desk.come(unit("gang", at=1))
    assert start_of(desk, "gang") == (500.0, Certainty.BOUNDED)


def test_a_start_is_unknown_while_too_few_jobs_have_ended() -> None:
    desk = Desk(learned=lambda vc, leaves, ran_s: None if leaves == 1 else (10.0, 20.0))
    desk.come(unit("half", gpus=2), unit("quarter", gpus=1))
    desk.come(unit("gang", at=1))
    assert start_of(desk, "gang") == (None, Certainty.UNKNOWN)


def test_a_small_job_does_not_go_past_because_of_an_estimated_start() -> None:
    desk = Desk(learned=lambda vc, leaves, ran_s: (1000.0, 2000.0))
    desk.come(unit("half", gpus=2))
    assert desk.come(unit("gang", at=1), unit("short", gpus=2, at=2, limit_s=5.0)) == []


def test_earlier_runs_decide_nothing() -> None:
    def starts(learned: Learned | None) -> list[list[str]]:
        desk = Desk(learned=learned)
        desk.come(unit("c1", "C", 2), unit("c2", "C", 4), unit("c3", "C", 2))
        started = desk.come(unit("gang", "C", 4, at=1), unit("small", "C", 2, at=2, limit_s=9.0))
        return [started, desk.end("c2", 3.0), desk.end("c1", 4.0), desk.end("c3", 5.0)]

    kinds: list[Learned | None] = [
        None, lambda *_: (5.0, 9.0), lambda vc, leaves, ran_s: (100.0 / leaves, 200.0),
    ]  # fmt: skip
    first, *others = map(starts, kinds)
    assert others == [first, first]


def test_a_small_job_goes_past_beside_the_reserved_cells() -> None:
    desk = Desk()
    desk.come(unit("c1", "C"), unit("c2", "C", 2))
    assert desk.come(unit("gang", "C", 4, at=1)) == []
    assert desk.end("c1", 2.0) == ["gang"]
    assert desk.come(unit("small", "C", 2, at=3)) == ["small"]


def test_the_first_unit_that_does_not_fit_blocks_its_queue_under_block() -> None:
    desk = Desk(Policy.BLOCK)
    desk.come(unit("half", gpus=2))
    assert desk.come(unit("gang", at=1), unit("small", gpus=2, at=2, limit_s=1.0)) == []
    assert desk.queues.why("small") == NotItsTurn(1, is_blocked=True)


def test_others_go_past_a_gang_that_does_not_fit_under_priority() -> None:
    desk = Desk(Policy.PRIORITY)
    desk.come(unit("half", gpus=2))
    assert desk.come(unit("gang", at=1), unit("small", gpus=2, at=2)) == ["small"]


def test_a_job_runs_ahead_on_borrowed_cells_only_where_its_queue_may_borrow() -> None:
    assert Desk().come(unit("a"), unit("b", at=1)) == ["a"]
    desk = Desk(borrows=True)
    assert desk.come(unit("a"), unit("b", at=1)) == ["a", "b"]
    assert desk.queues.why("b") == Running(is_borrowed=True, is_entitled=False)


def test_a_job_that_may_not_be_preempted_does_not_run_ahead() -> None:
    assert Desk(borrows=True).come(unit("a"), unit("b", at=1, is_preemptible=False)) == ["a"]


def test_borrowed_cells_are_given_back_to_a_job_whose_turn_has_come_newest_first() -> None:
    desk = Desk(borrows=True)
    desk.come(unit("a"))
    desk.now = 1.0
    desk.come(unit("a2", at=1))
    desk.now = 2.0
    desk.come(unit("a3", at=2))
    desk.now = 3.0
    desk.come(unit("a4", at=3))
    assert desk.come(unit("b", "B", at=4)) == []
    assert desk.leaving == ["a4"]
    assert desk.leave() == ["b"]
    assert desk.queues.order("A") == ["a4"]


def test_a_queue_takes_back_from_one_that_has_borrowed_more_than_its_share() -> None:
    desk = Desk(borrows=True)
    desk.come(*(unit(f"a{i}", at=i) for i in range(4)))
    desk.come(unit("b1", "B", at=5))
    desk.leave()
    desk.come(unit("b2", "B", at=6))
    assert desk.leaving, "A has borrowed two nodes, B none"
    assert "b2" in desk.leave()
    desk.turn()
    assert not desk.leaving


def test_work_that_ran_ahead_is_played_in_the_own_schedule_when_its_turn_comes() -> None:
    desk = Desk(borrows=True)
    desk.come(unit("a"), unit("b", at=1))
    desk.end("b", 10.0)
    desk.end("a", 20.0)
    assert desk.queues.next_own_end_s() == 30.0


def test_a_job_that_is_held_is_in_no_turn_until_it_is_released() -> None:
    desk = Desk()
    desk.queues.arrived(unit("a"))
    desk.queues.held("a", True)
    assert desk.turn() == []
    assert desk.queues.why("a") == Held()
    desk.queues.held("a", False)
    assert desk.turn() == ["a"]


def test_a_job_is_moved_to_the_front_to_the_back_and_before_another() -> None:
    desk = Desk()
    desk.come(unit("run"), *(unit(key, at=ord(key)) for key in "abc"))
    desk.queues.moved("c", "front")
    assert desk.queues.order("A") == ["c", "a", "b"]
    desk.queues.moved("c", "back")
    assert desk.queues.order("A") == ["a", "b", "c"]
    desk.queues.moved("c", "b")
    assert desk.queues.order("A") == ["a", "c", "b"]


def test_a_job_is_moved_before_those_that_are_due_and_wait_for_others_to_leave() -> None:
    desk = Desk(borrows=True)
    desk.come(*(unit(f"lent{number}", "B") for number in range(4)))
    small = [unit(key, gpus=2, at=at) for at, key in enumerate("abc")]
    assert desk.come(*small) == []
    assert [desk.queues.entitled_since(key) is not None for key in "abc"] == [True, True, False]
    place = desk.queues.moved("c", "front")
    assert (desk.queues.order("A"), desk.queues.position("c")) == (["c", "a", "b"], 1)
    desk.turn()
    assert [desk.queues.entitled_since(key) is not None for key in "abc"] == [True, False, True]
    assert desk.leave()[:2] == ["c", "a"]
    later = Desk()  # another leader knows the place
    for each in small:
        later.queues.arrived(each, Kept(place=place) if each.key == "c" else Kept())
    assert later.turn() == ["c", "a"]


def test_a_job_is_not_moved_before_one_that_does_not_wait() -> None:
    desk = Desk()
    desk.come(unit("run"), unit("a", at=1))
    with pytest.raises(UserError, match="cannot be moved before run"):
        desk.queues.moved("a", "run")


def test_a_user_has_no_more_jobs_that_run_than_the_queue_allows() -> None:
    desk = Desk(most_running=1)
    assert desk.come(unit("a", gpus=1, user="ann"), unit("b", gpus=1, at=1, user="ann")) == ["a"]
    assert desk.queues.why("b") == OverUserLimit("ann", 1, waits=False)
    assert desk.come(unit("c", gpus=1, at=2, user="bob")) == ["c"]
    assert desk.end("a", 3.0) == ["b"]


def test_a_user_has_no_more_jobs_that_wait_than_the_queue_allows() -> None:
    desk = Desk(most_waiting=1)
    desk.come(unit("run"), unit("a", at=1, user="ann"), unit("b", at=2, user="ann"))
    assert desk.queues.why("b") == OverUserLimit("ann", 1, waits=True)
    desk.queues.removed("a")
    desk.turn()
    assert isinstance(desk.queues.why("b"), NotItsTurn)


def test_a_name_that_another_namespace_writes_uses_up_nobodys_limits() -> None:
    desk = Desk(most_running=1, most_waiting=1)
    strange = [unit(f"s{i}", gpus=1, at=i, user="ann", namespace="other") for i in range(3)]
    assert desk.come(*strange) == ["s0"]
    assert desk.come(unit("a", gpus=1, at=9, user="ann", namespace="own")) == ["a"]
    desk.come(unit("b", at=10, user="ann", namespace="own"))
    assert desk.queues.why("b") == OverUserLimit("ann", 1, waits=False)


def test_a_job_that_runs_keeps_its_cells_when_one_whose_cells_are_unknown_was_due_before_a_restart() -> None:
    desk = Desk()
    desk.come(unit("runs", gpus=2))
    own = desk.queues.own_cells("runs")
    after = Queues(SPEC)
    after.arrived(unit("unknown", gpus=2), Kept(entitled_s=0.0), runs_since_s=0.0)
    after.arrived(unit("runs", gpus=2), Kept(entitled_s=1.0), runs_since_s=1.0)
    after.runs_on("runs", own)
    after.turn(2.0, desk.live)
    assert after.own_cells("runs") == own
    assert len(after.own_cells("unknown")) == 2


def test_a_job_that_stood_aside_waits_in_line_once_another_of_its_user_has_started() -> None:
    desk = Desk(most_waiting=1)
    desk.come(unit("run"), unit("a", at=1, user="ann"), unit("b", at=2, user="ann"))
    assert desk.end("run", 3.0) == ["a"]
    assert isinstance(desk.queues.why("b"), NotItsTurn)


def test_a_job_is_asked_for_though_one_whose_pods_need_other_nodes_was_refused() -> None:
    desk = Desk(borrows=True)
    desk.live = Picky(SPEC)
    desk.come(unit("a"))
    refused = replace(unit("b", at=1), needs="label")
    assert desk.come(refused, unit("c", at=2)) == ["c"]


def test_a_job_gets_the_cells_that_work_of_no_queue_had_when_it_arrived() -> None:
    desk = Desk()
    beside = unit("beside")
    found = desk.live.add(Ask(beside, False))
    desk.queues.told_running("beside", beside.spec, found.bind_info)
    assert desk.come(unit("large")) == []
    assert desk.queues.why("large") == NotItsTurn(0, is_first=True)
    assert desk.come(unit("later", gpus=1, at=1)) == []
    desk.live.release("beside")
    desk.queues.told_gone("beside")
    assert desk.turn() == ["large"]


def test_a_job_of_higher_priority_waits_for_work_of_no_queue_and_keeps_nobody_else_waiting() -> None:
    desk = Desk()
    beside = unit("beside", priority=1)
    desk.queues.told_running("beside", beside.spec, desk.live.add(Ask(beside, False)).bind_info)
    assert desk.come(unit("higher", priority=2), unit("other", "B")) == ["other"]
    desk.live.release("beside")
    desk.queues.told_gone("beside")
    assert desk.turn() == ["higher"]


def test_a_unit_that_leaves_for_nobody_is_taken_off_its_queues_share_once() -> None:
    desk = Desk()
    desk.come(unit("a"))
    before = desk.queues.shares()
    desk.queues.arrived(unit("b", at=1))
    desk.queues.started("b", 0.0, is_borrowed=True)
    desk.queues.leaving("b", "")
    desk.queues.evicted("b", 1.0)
    assert desk.queues.shares() == before


def test_a_job_that_was_over_and_is_there_again_has_a_turn_though_its_own_schedule_is_to_play_it() -> None:
    desk = Desk(borrows=True)
    assert desk.come(unit("first"), unit("ahead", at=1)) == ["first", "ahead"]
    desk.end("ahead", 2.0)
    assert desk.come(unit("ahead", at=1)) == ["ahead"]


def test_a_job_that_is_larger_than_its_virtual_cluster_keeps_nobody_from_going_past() -> None:
    desk = Desk()
    assert desk.come(unit("never", pods=2), unit("later", at=1)) == ["later"]


def test_a_job_that_waits_for_cells_of_another_claim_starts_in_the_turn_in_which_that_has_others() -> None:
    desk = Desk(borrows=True)
    desk.live = Considerate(SPEC)
    desk.come(*(unit(f"lent{at}", "A", priority=-1, at=at) for at in range(4)))
    assert desk.come(unit("first", "C", at=5), unit("second", "C", at=6)) == []
    assert desk.leave() == ["second", "first"]


def lent_out() -> Desk:
    """All nodes are used, three of them by borrowers, and two jobs of other sizes wait."""
    desk = Desk(borrows=True)
    desk.come(*(unit(f"a{at}", "A", at=at) for at in range(4)))
    assert desk.come(unit("pair", "A", 2, at=5), unit("three", "A", 3, at=6)) == []
    return desk


def test_nobody_is_asked_for_anew_when_a_job_is_deleted_that_only_waited() -> None:
    desk = lent_out()
    asked = desk.live.asked
    desk.queues.removed("pair")
    assert desk.turn() == []
    assert desk.live.asked == asked


def test_others_are_asked_for_when_a_job_is_deleted_for_which_room_was_made() -> None:
    desk = Desk(borrows=True)
    desk.come(*(unit(f"a{at}", "A", at=at) for at in range(3)))
    desk.now = 1.0
    desk.come(unit("newest", "A", 2, at=5))
    desk.come(unit("due", "B", at=7))
    assert desk.leaving == ["newest"]
    assert desk.come(unit("pair", "A", 2, at=8)) == []
    desk.queues.removed("due")
    assert desk.turn() == ["pair"]


def test_reasons_that_are_asked_for_together_are_those_of_each_alone() -> None:
    desk = lent_out()
    desk.come(unit("twin", "A", 2, at=7), unit("large", "B", 16, at=8), unit("alone", "B", 2, at=9, user="u"))
    known: Known = {}
    keys = ["pair", "twin", "three", "large", "alone", "a0", "a3", "nobody"]
    assert [desk.queues.why(key, 0, known) for key in keys] == [desk.queues.why(key) for key in keys]


def test_a_quota_is_asked_once_about_all_jobs_that_ask_for_the_same() -> None:
    asked: list[str] = []

    class Counted(TreeLedger):
        def refusal(self, unit: Unit) -> str | None:
            asked.append(unit.key)
            return super().refusal(unit)

    leaf = Quota("root/A", "root", min={"gpu": 4.0}, max={"gpu": 4.0})
    tree = QuotaTree({"root": Quota("root", min={"gpu": 4.0}, max={"gpu": 4.0}, children=("root/A",)), "root/A": leaf})
    desk = Desk()
    desk.queues.told_rules(Rules(), partial(Counted, tree))
    units = [replace(unit(f"u{at}", at=at), queue="root/A", request={"gpu": 4.0}) for at in range(9)]
    desk.come(*units)
    asked.clear()
    known: Known = {}
    reasons = [desk.queues.why(each.key, 0, known) for each in units[1:]]
    assert all(isinstance(reason, OverQuota) for reason in reasons)
    assert len(asked) <= 2


class Considerate(Live):
    """A cluster in which the first job would take the cells of the second one, until that has some."""

    def hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        has_to_wait = ask.unit.key == "first" and "second" not in self.pods
        return Wait("others use its cells") if has_to_wait else super().hold(ask, pending)


class Picky(Live):
    """A cluster in which no node has a label that some pods need."""

    def hold(self, ask: Ask, pending: Pending) -> Bind | Wait:
        return Wait("no node has that label") if ask.unit.needs else super().hold(ask, pending)


def test_a_job_larger_than_its_virtual_cluster_never_runs_where_that_does_not_borrow() -> None:
    desk = Desk()
    desk.come(unit("large", pods=2))
    assert desk.queues.why("large") == NeverFits("A")


def test_a_job_that_fits_nowhere_is_told_so_though_its_queue_borrows() -> None:
    desk = Desk(borrows=True)
    desk.come(*(unit(f"a{at}", at=at) for at in range(4)))
    desk.come(unit("wide", gpus=8, at=5), unit("large", pods=2, at=6))
    assert desk.queues.why("wide") == NeverFits("A", is_anywhere=True)
    assert isinstance(desk.queues.why("large"), NotItsTurn), "it waits for idle cells"


def test_a_job_that_never_runs_is_told_so_though_its_user_has_others_that_wait() -> None:
    desk = Desk(most_waiting=1)
    desk.come(unit("runs", user="ann"), unit("waits", at=1, user="ann"), unit("large", pods=2, at=2, user="ann"))
    assert desk.queues.why("large") == NeverFits("A")


def test_nodes_that_fail_together_cost_one_look_at_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, settled, settle = Desk(), list[str](), Table.settle
    desk.come(*(unit(f"u{at}", at=at) for at in range(20)))
    monkeypatch.setattr(Table, "settle", lambda table, entry: (settled.append(entry.unit.key), settle(table, entry)))
    desk.queues.health(dict.fromkeys(desk.live.state.topology.node_names, False))
    assert len(settled) == 20


def test_nobody_is_told_that_a_job_never_runs_while_nodes_are_bad() -> None:
    desk = Desk()
    desk.queues.health({"n0": False})
    desk.come(unit("large", pods=2))
    assert desk.queues.why("large") == NotPromised("A")


def test_a_job_above_the_max_of_its_quota_is_not_told_to_wait_for_others() -> None:
    quota = Quota("root/A", "root", min={"gpu": 4.0}, max={"gpu": 4.0})
    tree = QuotaTree({"root": Quota("root", children=("root/A",)), "root/A": quota})
    desk = Desk()
    desk.queues.told_rules(Rules(), partial(TreeLedger, tree))
    for key, amount in (("within", 4.0), ("later", 4.0), ("above", 8.0)):
        desk.come(replace(unit(key), queue="root/A", request={"gpu": amount}))
    assert isinstance(desk.queues.why("later"), NotItsTurn | OverQuota)
    reason = desk.queues.why("above")
    assert isinstance(reason, Impossible)
    assert reason.text.endswith("used 0, oversellreate 1. It can never run: ask for less, or raise the quota")


@pytest.mark.parametrize(
    "others", [0, 1, 2], ids=["alone", "in a used quota", "behind a gang that waits for its quota"]
)
def test_a_job_whose_pods_fit_no_node_is_told_so_at_once_whatever_is_left_of_its_quota(others: int) -> None:
    quota = Quota("root/A", "root", min={"gpu": 8.0}, max={"gpu": 16.0})
    tree = QuotaTree({"root": Quota("root", children=("root/A",)), "root/A": quota})
    desk = Desk(borrows=True)
    desk.queues.told_rules(Rules(), partial(TreeLedger, tree))
    for at, amount in enumerate((16.0, 8.0)[:others]):
        desk.come(replace(unit(f"a{at}", at=at), queue="root/A", request={"gpu": amount}))
    desk.come(replace(unit("wide", gpus=8, at=5), queue="root/A", request={"gpu": 8.0}))
    assert desk.queues.why("wide") == NeverFits("root/A", is_anywhere=True)


def test_a_job_whose_turn_has_come_is_not_ahead_of_it_any_more() -> None:
    desk = Desk(borrows=True)
    assert desk.come(unit("first"), unit("second", at=1)) == ["first", "second"]
    assert desk.queues.why("second") == Running(is_borrowed=True, is_entitled=False)
    desk.end("first", 5.0)
    assert desk.queues.why("second") == Running(is_borrowed=False, is_entitled=True)


def test_a_job_that_is_due_borrows_while_the_hardware_of_its_own_cells_is_bad() -> None:
    desk = Desk(borrows=True)
    desk.come(unit("other", "C", priority=-1))
    desk.come(unit("runs", gpus=2))
    (node,) = nodes_of_slots(desk.live.state, desk.live.state.groups["runs"])
    desk.live.set_health(node, False)
    desk.queues.health({node: False})
    desk.now = 1.0
    assert desk.come(unit("due", gpus=2, at=1)) == ["due"]
    assert desk.queues.why("due") == Running(is_borrowed=True, is_entitled=True)
    desk.end("other", 5.0)
    assert desk.leaving == [], "it would move for nothing, again and again"


def test_a_job_whose_user_may_have_no_more_keeps_nobody_from_going_past() -> None:
    desk = Desk(most_running=1)
    desk.come(unit("runs", "C", user="cid", limit_s=50.0))
    gang, short = unit("gang", "C", pods=2, at=1, user="ann"), unit("short", "C", 1, at=2, user="ann", limit_s=5.0)
    assert desk.come(gang, short, unit("other", "C", 2, at=3, user="bob")) == ["short", "other"]


@pytest.mark.parametrize(
    ("policy", "goes_past"), [(Policy.HIVED, False), (Policy.BLOCK, False), (Policy.PRIORITY, True)]
)
def test_small_jobs_do_not_use_up_the_quota_that_a_gang_waits_for(policy: Policy, goes_past: bool) -> None:
    quota = Quota("root/C", "root", min={"gpu": 8.0}, max={"gpu": 8.0})
    root = Quota("root", children=("root/C",), min={"gpu": 8.0}, max={"gpu": 8.0})
    tree = QuotaTree({"root": root, "root/C": quota})
    desk = Desk()
    desk.queues.told_rules(Rules(QueueRules(policy=policy, borrows=False)), partial(TreeLedger, tree))

    def job(key: str, at: float, amount: float) -> Unit:
        return replace(unit(key, "C", at=at), queue="root/C", request={"gpu": amount})

    never = replace(job("never", 0.5, 8.0), spec=unit("never", "C", pods=3).spec)
    desk.come(job("first", 0, 4.0), never, job("gang", 1, 8.0), job("small", 2, 4.0))
    assert (desk.queues.entitled_since("small") is not None) is goes_past
    assert (
        goes_past
        or "no job may start before the first one, which waits for its quota"
        in told(desk.queues.why("small"), str).sentence
    )
    assert desk.come(job("huge", 3, 12.0)) == []
    assert "It can never run" in told(desk.queues.why("huge"), str).sentence
    assert ("gang" in desk.end("first", 5.0)) is not goes_past  # nor does one that never fits keep it waiting


@pytest.mark.parametrize(
    ("policy", "start"),
    [
        (Policy.HIVED, "is first of those that wait, and a job on borrowed cells goes before it for the min"),
        (Policy.BLOCK, "is first of those that wait, and a job on borrowed cells goes before it for the min"),
        (Policy.PRIORITY, "is first, and too little is left of the min of its quota"),
    ],
)
def test_the_first_that_waits_for_its_quota_is_never_told_that_it_waits_for_cells(policy: Policy, start: str) -> None:
    desk = Desk()
    leaf = Quota("root/A", "root", min={"gpu": 4.0}, max={"gpu": 99.0})
    tree = QuotaTree({"root": Quota("root", min={"gpu": 16.0}, children=("root/A",)), "root/A": leaf})
    desk.queues.told_rules(Rules(QueueRules(policy=policy)), partial(TreeLedger, tree))
    for at, key in enumerate(["own", "ahead", "ahead-2", "ahead-3", "waits"]):
        desk.come(replace(unit(key, at=at), queue="root/A", request={"gpu": 4.0}))
    reason = desk.queues.why("waits")
    assert told(reason, str).sentence.startswith(start)
    found = told(reason, str)
    assert (found.cause, found.when and found.when.because) == ("quota", "too little of its quota is left")


def quota_of(desk: Desk, least: float, most: float, policy: Policy = Policy.HIVED) -> None:
    """Jobs of virtual cluster C are in a quota with this min and max."""
    leaf = Quota("root/C", "root", min={"gpu": least}, max={"gpu": most})
    root = Quota("root", children=("root/C",), min={"gpu": 16.0}, max={"gpu": 16.0})
    tree = QuotaTree({"root": root, "root/C": leaf})
    desk.queues.told_rules(Rules(QueueRules(policy=policy, borrows=False)), partial(TreeLedger, tree))


def in_quota(key: str, at: float, limit_s: float | None = None, gpus: int = 4) -> Unit:
    return replace(unit(key, "C", gpus, at=at, limit_s=limit_s), queue="root/C", request={"gpu": float(gpus)})


@pytest.mark.parametrize(("least", "most"), [(4.0, 4.0), (4.0, 8.0)], ids=["max", "min"])
def test_a_job_is_within_its_quota_once_those_before_it_have_ended_by_their_limits(least: float, most: float) -> None:
    desk = Desk()
    quota_of(desk, least, most)
    desk.come(in_quota("runs", 0, 100.0), *(in_quota(f"ahead-{at}", at, 50.0) for at in range(1, int(most / 4))))
    desk.come(in_quota("first", 10, 30.0), in_quota("second", 11), in_quota("third", 12))
    waits = [each for each in ("first", "second", "third") if desk.queues.position(each)]
    found = {each: desk.queues.quota_start(each) for each in waits}
    later = 50.0 * (most > 4)  # the borrower comes before them for the min
    assert {each: one and (one.at.at_s, one.at.certainty) for each, one in found.items()} == {
        "first": (100.0 + later, Certainty.BOUNDED),
        "second": (130.0 + later, Certainty.BOUNDED),
        "third": None,
    }
    assert [one and one.ended for one in found.values()][:2] == [("runs",), ("runs",)]
    assert desk.queues.freed_by("first") == ["runs"]


def test_jobs_of_a_quota_that_say_no_end_are_estimated_by_earlier_ones() -> None:
    desk = Desk(learned=lambda *_: (40.0, 90.0))
    quota_of(desk, 4.0, 4.0)
    desk.come(in_quota("runs", 0), in_quota("waits", 1))
    found = desk.queues.quota_start("waits")
    assert found is not None
    assert (found.at.at_s, found.at.late_s, found.at.certainty) == (40.0, 90.0, Certainty.ESTIMATED)


def test_a_job_that_starts_before_another_within_their_quota_is_told_if_it_still_runs_then() -> None:
    desk = Desk()
    quota_of(desk, 8.0, 8.0)
    desk.come(in_quota("short", 0, 10.0), in_quota("long", 1, 50.0))
    desk.come(in_quota("next", 2, 100.0), in_quota("waits", 3))
    found = desk.queues.quota_start("waits")
    assert found is not None
    assert (found.at.at_s, found.ended, found.before) == (51.0, ("short", "long"), ("next",))


def test_use_of_a_quota_is_told_without_the_jobs_that_others_leave_for() -> None:
    desk = Desk()
    leaves = {f"root/{name}": Quota(f"root/{name}", "root", max={"gpu": 8.0}) for name in "AB"}
    tree = QuotaTree({"root": Quota("root", max={"gpu": 10.0}, children=tuple(leaves)), **leaves})
    desk.queues.told_rules(Rules(), partial(TreeLedger, tree))
    for at, (key, leaf, gpus) in enumerate([("a", "A", 4), ("a2", "A", 4), ("claims", "B", 4), ("waits", "B", 1)]):
        desk.come(replace(unit(key, gpus=gpus, at=at), queue=f"root/{leaf}", request={"gpu": float(gpus)}))
    assert desk.leaving == ["a"]
    assert told(desk.queues.why("claims"), str).sentence == "starts on borrowed cells when a has left"
    assert told(desk.queues.why("waits"), str).sentence.endswith(f" idle cells, but cannot now: {QUOTA_KEPT}")


def test_a_job_that_is_due_after_a_restart_waits_for_one_that_still_leaves_its_cells() -> None:
    desk = Desk()
    desk.come(unit("leaves"))
    own = desk.queues.own_cells("leaves")
    after = Queues(SPEC)
    after.arrived(unit("leaves", at=1))
    after.started("leaves", 0.0, is_borrowed=True)
    after.leaving("leaves", "")
    after.runs_on("leaves", own)
    after.arrived(unit("due"))
    assert after.turn(1.0, desk.live) == []
    assert after.why("due") == MakingRoom(("leaves",))
    desk.live.release("leaves")
    after.evicted("leaves", 2.0)
    assert after.turn(2.0, desk.live) == [Start("due", False, own)]


@pytest.mark.parametrize("named", ["Job/b/due/u-2", "job u-2"])  # as `masked` has it where the owners differ
def test_after_a_restart_a_job_waits_for_those_that_left_for_it_by_its_key_or_its_uid(named: str) -> None:
    desk, due = Desk(borrows=True), unit("Job/b/due/u-2", "B", at=1)
    runs = [unit(f"Job/a/{name}/u-{name}", "A") for name in ("w", "x", "y", "z")]
    desk.come(*runs)
    desk.come(due)
    (leaving,) = desk.leaving
    after = Queues(SPEC)
    after.told_rules(Rules(default=QueueRules(borrows=True)))
    for each in (*runs, due):
        after.arrived(each)
    for each in runs:
        after.started(each.key, 0.0, is_borrowed=each is not runs[0])
    after.leaving(leaving, named)
    assert after.turn(1.0, desk.live) == []
    assert after.why(due.key) == MakingRoom((leaving,))


def test_a_job_that_may_not_borrow_gets_no_borrowed_cells_for_jobs_that_left_for_it_before_a_restart() -> None:
    desk, due = Desk(borrows=True), unit("due", at=1, is_preemptible=False)
    runs = [unit(name, "B") for name in ("w", "x", "y", "z")]
    desk.come(*runs)
    desk.come(due)
    (leaving,) = desk.leaving
    after = Queues(SPEC)
    after.told_rules(Rules(default=QueueRules(borrows=True)))
    for each in (*runs, due):
        after.arrived(each)
    for each in runs:
        after.started(each.key, 0.0, is_borrowed=each is not runs[0])
    after.leaving(leaving, "due")
    after.arrived(unit("urgent", priority=1, at=2))  # its turn comes first now
    assert after.turn(2.0, desk.live) == []
    other = next(each.key for each in runs[1:] if each.key != leaving)
    for key in (leaving, other):
        desk.live.release(key)
    after.evicted(leaving, 3.0)
    after.ended(other, 3.0)
    own = after.own_cells("urgent")
    assert after.turn(3.0, desk.live) == [Start("urgent", False, own), Start(leaving, True)]


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_job_that_changes_while_others_leave_for_it_gets_the_cells_that_it_asks_for_then(gpus: int) -> None:
    desk = Desk(borrows=True)
    desk.come(unit("own"), *[unit(f"b{i}", "B", at=i) for i in range(3)])
    assert desk.come(unit("ahead", gpus=2, at=5)) == []
    assert len(desk.leaving) == 1
    desk.queues.changed(unit("ahead", gpus=gpus, at=5))
    assert "ahead" in [*desk.turn(), *desk.leave()]
    assert len(desk.live.state.groups["ahead"].physical) == gpus


def test_a_job_that_is_due_waits_for_one_that_leaves_its_cells_as_its_quota_was_lowered() -> None:
    desk = Desk()
    desk.come(unit("c0", "C"), unit("c1", "C"))
    own = desk.queues.own_cells("c1")
    desk.queues.leaving("c1", "a quota, which was lowered")
    desk.queues.lost_turn("c1")
    desk.queues.held("c1", True)
    assert desk.come(unit("due", "C", at=1)) == []
    assert desk.queues.own_cells("due") == own
    assert desk.queues.why("due") == MakingRoom(("c1",), is_lent=False)


def test_a_job_still_has_to_leave_its_cells_when_it_has_lost_another_place_since() -> None:
    desk = Desk()
    desk.come(unit("low", "C"), unit("beside", "C", priority=1))
    assert desk.come(unit("high", "C", priority=5, at=1)) == []
    assert desk.leaving == ["low"]
    desk.end("beside", 2.0)
    assert desk.queues.entitled_since("low") == 2.0
    assert desk.come(unit("second", "C", priority=5, at=3)) == ["second"]
    assert desk.queues.entitled_since("low") is None
    assert desk.leave() == ["high"]
