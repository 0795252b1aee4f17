"""A borrower owns its cells once it is entitled, and no job takes them any more (rule 31.9)."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from hived_config.loader import load
from hived_extender.jobs.annotations import BIND_INFO
from hived_extender.kube.client import KubeClient
from hived_extender.machine.bound_pods import ChangedBindings, Rewrites
from hived_extender.machine.effects import AnnotatePod
from hived_extender.queues.queued_jobs import QueuedJobs
from hived_extender.queues.reasons import Running
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.extender.queues.embedded_jobs import CONFIG, PODS, Jobs, jobs_on
from tests.extender.queues.small import Desk, unit
from tests.extender.queues.test_restart import service

pytestmark = pytest.mark.sample(4)

# The queues alone


def test_a_job_that_is_due_is_not_evicted_for_its_neighbour() -> None:
    desk = Desk(borrows=True)
    desk.come(unit("first"), unit("ahead", at=1))
    for number in range(3):
        desk.come(unit(f"lent{number}", "C", at=2))
    desk.end("first", 5.0)
    assert desk.queues.why("ahead") == Running(is_borrowed=False, is_entitled=True)
    desk.come(unit("owner", "B", at=6))
    assert "ahead" not in desk.leaving


def test_a_gang_of_several_nodes_is_upgraded_whole() -> None:
    desk = Desk(borrows=True)
    desk.come(unit("first", "C", pods=2), unit("gang", "C", pods=2, at=1))
    assert desk.queues.why("gang") == Running(is_borrowed=True, is_entitled=False)
    desk.end("first", 5.0)
    assert desk.queues.why("gang") == Running(is_borrowed=False, is_entitled=True)
    desk.come(unit("a", "A", at=6), unit("b", "B", at=6))
    assert desk.leaving == []
    assert {"gang", "a", "b"} <= desk.live.pods.keys()


def test_cells_on_hardware_that_an_owner_has_bound_stay_borrowed() -> None:
    """The small job runs beside the owner's on one node, so this node cannot be its virtual cluster's."""
    desk = Desk(borrows=True)
    desk.come(unit("c", "C", 2), unit("c2", "C", 4), unit("b", "B", 2))
    desk.come(unit("first", gpus=4), unit("ahead", gpus=2, at=1))
    assert desk.queues.why("ahead") == Running(is_borrowed=True, is_entitled=False)
    desk.end("first", 5000.0)
    assert desk.queues.why("ahead") == Running(is_borrowed=True, is_entitled=True)


def test_a_job_that_has_little_to_lose_moves_to_its_own_cells() -> None:
    desk = Desk(borrows=True)
    desk.come(unit("c", "C", 2), unit("c2", "C", 4), unit("b", "B", 2))
    desk.come(unit("first", gpus=4), unit("ahead", gpus=2, at=1))
    desk.end("first", 5.0)
    assert desk.leaving == ["ahead"]
    assert desk.leave() == ["ahead"]
    assert desk.queues.why("ahead") == Running(is_borrowed=False, is_entitled=True)


def test_a_borrower_that_is_not_due_still_gives_back() -> None:
    desk = Desk(borrows=True)
    desk.come(unit("first"), *(unit(f"ahead{number}", at=1 + number) for number in range(3)))
    desk.come(unit("owner", "B", at=6))
    assert len(desk.leaving) == 1
    assert desk.queues.why(desk.leaving[0]) != Running(is_borrowed=False, is_entitled=True)


# The service


def typed(pod: dict[str, Any]) -> bool:
    """Do a pod's annotations say that it has cells of its virtual cluster?"""
    info = json.loads(pod["metadata"]["annotations"][BIND_INFO])
    places = [place for member in info["affinityGroupBindInfo"] for place in member["podPlacements"]]
    types = [each for place in places for each in place["preassignedCellTypes"]]
    return bool(types) and all(types)


def pods_of(jobs: Jobs, name: str) -> list[dict[str, Any]]:
    return [pod for pod in jobs.kube.get(PODS)["items"] if pod["metadata"]["name"].startswith(f"{name}-")]


def uids(jobs: Jobs, name: str) -> list[str]:
    return [pod["metadata"]["uid"] for pod in pods_of(jobs, name)]


def is_upgraded(jobs: Jobs, name: str) -> bool:
    """Does the core have its pods in its virtual cluster, and do their annotations say so?"""
    with jobs.running.extender.service.runner.look() as machine:
        core = machine.cache.core
        requests = [one.request for one in machine.cache.pods if one.name.startswith(f"{name}-")]
        groups = [one.spec.group.name for one in requests if one is not None]
        in_core = core is not None and bool(groups) and not any(core.is_lent(group) for group in groups)
    return in_core and all(map(typed, pods_of(jobs, name)))


def run_ahead(jobs: Jobs, pods: int = 1, gpus: int = 8) -> list[str]:
    """A job of VC a runs on the node of b, ahead of its turn; returns the uids of its pods."""
    jobs.create("first")
    jobs.expect(lambda: jobs.runs("first"))
    jobs.create("ahead", pods=pods, gpus=gpus)
    jobs.expect(lambda: jobs.runs("ahead"), lambda: len(jobs.nodes("ahead")) == pods)
    assert not any(map(typed, pods_of(jobs, "ahead")))
    return uids(jobs, "ahead")


@pytest.mark.parametrize(("pods", "gpus"), [(1, 8), (4, 2)])
def test_a_due_job_keeps_its_pods_when_the_owner_comes(tmp_path: Path, pods: int, gpus: int) -> None:
    with jobs_on(tmp_path, CONFIG) as jobs:
        before = run_ahead(jobs, pods, gpus)
        jobs.delete("first")
        jobs.expect(lambda: is_upgraded(jobs, "ahead"))
        jobs.create("owner", "b")
        jobs.expect(lambda: jobs.runs("owner"))
        assert uids(jobs, "ahead") == before


def test_a_job_whose_own_cells_are_elsewhere_moves_to_them(tmp_path: Path) -> None:
    """It borrows beside the owner's job on one node, which its virtual cluster cannot have."""
    with jobs_on(tmp_path, CONFIG) as jobs:
        jobs.create("own", "b", gpus=4)
        jobs.create("first")
        jobs.expect(lambda: jobs.runs("own", "first"))
        jobs.create("ahead", gpus=4)
        jobs.expect(lambda: jobs.runs("ahead"))
        before, nodes = uids(jobs, "ahead"), jobs.nodes("first")
        jobs.delete("first")
        jobs.expect(lambda: jobs.runs("ahead") and jobs.nodes("ahead") == nodes)
        assert uids(jobs, "ahead") != before
        assert is_upgraded(jobs, "ahead")


def test_its_owner_is_told(tmp_path: Path) -> None:
    with jobs_on(tmp_path, CONFIG) as jobs:
        run_ahead(jobs)
        jobs.delete("first")

        def is_told() -> bool:
            events = jobs.kube.get("/api/v1/namespaces/default/events")["items"]
            return any(one["reason"] == "Upgraded" and one["involvedObject"]["name"] == "ahead" for one in events)

        jobs.expect(is_told)
        assert "borrowed" not in jobs.reason("ahead")


@contextmanager
def cluster_of(tmp_path: Path) -> Iterator[tuple[Path, EmbeddedCluster, KubeClient]]:
    file = tmp_path / "cluster.yaml"
    file.write_text(CONFIG)
    with (
        EmbeddedCluster(load(file).cluster) as cluster,
        closing(KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))) as kube,
    ):
        yield file, cluster, kube


def test_a_new_leader_finds_it_upgraded(tmp_path: Path) -> None:
    with cluster_of(tmp_path) as (file, cluster, kube):
        with service(file, cluster, kube) as jobs:
            before = run_ahead(jobs)
            jobs.delete("first")
            jobs.expect(lambda: is_upgraded(jobs, "ahead"))
        with service(file, cluster, kube) as jobs:
            jobs.expect(lambda: jobs.running.extender.queues.turns is not None, lambda: is_upgraded(jobs, "ahead"))
            jobs.create("owner", "b")
            jobs.expect(lambda: jobs.runs("owner"))
            assert uids(jobs, "ahead") == before


@pytest.mark.sample(1)
@pytest.mark.parametrize("lost", ["pods", "job", "some pods"])
def test_a_crash_amid_the_writes_of_an_upgrade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    """The pods, the job or some of the pods say what was before; the next leader upgrades it on the same cells."""
    asked = []

    def ask(self: Rewrites, effect: AnnotatePod) -> None:
        asked.append(effect.pod.uid)
        if lost == "some pods" and len(asked) % 2:
            write(self, effect)

    with cluster_of(tmp_path) as (file, cluster, kube):
        with service(file, cluster, kube) as jobs, monkeypatch.context() as patch:
            before = run_ahead(jobs, 2, 4)
            write = Rewrites.ask
            if lost == "job":
                patch.setattr(QueuedJobs, "keep", lambda self, key, **changes: None)
            else:
                patch.setattr(Rewrites, "ask", ask)
                patch.setattr(ChangedBindings, "keep", lambda self, changed: None)
            jobs.delete("first")
            count = {"pods": 0, "job": 2, "some pods": 1}[lost]
            jobs.expect(lambda: sum(map(typed, pods_of(jobs, "ahead"))) == count)
            jobs.expect(lambda: lost == "job" or len(asked) >= 2)
        with service(file, cluster, kube) as jobs:
            jobs.expect(lambda: jobs.running.extender.queues.turns is not None, lambda: is_upgraded(jobs, "ahead"))
            jobs.create("owner", "b")
            jobs.expect(lambda: jobs.runs("owner"))
            assert uids(jobs, "ahead") == before
