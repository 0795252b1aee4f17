"""The course of queued jobs, and what is written onto each (rules 32.5 to 32.9)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from hived.values.specs import GroupSpec, MemberSpec, PodSpec
from hived_extender.jobs.job import Job, JobRef, JobState
from hived_extender.machine.stimuli import HoldState
from hived_extender.queues.queued_jobs import Action, Change, QueuedJobs
from hived_extender.queues.table import Kept, Life
from hived_extender.queues.units import LATE, Unit
from tests.extender.queues import small
from tests.extender.queues.live import Live

REF = JobRef("batch/v1", "Job", "team", "train", "u-1")
KEY = REF.key
HELD = Job(REF, "1", 0.0, {}, {}, (), JobState.HELD)
RESUMED = replace(HELD, state=JobState.RESUMED)
LEAVING = replace(HELD, state=JobState.LEAVING)
UNIT = Unit(KEY, "root/vc", PodSpec("vc", 5, 8, GroupSpec(KEY, (MemberSpec(1, 8),))), 0.0)
ALL_PLACED = HoldState(slot_count=1, held_count=0, placed_count=1, bound_count=1)


FACTS = ("arrived", "changed", "removed", "started", "leaving", "late", "evicted", "ended", "held")


class Recorded(QueuedJobs):
    """Queues that note which facts about units were taken in, in order, but for those that follow from others."""

    def __init__(self, **options: Any) -> None:
        super().__init__(small.SPEC, **options)
        self.names: list[str] = []
        self.winner = ""
        self._depth = 0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return partial(self.note, name, found) if name in FACTS else found

    def note(self, name: str, take_in: Callable[..., None], *args: Any, **more: Any) -> None:
        if not self._depth:
            self.names.append(name)
        if name == "leaving":
            self.winner = args[1]
        self._depth += 1
        take_in(*args, **more)
        self._depth -= 1


class Case:
    """Queues, and a job in them."""

    def __init__(self, **options: Any) -> None:
        self.queues = Recorded(**options)

    def seen(self, job: Job, kept: Kept | None = None, now: float = 0.0, **more: Any) -> None:
        entry = self.queues.entries.get(KEY)
        known = entry.kept if entry is not None else Kept()
        self.queues.job_seen(job, more.pop("unit", UNIT), known if kept is None else kept, now, **more)

    @property
    def life(self) -> Life:
        return self.queues.entries[KEY].life

    def write(self, now: float = 0.0, error: str = "") -> list[Action]:
        """Carry out what is due."""
        actions = self.queues.take_actions(now, 10)
        for action in actions:
            self.queues.wrote(action, error, now)
        return actions

    def running(self, *, is_borrowed: bool = False) -> "Case":
        self.seen(HELD)
        self.queues.resume(KEY, 1.0, is_borrowed=is_borrowed)
        self.write()
        self.seen(RESUMED)
        self.queues.progressed({KEY: ALL_PLACED}, 2.0)
        return self


def changes(actions: list[Action]) -> list[Change]:
    return [action.change for action in actions]


def test_a_job_that_is_held_waits() -> None:
    case = Case()
    case.seen(HELD)
    assert (case.life, case.queues.names, case.write()) == (Life.WAITING, ["arrived"], [])


def test_a_job_is_let_go_once_its_cells_are_held() -> None:
    case = Case()
    case.seen(HELD)
    case.queues.resume(KEY, 1.0, is_borrowed=True)
    (action,) = case.write()
    assert (action.change, action.kept.is_resumed, action.kept.is_borrowed, action.kept.since_s) == (
        Change.RESUME,
        True,
        True,
        1.0,
    )
    assert (case.life, case.queues.names) == (Life.STARTING, ["arrived", "started"])


def test_a_job_runs_once_all_its_pods_have_cells() -> None:
    assert Case().running().life is Life.RUNNING


def test_a_job_that_is_over_has_ended() -> None:
    case = Case().running()
    case.seen(replace(RESUMED, state=JobState.SUCCEEDED), now=9.0)
    assert (case.queues.names, list(case.queues.entries)) == (["arrived", "started", "ended"], [])


def test_a_waiting_job_that_is_deleted_is_removed() -> None:
    case = Case()
    case.seen(HELD)
    case.queues.job_gone(REF)
    assert case.queues.names == ["arrived", "removed"]


def test_a_job_that_runs_and_is_deleted_is_removed_as_it_has_not_ended() -> None:
    case = Case().running()
    case.queues.job_gone(REF)
    assert case.queues.names == ["arrived", "started", "removed"]


def test_a_job_that_is_called_back_waits_again_once_its_pods_are_gone() -> None:
    case = Case().running()
    case.queues.suspend(KEY, "Job/team/big", 5.0)
    (action,) = case.write()
    found = action.change, action.kept.is_resumed, action.kept.since_s, action.kept.evicted_for
    assert found == (Change.SUSPEND, False, 5.0, "Job/team/big")
    case.seen(LEAVING)
    assert "evicted" not in case.queues.names
    case.seen(HELD)
    assert (case.life, case.queues.names[-2:]) == (Life.WAITING, ["evicted", "changed"])


def test_no_name_of_another_namespace_is_kept_on_a_job_and_the_queues_know_the_winner_all_the_same() -> None:
    case = Case().running()
    case.queues.suspend(KEY, "Job/secret/big/u-2", 5.0)
    (action,) = case.write()
    assert (action.kept.evicted_for, case.queues.winner) == ("job u-2", "Job/secret/big/u-2")


def test_news_of_a_job_without_what_is_kept_change_nothing_until_it_is_there_again() -> None:
    case = Case().running()
    case.seen(HELD, kept=Kept())
    assert (case.life, changes(case.write())) == (Life.RUNNING, [Change.NOTE])


def test_a_job_that_its_owner_resumes_is_held_back_again() -> None:
    case = Case()
    case.seen(HELD)
    case.seen(RESUMED)
    assert changes(case.write()) == [Change.SUSPEND]


def test_a_job_that_is_resumed_while_it_leaves_is_held_back_again() -> None:
    case = Case().running()
    case.queues.suspend(KEY, "Job/team/big", 5.0)
    case.write()
    case.seen(LEAVING)
    case.seen(RESUMED)
    assert changes(case.write()) == [Change.SUSPEND]
    case.seen(HELD)
    assert case.life is Life.WAITING


def test_a_job_that_its_owner_suspends_gives_its_cells_back() -> None:
    case = Case().running()
    case.seen(LEAVING)
    assert (case.life, changes(case.write())) == (Life.LEAVING, [Change.SUSPEND])


def test_a_job_that_its_owner_suspends_stays_so_until_its_owner_resumes_it() -> None:
    case = Case().running()
    case.seen(LEAVING)
    (action,) = case.write()
    assert (action.kept.is_suspended, action.kept.is_resumed) == (True, False)
    case.seen(HELD)
    case.seen(HELD)
    assert (case.life, case.write()) == (Life.WAITING, [])
    case.seen(RESUMED)
    (action,) = case.write()
    assert (action.change, action.kept.is_suspended) == (Change.SUSPEND, False)


def test_a_job_that_hived_suspends_takes_its_turn_again() -> None:
    case = Case().running()
    case.queues.suspend(KEY, "Job/team/big", 5.0)
    case.write()
    case.seen(HELD)
    assert not case.queues.entries[KEY].kept.is_suspended


def test_release_lets_a_job_that_its_owner_has_suspended_take_its_turn() -> None:
    case = Case().running()
    case.seen(HELD)
    case.write()
    case.queues.hold(KEY, is_held=False)
    (action,) = case.write()
    assert not action.kept.is_on_hold


@pytest.mark.parametrize("job", [HELD, LEAVING], ids=lambda job: job.state.value)
def test_another_leader_knows_a_job_that_was_let_go_and_is_suspended_as_its_owners(job: Job) -> None:
    case = Case()
    case.seen(job, Kept(version=2, is_resumed=True), has_cells=job is LEAVING)
    (action,) = case.write()
    assert action.kept.is_suspended


@pytest.mark.parametrize("job", [HELD, LEAVING, RESUMED], ids=lambda job: job.state.value)
def test_after_a_restart_a_job_is_due_only_if_it_runs(job: Job) -> None:
    queues = QueuedJobs(small.SPEC)
    queues.job_seen(
        job, small.unit(KEY, at=1.0), Kept(is_resumed=job is RESUMED, entitled_s=5.0, since_s=5.0, leaf_count=4), 9.0
    )
    queues.arrived(small.unit("first"))
    queues.turn(9.0, Live(small.SPEC))
    assert (queues.entitled_since(KEY) is not None) == (job is RESUMED)


def test_a_new_leader_takes_a_job_for_running_that_was_let_go() -> None:
    case = Case()
    case.seen(RESUMED, Kept(is_resumed=True, since_s=3.0), now=9.0, has_cells=True)
    assert (case.life, case.queues.names, case.write()) == (Life.RUNNING, ["arrived"], [])


def test_a_job_that_ran_before_there_were_queues_is_left_alone() -> None:
    case = Case()
    case.seen(RESUMED, has_cells=True, is_first=True, now=9.0)
    assert (case.life, case.write()) == (Life.RUNNING, [])


@pytest.mark.parametrize("kept", [Kept(version=3), Kept()])
def test_a_job_that_was_called_back_or_comes_later_is_held_back_though_pods_of_it_have_cells(kept: Kept) -> None:
    case = Case()
    case.seen(RESUMED, kept, has_cells=True, is_first=bool(kept.version))
    assert changes(case.write()) == [Change.SUSPEND]


def test_a_job_that_its_owner_suspends_while_nobody_leads_is_let_go_no_more() -> None:
    case = Case()
    case.seen(HELD, Kept(version=2, is_resumed=True))
    (action,) = case.write()
    assert (action.change, action.kept) == (Change.NOTE, Kept(version=3, is_suspended=True))


def test_a_new_job_that_nobody_held_back_is_held_back() -> None:
    case = Case()
    case.seen(RESUMED)
    assert (case.life, changes(case.write())) == (Life.LEAVING, [Change.SUSPEND])


def test_a_refused_write_is_tried_again_later_each_time() -> None:
    case = Case()
    case.seen(HELD)
    case.queues.resume(KEY, 1.0, is_borrowed=False)
    assert changes(case.write(1.0, error="busy")) == [Change.RESUME]
    assert case.write(1.5) == []
    assert changes(case.write(2.0, error="busy")) == [Change.RESUME]
    assert case.write(3.5) == []
    assert changes(case.write(4.0)) == [Change.RESUME]


def test_a_later_decision_takes_the_place_of_a_write_that_was_refused() -> None:
    case = Case()
    case.seen(HELD)
    case.queues.resume(KEY, 1.0, is_borrowed=False)
    (first,) = case.queues.take_actions(1.0, 1)
    case.queues.suspend(KEY, "", 2.0)
    case.queues.wrote(first, "busy", 2.0)
    assert changes(case.write(60.0)) == [Change.SUSPEND]


def test_one_write_of_a_job_is_under_way_at_a_time() -> None:
    case = Case()
    case.seen(HELD)
    case.queues.resume(KEY, 1.0, is_borrowed=False)
    (first,) = case.queues.take_actions(1.0, 1)
    case.queues.suspend(KEY, "", 2.0)
    assert case.queues.take_actions(2.0, 10) == []
    case.queues.wrote(first, "", 2.0)
    assert changes(case.queues.take_actions(2.0, 10)) == [Change.SUSPEND]


def test_an_older_state_is_no_news_whatever_the_clock_says() -> None:
    case = Case()
    case.seen(HELD, Kept(version=1, since_s=1000.0))
    case.queues.resume(KEY, 990.0, is_borrowed=False)
    case.write()
    case.seen(HELD, Kept(version=1, since_s=1000.0), now=990.5)
    assert (case.life, changes(case.write())) == (Life.STARTING, [Change.NOTE])


def test_a_job_without_a_pod_that_has_a_node_is_called_back_after_its_time() -> None:
    case = Case(start_s=600.0)
    case.seen(HELD)
    case.queues.resume(KEY, 1.0, is_borrowed=False)
    nothing = {KEY: HoldState(slot_count=1, held_count=1, placed_count=0, bound_count=0)}
    assert (case.queues.progressed(nothing, 600.0), case.queues.progressed(nothing, 601.0)) == ({}, {KEY: LATE})


def test_a_job_with_pods_without_cells_has_all_the_time_for_those_with_cells() -> None:
    case = Case(start_s=600.0)
    case.seen(HELD, unit=replace(UNIT, may_take_time=True))
    case.queues.resume(KEY, 1.0, is_borrowed=False)
    nothing = {KEY: HoldState(slot_count=1, held_count=1, placed_count=0, bound_count=0)}
    assert case.queues.progressed(nothing, 9999.0) == {}


def test_a_job_some_of_whose_pods_have_nodes_has_all_the_time_for_the_others() -> None:
    case = Case(start_s=600.0)
    case.seen(HELD)
    case.queues.resume(KEY, 1.0, is_borrowed=False)
    some = HoldState(slot_count=2, held_count=1, placed_count=1, bound_count=1)
    assert case.queues.progressed({KEY: some}, 9999.0) == {}


@pytest.mark.parametrize(("is_borrowed", "priority"), [(True, 5), (False, -1)])
def test_a_job_on_lent_cells_gives_them_back_where_some_of_its_pods_never_come(
    is_borrowed: bool, priority: int
) -> None:
    case = Case(start_s=600.0)
    case.seen(HELD, unit=replace(UNIT, spec=PodSpec("vc", priority, 8, GroupSpec(KEY, (MemberSpec(2, 8),)))))
    case.queues.resume(KEY, 1.0, is_borrowed=is_borrowed)
    some = {KEY: HoldState(slot_count=2, held_count=1, placed_count=1, bound_count=1)}
    both = {KEY: HoldState(slot_count=2, held_count=0, placed_count=2, bound_count=2)}
    assert (case.queues.progressed(some, 2.0), case.queues.progressed(some, 601.0)) == ({}, {})
    assert case.queues.progressed(both, 602.0) == {}
    assert case.life is Life.RUNNING
    assert (case.queues.progressed(some, 700.0), case.queues.progressed(some, 1299.0)) == ({}, {})
    assert case.queues.progressed(some, 1300.0) == {KEY: LATE}


LARGER = replace(UNIT, spec=PodSpec("vc", 5, 8, GroupSpec(KEY, (MemberSpec(2, 8),))))


def test_a_job_that_grows_while_it_runs_is_called_back() -> None:
    case = Case().running()
    case.seen(RESUMED, unit=LARGER)
    assert changes(case.write()) == [Change.SUSPEND]


def test_a_job_that_shrinks_and_grows_again_to_its_size_goes_on() -> None:
    case = Case()
    case.seen(HELD, unit=LARGER)
    case.queues.resume(KEY, 1.0, is_borrowed=False)
    case.write()
    for unit in (UNIT, LARGER):
        case.seen(RESUMED, unit=unit)
    assert (case.life, case.write()) == (Life.STARTING, [])


def test_a_job_that_may_grow_by_itself_goes_on() -> None:
    case = Case().running()
    case.seen(replace(RESUMED, grows=True), unit=LARGER)
    assert (case.life, case.write()) == (Life.RUNNING, [])


def test_a_job_that_asks_another_virtual_cluster_while_it_runs_is_called_back() -> None:
    case = Case().running()
    case.seen(RESUMED, unit=replace(UNIT, spec=PodSpec("other", 5, 8, GroupSpec(KEY, (MemberSpec(1, 8),)))))
    assert changes(case.write()) == [Change.SUSPEND]


def test_a_new_leader_has_a_job_wait_at_its_old_place_that_was_let_go_long_ago_and_has_no_pods() -> None:
    case = Case(start_s=600.0)
    case.seen(RESUMED, Kept(version=2, is_resumed=True, since_s=3.0, place=5.0), now=603.0)
    (action,) = case.write()
    assert (action.change, action.kept.place, action.kept.evicted_for) == (Change.SUSPEND, 5.0, "")


def test_a_new_leader_calls_a_job_back_that_has_grown_while_nobody_led() -> None:
    case = Case()
    case.seen(RESUMED, Kept(version=2, is_resumed=True, leaf_count=8), unit=LARGER, has_cells=True)
    assert changes(case.write()) == [Change.SUSPEND]


def test_a_call_back_has_failed_once_it_is_refused_three_times() -> None:
    case = Case().running()
    case.queues.suspend(KEY, "Job/team/big", 5.0)
    for now in (5.0, 6.0, 8.0):
        assert [has_failed for _, has_failed in case.queues.still_leaving(now)] == [False]
        case.write(now, error="too long")
    assert [has_failed for _, has_failed in case.queues.still_leaving(8.0)] == [True]
    case.queues.requeue(KEY, 9.0)
    assert (case.life, case.queues.names[-2:], case.queues.still_leaving(9.0)) == (
        Life.WAITING,
        ["evicted", "changed"],
        [],
    )


def test_a_call_back_has_failed_a_minute_later() -> None:
    case = Case().running()
    case.queues.suspend(KEY, "Job/team/big", 5.0)
    case.write()
    assert [has_failed for now in (64.0, 65.0) for _, has_failed in case.queues.still_leaving(now)] == [False, True]


def test_a_job_that_is_suspended_leaves_for_as_long_as_its_pods_have_cells() -> None:
    case = Case().running()
    case.queues.suspend(KEY, "Job/team/big", 5.0)
    case.write()
    case.seen(HELD, has_cells=True)
    assert case.life is Life.LEAVING
    case.seen(HELD)
    assert case.life is Life.WAITING


def test_a_new_leader_has_a_suspended_job_leave_whose_pods_still_have_cells() -> None:
    case = Case()
    case.seen(HELD, Kept(version=3, since_s=0.5, evicted_for="Job/team/big"), has_cells=True)
    (action,) = case.write()
    assert (case.life, action.change) == (Life.LEAVING, Change.SUSPEND)
    assert action.kept.since_s == 0.5, "a third leader, too, is to know when that was decided"


def test_a_new_leader_knows_since_when_a_suspended_job_has_run() -> None:
    """Its pods may end well in their grace period: then its own schedule plays its whole run."""
    case = Case().running()
    began_s = case.queues.entries[KEY].start_s
    case.queues.suspend(KEY, "Job/team/big", 5.0)
    (action,) = case.write()
    later = Case()
    later.seen(HELD, action.kept, has_cells=True)
    (again,) = later.write()
    assert began_s == later.queues.entries[KEY].start_s == again.kept.ran_since_s > 0.0


def test_jobs_that_lost_their_cells_are_named() -> None:
    case = Case().running()
    assert case.queues.progressed({KEY: replace(ALL_PLACED, is_lost=True)}, 3.0) == {KEY: ""}


def test_a_job_that_is_no_unit_waits_in_no_queue() -> None:
    case = Case()
    case.seen(HELD, unit=None, problem="no virtual cluster")
    assert (case.queues.names, case.queues.entries[KEY].problem) == ([], "no virtual cluster")


@pytest.mark.parametrize(("step", "told"), [(HELD, "removed"), (RESUMED, "ended")])
def test_a_job_that_becomes_no_unit_leaves_its_queue(step: Job, told: str) -> None:
    case = Case() if step is HELD else Case().running()
    case.seen(step)
    case.seen(step, unit=None, problem="its queue is gone")
    assert case.queues.names[-1] == told


def test_the_queue_of_a_job_is_the_one_that_it_asks_for_now() -> None:
    case = Case().running()
    case.seen(RESUMED, unit=replace(UNIT, queue="root/other"))
    assert case.queues.queue_of(KEY) == "root/other"
    case.seen(RESUMED, unit=None, problem="its queue is gone")
    assert case.queues.queue_of(KEY) == ""


@pytest.mark.parametrize(("now", "life"), [(5.0, Life.STARTING), (11.0, Life.LEAVING)])
def test_a_job_that_is_a_unit_again_goes_on_as_its_state_says_and_not_with_the_life_of_then(
    now: float, life: Life
) -> None:
    case = Case(start_s=10.0).running()
    case.seen(RESUMED, unit=None)
    case.seen(RESUMED, now=now)
    assert case.life is life


def test_a_place_that_is_kept_is_written_alone() -> None:
    case = Case()
    case.seen(HELD)
    case.queues.keep(KEY, place=3.0)
    (action,) = case.write()
    assert (action.change, action.kept.place) == (Change.NOTE, 3.0)


MARKED = replace(HELD, annotations={"hivedscheduler.microsoft.com/queue-held": "true"})


def test_a_job_that_was_held_at_its_creation_and_proves_to_be_none_of_ours_is_let_go() -> None:
    case = Case()
    case.seen(MARKED, unit=None)
    assert [action.change for action in case.write()] == [Change.RESUME]
    case.seen(RESUMED, unit=None)
    assert case.write() == []
    assert case.queues.names == []


def test_a_job_whose_cells_cannot_be_made_out_stays_held() -> None:
    case = Case()
    case.seen(MARKED, unit=None, problem="its JobSet is not there yet")
    assert case.write() == []


def test_a_job_that_its_author_suspended_and_that_is_none_of_ours_stays_suspended() -> None:
    case = Case()
    case.seen(HELD, unit=None)
    assert case.write() == []


def test_a_job_that_is_taken_out_of_its_queue_is_let_go() -> None:
    case = Case()
    case.seen(HELD)
    case.seen(HELD, unit=None)
    assert case.queues.names == ["arrived", "removed"]
    assert [action.change for action in case.write()] == [Change.RESUME]


def test_a_job_is_let_go_once_more_for_pods_that_came_with_its_gate_later() -> None:
    case = Case()
    case.seen(HELD)
    case.queues.pods_are_gated(KEY)
    assert case.write() == []
    case.queues.resume(KEY, 1.0, is_borrowed=False)
    assert [action.change for action in case.write()] == [Change.RESUME]
    case.queues.pods_are_gated(KEY)
    assert [action.change for action in case.write()] == [Change.RESUME]
    assert case.queues.entries[KEY].kept.attempts == 1


def test_a_late_resume_of_an_earlier_term_is_undone_by_a_later_state() -> None:
    """So whoever leads next does not take the suspension for its owner's."""
    case = Case()
    case.seen(HELD)
    case.seen(RESUMED, Kept(version=1, is_resumed=True))
    (action,) = case.write()
    assert (action.change, action.kept.version, action.kept.is_resumed) == (Change.SUSPEND, 2, False)


@pytest.mark.parametrize("job", [HELD, LEAVING], ids=["held", "leaving"])
def test_a_late_suspension_of_an_earlier_term_is_not_its_owners(job: Job) -> None:
    case = Case()
    case.seen(HELD, Kept(version=2))
    case.queues.resume(KEY, 1.0, is_borrowed=False)
    case.write()
    case.seen(RESUMED)
    case.seen(job, Kept(version=2))
    assert (case.life, case.write()[0].kept.is_suspended) == (Life.LEAVING, False)
    case.seen(HELD)
    assert (case.life, case.queues.entries[KEY].may_not_start) == (Life.WAITING, False)


def test_an_owner_who_suspends_a_job_and_takes_its_state_off_has_suspended_it() -> None:
    case = Case()
    case.seen(HELD, Kept(version=2))
    case.queues.resume(KEY, 1.0, is_borrowed=False)
    case.write()
    case.seen(RESUMED)
    case.seen(HELD, Kept())
    assert changes(case.write()) == [Change.NOTE]
    case.seen(HELD)
    assert case.queues.entries[KEY].kept.is_suspended
