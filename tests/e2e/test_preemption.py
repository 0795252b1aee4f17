"""Preemption completes, whoever makes the victims leave; kube-scheduler is configured alike for both."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from hived_extender.annotations import SCHEDULING_SPEC
from hived_extender.embedded.lifetimes import STOP_SECONDS
from hived_extender.jobs.submission import Submission
from hived_extender.kube import PODS, KubeClient, KubeError
from hived_extender.wire import ENABLE_LIMIT
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import is_bound, priority_class, wait_until

NODE_COUNT = 8
GPUS = 8
LONGEST_S = 90.0
PROMPT_S = 2.0
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"

BY_SERVICE, BY_SCHEDULER = "EvictionByEvictionAPI", "PreemptionByScheduler"
"""The reason in a pod's condition DisruptionTarget; there is none after a plain deletion."""

FULL = {"cpu": str(GPUS)}
"""Requests that fill a node."""

Json = dict[str, Any]


def configuration(folder: Path, shares: dict[str, int], **settings: Any) -> Path:
    """Nodes of eight GPUs and eight CPUs, so many for each virtual cluster."""
    document = settings | {
        "physicalCluster": {
            "skuTypes": {"GPU": {"gpu": 1, "cpu": 1, "memory": "8Gi"}},
            "cellTypes": {"NODE": {"childCellType": "GPU", "childCellNumber": GPUS, "isNodeLevel": True}},
            "physicalCells": [{"cellType": "NODE", "cellAddress": f"n{each}"} for each in range(sum(shares.values()))],
        },
        "virtualClusters": {
            vc: {"virtualCells": [{"cellType": "NODE", "cellNumber": count}]} for vc, count in shares.items()
        },
    }
    file = folder / "hivedscheduler.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def submit(
    kube: KubeClient,
    group: str,
    *,
    vc: str = "a",
    priority: int,
    count: int = 1,
    kubernetes_priority: int = 0,
    requests: Json = FULL,
    stop_s: float = 2,  # long enough to be seen on its way out
    **spec: Any,
) -> list[str]:
    """A gang of pods that take a whole node each; returns their names."""
    members = [{"podNumber": count, "leafCellNumber": GPUS}]
    spec |= {"virtualCluster": vc, "priority": priority, "leafCellNumber": GPUS}
    spec["affinityGroup"] = {"name": f"default/{group}", "members": members}
    names = [f"{group}-{number}" for number in range(count)]
    for name in names:
        annotations = {SCHEDULING_SPEC: json.dumps(spec), STOP_SECONDS: str(stop_s)}
        container = {"name": "main", "image": "none", "resources": {"limits": {ENABLE_LIMIT: "1"} | requests}}
        pod = {
            "metadata": {"name": name, "annotations": annotations, "labels": {"group": group}},
            "spec": {
                "schedulerName": Submission(user="").scheduler_for(vc),
                "priorityClassName": priority_class(kube, kubernetes_priority),
                "terminationGracePeriodSeconds": 60,
                "containers": [container],
            },
        }
        kube.create("/api/v1/namespaces/default/pods", pod)
    return names


def run(kube: KubeClient, *arguments: Any, **options: Any) -> list[str]:
    """The same, and wait until all of them are bound."""
    names = submit(kube, *arguments, **options)
    wait_until(lambda: all(is_bound(kube, name) for name in names))
    return names


def leavers(kube: KubeClient, until_bound: list[str], within_s: float = LONGEST_S) -> dict[str, str]:
    """Pod -> who made it leave, of all that leave until those pods are bound."""
    left: dict[str, str] = {}

    def look() -> bool:
        found = {pod["metadata"]["name"]: pod for pod in kube.list_objects(PODS, Json).items}
        left.update({name: reason(pod) for name, pod in found.items() if "deletionTimestamp" in pod["metadata"]})
        return all(found[name]["spec"].get("nodeName") for name in until_bound)

    wait_until(look, within_s)
    return left


def reason(pod: Json) -> str:
    conditions = pod["status"].get("conditions") or ()
    return next((each["reason"] for each in conditions if each["type"] == "DisruptionTarget"), "")


@pytest.fixture(autouse=True)
def nothing_left(plane: ControlPlane) -> Iterator[None]:
    yield
    with suppress(KubeError):
        plane.kube.delete(f"{BUDGETS}/keep")
    plane.clear()


@pytest.mark.parametrize("preemptors", [0, 10, -10], ids=["equal", "agreeing", "contrary"])
def test_the_service_clears_nodes_that_victims_fill_whatever_kubernetes_priorities_say(
    plane: ControlPlane, tmp_path: Path, preemptors: int
) -> None:
    with RealCluster(plane, configuration(tmp_path, {"a": NODE_COUNT})) as cluster:
        victims = run(cluster.kube, "low", priority=1, count=NODE_COUNT)
        urgent = submit(cluster.kube, "high", priority=5, count=NODE_COUNT, kubernetes_priority=preemptors)
        assert leavers(cluster.kube, urgent) == dict.fromkeys(victims, BY_SERVICE)


def test_kube_scheduler_clears_eight_nodes_where_kubernetes_priorities_agree(
    plane: ControlPlane, tmp_path: Path
) -> None:
    file = configuration(tmp_path, {"a": NODE_COUNT})
    with RealCluster(plane, file, preemption_by="kube-scheduler") as cluster:
        victims = run(cluster.kube, "low", priority=1, count=NODE_COUNT)
        urgent = submit(cluster.kube, "high", priority=5, count=NODE_COUNT, kubernetes_priority=10)
        assert leavers(cluster.kube, urgent) == dict.fromkeys(victims, BY_SCHEDULER)


@pytest.mark.parametrize(
    ("kubernetes_priority", "requests"), [(0, FULL), (10, {})], ids=["equal priorities", "nothing that it counts"]
)
def test_kube_scheduler_makes_nobody_leave_of_its_own_accord_where_it_sees_no_reason(
    plane: ControlPlane, tmp_path: Path, kubernetes_priority: int, requests: Json
) -> None:
    """What docs/preemption.md says of `preemptionBy: kube-scheduler`, and why it is not the default."""
    with RealCluster(plane, configuration(tmp_path, {"a": 1}), preemption_by="kube-scheduler") as cluster:
        run(cluster.kube, "low", priority=1, requests=requests)
        urgent = submit(cluster.kube, "high", priority=5, kubernetes_priority=kubernetes_priority, requests=requests)
        time.sleep(8)
        assert not is_bound(cluster.kube, urgent[0])
        assert is_bound(cluster.kube, "low-0")


@pytest.mark.parametrize(
    ("kubernetes_priority", "requests"), [(10, FULL), (0, {})], ids=["full, agreeing", "cells alone, equal"]
)
def test_a_pod_that_heeds_the_proposed_nodes_preempts_on_them(
    plane: ControlPlane, tmp_path: Path, kubernetes_priority: int, requests: Json
) -> None:
    with RealCluster(plane, configuration(tmp_path, {"a": 2})) as cluster:
        victims = run(cluster.kube, "low", priority=1, count=2, requests=requests)
        urgent = submit(
            cluster.kube, "high", priority=5, count=2, kubernetes_priority=kubernetes_priority, requests=requests,
            ignoreK8sSuggestedNodes=False,
        )  # fmt: skip
        assert leavers(cluster.kube, urgent) == dict.fromkeys(victims, BY_SERVICE)


def protect(kube: KubeClient, group: str) -> None:
    """A budget that forbids to evict the only pod of a group."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"group": group}}}
    kube.create(BUDGETS, {"metadata": {"name": "keep"}, "spec": spec})
    wait_until(lambda: kube.get(f"{BUDGETS}/keep").get("status", {}).get("currentHealthy") == 1)


def test_a_budget_is_overridden_after_the_grace_period(plane: ControlPlane, tmp_path: Path) -> None:
    with RealCluster(plane, configuration(tmp_path, {"a": 1}, evictionGraceSeconds=3)) as cluster:
        victims = run(cluster.kube, "low", priority=1)
        protect(cluster.kube, "low")
        urgent = submit(cluster.kube, "high", priority=5)
        began = time.monotonic()
        assert leavers(cluster.kube, urgent) == dict.fromkeys(victims, "")
        assert time.monotonic() - began > 3


def test_a_budget_is_respected_until_it_is_removed(plane: ControlPlane, tmp_path: Path) -> None:
    file = configuration(tmp_path, {"a": 1}, podDisruptionBudgets="respect", evictionGraceSeconds=1)
    with RealCluster(plane, file) as cluster:
        victims = run(cluster.kube, "low", priority=1)
        protect(cluster.kube, "low")
        urgent = submit(cluster.kube, "high", priority=5)
        time.sleep(6)
        assert not is_bound(cluster.kube, urgent[0])
        cluster.kube.delete(f"{BUDGETS}/keep")
        assert leavers(cluster.kube, urgent) == dict.fromkeys(victims, BY_SERVICE)


def test_a_group_that_was_preempted_lazily_leaves_for_the_owner_of_its_cells(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """It runs on b's node after a's more important pod took its cell; Kubernetes priorities would protect it."""
    with RealCluster(plane, configuration(tmp_path, {"a": 1, "b": 1})) as cluster:
        lazy = run(cluster.kube, "lazy", priority=1, kubernetes_priority=10, lazyPreemptionEnable=True)
        run(cluster.kube, "better", priority=5, kubernetes_priority=10)
        assert is_bound(cluster.kube, lazy[0])
        owner = submit(cluster.kube, "owner", vc="b", priority=0)
        assert leavers(cluster.kube, owner) == dict.fromkeys(lazy, BY_SERVICE)


def test_cells_are_given_away_when_a_slow_victim_is_gone_and_not_before(plane: ControlPlane, tmp_path: Path) -> None:
    with RealCluster(plane, configuration(tmp_path, {"a": 1})) as cluster:
        run(cluster.kube, "low", priority=1, stop_s=6)
        urgent = submit(cluster.kube, "high", priority=5)
        seen: dict[str, float] = {}

        def look() -> bool:
            pods = {pod["metadata"]["name"]: pod for pod in cluster.kube.list_objects(PODS, Json).items}
            if "low-0" not in pods:
                seen.setdefault("gone", time.monotonic())
            elif "deletionTimestamp" in pods["low-0"]["metadata"]:
                seen.setdefault("told", time.monotonic())
            is_running = bool(pods[urgent[0]]["spec"].get("nodeName"))
            assert not (is_running and "low-0" in pods)
            return is_running

        wait_until(look)
        assert seen["gone"] - seen["told"] > 4
        assert time.monotonic() - seen["gone"] < PROMPT_S
