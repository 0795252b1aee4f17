"""Turns on a service that the test drives, whatever comes in between (rules 32.5, 32.6, 32.10)."""

from collections.abc import Callable
from itertools import permutations, product

import pytest
from msgspec.structs import replace

from hived.life.groups import virtual_leaves
from hived_config.rules import START_S
from hived_extender.queues.queued_jobs import LEAVE_S
from hived_extender.queues.reasons import NotItsTurn, PodsLate, told
from hived_extender.queues.table import IN_TIME
from hived_extender.queues.turns import ASK_ALL_S
from hived_extender.queues.watched import NOT_UNDERSTOOD
from tests.extender.machine.small_cluster import node_json, to_node
from tests.extender.machine.small_jobs import job, template
from tests.extender.queues.by_hand import QueuesByHand

pytestmark = pytest.mark.sample(9)

Step = Callable[[QueuesByHand], None]

STEPS: dict[str, Step] = {
    "job goes": lambda queues: queues.delete("runs"),
    "job ends": lambda queues: queues.end("runs"),
    "pods go": lambda queues: queues.delete_pods("runs"),
    "begin anew": lambda queues: queues.begin_anew(),
    "restart": lambda queues: queues.restart(),
}


def one_runs_and_two_wait(progress: str) -> QueuesByHand:
    """Job `runs` has both nodes; its pods are to be made, are to be placed, or run."""
    queues = QueuesByHand()
    queues.create("runs")
    queues.look()
    if progress != "held":
        queues.make_pods("runs")
    if progress == "placed":
        queues.place_pods("runs")
    queues.create("x")
    queues.create("y", 1)
    queues.look()
    assert queues.let_go() == ["runs"]
    assert queues.order() == ["x", "y"]
    return queues


@pytest.mark.sample(2)
@pytest.mark.parametrize("progress", ["held", "made", "placed"])
@pytest.mark.parametrize("anew", ["begin anew", "restart"])
@pytest.mark.parametrize("over", ["job goes", "job ends"])
def test_the_next_job_gets_its_cells_in_every_order_of_an_end_and_a_beginning(
    over: str, anew: str, progress: str
) -> None:
    for order in permutations((over, "pods go", anew)):
        for looks in product((False, True), repeat=2):
            queues = one_runs_and_two_wait(progress)
            for step, is_look in zip(order, (*looks, True), strict=True):
                STEPS[step](queues)
                if is_look:
                    queues.look()  # hears of all
            queues.look()  # and of all that it has written itself
            assert queues.let_go()[:1] == ["x"], (order, looks)
            assert queues.order() == ["y"], (order, looks)


def test_jobs_that_run_keep_their_virtual_cells_in_their_own_schedule_when_another_process_leads() -> None:
    queues = QueuesByHand()
    for name in ("later", "earlier"):  # another process is told of pods in the order of their names
        queues.create(name, 1)
        queues.look()
        queues.bring_pods(name)
    queues.restart()
    queues.look()
    for name in ("later", "earlier"):
        (group,) = [each for each in queues.cluster.state.groups if name in each]
        assert queues.turns.queues.own_cells(job(name).key) == virtual_leaves(queues.cluster.state, group)


def test_an_old_state_that_its_owner_writes_onto_a_job_again_counts_nothing_in_the_next_term() -> None:
    queues = QueuesByHand()
    queues.create("x", 1)
    queues.look()
    earlier, key = queues.jobs["x"], job("x").key
    queues.turns.queues.held(key, True)
    queues.turns.queues.keep(key, is_held=True)
    queues.look()
    queues.suspend("x")
    queues.look()
    queues.write_again("x", earlier)
    queues.begin_anew()
    queues.look()
    queues.look()
    assert (queues.let_go(), queues.order()) == ([], ["x"])


@pytest.mark.parametrize("fate", ["not yet called", "refused", "carried out later", "not yet seen"])
def test_jobs_that_are_yet_to_be_resumed_get_their_cells_in_other_turns(fate: str) -> None:
    queues = QueuesByHand()
    for name in ("x", "y", "z"):
        queues.create(name, 1)
    queues.take_turn()
    actions = [] if fate == "not yet called" else queues.turns.take_actions(64)
    if fate == "not yet seen":
        for action in actions:
            queues.turns.wrote(action, "")
    queues.begin_anew()
    assert list(queues.cluster.service.machine.holds.states()) == [], "the first turn holds their cells"
    if fate in ("carried out later", "not yet seen"):
        for action in actions:
            queues.write(action)
    queues.look()
    queues.look()
    assert (queues.let_go(), queues.order()) == (["x", "y"], ["z"])


def test_a_job_that_other_turns_refuse_keeps_the_cells_that_its_pods_have_not_taken() -> None:
    queues = QueuesByHand()
    queues.create("x")
    queues.look()
    queues.jobs["x"] = replace(queues.jobs["x"], need=None, problem="names no quota")
    queues.begin_anew()
    queues.look()
    assert list(queues.cluster.service.machine.holds.states()) == [job("x").key]


def test_jobs_that_are_yet_to_be_resumed_keep_no_cells_once_others_come_first() -> None:
    queues = QueuesByHand()
    queues.create("x")
    queues.take_turn()
    queues.begin_anew()
    queues.create("y", priority=1)
    queues.look()
    assert (queues.let_go(), queues.order()) == (["y"], ["x"])


def test_a_job_that_was_let_go_long_ago_and_has_no_pod_is_called_back_by_another_process() -> None:
    queues = QueuesByHand()
    queues.create("x", 1)
    queues.look()
    earlier = queues.jobs["x"]
    queues.suspend("x")
    queues.create("y", 1, priority=1)
    queues.look()
    queues.bring_pods("y")
    queues.write_again("x", earlier)
    queues.now += START_S
    queues.restart()
    queues.look()
    assert queues.let_go() == ["y"]


@pytest.mark.parametrize("ahead_s", [1.0, 3 * 3600.0, 1e9])
def test_jobs_of_an_api_server_whose_clock_is_ahead_start_in_their_order(ahead_s: float) -> None:
    queues = QueuesByHand()
    queues.create("x", ahead_s=ahead_s)
    queues.create("y", ahead_s=ahead_s)
    queues.look()
    assert queues.let_go() == ["x"]
    queues.bring_pods("x")
    queues.look()
    queues.delete_pods("x")
    queues.end("x")
    queues.news["x"] = None
    for _ in range(3):
        queues.look()
    assert "y" in queues.let_go()


def test_a_job_whose_controller_makes_no_pod_goes_behind_the_others_after_its_time() -> None:
    queues = QueuesByHand()
    queues.create("x")
    queues.look()
    queues.create("y")
    queues.look()
    assert queues.let_go() == ["x"]
    queues.now += START_S
    queues.look()
    queues.look()
    assert (queues.let_go(), queues.order()) == (["y"], ["x"])


def test_a_job_that_its_owner_suspends_before_it_has_pods_holds_no_cells_any_more() -> None:
    queues = QueuesByHand()
    queues.create("x")
    queues.look()
    queues.suspend("x")
    queues.turns.job_seen(job("x").job_name, queues.jobs["x"])
    assert queues.cluster.state_or_none("x") is None


def test_a_job_that_nobody_may_suspend_loses_its_pods_and_others_their_wait() -> None:
    queues = QueuesByHand()
    queues.run("a", "b")
    queues.unwritable.append("a")
    queues.create("x", 2, priority=1)
    for _ in range(10):
        queues.look()
    assert queues.cluster.kube.leaving == [("evicted", "a-0")]
    assert "x" not in queues.let_go()
    queues.delete_pods("a")
    queues.look()
    queues.look()
    assert "x" in queues.let_go()


def test_pods_that_go_on_although_their_job_is_suspended_are_evicted_after_a_minute() -> None:
    queues = QueuesByHand()
    queues.run("a", "b")
    queues.deaf.append("a")
    queues.create("x", 2, priority=1)
    queues.look()
    queues.look()
    assert (queues.let_go(), queues.order()) == ([], ["x", "b"])
    queues.now += LEAVE_S
    queues.look()
    assert queues.cluster.kube.leaving == [("evicted", "a-0")]
    queues.delete_pods("a")
    queues.look()
    assert (queues.let_go(), queues.order()) == (["x"], ["a", "b"])


def test_pods_beyond_the_size_of_a_job_are_work_of_no_queue() -> None:
    queues = QueuesByHand()
    queues.run("a")
    queues.cluster.come("more", "a", 4)
    queues.cluster.ask("more")
    queues.create("x", 1)
    queues.look()
    assert queues.let_go() == ["a"]
    assert isinstance(queues.turns.queues.why(job("x").key), NotItsTurn)


def test_a_job_that_hived_fails_on_stops_no_turn() -> None:
    queues = QueuesByHand()
    queues.create("odd", template=template(nodeSelector={"rack": "\ud800"}))
    queues.create("x")
    queues.look()
    assert queues.let_go() == ["x"]
    assert queues.turns.queues.entries[job("odd").key].problem == NOT_UNDERSTOOD


def test_a_job_gets_cells_of_nodes_that_get_the_label_it_asks_for_though_the_core_is_told_nothing() -> None:
    queues = QueuesByHand()
    queues.create("x", 1, template=template(nodeSelector={"rack": "a"}))
    queues.look()
    assert queues.let_go() == []
    labelled = node_json("n1")
    labelled["metadata"]["labels"] = {"rack": "a"}
    queues.cluster.service.node_seen(to_node(labelled))
    queues.now += ASK_ALL_S
    queues.look()
    queues.look()
    assert queues.let_go() == ["x"]


def test_work_of_no_queue_counts_once_a_job_that_was_in_its_way_has_left_its_own_schedule() -> None:
    """Pods of a job that was deleted are work of no queue until they are gone."""
    queues = QueuesByHand()
    queues.run("a", "b")
    own = queues.turns.queues
    for name in "ab":
        queues.delete(name)
    queues.look()
    queues.create("x")
    queues.look()
    assert queues.let_go() == []
    assert isinstance(own.why(job("x").key), NotItsTurn)
    for name in "ab":
        queues.delete_pods(name)
    queues.look()
    queues.look()
    assert queues.let_go() == ["x"]


def alone_and_late() -> QueuesByHand:
    """Job x was let go, and none of its pods came in time."""
    queues = QueuesByHand()
    queues.create("x")
    queues.look()
    assert queues.let_go() == ["x"]
    comes_late(queues)
    return queues


def comes_late(queues: QueuesByHand) -> None:
    """No pod comes for the cells that are held."""
    queues.now += START_S
    for _ in range(3):
        queues.look()
    assert queues.let_go() == []


def is_let_go_after(queues: QueuesByHand, rest_s: float) -> bool:
    """Does x get its cells after so long, and not before?"""
    queues.now += rest_s - 10
    for _ in range(3):
        queues.look()
    assert queues.let_go() == []
    queues.now += 10
    queues.look()
    return queues.let_go() == ["x"]


def test_a_job_whose_pods_do_not_come_rests_longer_each_time_although_nobody_else_waits() -> None:
    queues = alone_and_late()
    reason = queues.turns.queues.why(job("x").key)
    assert isinstance(reason, PodsLate)
    assert told(reason, str).sentence.startswith(
        "its cells were held, and its pods did not come within 10 minutes: it tries again at "
    )
    assert is_let_go_after(queues, START_S)
    comes_late(queues)
    assert is_let_go_after(queues, 2 * START_S)
    comes_late(queues)
    assert is_let_go_after(queues, 4 * START_S)


def test_opportunistic_pods_and_other_jobs_have_the_cells_of_a_job_that_rests() -> None:
    queues = alone_and_late()
    notes = {"hivedscheduler.microsoft.com/priority": "-1"}
    for number in range(4):
        queues.cluster.pod(f"lent-{number}", 4, notes)
        assert queues.cluster.ask(f"lent-{number}") == f"n{number}"
    queues.create("y")
    for _ in range(3):
        queues.look()
    assert not [key for key in queues.let_go() if key == "x"]


def test_a_job_whose_pods_have_come_counts_as_in_time_again() -> None:
    queues = alone_and_late()
    assert is_let_go_after(queues, START_S)
    queues.bring_pods("x")
    queues.look()
    queues.suspend("x")
    queues.look()
    assert queues.turns.queues.entries[job("x").key].kept.late == IN_TIME


@pytest.mark.parametrize("change", ["begin anew", "restart"])
def test_a_job_rests_on_in_other_turns(change: str) -> None:
    queues = alone_and_late()
    STEPS[change](queues)
    assert is_let_go_after(queues, START_S)


def test_a_rest_is_over_where_the_clock_was_set_back() -> None:
    late = IN_TIME.after(1000.0, START_S)
    assert [late.goes_on(now) for now in (999.0, 1000.0, 999.0 + START_S, 1000.0 + START_S)] == [
        False,
        True,
        True,
        False,
    ]


def test_a_job_that_changes_while_it_rests_goes_on_resting() -> None:
    queues = alone_and_late()
    queues.scale("x", 1)
    assert is_let_go_after(queues, START_S)
