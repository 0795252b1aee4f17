"""Victims leave for a pod only if kube-scheduler takes the pod then (rule 27.2)."""

from pathlib import Path
from typing import Any

import pytest

from tests.cases.played import PREFIX, nodes_config, played_on, pod
from tests.expecting import expect_soon

pytestmark = pytest.mark.sample(3)

CONFIG = nodes_config(4, 2, cpu=2)

APART = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "low"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


def ours(name: str, priority: int = 1, **requests: int) -> dict[str, Any]:
    """A pod of two leaf cells, whatever else it requests."""
    spec = f"virtualCluster: default\npriority: {priority}\nleafCellNumber: 2\n"
    return pod(name, 2, requests=requests, annotations={f"{PREFIX}pod-scheduling-spec": spec})


AWAY = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "high"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}


def with_port(name: str, priority: int = 1) -> dict[str, Any]:
    """A pod that takes a port of its node."""
    made = ours(name, priority)
    made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    return made


def on(node: str, name: str, gpus: int = 2, **more: Any) -> dict[str, Any]:
    """A pod of one node."""
    return pod(name, gpus, nodeSelector={"kubernetes.io/hostname": node}, **more)


SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "high"}},
    }
]
DISK = {"ephemeral-storage": "100Gi"}


@pytest.mark.parametrize(
    ("running", "high", "staying", "left"),
    [
        pytest.param(
            [pod(f"low-{number}", 2, affinity=AWAY) for number in range(4)],
            pod("high", 2, priority=10, labels={"app": "high"}),
            (),
            2,
            id="both pods that must not be beside the preemptor",
        ),
        pytest.param(
            [with_port("web-0"), with_port("web-1"), ours("low-0"), ours("low-1")],
            with_port("high", 10),
            ("low-0", "low-1"),
            1,
            id="the pod that has the host port",
        ),
        pytest.param(
            [pod(f"low-{number}", 2, labels={"app": "low"}) for number in range(4)],
            pod("high", 2, priority=10, affinity=APART),
            (),
            2,
            id="both pods that the preemptor must not be beside",
        ),
        pytest.param(
            [ours("hog-0", cpu=6), ours("hog-1", cpu=6), ours("low-0"), ours("low-1")],
            ours("high", 10, cpu=6),
            ("low-0", "low-1"),
            1,
            id="the pod that has the CPU",
        ),
        pytest.param(
            [
                on("n1", "hog-0", requests={"ephemeral-storage": "80Gi"}),
                on("n2", "hog-1", requests={"ephemeral-storage": "80Gi"}),
                on("n1", "low-0"),
                on("n2", "low-1"),
            ],
            pod("high", 2, priority=10, requests={"ephemeral-storage": "80Gi"}),
            ("low-0", "low-1"),
            1,
            id="the pod that has the local storage",
        ),
        pytest.param(
            [
                on("n1", "one-0", labels={"app": "high"}),
                on("n1", "one-1", labels={"app": "high"}),
                on("n2", "low-0"),
                on("n2", "low-1"),
            ],
            pod("high", 2, priority=10, labels={"app": "high"}, topologySpreadConstraints=SPREAD),
            ("one-0", "one-1"),
            1,
            id="a pod of the node over which the preemptor must spread",
        ),
    ],
)
def test_the_pods_leave_that_are_in_the_way(
    tmp_path: Path, running: list[dict[str, Any]], high: dict[str, Any], staying: tuple[str, ...], left: int
) -> None:
    with played_on(tmp_path, CONFIG) as played:
        for node in ("n1", "n2"):
            played.patch_node(node, {"status": {"capacity": DISK, "allocatable": DISK}}, "status")
        for one in running:
            played.create(one)
            played.expect_running(one["metadata"]["name"])
        played.create(high)
        played.expect_running("high")
        expect_soon(lambda: len(played.running_pods()) == len(running) - left + 1)
        assert set(staying) <= set(played.running_pods())
