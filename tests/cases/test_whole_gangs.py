"""The work of all pods of a gang counts where all would leave (rules 8.14 and 26.12)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from hived_config.loader import load_text
from hived_extender.jobs.progress import read_time, write_time
from hived_extender.machine.recording.operations import read_scenario
from hived_extender.machine.recording.record import Recorder
from hived_extender.machine.recording.replay import CoreScheduler, Replay, StateDetail
from tests.extender.machine.small_cluster import CONFIG, NODES, node_json, to_node, to_pod
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator

pytestmark = pytest.mark.sample(3)

NOW_S = read_time("2026-01-01T10:00:00Z")
TWO_NODES = "rules: 2\n" + CONFIG
THREE_NODES = TWO_NODES.replace("cellNumber: 2}", "cellNumber: 3}").replace("cellNumber: 1}", "cellNumber: 0}")
LENT = TWO_NODES.replace("{cellType: RACK.NODE, cellNumber: 1}", "{cellType: RACK.NODE, cellNumber: 2}")


class Gangs(SmallGangCluster):
    """Whoever is evicted leaves at once; `left` has their names."""

    def __init__(self, config: str, **options: Any) -> None:
        super().__init__(spec=load_text(config, "small.yaml", environ={}).cluster, **options)
        self.by_hand.at = NOW_S
        self.left: set[str] = set()

    def begin(
        self, *names: str, gpus: int = 1, ago_s: float = 0, gang: Mapping[str, str] | None = None, **spec: Any
    ) -> None:
        """Pods that have run for some time."""
        for name in names:
            self.pod(name, gpus, gang, **spec)
        for _ in range(2):
            for name in names:
                if not self.kube.pods[name]["spec"]["nodeName"]:
                    self.ask(name)
        self.has_run(*names, ago_s=ago_s)

    def has_run(self, *names: str, ago_s: float) -> None:
        """Pods that have a place were started by their kubelet so long ago."""
        for name in names:
            pod = self.kube.pods[name]
            assert pod["spec"]["nodeName"], name
            pod["status"] |= {"phase": "Running", "startTime": write_time(int(NOW_S - ago_s))}
            self.kube.touch(pod)
            self.see(pod)

    def come(self, *names: str, gpus: int = 1, gang: Mapping[str, str] | None = None, **spec: Any) -> set[str]:
        """Pods come, others leave for them, and all of them run; returns who left."""
        for name in names:
            self.pod(name, gpus, gang, priorityClassName="high", **spec)
        for _ in range(4):
            for name in names:
                if not self.kube.pods[name]["spec"]["nodeName"]:
                    self.ask(name)
            self.pass_time(1)
            for _, name in list(self.kube.leaving):
                if name in self.kube.pods:
                    self.left.add(name)
                    self.drop(name)
            self.kube.leaving.clear()
        assert set(names) <= set(self.placed())
        return set(self.left)


@pytest.fixture
def clusters() -> Iterator[list[Gangs]]:
    made: list[Gangs] = []
    yield made
    for cluster in made:
        cluster.service.close()


def on(config: str, clusters: list[Gangs], **options: Any) -> Gangs:
    clusters.append(Gangs(config, **options))
    return clusters[-1]


SINGLES = tuple(f"s-{number}" for number in range(4))
GANG = tuple(f"g-{number}" for number in range(4))


def test_one_pod_leaves_rather_than_a_gang_that_loses_more(clusters: list[Gangs]) -> None:
    cluster = on(TWO_NODES, clusters)
    cluster.begin(*SINGLES, ago_s=13)
    cluster.begin(*GANG, ago_s=6, gang=koordinator("g", 4))
    left = cluster.come("high")
    assert len(left) == 1
    assert left <= set(SINGLES)


def test_a_gang_leaves_as_a_whole_where_that_loses_less(clusters: list[Gangs]) -> None:
    cluster = on(TWO_NODES, clusters)
    cluster.begin(*SINGLES, ago_s=3600)
    cluster.begin(*GANG, ago_s=6, gang=koordinator("g", 4))
    assert cluster.come("high") == set(GANG)


def test_a_gang_loses_the_pods_alone_that_it_can_do_without(clusters: list[Gangs]) -> None:
    cluster = on(TWO_NODES, clusters)
    cluster.begin(*SINGLES, ago_s=13)
    cluster.begin(*GANG, ago_s=7, gang=koordinator("g", 2))
    left = cluster.come("high-0", "high-1", gang=koordinator("high", 2))
    assert len(left) == 2
    assert left <= set(GANG)
    more = cluster.come("higher") - left
    assert len(more) == 1
    assert more <= set(SINGLES)


def test_a_gang_alone_leaves_where_it_is_enough(clusters: list[Gangs]) -> None:
    cluster = on(THREE_NODES, clusters)
    cluster.begin("bare", gpus=4, ago_s=3)
    cluster.begin("g-0", "g-1", gpus=4, ago_s=6, gang=koordinator("g", 2))
    assert cluster.come("high-0", "high-1", gpus=4, gang=koordinator("high", 2)) == {"g-0", "g-1"}


def test_gangs_that_start_together_leave_together(clusters: list[Gangs]) -> None:
    cluster, groups = on(TWO_NODES, clusters), '["ns/g", "ns/h"]'
    cluster.begin(*SINGLES, ago_s=13)
    for name, gang in (("g-0", "g"), ("g-1", "g"), ("h-0", "h"), ("h-1", "h")):
        cluster.pod(name, 1, koordinator(gang, 2, groups=groups))
    cluster.settle()
    cluster.has_run("g-0", "g-1", "h-0", "h-1", ago_s=6)
    left = cluster.come("high")
    assert len(left) == 1
    assert left <= set(SINGLES)


def test_an_owner_takes_the_lent_cells_of_one_pod_rather_than_of_a_gang(clusters: list[Gangs]) -> None:
    cluster = on(LENT, clusters)
    cluster.begin("own", gpus=4, ago_s=100, namespace="other")
    cluster.begin("own-2", gpus=4, ago_s=100)
    cluster.begin("bare", gpus=4, ago_s=7, priorityClassName="low")
    cluster.begin(*GANG, ago_s=3, gang=koordinator("g", 4), priorityClassName="low")
    assert cluster.come("high", gpus=4, namespace="other") == set(GANG)


def test_a_new_leader_knows_it_too(clusters: list[Gangs]) -> None:
    first = on(TWO_NODES, clusters)
    first.begin(*SINGLES, ago_s=13)
    first.begin(*GANG, ago_s=6, gang=koordinator("g", 4))
    second = first.restarted()
    second.pod("high", 1, priorityClassName="high")
    second.settle()
    second.pass_time(1)
    assert len(second.kube.leaving) == 1
    assert second.kube.leaving[0][1] in SINGLES
    second.service.close()


def test_a_dry_run_names_all_who_would_leave(clusters: list[Gangs]) -> None:
    cluster = on(TWO_NODES, clusters)
    cluster.begin(*SINGLES, ago_s=3600)
    cluster.begin(*GANG, ago_s=6, gang=koordinator("g", 4))
    cluster.pod("high", 1, priorityClassName="high")
    (found,) = cluster.service.what_if([to_pod(cluster.kube.pods["high"])])
    assert found.reason.startswith("4 pods have to leave first")
    assert [(one.name, one.pods) for one in found.victims] == [("podgroup/ns/g", 4)]


def test_a_replay_of_the_record_decides_alike(clusters: list[Gangs], tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, TWO_NODES, run="run")
    cluster = on(TWO_NODES, clusters, recorder=recorder)
    cluster.begin(*SINGLES, ago_s=13)
    cluster.begin(*GANG, ago_s=6, gang=koordinator("g", 4))
    cluster.come("high")
    recorder.close()
    replay = Replay(
        CoreScheduler, lambda name: load_text((tmp_path / name).read_text(), name, environ={}).cluster, StateDetail.NONE
    )
    records = list(replay.run(read_scenario(tmp_path / "run-0001.jsonl")))
    assert any(one["op"] == "gang" for one in records)
    victims = [one["result"] for one in records if one["result"]["kind"] == "preempt"]
    assert victims
    named = [uid for one in victims for uids in one["victimsByNode"].values() for uid in uids]
    assert {uid.removeprefix("uid-") for uid in named} == cluster.left


def with_cpus(cpus: int, gpus: int = 1) -> list[dict[str, Any]]:
    """The containers of a pod that requests CPUs as well."""
    resources = {"limits": {"nvidia.com/gpu": gpus}, "requests": {"cpu": cpus}}
    return [{"name": "main", "resources": resources}]


@pytest.mark.parametrize(("age_s", "left"), [(7, SINGLES), (60, GANG)])
def test_a_gang_counts_as_a_whole_where_its_cpu_is_needed(
    clusters: list[Gangs], age_s: int, left: tuple[str, ...]
) -> None:
    """Each pod of the gang could leave alone, three could not."""
    cluster = on(TWO_NODES, clusters)
    for name in NODES:
        body = node_json(name)
        body["status"]["allocatable"] = {"nvidia.com/gpu": "4", "cpu": "8", "pods": "20"}
        cluster.service.node_seen(to_node(body))
    cluster.begin(*SINGLES, ago_s=age_s, containers=with_cpus(2))
    cluster.begin(*GANG, ago_s=6, gang=koordinator("g", 2), containers=with_cpus(2))
    cluster.pod("high", 1, priorityClassName="high", containers=with_cpus(6))
    cluster.pass_time(3)
    gone = {name for _, name in cluster.kube.leaving}
    assert gone <= set(left)
    assert len(gone) == (3 if left is SINGLES else 4)
