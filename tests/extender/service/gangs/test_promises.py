"""A scheduler that ends while a gang starts: whoever leads next gives the rest of the gang its places."""

import json
import zlib
from base64 import b64encode
from uuid import uuid4

import pytest

from hived.errors import UserError
from hived_extender.pods.gang_annotations import POD_GANG, Promise, gang_annotations, peers_of
from tests.extender.service.gang_world import GangWorld, koordinator

ROLES = json.dumps(["ns/ps", "ns/worker"])


def cells(world: GangWorld) -> dict[str, object]:
    """The hardware of every group."""
    return {name: group["physicalPlacement"] for name, group in world.groups().items()}


def test_a_bound_pod_without_devices_keeps_the_places_of_its_gang() -> None:
    world = GangWorld()
    for name, gpus in (("ps", 0), ("w-0", 4), ("w-1", 4)):
        world.pod(name, gpus, koordinator("train", 3))
    world.start("w-0", "w-1", "ps")
    assert list(world.placed()) == ["ps"]
    before = cells(world)
    assert cells(world.restarted()) == before != {}


def test_a_bound_pod_keeps_the_places_of_gangs_that_start_with_its_own() -> None:
    world = GangWorld()
    world.pod("ps-0", 2, koordinator("ps", 1, groups=ROLES))
    world.pod("worker-0", 2, koordinator("worker", 1, groups=ROLES))
    world.start("ps-0", "worker-0")
    assert list(world.placed()) == ["worker-0"]
    assert set(cells(world.restarted())) == {"ns/ps-0", "ns/worker-0"}


def test_a_replica_that_leads_for_the_second_time_still_knows_the_places() -> None:
    world = GangWorld()
    for name in ("w-0", "w-1"):
        world.pod(name, 4, koordinator("train", 2))
    world.start("w-0", "w-1")
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


def peers(world: GangWorld, name: str) -> list[str]:
    """The pods whose places a bound pod has."""
    return sorted(one.uid for one in peers_of(world.kube.pods[name]["metadata"]["annotations"]))


def test_a_place_is_written_onto_no_more_pods_than_were_bound_before_that_was_known() -> None:
    world = GangWorld()
    pods = [world.pod(f"w-{number}", 2, koordinator("train", 4)) for number in range(4)]
    nodes = [world.filter(pod).get("NodeNames") for _ in range(2) for pod in pods][-4:]
    for pod, node in zip(pods[:2], nodes, strict=False):
        world.bind(pod, node[0])
    assert peers(world, "w-1") == ["uid-w-0", "uid-w-2", "uid-w-3"]
    world.see(pods[0])
    world.bind(pods[2], nodes[2][0])
    assert peers(world, "w-2") == []
    world.drop("w-0")
    world.bind(pods[3], nodes[3][0])
    assert peers(world, "w-3") == ["uid-w-1", "uid-w-2"]


def test_the_places_of_a_thousand_pods_fit_into_an_annotation() -> None:
    uids = [str(uuid4()) for _ in range(1000)]
    places = [Promise(uid, f"node-{n:04}", "DGX", list(range(8)), ["DGX"] * 8) for n, uid in enumerate(uids)]
    written = gang_annotations(None, "ns/train", places)
    assert peers_of(written) == places
    assert sum(map(len, written.values())) < 64 * 1024


def test_places_that_unpack_to_too_much_are_refused() -> None:
    packed = b64encode(zlib.compress(b" " * 2**24)).decode()
    with pytest.raises(UserError, match="more than 1048576 characters"):
        peers_of({POD_GANG: json.dumps({"name": "ns/train", "packed": packed})})


def test_a_pod_may_not_speak_for_pods_of_other_gangs() -> None:
    world = GangWorld()
    for name in ("w-0", "w-1"):
        world.pod(name, 4, koordinator("train", 2))
    world.start("w-0", "w-1")
    notes = world.kube.pods["w-1"]["metadata"]["annotations"]
    world.drop("w-1")
    world.pod("x", 4, {**koordinator("x", 1), POD_GANG: notes[POD_GANG]}, nodeName="n3")
    assert cells(world.restarted()) == {}
