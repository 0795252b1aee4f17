"""Gangs in the words of other schedulers, while another configuration comes into force."""

import pytest

from hived.errors import UserError
from hived_config.loader import Configuration, load_text
from hived_extender.reconfiguration.change import Change
from hived_extender.reconfiguration.present import configure
from tests.extender.service.gang_world import GangWorld, koordinator
from tests.extender.service.world import CONFIG, node, to_pod

MAPPED = CONFIG.replace("  a:\n", "  a:\n    namespaces: [ns]\n").replace("  b:\n", "  b:\n    namespaces: [other]\n")


def load(text: str) -> Configuration:
    return load_text(text, "file")


def switch(world: GangWorld, text: str) -> None:
    change = Change(load(MAPPED), load(text), None, 1)
    outcome = change.outcome(*change.catch_up_with(world.service))
    change.switch(world.service, {one.name: one.verdict.value for one in outcome.affected})


def list_anew(world: GangWorld) -> None:
    world.service.sync_pods([to_pod(pod) for pod in world.kube.pods.values()])


def test_waiting_pods_are_read_by_the_new_rules() -> None:
    world = GangWorld()
    configure(world.service, load(MAPPED), MAPPED)
    pod = world.pod("p")
    switch(world, MAPPED.replace("[ns]", "[x]").replace("[other]", "[ns]"))
    list_anew(world)
    assert world.filter(pod)["NodeNames"]
    assert world.groups()["ns/p"]["vc"] == "b"


def test_a_gang_that_forms_goes_on_to_form() -> None:
    world = GangWorld()
    first = world.pod("w-0", annotations=koordinator("g", 2))
    assert "NodeNames" not in world.filter(first)
    switch(world, MAPPED + "# other\n")
    second = world.pod("w-1", annotations=koordinator("g", 2))
    world.filter(first)
    assert world.filter(second)["NodeNames"]
    assert world.filter(first)["NodeNames"]


def test_a_gang_that_has_started_keeps_every_place_that_is_not_bound_yet() -> None:
    world = GangWorld()
    pods = [world.pod(f"w-{number}", annotations=koordinator("g", 2)) for number in range(2)]
    world.filter(pods[0])
    places = [world.filter(pod)["NodeNames"] for pod in reversed(pods)]
    world.bind(pods[1], places[0][0])
    world.see(pods[1])
    switch(world, MAPPED.replace("cellAddress: n3", "cellAddress: other"))
    assert world.filter(pods[0])["NodeNames"] == places[1]
    world.bind(pods[0], places[1][0])
    assert len(world.state.groups) == 2


def test_a_gang_that_waits_and_whose_vc_goes_is_told_so() -> None:
    world = GangWorld()
    world.place("single")
    pods = [world.pod(f"w-{number}", annotations=koordinator("g", 2)) for number in range(2)]
    assert "NodeNames" not in world.filter(pods[0])
    switch(world, MAPPED.replace("[{cellType: RACK.NODE, cellNumber: 2}]", "[]"))
    with pytest.raises(UserError, match="GPU which VC a does not have"):
        world.filter(pods[1])
    assert [group["vc"] for group in world.groups().values()] == ["a"]  # of the single pod alone


def test_a_gang_that_has_its_places_and_whose_vc_goes_runs_opportunistically() -> None:
    world = GangWorld()
    pods = [world.pod(f"w-{number}", annotations=koordinator("g", 2)) for number in range(2)]
    world.filter(pods[0])
    places = world.decided()
    switch(world, MAPPED.replace("[{cellType: RACK.NODE, cellNumber: 2}]", "[]"))
    assert world.settle() == places
    assert {group["state"] for group in world.groups().values()} == {"Allocated"}


def test_what_a_round_has_reserved_is_kept() -> None:
    world = GangWorld()
    for number in range(2):
        world.place(f"low-{number}", '{"virtualCluster": "a", "priority": 0, "leafCellNumber": 4}')
    pods = [world.pod(f"w-{number}", annotations=koordinator("g", 2), priorityClassName="high") for number in range(2)]
    for pod in pods:
        world.filter(pod)
    reserved = {name: group.physical.tolist() for name, group in world.state.groups.items() if group.preempting_pods}
    assert reserved
    switch(world, MAPPED + "priorityClasses: {high: 100, low: -1}\n# other\n")
    now = {name: group.physical.tolist() for name, group in world.state.groups.items() if group.preempting_pods}
    assert now == reserved
    for name in ("low-0", "low-1"):
        world.delete(world.kube.pods[name])
    for pod in pods:
        world.filter(pod)
    assert all(world.filter(pod)["NodeNames"] for pod in pods)


WITHOUT_A = MAPPED[: MAPPED.index("  a:\n")] + MAPPED[MAPPED.index("  b:\n") :]
"""`hived-a` is no schedulerName of ours any more."""


def test_who_has_cells_keeps_them_when_the_name_that_they_came_under_is_not_ours_any_more() -> None:
    world = GangWorld()
    configure(world.service, load(MAPPED), MAPPED)
    bound, binding = (world.pod(name, schedulerName="hived-a") for name in ("bound", "binding"))
    world.ask("bound")
    world.filter(binding)
    places = {name: group["physicalPlacement"] for name, group in world.groups().items()}
    switch(world, WITHOUT_A)
    list_anew(world)
    assert {name: group["physicalPlacement"] for name, group in world.groups().items()} == places
    for pod in (bound, binding):
        world.delete(pod)
    assert world.groups() == {}


def test_who_has_cells_keeps_them_through_a_restart_too() -> None:
    world = GangWorld()
    configure(world.service, load(MAPPED), MAPPED)
    world.pod("p", schedulerName="hived-a")
    world.ask("p")
    later = GangWorld(spec=load(WITHOUT_A).cluster)
    later.service.pod_seen(to_pod(world.kube.pods["p"]))
    assert later.groups()["ns/p"]["physicalPlacement"] == world.groups()["ns/p"]["physicalPlacement"]


def test_a_gang_whose_place_is_refused_after_nodes_were_added_looks_for_others() -> None:
    larger = MAPPED.replace("{childCellType: NODE, childCellNumber: 4}", "{childCellType: NODE, childCellNumber: 5}")
    larger = larger.replace("{cellAddress: n3}", "{cellAddress: n3}, {cellAddress: n4}").replace(
        "cellNumber: 2}]", "cellNumber: 3}]"
    )
    world = GangWorld()
    configure(world.service, load(MAPPED), MAPPED)
    pods = [
        world.pod(f"w-{number}", annotations=koordinator("g", 2), tolerations=[{"key": str(number)}])
        for number in range(2)
    ]
    for pod in pods:
        assert world.filter(pod)["NodeNames"]
    switch(world, larger)
    world.service.node_seen(node("n4"))
    assert world.filter(pods[0], ["n2", "n4"])["NodeNames"][0] in ("n2", "n4")
    assert world.service.fault == ""
