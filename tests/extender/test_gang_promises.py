"""A scheduler that ends while a gang starts: whoever leads next gives the rest of the gang its places."""

import json

from tests.extender.gang_world import GangWorld, koordinator

ROLES = json.dumps(["ns/ps", "ns/worker"])


def cells(world: GangWorld) -> dict[str, object]:
    """The hardware of every group."""
    return {name: group["physicalPlacement"] for name, group in world.groups().items()}


def test_a_bound_pod_without_devices_keeps_the_places_of_its_gang() -> None:
    world = GangWorld()
    for name, gpus in (("ps", 0), ("w-0", 4), ("w-1", 4)):
        world.pod(name, gpus, koordinator("train", 3))
    for name in ("w-0", "w-1", "ps"):
        world.ask(name)
    assert list(world.placed()) == ["ps"]
    before = cells(world)
    assert cells(world.restarted()) == before != {}


def test_a_bound_pod_keeps_the_places_of_gangs_that_start_with_its_own() -> None:
    world = GangWorld()
    world.pod("ps-0", 2, koordinator("ps", 1, groups=ROLES))
    world.pod("worker-0", 2, koordinator("worker", 1, groups=ROLES))
    for name in ("ps-0", "worker-0"):
        world.ask(name)
    assert list(world.placed()) == ["worker-0"]
    assert set(cells(world.restarted())) == {"ns/ps-0", "ns/worker-0"}


def test_a_replica_that_leads_for_the_second_time_still_knows_the_places() -> None:
    world = GangWorld()
    for name in ("w-0", "w-1"):
        world.pod(name, 4, koordinator("train", 2))
        world.ask(name)
    assert list(world.placed()) == ["w-1"]
    before = cells(world)
    for _ in range(2):
        world.service.follow("another leads")
        world.lead()
    assert cells(world) == before != {}


def test_a_gang_whose_pods_are_over_still_has_its_minimum() -> None:
    world = GangWorld()
    terms = {"groups": ROLES, "match_policy": "waiting-and-running"}
    world.pod("ps-0", 2, koordinator("ps", 1, **terms))
    world.pod("worker-0", 2, koordinator("worker", 1, **terms))
    assert len(world.settle()) == 2
    world.become("worker-0", "Succeeded")
    world.pod("ps-1", 2, koordinator("ps", 1, **terms))
    assert world.ask("ps-1") == "rejected by podgroup ns/worker: 0 of 1 pods created"
