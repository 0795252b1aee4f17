"""Gangs of pods without devices, which nobody holds room for, start as a whole or not at all."""

from pathlib import Path
from typing import Any

from tests.cases.played import Played, nodes_config, played_on, pod
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
        assert len({name.split("-")[0] for name in played.running_pods()}) == 1, "all four are of the other gang"


def test_a_gang_that_is_larger_than_all_nodes_does_not_start_and_keeps_nobody_from_starting(tmp_path: Path) -> None:
    with played_on(tmp_path, CONFIG) as played:
        played.create(*volcano("large", 6, 2), *volcano("small", 2, 2))
        played.expect_running("small-0", "small-1")
        assert set(played.running_pods()) == {"small-0", "small-1"}


def test_a_gang_that_finds_no_nodes_is_listed_as_waiting_with_the_reason(tmp_path: Path) -> None:
    with played_on(tmp_path, CONFIG) as played:
        played.create(*volcano("large", 6, 2))
        expect_soon(lambda: is_told(played, "large-5", "kube-scheduler has found no node yet for"))
        rows = expect_soon(
            lambda: [job for job in played.inspector.jobs() if "no node yet for" in job.sentence], every_s=0.5
        )
        assert [(job.name, job.state, job.cause, job.counts.waiting) for job in rows] == [
            ("podgroup/default/large", "Waiting", "kubernetes", 6)
        ]


def is_told(played: Played, name: str, text: str) -> bool:
    """Has a pod an event with this text?"""
    found = played.kube.get("/api/v1/namespaces/default/events")["items"]
    return any(text in one["message"] for one in found if one["involvedObject"]["name"] == name)


def test_a_pod_does_not_start_alone_when_its_mates_lose_their_room(tmp_path: Path) -> None:
    def hog(name: str, cpu: int, node: str) -> dict[str, Any]:
        return pod(name, 0, requests={"cpu": cpu}, nodeName=node)

    with played_on(tmp_path, nodes_config(2, 2, cpu=4)) as played:
        played.create(hog("a", 2, "n1"), hog("b", 6, "n2"), hog("c", 2, "n2"))
        played.expect_running("a", "b", "c")
        gang = volcano("d", 4, 2)
        played.create(*gang)
        expect_soon(lambda: is_told(played, "d-0", "is bound when kube-scheduler has accepted the nodes of its mates"))
        played.create(hog("high", 6, "n1"))
        played.expect_running("high")
        played.delete("c")
        expect_soon(lambda: is_told(played, "d-3", "kube-scheduler has found no node yet for"))
        assert set(played.running_pods()) == {"a", "b", "high"}
        played.delete("high")
        played.expect_running("d-0", "d-1", "d-2", "d-3")
