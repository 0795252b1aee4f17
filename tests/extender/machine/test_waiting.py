"""Trying the pods that wait on the core: what it costs when there are thousands of them."""

from typing import Any

import pytest

from hived.cells.state import State
from hived.scheduler import handle
from hived.values.decisions import Decision
from hived.values.events import Event, ScheduleRequested
from hived_extender.machine.verbs import VerbSettings
from hived_extender.machine.waiting import WaitingPods
from tests.extender.machine.small_cluster import SmallCluster, node, spec_text
from tests.extender.machine.small_gangs import SmallGangCluster, koordinator


@pytest.fixture
def cluster() -> SmallCluster:
    """Half of VC a's nodes are left. Nothing is tried unless a test says so."""
    cluster = SmallCluster(verb_settings=VerbSettings(wake_delay_s=3600))
    cluster.place("p")
    return cluster


@pytest.fixture
def asked(cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def listen(state: State, event: Event) -> Decision:
        if isinstance(event, ScheduleRequested) and state is cluster.state:
            names.append(event.pod.name)
        return handle(state, event)

    monkeypatch.setattr("hived_extender.machine.core.handle", listen)
    return names


def waiting(cluster: SmallCluster, *names: str, **spec: Any) -> list[str]:
    """Uids of new pods that nobody has asked about."""
    return [cluster.create(name, spec_text(**spec))["metadata"]["uid"] for name in names]


def test_pods_that_ask_alike_wait_alike(cluster: SmallCluster, asked: list[str]) -> None:
    cluster.place("q")
    uids = [*waiting(cluster, "r0", "r1", "r2"), *waiting(cluster, "small", leaf_cells=1), *waiting(cluster, "r3")]
    for _ in range(2):
        cluster.service.machine._waiting.try_these(uids)
    assert asked == ["q", "r0", "small"]


@pytest.mark.parametrize("change", ["a pod goes", "a pod comes", "a node turns bad"])
def test_after_any_change_they_are_tried_anew(cluster: SmallCluster, asked: list[str], change: str) -> None:
    last, _ = cluster.place("q")
    uids = waiting(cluster, "r0", "r1")
    cluster.service.machine._waiting.try_these(uids)
    if change == "a pod goes":
        cluster.delete(last)
    elif change == "a pod comes":
        cluster.place("lent", spec_text(vc="b", leaf_cells=1, priority=-1))
    else:
        cluster.service.node_seen(node("n3", is_ready=False))
    asked.clear()
    cluster.service.machine._waiting.try_these(uids)
    assert asked == ["r0"]


def test_pods_that_ask_alike_could_run_alike(cluster: SmallCluster, asked: list[str]) -> None:
    uids = waiting(cluster, "r0", "r1")
    cluster.service.machine._waiting.try_these(uids)
    assert asked == ["r0"]
    cluster.place("q")
    cluster.service.machine._waiting.try_these(uids)
    assert asked == ["r0", "q", "r0"]


def test_pods_that_have_to_preempt_are_each_tried(cluster: SmallCluster, asked: list[str]) -> None:
    cluster.place("q")
    cluster.service.machine._waiting.try_these(waiting(cluster, "r0", "r1", priority=5))
    assert asked == ["q", "r0", "r1"]


def test_a_pod_of_a_group_that_is_placed_is_tried_for_itself(cluster: SmallCluster, asked: list[str]) -> None:
    gang = {"group": "g", "pods": 2, "leaf_cells": 2}
    cluster.place("g0", spec_text(**gang))
    cluster.service.machine._waiting.try_these(
        [*waiting(cluster, "h0", group="h", pods=2, leaf_cells=2), *waiting(cluster, "g1", **gang)]
    )
    assert asked == ["g0", "h0", "g1"]


def test_pods_that_start_together_are_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = SmallGangCluster(verb_settings=VerbSettings(wake_delay_s=3600))
    gang = koordinator("g", 2)
    uids = [cluster.pod(name, annotations=gang)["metadata"]["uid"] for name in ("g0", "g1")]
    rounds: list[str] = []
    settle = WaitingPods._settle

    def listen(self: WaitingPods, core: Any, asker: Any, *rest: Any, **more: Any) -> Any:
        rounds.append(asker.name)
        return settle(self, core, asker, *rest, **more)

    monkeypatch.setattr(WaitingPods, "_settle", listen)
    cluster.service.machine._waiting.try_these(uids)
    assert rounds == ["g0"]


def test_all_pods_that_start_together_could_run_if_one_could() -> None:
    cluster = SmallGangCluster(verb_settings=VerbSettings(wake_delay_s=3600))
    gang = koordinator("g", 2)
    uids = [cluster.pod(name, annotations=gang)["metadata"]["uid"] for name in ("g0", "g1")]
    assert cluster.service.machine._waiting.try_these(uids[:1]) == uids
