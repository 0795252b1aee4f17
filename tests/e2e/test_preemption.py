"""Preemption completes, whoever makes the victims leave; kube-scheduler is configured alike for both."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hived_extender.kube.client import PODS, KubeClient, KubeError
from hived_lab.embedded.nodes import STOP_SECONDS
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import BUSY_S, POD_LIST, configuration, is_bound, pod, priority_class
from tests.expecting import expect_soon

NODE_COUNT = 8
GPUS = 8
LONGEST_S = 90
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"

BY_SERVICE, BY_SCHEDULER = "EvictionByEvictionAPI", "PreemptionByScheduler"
"""The reason in a pod's condition DisruptionTarget; there is none after a plain deletion."""

FULL = {"cpu": str(GPUS)}
"""Requests that fill a node."""

Json = dict[str, Any]


def submit(
    kube: KubeClient,
    group: str,
    *,
    count: int = 1,
    kubernetes_priority: int = 0,
    requests: Json = FULL,
    stop_s: float = 2,
    **wishes: Any,
) -> list[str]:
    """A gang of pods that take a whole node each; returns their names."""
    members = [{"podNumber": count, "leafCellNumber": GPUS}]
    fields = {"priorityClassName": priority_class(kube, kubernetes_priority), "terminationGracePeriodSeconds": 60}
    names = [f"{group}-{number}" for number in range(count)]
    for name in names:
        one = pod(
            name,
            gpus=GPUS,
            annotations={STOP_SECONDS: str(stop_s)},
            limits=requests,
            fields=fields,
            affinityGroup={"name": f"default/{group}", "members": members},
            **wishes,
        )
        one["metadata"]["labels"] = {"group": group}
        kube.create(POD_LIST, one)
    return names


def run(kube: KubeClient, *arguments: Any, **options: Any) -> list[str]:
    """The same, and wait until all of them are bound."""
    names = submit(kube, *arguments, **options)
    expect_soon(lambda: all(is_bound(kube, name) for name in names))
    return names


def changes(kube: KubeClient) -> Iterator[tuple[str, Json, bool]]:
    """Every pod with its name, and whether it is gone: as they are now, then each whenever it changes."""
    for event in kube.watch(PODS, Json, "0", timeout_s=LONGEST_S):
        if event.object is not None:
            yield event.object["metadata"]["name"], event.object, event.type == "DELETED"


def leavers(kube: KubeClient, until_bound: list[str]) -> dict[str, str]:
    """Pod -> who made it leave, of all that leave until those pods are bound."""
    left: dict[str, str] = {}
    waiting = set(until_bound)
    for name, found, _ in changes(kube):
        if "deletionTimestamp" in found["metadata"]:
            left[name] = reason(found)
        if found["spec"].get("nodeName"):
            waiting.discard(name)
        if not waiting:
            break
    assert not waiting, f"{sorted(waiting)} are not bound after {LONGEST_S} s; these have left: {left}"
    return left


def reason(found: Json) -> str:
    conditions = found["status"].get("conditions") or ()
    return next((each["reason"] for each in conditions if each["type"] == "DisruptionTarget"), "")


@pytest.fixture(autouse=True)
def no_budget_left(plane: ControlPlane) -> Iterator[None]:
    yield
    with suppress(KubeError):
        plane.kube.delete(f"{BUDGETS}/keep")


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
    """As docs/preemption.md describes `preemptionBy: kube-scheduler`, and why it is not the default."""
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
    expect_soon(lambda: kube.get(f"{BUDGETS}/keep").get("status", {}).get("currentHealthy") == 1)


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
        for name, found, is_gone in changes(cluster.kube):
            if is_gone:
                seen.setdefault(f"{name} is gone", time.monotonic())
            elif "deletionTimestamp" in found["metadata"]:
                seen.setdefault(f"{name} was told", time.monotonic())
            elif name == urgent[0] and found["spec"].get("nodeName"):
                seen.setdefault(f"{name} is bound", time.monotonic())
                break
        assert list(seen) == ["low-0 was told", "low-0 is gone", "high-0 is bound"]
        assert seen["low-0 is gone"] - seen["low-0 was told"] > 4
        assert seen["high-0 is bound"] - seen["low-0 is gone"] < BUSY_S
