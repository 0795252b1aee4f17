"""Gangs of pods without devices, which nobody holds room for, start as a whole or not at all."""

from pathlib import Path
from typing import Any

from tests.cases.played import nodes_config, played_on, pod
from tests.expecting import expect_soon

CONFIG = nodes_config(2, cpu=4, memory="8Gi")


def volcano(name: str, count: int, cpu: int) -> list[dict[str, Any]]:
    """Pods of a job that start together."""
    notes = {"scheduling.k8s.io/group-name": name, "scheduling.volcano.sh/group-min-member": str(count)}
    return [pod(f"{name}-{index}", 0, requests={"cpu": cpu}, annotations=notes) for index in range(count)]


def test_of_two_gangs_without_devices_one_starts_as_a_whole_where_there_is_room_for_one(tmp_path: Path) -> None:
    with played_on(tmp_path, CONFIG) as played:
        pods = [volcano(name, 4, 2) for name in "ab"]
        played.create(*(one for pair in zip(*pods, strict=True) for one in pair))
        expect_soon(lambda: len(played.running_pods()) == 4)
        assert len({name.split("-")[0] for name in played.running_pods()}) == 1


def test_the_other_starts_when_the_first_is_gone(tmp_path: Path) -> None:
    with played_on(tmp_path, CONFIG) as played:
        pods = [volcano(name, 4, 2) for name in "ab"]
        played.create(*(one for pair in zip(*pods, strict=True) for one in pair))
        expect_soon(lambda: len(played.running_pods()) == 4)
        first = set(played.running_pods())
        for name in first:
            played.delete(name)
        expect_soon(lambda: len(played.running_pods()) == 4 and not first & set(played.running_pods()))


def test_a_gang_that_is_larger_than_all_nodes_does_not_start_and_keeps_nobody_from_starting(tmp_path: Path) -> None:
    with played_on(tmp_path, CONFIG) as played:
        played.create(*volcano("large", 6, 2), *volcano("small", 2, 2))
        played.expect_running("small-0", "small-1")
        assert set(played.running_pods()) == {"small-0", "small-1"}
