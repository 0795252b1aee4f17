"""Pods of tests on a control plane: which Kubernetes priority they have, whether they run, what is waited for."""

import time
from collections.abc import Callable
from contextlib import suppress

from hived_extender.kube import KubeClient, KubeError, pod_path

LONGEST_S = 20.0

ONE_NODE = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: gpu-a}
virtualClusters:
  a:
    virtualCells: [{cellType: NODE, cellNumber: 1}]
"""
"""A configuration of one node, all of it one virtual cluster's."""


def priority_class(kube: KubeClient, value: int) -> str:
    """The name of a PriorityClass with this value, created if need be; then admission knows it a moment later."""
    name = f"test-{value}" if value >= 0 else f"test-minus-{-value}"
    body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
    with suppress(KubeError):
        kube.create("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        time.sleep(1)
    return name


def is_bound(kube: KubeClient, name: str) -> bool:
    """Whether a pod of the namespace default has a node."""
    return bool(kube.get(pod_path("default", name))["spec"].get("nodeName"))


def wait_until(is_so: Callable[[], bool], within_s: float = LONGEST_S) -> float:
    """Seconds until it was so."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < within_s
        time.sleep(0.02)
    return time.monotonic() - began
