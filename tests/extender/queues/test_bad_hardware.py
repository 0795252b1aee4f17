"""Own schedules while hardware is bad: what is bad and in use is lacking to nobody else (rule 30.12)."""

from dataclasses import replace

import pytest

from hived.cells.topology import NO_CELL
from hived.life.groups import nodes_of_slots, virtual_leaves
from hived.values.specs import VirtualCellSpec, VirtualClusterSpec
from hived_extender.queues.own_schedule import behind_node
from hived_extender.queues.policies import QueueRules
from hived_extender.queues.policies import Rules as QueuesRules
from hived_extender.queues.queues import Queues
from hived_extender.queues.reasons import Running
from tests.extender.machine.small_cluster import NODES, node
from tests.extender.queues.by_hand import QueuesByHand
from tests.extender.queues.small import SPEC, Desk, unit

OWN = Running(is_borrowed=False, is_entitled=True)
PROMISED = {"A": 3, "B": 1}
SPEC_OF_TWO = replace(
    SPEC, virtual_clusters={vc: VirtualClusterSpec(vc, (VirtualCellSpec("NODE", n),)) for vc, n in PROMISED.items()}
)


def fail(desk: Desk, *keys: str) -> None:
    """The nodes of these units turn bad."""
    state = desk.live.state
    names = [name for key in keys for name in nodes_of_slots(state, state.groups[key])]
    for name in names:
        desk.live.set_health(name, False)
    behind = {name: behind_node(state, state.topology.node_index[name]) for name in names}
    desk.queues.health(dict.fromkeys(names, False), behind)


@pytest.mark.parametrize("goes_on", [True, False], ids=["the same queues", "queues that begin anew"])
def test_jobs_on_bad_nodes_leave_the_rest_of_the_hardware_to_others(goes_on: bool) -> None:
    desk = Desk(spec=SPEC_OF_TWO, borrows=True)
    desk.come(unit("lent", "B", priority=-1))
    desk.come(unit("a1", at=1), unit("a2", at=2))
    desk.end("lent", 5.0)  # so that the units are on other nodes than in the own schedules
    if not goes_on:
        desk.queues = Queues(SPEC_OF_TWO, None)
        desk.queues.told_rules(QueuesRules(default=QueueRules(borrows=True)))
        for key in ("a1", "a2"):
            desk.queues.arrived(unit(key), runs_since_s=1.0)
            desk.queues.runs_on(key, virtual_leaves(desk.live.state, key))
    fail(desk, "a1", "a2")
    assert sorted(desk.come(unit("a3", at=6), unit("b1", "B", at=6))) == ["a3", "b1"]
    assert {desk.queues.why(key) for key in ("a1", "a2", "a3", "b1")} == {OWN}


def test_a_bad_node_without_a_job_is_lacking_whoever_is_on_it_in_the_own_schedules() -> None:
    desk = Desk(spec=SPEC_OF_TWO)
    desk.come(unit("a1"))
    own = desk.queues._table.own
    (there,) = nodes_of_slots(own.state, own.state.groups["a1"])
    own.health(there, False, NO_CELL)
    assert not own.state.cells.bad[own.state.cells.bound[own.runs["a1"].leaves]].any()
    assert own.state.cells.node_bad.sum() == 1
    own.health(there, True)
    assert not own.state.cells.node_bad.any()


def test_a_new_service_starts_jobs_beside_those_on_bad_nodes() -> None:
    queues = QueuesByHand()
    queues.run("first")
    (there,) = queues.cluster.placed().values()
    others = [name for name in NODES if name != there]
    for name in (there, *others[:2]):
        queues.cluster.service.node_seen(node(name, is_ready=False))
    queues.begin_anew()
    queues.create("second", 1)
    queues.look()
    assert queues.let_go() == ["first", "second"]
    queues.bring_pods("second")
    assert others[2] in queues.cluster.placed().values()
