"""Cells that are held for Kueue's Workloads, on an embedded cluster: nobody else gets them, until they are given back.

Virtual cluster research has two of three nodes with four GPUs, the namespace's own virtual cluster one.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.running import Extender
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.expecting import expect_soon
from tests.extender.queues.kueue.kueue_by_hand import KueueByHand
from tests.extender.queues.kueue.workload_objects import pod_set, template
from tests.extender.replica import DEADLINE_S, start

pytestmark = pytest.mark.sample(6)

Json = dict[str, Any]


def spare(kueue: KueueByHand, name: str, gpus: int = 4) -> None:
    """Somebody creates an opportunistic pod, which may have every idle cell."""
    asked = {"virtualCluster": "default", "priority": -1, "leafCellType": "A100", "leafCellNumber": gpus}
    limits = {ENABLE_LIMIT: "1"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits, "requests": limits}}
    metadata = {"name": name, "annotations": {SCHEDULING_SPEC: json.dumps(asked)}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    kueue.kube.create(kueue.pods, body)


def condition_of(kueue: KueueByHand, pod: str) -> str:
    """What a pod is told of its wait."""
    conditions = kueue.kube.get(f"{kueue.pods}/{pod}").get("status", {}).get("conditions", ())
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def nodes(kueue: KueueByHand, names: list[str]) -> set[str]:
    """The nodes of pods, once all have one."""
    expect_soon(lambda: all(kueue.node_of(name) for name in names))
    return {kueue.node_of(name) for name in names}


def held(kueue: KueueByHand, name: str, *pod_sets: Json) -> None:
    """A Workload has quota, and cells."""
    kueue.queue(name, *pod_sets)
    kueue.reserve(name)
    kueue.expect(name, "Ready", "cells are held: ")


def test_an_opportunistic_pod_cannot_take_held_cells_and_the_job_gets_them(kueue: KueueByHand) -> None:
    kueue.declare()
    held(kueue, "job-train")
    spare(kueue, "spare-0")
    spare(kueue, "spare-1")
    expect_soon(lambda: any(kueue.node_of(name) for name in ("spare-0", "spare-1")))
    expect_soon(lambda: any(condition_of(kueue, name) for name in ("spare-0", "spare-1")))
    taken = {kueue.node_of(name) for name in ("spare-0", "spare-1")} - {""}
    assert len(taken) == 1
    assert nodes(kueue, kueue.start("job-train")) == {"n0", "n1", "n2"} - taken


def gated_group(kueue: KueueByHand, name: str, count: int) -> list[str]:
    """Plain pods of a group, with the gate and the labels that Kueue's webhook gives them."""
    names = [f"{name}-{number}" for number in range(count)]
    made_of = template()
    for pod in names:
        labels = {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": name}
        annotations = {"kueue.x-k8s.io/pod-group-total-count": str(count)}
        spec = {**made_of["spec"], "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
        metadata = {"name": pod, "labels": labels, "annotations": annotations}
        kueue.kube.create(kueue.pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return names


def test_a_group_of_plain_pods_gets_its_cells_when_kueue_takes_its_gates_away(kueue: KueueByHand) -> None:
    kueue.declare()
    names = gated_group(kueue, "group", 2)
    held(kueue, "group", pod_set("b1c7e5a2", 2))
    spare(kueue, "spare-0")
    assert len(nodes(kueue, ["spare-0"])) == 1
    spare(kueue, "spare-1")
    expect_soon(lambda: condition_of(kueue, "spare-1"))
    (words,) = kueue.admit("group")
    for name in names:
        change = {"metadata": {"annotations": words["annotations"]}, "spec": {"schedulingGates": None}}
        kueue.kube.patch(f"{kueue.pods}/{name}", change)
    assert nodes(kueue, names) == {"n0", "n1", "n2"} - nodes(kueue, ["spare-0"])


def test_a_pod_of_another_namespace_gets_nothing_by_the_key(kueue: KueueByHand) -> None:
    kueue.declare()
    held(kueue, "job-train", pod_set(count=1))
    held(kueue, "job-other", pod_set(count=1))
    (words,) = kueue.admit("job-train")
    kueue.kube.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "thief"}})
    thief = "/api/v1/namespaces/thief/pods"
    made_of = template(virtual_cluster="research")
    notes = made_of["metadata"]["annotations"] | words["annotations"]
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "thief", "annotations": notes},
        "spec": made_of["spec"],
    }
    kueue.kube.create(thief, body)

    def is_refused() -> bool:
        found = kueue.kube.get(f"{thief}/thief")
        assert not found["spec"].get("nodeName")
        return any(each["type"] == "PodScheduled" for each in found["status"].get("conditions", ()))

    expect_soon(is_refused)


def test_an_eviction_gives_the_cells_back(kueue: KueueByHand) -> None:
    kueue.declare()
    held(kueue, "job-train")
    for number in range(3):
        spare(kueue, f"spare-{number}")
    expect_soon(lambda: sum(bool(kueue.node_of(f"spare-{number}")) for number in range(3)) == 1)
    kueue.evict("job-train")
    expect_soon(lambda: all(kueue.node_of(f"spare-{number}") for number in range(3)))
    assert kueue.check("job-train") == {**kueue.check("job-train"), "state": "Pending", "message": "Reset"}


@pytest.mark.parametrize("end", ["finish", "delete"])
def test_the_end_of_a_workload_gives_the_cells_back(kueue: KueueByHand, end: str) -> None:
    kueue.declare()
    held(kueue, "job-train")
    getattr(kueue, end)("job-train")
    held(kueue, "job-next")
    assert len(nodes(kueue, kueue.start("job-next"))) == 2


def test_a_workload_that_comes_back_after_an_eviction_gets_cells_again(kueue: KueueByHand) -> None:
    kueue.declare()
    held(kueue, "job-train")
    kueue.evict("job-train")
    kueue.reserve("job-train")
    kueue.expect("job-train", "Ready", "cells are held: ")
    assert len(nodes(kueue, kueue.start("job-train"))) == 2


def test_one_without_room_waits_until_there_is_some(kueue: KueueByHand) -> None:
    kueue.declare()
    held(kueue, "job-first")
    kueue.queue("job-second")
    kueue.reserve("job-second")
    kueue.expect("job-second", "Pending", "research has 2 of 2 in use")
    assert "podSetUpdates" not in kueue.check("job-second")
    kueue.finish("job-first")
    assert "podSetUpdates" in kueue.expect("job-second", "Ready")


def test_one_that_can_never_run_is_rejected(kueue: KueueByHand) -> None:
    kueue.declare()
    kueue.queue("job-huge", pod_set(count=3))
    kueue.reserve("job-huge")
    found = kueue.expect("job-huge", "Rejected", "it can never run: research has 2 in all")
    assert "podSetUpdates" not in found


def test_opportunistic_pods_leave_for_a_gang_with_a_guarantee(kueue: KueueByHand) -> None:
    for number in range(3):
        spare(kueue, f"spare-{number}")
    expect_soon(lambda: all(kueue.node_of(f"spare-{number}") for number in range(3)))
    kueue.declare()
    kueue.queue("job-train")
    kueue.reserve("job-train")
    kueue.expect("job-train", "Ready")
    assert len(nodes(kueue, kueue.start("job-train"))) == 2


def test_a_template_may_choose_its_node(kueue: KueueByHand) -> None:
    kueue.declare()
    made_of = template(node_selector={"kubernetes.io/hostname": "n2"})
    held(kueue, "job-train", pod_set(count=1, made_of=made_of))
    assert nodes(kueue, kueue.start("job-train")) == {"n2"}


def test_a_node_that_goes_bad_sends_the_workload_back(kueue: KueueByHand) -> None:
    kueue.declare()
    held(kueue, "job-train", pod_set(count=1, made_of=template(node_selector={"kubernetes.io/hostname": "n2"})))
    kueue.kube.patch("/api/v1/nodes/n2", {"spec": {"unschedulable": True}})
    found = kueue.expect("job-train", "Retry", "cells that were held for it were lost")
    assert found["requeueAfterSeconds"] == 30


def test_the_next_leader_holds_the_same_cells(
    kueue: KueueByHand, extender: Extender, config: Path, cluster: EmbeddedCluster
) -> None:
    kueue.declare()
    held(kueue, "job-train")
    cluster.stop_scheduler()
    extender.stop()
    with start(config, cluster) as successor:
        assert successor.wait_ready(DEADLINE_S)
        expect_soon(lambda: any(one.is_held for one in successor.kueue.entries()))
        cluster.start_scheduler(successor.url)
        spare(kueue, "spare-0")
        spare(kueue, "spare-1")
        expect_soon(lambda: any(condition_of(kueue, name) for name in ("spare-0", "spare-1")))
        assert len(nodes(kueue, kueue.start("job-train"))) == 2
        cluster.stop_scheduler()


def test_the_next_leader_leaves_a_running_job_alone(
    kueue: KueueByHand, extender: Extender, config: Path, cluster: EmbeddedCluster
) -> None:
    kueue.declare()
    held(kueue, "job-train")
    names = kueue.start("job-train")
    before = nodes(kueue, names)
    cluster.stop_scheduler()
    extender.stop()
    with start(config, cluster) as successor:
        assert successor.wait_ready(DEADLINE_S)
        expect_soon(lambda: any(one.is_held for one in successor.kueue.entries()))
        assert kueue.check("job-train")["state"] == "Ready"
        assert nodes(kueue, names) == before
