"""The life of a gang, as kube-scheduler and its pods' authors see it."""

from tests.extender.gang_world import GangWorld, koordinator


def test_a_gang_starts_when_its_last_pod_is_there() -> None:
    world = GangWorld()
    for name in ("w-0", "w-1"):
        world.pod(name, 2, koordinator("train", 3))
    assert world.ask("w-0") == "rejected by podgroup ns/train: 2 of 3 pods created (missing w-2)"
    assert world.ask("w-1") == "rejected by podgroup ns/train: 2 of 3 pods created (missing w-2)"
    assert world.groups() == {}
    world.pod("w-2", 2, koordinator("train", 3))
    assert world.ask("w-2") in {"n0", "n1", "n2", "n3"}
    assert set(world.groups()) == {"ns/w-0", "ns/w-1", "ns/w-2"}
    assert len(world.settle()) == 3


def test_a_gang_without_room_holds_nothing() -> None:
    world = GangWorld()
    for number in range(3):
        world.pod(f"w-{number}", 4, koordinator("train", 3))
    assert world.settle() == {}
    assert "podgroup/ns/train (3 pods start together)" in world.ask("w-0")
    assert world.groups() == {}


def test_beyond_the_minimum_pods_start_one_by_one() -> None:
    world = GangWorld()
    for number in range(4):
        world.pod(f"w-{number}", 4, koordinator("train", 2, total_number=4))
    assert sorted(world.settle()) == ["w-0", "w-1"]
    assert "insufficient" in world.ask("w-2")
    world.drop("w-0")
    assert sorted(world.settle()) == ["w-1", "w-2"]


def test_a_pod_without_devices_belongs_to_the_gang() -> None:
    world = GangWorld()
    world.pod("ps", 0, koordinator("train", 3))
    world.pod("w-0", 4, koordinator("train", 3))
    assert "2 of 3 pods created" in world.ask("ps")
    world.pod("w-1", 4, koordinator("train", 3))
    assert sorted(world.settle()) == ["ps", "w-0", "w-1"]
    assert set(world.groups()) == {"ns/w-0", "ns/w-1"}


def test_a_restart_finds_the_same() -> None:
    world = GangWorld()
    for number in range(3):
        world.pod(f"w-{number}", 2, koordinator("train", 3))
    for number in range(3):
        world.ask(f"w-{number}")  # the last has its node, the others have not heard of theirs
    assert len(world.placed()) == 1
    before = {name: group["physicalPlacement"] for name, group in world.groups().items()}
    again = world.restarted()
    assert {name: group["physicalPlacement"] for name, group in again.groups().items()} == before
    assert len(again.settle(1)) == 3
