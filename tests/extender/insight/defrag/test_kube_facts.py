"""Moves heed Kubernetes' rules: they are asked about the state after, for moved pods and the job (rule 28.5)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.api.defrag import DefragArgs, DefragPlan
from hived_extender.insight.defrag import planner
from hived_extender.insight.defrag.collecting import collect
from hived_extender.insight.defrag.planner import NOT_KNOWN, NOTHING_POSSIBLE, PLAN
from hived_extender.machine.recording.operations import STAND_IN
from hived_extender.machine.stimuli import MovesAsked
from tests.extender.insight.defrag.judged_moves import JudgedMoves
from tests.extender.insight.defrag.small_moves import MAY, SmallMoves
from tests.extender.machine.small_rooms import ROOM

Rooms = Callable[..., "Halves"]


def apart(key: str = "kubernetes.io/hostname", **labels: str) -> dict[str, Any]:
    """Required anti-affinity to pods with these labels."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


class Halves(SmallMoves):
    """Nodes of four GPUs, on each of which a group of two runs: g0 on n0, g1 on n1, ... All may move."""

    def __init__(self, count: int = 3, groups: dict[int, dict[str, Any]] | None = None, **more: Any) -> None:
        super().__init__(count, **more)
        for number in range(count):
            options = {"annotations": MAY, **(groups or {}).get(number, {})}
            self.start_on(f"n{number}", f"g{number}", 2, group=f"g{number}", **options)


@pytest.fixture
def halves() -> Iterator[Rooms]:
    made: list[Halves] = []

    def make(*args: Any, **options: Any) -> Halves:
        made.append(Halves(*args, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.service.close()


def expect_carried_out(cluster: Halves, found: DefragPlan) -> None:
    """Every moved pod, and the job, runs."""
    assert found.outcome == PLAN, found
    cluster.carry_out(found)
    assert cluster.are_all_running, cluster.running()


@pytest.mark.parametrize(
    ("resource", "much", "most"),
    [
        ("cpu", "6", "7"),
        ("memory", "24Gi", "30Gi"),
        ("ephemeral-storage", "80Gi", "90Gi"),
        ("example.com/fpga", "2", "2"),
        ("hugepages-2Mi", "3Gi", "3Gi"),
    ],
)
def test_a_group_moves_to_the_node_that_has_enough_for_it(halves: Rooms, resource: str, much: str, most: str) -> None:
    groups = {number: {"needs": {resource: much if number == 0 else "0"}} for number in range(3)}
    cluster = halves(3, groups, room={**ROOM, "hugepages-2Mi": "4Gi"})
    cluster.foreign("n1", needs={resource: most})
    cluster.foreign("n2", "other", needs={"pods": "0"})
    cluster.big()
    found = cluster.plan()
    assert cluster.moved(found).get("ns:g0", "n2") == "n2"
    expect_carried_out(cluster, found)


def test_room_is_made_on_the_node_that_has_enough_for_the_job(halves: Rooms) -> None:
    cluster = halves()
    for node in ("n0", "n1"):
        cluster.foreign(node, f"foreign-{node}", needs={"cpu": "4"})
    cluster.big(needs={"cpu": "6"})
    found = cluster.plan()
    assert list(cluster.moved(found)) == ["ns:g2"]
    expect_carried_out(cluster, found)


def test_nobody_moves_where_no_node_has_enough_for_the_job(halves: Rooms) -> None:
    cluster = halves()
    for node in cluster.names:
        cluster.foreign(node, f"foreign-{node}", needs={"cpu": "4"})
    cluster.big(needs={"cpu": "6"})
    found = cluster.plan()
    assert found.outcome == NOTHING_POSSIBLE
    assert found.cause == "no arrangement"
    assert "where Kubernetes' rules allow the pods (n0: Insufficient cpu)" in found.reason


def test_nobody_moves_where_no_node_takes_the_pod_that_would_have_to(halves: Rooms) -> None:
    cluster = halves(2, {number: {"needs": {"cpu": "6"}} for number in range(2)})
    cluster.big()
    found = cluster.plan()
    assert found.outcome in (NOTHING_POSSIBLE, NOT_KNOWN)
    assert found.cause in ("no arrangement", "not confirmed")
    assert "Insufficient cpu" in found.reason or "Kubernetes' rules" in found.reason


def test_that_all_groups_have_to_stay_on_their_nodes_is_known_at_once(halves: Rooms) -> None:
    selectors = {number: {"nodeSelector": {"kubernetes.io/hostname": f"n{number}"}} for number in range(12)}
    cluster = halves(12, selectors)
    cluster.big()
    found = cluster.plan()
    assert (found.outcome, found.cause) == (NOTHING_POSSIBLE, "no arrangement")
    assert "where Kubernetes' rules allow the pods" in found.reason


def test_of_groups_that_stay_on_their_nodes_the_only_other_one_moves(halves: Rooms) -> None:
    selectors = {number: {"nodeSelector": {"kubernetes.io/hostname": f"n{number}"}} for number in range(11)}
    cluster = halves(12, selectors)
    cluster.big()
    found = cluster.plan()
    assert list(cluster.moved(found)) == ["ns:g11"]
    expect_carried_out(cluster, found)


@pytest.mark.parametrize(
    ("mover", "other"),
    [
        ({"affinity": apart(app="other")}, {"labels": {"app": "other"}}),
        ({"labels": {"app": "mover"}}, {"affinity": apart(app="mover")}),
        ({"ports": [{"hostPort": 8080}]}, {"ports": [{"hostPort": 8080}]}),
    ],
    ids=["its anti-affinity", "theirs", "host ports"],
)
def test_a_group_does_not_move_to_a_neighbour_that_excludes_it(
    halves: Rooms, mover: dict[str, Any], other: dict[str, Any]
) -> None:
    cluster = halves(3, {0: mover, 1: {**other, "annotations": {}}, 2: {"annotations": {}}})
    cluster.big()
    found = cluster.plan()
    assert cluster.moved(found) == {"ns:g0": "n2"}
    expect_carried_out(cluster, found)


def test_the_job_does_not_come_beside_a_pod_that_excludes_it(halves: Rooms) -> None:
    cluster = halves()
    cluster.foreign("n0", labels={"app": "loud"})
    cluster.foreign("n1", "other", affinity=apart(app="big"))
    cluster.big(labels={"app": "big"}, affinity=apart(app="loud"))
    found = cluster.plan()
    assert list(cluster.moved(found)) == ["ns:g2"]
    expect_carried_out(cluster, found)


def test_a_pod_of_a_zone_stays_in_it(halves: Rooms) -> None:
    label = "topology.kubernetes.io/zone"
    labels = {"n0": {label: "a"}, "n1": {label: "b"}, "n2": {label: "a"}}
    cluster = halves(
        3, {0: {"nodeSelector": {label: "a"}}, 1: {"annotations": {}}, 2: {"annotations": {}}}, labels=labels
    )
    cluster.big()
    found = cluster.plan()
    assert cluster.moved(found) == {"ns:g0": "n2"}
    expect_carried_out(cluster, found)


def test_a_group_whose_volume_says_where_it_may_be_is_not_moved(halves: Rooms) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster = halves(2, {0: {"volumes": volumes}, 1: {"annotations": {}}})
    cluster.big()
    found = cluster.plan()
    assert found.outcome == NOT_KNOWN
    assert found.cause == "not confirmed"
    assert (
        "only kube-scheduler knows whether ns:g0 would find a node elsewhere: its volume data is a claim"
        in found.reason
    )


def test_another_group_moves_instead_of_one_with_a_volume(halves: Rooms) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster = halves(2, {0: {"volumes": volumes}})
    cluster.big()
    found = cluster.plan()
    assert cluster.moved(found) == {"ns:g1": "n0"}
    expect_carried_out(cluster, found)


def test_a_gang_of_two_gets_nodes_that_take_both_of_its_pods(halves: Rooms) -> None:
    cluster = halves(5)
    for node in ("n0", "n1"):
        cluster.foreign(node, f"foreign-{node}", needs={"cpu": "7"})
    for number in range(2):
        pod = cluster.pod(f"big-{number}", 4, group="big", pods=2, needs={"cpu": "4"}, affinity=apart(app="big"),
                          labels={"app": "big"})  # fmt: skip
        assert cluster.run(pod) == ""
    found = cluster.plan()
    assert found.outcome == PLAN
    places = {place.node for one in found.wanted for place in one.places}
    assert len(places) == 2
    assert not places & {"n0", "n1"}


def test_two_groups_that_share_no_node_do_not_move_to_one(halves: Rooms) -> None:
    groups = {number: {"needs": {"cpu": "5"}} for number in range(2)} | {2: {"annotations": {}}, 3: {"annotations": {}}}
    cluster = halves(4, groups)
    for number in range(2):
        cluster.pod(f"big-{number}", 4, group="big", pods=2)
    assert cluster.run(cluster.kube.pods["big-0"]) == ""
    found = cluster.plan()
    assert sorted(cluster.moved(found).values()) == ["n2", "n3"]


def test_a_plan_is_refused_once_a_foreign_pod_has_the_cpu_of_the_new_node(halves: Rooms) -> None:
    cluster = halves(2, {0: {"needs": {"cpu": "4"}}, 1: {"annotations": {}}})
    cluster.big()
    found = cluster.plan()
    assert cluster.moved(found) == {"ns:g0": "n1"}
    cluster.foreign("n1", needs={"cpu": "6"})
    with pytest.raises(UserError, match="node n1 would not take ns:g0: Insufficient cpu") as caught:
        cluster.desk.apply(DefragArgs(plan=found), "ann")
    assert caught.value.code == 409
    cluster.pass_time(5)
    assert cluster.kube.leaving == []


def test_a_plan_is_refused_once_a_foreign_pod_has_the_cpu_that_the_job_needs(halves: Rooms) -> None:
    cluster = halves(2, {1: {"annotations": {}}})
    cluster.big(needs={"cpu": "6"})
    found = cluster.plan()
    cluster.foreign("n0", needs={"cpu": "6"})
    with pytest.raises(UserError, match=r"no room for ns:big after the moves \(n0: Insufficient cpu\)"):
        cluster.desk.apply(DefragArgs(plan=found), "ann")
    cluster.pass_time(5)
    assert cluster.kube.leaving == []


def test_a_cordoned_or_tainted_node_is_no_place_to_move_to(halves: Rooms) -> None:
    cluster = halves(3)
    cluster.big()
    cluster.change_node("n1", taints=[{"key": "broken", "effect": "NoSchedule"}])
    found = cluster.plan()
    assert "n1" not in cluster.moved(found).values()
    assert found.outcome == PLAN
    assert {place.node for one in found.wanted for place in one.places} <= {"n0", "n2"}


def test_a_job_that_kubernetes_keeps_out_has_no_room_though_cells_are_free(halves: Rooms) -> None:
    cluster = halves(2)
    for node in cluster.names:
        cluster.foreign(node, f"foreign-{node}", needs={"cpu": "6"})
    pod = cluster.pod("small", 2, group="small", needs={"cpu": "6"})
    assert cluster.run(pod) == ""
    found = cluster.plan("ns:small")
    assert found.outcome == NOTHING_POSSIBLE
    assert "n0: Insufficient cpu" in found.reason


def test_a_job_of_which_only_kube_scheduler_knows_the_nodes_gets_room_where_it_was_offered_some(halves: Rooms) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster = halves(3)
    pod = cluster.pod("big", 4, group="big", volumes=volumes)
    assert cluster.filter(pod, ["n1"]).get("NodeNames") is None
    found = cluster.plan()
    assert list(cluster.moved(found)) == ["ns:g1"]


def test_a_step_does_not_begin_where_kubernetes_keeps_its_pods_out_by_now(halves: Rooms) -> None:
    cluster = halves(2, {0: {"needs": {"cpu": "4"}}, 1: {"annotations": {}}})
    cluster.big()
    found = cluster.plan()
    orders = planner.checked_orders(collect(cluster.service, cluster.text), found)
    cluster.foreign("n1", needs={"cpu": "6"})
    with pytest.raises(UserError, match="node n1 would not take the pods of ns:g0: Insufficient cpu"):
        cluster.service.runner.handle(MovesAsked(orders, "ann", "a", 60.0))
    cluster.pass_time(5)
    assert cluster.kube.leaving == []
    assert not [name for name in cluster.groups() if name.startswith(STAND_IN)]


@pytest.mark.parametrize("seed", range(24))
def test_of_random_states_each_plan_holds_and_each_no_is_true(seed: int) -> None:
    moves = JudgedMoves(seed)
    try:
        assert moves.play() == ""
    finally:
        moves.close()
