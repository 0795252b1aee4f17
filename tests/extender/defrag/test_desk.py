"""Plans for a running service: its inputs, a plan carried out and refused, and room made by itself."""

import msgspec
import pytest

from hived.errors import UserError
from hived.scheduler import check_invariants
from hived_config.loader import load_text
from hived_extender.api.defrag import DefragArgs, DefragPlan, Inputs
from hived_extender.defrag.planner import PLAN, Task, job_shapes, plan
from hived_extender.defrag.states import copy_of
from hived_extender.defrag.wants import read_wants
from hived_extender.service.verbs import NotLeadingError
from tests.extender.defrag.halves import AUTOMATIC, Halves
from tests.extender.service.small_cluster import CONFIG, cluster_spec


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
    assert copy.refused == {}
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
