"""Plans for a running service: inputs, a plan carried out and refused, room made by itself (rules 28.4, 28.11)."""

import msgspec
import pytest

from hived.scheduler import check_invariants
from hived.values.errors import UserError
from hived_config.loader import load_text
from hived_extender.api.defrag import DefragArgs, DefragPlan, Inputs, LastLook
from hived_extender.insight.defrag.desk import DefragDesk
from hived_extender.insight.defrag.execution import copy_of
from hived_extender.insight.defrag.planner import PLAN, Task, job_shapes, plan
from hived_extender.insight.defrag.puzzle import read_wants
from hived_extender.kube.client import KubeError
from hived_extender.machine.verbs import NotLeadingError
from tests.expecting import expect_soon
from tests.extender.insight.defrag.halves import AUTOMATIC, Halves
from tests.extender.machine.small_cluster import CONFIG, cluster_spec, spec_text


def planned(halves: Halves, inputs: Inputs | None = None) -> DefragPlan:
    inputs = inputs or halves.desk.inputs()
    found = plan(Task(cluster_spec(), inputs, "a", read_wants(("1xNODE",))))
    assert found.outcome == PLAN
    return found


def test_inputs_make_the_same_groups_again() -> None:
    halves = Halves()
    inputs = halves.desk.inputs()
    assert msgspec.json.decode(msgspec.json.encode(inputs), type=Inputs) == inputs
    copy = copy_of(load_text(inputs.configuration, "f", environ={}).cluster, inputs)
    present = halves.cluster.state
    assert {name: group.physical.tolist() for name, group in copy.state.groups.items()} == {
        name: group.physical.tolist() for name, group in present.groups.items()
    }
    assert not copy.refused
    assert inputs.bad_nodes == []
    assert all(group.may_move for group in inputs.groups)


def test_inputs_have_bad_nodes_and_jobs_that_wait() -> None:
    halves = Halves(bad_nodes=("n1",))
    halves.big()
    inputs = halves.desk.inputs()
    assert inputs.bad_nodes == ["n1"]
    assert [(job.name, job.pods) for job in inputs.waiting] == [("ns:big", ["ns/big"])]


def test_a_plan_makes_room_for_the_job_that_waits() -> None:
    halves = Halves()
    big = halves.big()
    inputs = halves.desk.inputs()
    vc, shapes = job_shapes(inputs, "ns:big")
    found = plan(Task(cluster_spec(), inputs, vc, shapes))
    assert halves.desk.apply(DefragArgs(plan=found), "ann").who == "ann"
    with pytest.raises(UserError, match="groups are being moved already"):
        halves.desk.apply(DefragArgs(plan=found), "bob")
    (move,) = found.moves
    assert halves.carry_on() == move.becomes[0].node
    assert halves.desk.report().state == "done"
    assert halves.cluster.filter(big)["NodeNames"] != [move.becomes[0].node]
    check_invariants(halves.cluster.state)


def test_a_plan_is_refused_if_its_group_is_gone() -> None:
    halves = Halves()
    found = planned(halves)
    for pod in (halves.first, halves.second):
        halves.cluster.delete(pod)
    with pytest.raises(UserError, match=r"does not hold any more: affinity group ns:.* does not run") as caught:
        halves.desk.apply(DefragArgs(plan=found), "ann")
    assert caught.value.code == 409


def test_a_plan_is_refused_if_the_new_cells_are_taken() -> None:
    halves = Halves()
    found = planned(halves)
    halves.place("third")
    halves.place("fourth")
    with pytest.raises(UserError, match="the plan does not hold any more"):
        halves.desk.apply(DefragArgs(plan=found), "ann")
    assert halves.evicted() is None


def test_a_plan_is_refused_if_it_would_not_make_the_room() -> None:
    halves = Halves()
    found = planned(halves)
    promised = msgspec.structs.replace(found, wanted=[*found.wanted, *found.wanted])
    with pytest.raises(UserError, match="there would be no room for 1xNODE after the moves"):
        halves.desk.apply(DefragArgs(plan=promised), "ann")


def test_a_plan_without_moves_is_none() -> None:
    with pytest.raises(UserError, match="the plan has no moves"):
        Halves().desk.apply(DefragArgs(plan=DefragPlan(outcome=PLAN, vc="a", wanted=[])), "ann")


def test_a_plan_without_a_new_place_is_refused() -> None:
    halves = Halves()
    found = planned(halves)
    broken = msgspec.structs.replace(found, moves=[msgspec.structs.replace(found.moves[0], becomes=[])])
    with pytest.raises(UserError, match="names no new place"):
        halves.desk.apply(DefragArgs(plan=broken), "ann")


def test_a_replica_that_does_not_lead_has_no_inputs() -> None:
    halves = Halves()
    halves.cluster.service.follow("another one leads")
    with pytest.raises(NotLeadingError):
        halves.desk.inputs()
    with pytest.raises(NotLeadingError):
        halves.desk.report()
    assert halves.desk.look() == []


def test_room_is_made_by_itself_for_the_first_guaranteed_job() -> None:
    halves = Halves(AUTOMATIC)
    big = halves.big()
    assert halves.desk.look() == ["a"]
    assert halves.desk.report().who == "hived"
    halves.carry_on()
    assert len(halves.cluster.filter(big)["NodeNames"]) == 1


def test_nothing_is_moved_by_itself_without_the_key_or_without_a_job() -> None:
    halves = Halves(CONFIG)
    halves.big()
    assert halves.desk.look() == []
    assert Halves(AUTOMATIC).desk.look() == []


def test_a_virtual_cluster_is_looked_at_once_a_minute_and_only_after_a_change() -> None:
    halves = Halves(AUTOMATIC)
    assert halves.desk.look() == []
    halves.big()
    halves.now += 59
    assert halves.desk.look() == []
    halves.now += 1
    assert halves.desk.look() == ["a"]


def test_the_budget_is_for_an_hour() -> None:
    halves = Halves(AUTOMATIC)
    big = halves.big()
    assert halves.desk.look() == ["a"]
    halves.carry_on()
    halves.cluster.delete(big)
    halves.place("third")
    stays = [name for name in ("first", "second") if f"ns/{name}" in halves.pods()]
    halves.cluster.delete(halves.first if stays == ["first"] else halves.second)
    halves.big("large")
    halves.now += 3599
    assert halves.desk.look() == []
    halves.now += 61
    assert halves.desk.look() == ["a"]


def test_work_beyond_the_budget_is_not_lost() -> None:
    halves = Halves(AUTOMATIC.replace("maxGpuHours: 1", "maxGpuHours: 0"), is_leading=True)
    for pod in (halves.first, halves.second):
        halves.cluster.kube.pods[pod["metadata"]["name"]]["status"] |= {
            "phase": "Running",
            "startTime": "1970-01-01T00:00:10Z",
        }
        halves.cluster.kube.touch(pod)
        halves.cluster.see(pod)
    halves.big()
    assert all(group.started_at is not None for group in halves.desk.inputs().groups)
    assert halves.desk.look() == []


def last_look(halves: Halves) -> LastLook:
    (found,) = halves.desk.report().automatic
    assert found.last_look is not None
    return found.last_look


def test_a_spent_budget_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    halves = Halves(AUTOMATIC)
    big = halves.big()
    halves.desk.look()
    assert last_look(halves) == LastLook(1000.0, "moved", "ns:big")
    halves.carry_on()
    halves.cluster.delete(big)
    halves.cluster.place("third", spec_text(leaf_cells=2, group="third"))
    halves.big("large")
    halves.now += 60
    assert halves.desk.look() == []
    (budget,) = halves.desk.report().automatic
    assert (budget.vc, budget.left_groups, budget.left_gpu_hours) == ("a", 0, 1.0)
    looked = last_look(halves)
    assert (looked.outcome, looked.job) == ("over budget", "ns:large")
    assert looked.reason == "the budget of this hour is spent: at most 1 group"
    assert "over budget" in [getattr(record, "fields", {}).get("outcome") for record in caplog.records]


class Trouble:
    """The configuration in force; the first time, reading it has a mistake of ours."""

    def __init__(self) -> None:
        self.is_first = True

    def __call__(self) -> str:
        if self.is_first:
            self.is_first = False
            raise KeyError("a mistake")
        return AUTOMATIC


def test_a_mistake_of_ours_is_loud_and_does_not_end_the_thread(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("hived_extender.insight.defrag.desk.LOOK_S", 0.01)
    halves = Halves(AUTOMATIC)
    halves.big()
    clock = [1000.0]
    desk = DefragDesk(halves.cluster.service, Trouble(), clock=lambda: clock[0], now=lambda: clock[0])
    desk.start()
    try:
        metrics = halves.cluster.service.metrics
        expect_soon(lambda: b'hived_looks_for_room_total{outcome="failed"} 1.0' in metrics.text())
        assert [record.levelname for record in caplog.records if record.exc_info] == ["CRITICAL"]
        (state,) = desk.report().automatic
        assert state.last_look is not None
        assert state.last_look.reason == "a mistake in hived, see its log: KeyError"
        clock[0] += 60
        expect_soon(lambda: desk.report().state == "moving")
    finally:
        desk.stop()


class NoLedger:
    """A Secret that cannot be reached."""

    def read_moves(self) -> tuple[bytes, str]:
        return b"", "1"

    def write_moves(self, text: bytes, version: str) -> None:
        raise KubeError(0, "", "the API server does not answer")


def test_nobody_is_moved_by_itself_if_the_cost_cannot_be_kept() -> None:
    halves = Halves(AUTOMATIC, NoLedger())
    halves.big()
    assert halves.desk.look() == []
    assert last_look(halves).reason == "the API server does not answer"
    assert halves.evicted() is None
    assert halves.desk.report().automatic[0].left_groups == 1


def test_people_may_move_groups_all_the_same() -> None:
    halves = Halves(AUTOMATIC, NoLedger())
    assert halves.desk.apply(DefragArgs(plan=planned(halves)), "ann").state == "moving"
    assert halves.desk.report().automatic[0].left_groups == 0


def test_a_refused_plan_costs_nothing() -> None:
    halves = Halves(AUTOMATIC)
    found = planned(halves)
    halves.desk.apply(DefragArgs(plan=found), "ann")
    with pytest.raises(UserError, match="being moved already"):
        halves.desk.apply(DefragArgs(plan=found), "bob")
    assert halves.desk.report().automatic[0].left_groups == 0
    halves.desk.stop_moving("ann")
    assert halves.desk.stop_moving("ann").reason == "nothing is under way"
