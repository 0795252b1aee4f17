"""Kinds of objects that come while we run are found within seconds."""

import threading
from typing import Any

import pytest

from hived_config.loader import load_text
from hived_extender.kube import optional_kinds
from hived_extender.kube.client import KubeClient
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.optional_kinds import ObjectKind, OptionalKinds
from hived_lab.embedded.cluster import EmbeddedCluster
from tests.expecting import expect_soon

CONFIG = """\
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: n0}]
virtualClusters:
  a: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
"""
KIND = ObjectKind("kueue.x-k8s.io", "resourceflavors", ("v1beta2", "v1beta1"))
THERE = ObjectKind("kueue.x-k8s.io", "workloads", ("v1beta2",))


class Told:
    """Takes note of lists."""

    def __init__(self) -> None:
        self.listed_kinds: list[ObjectKind] = []

    def listed(self, kind: ObjectKind, items: list[dict[str, Any]]) -> None:
        self.listed_kinds.append(kind)

    def seen(self, kind: ObjectKind, item: dict[str, Any]) -> None: ...

    def gone(self, kind: ObjectKind, item: dict[str, Any]) -> None: ...

    def unserved(self, kind: ObjectKind) -> None: ...


def test_a_kind_that_comes_later_is_followed_at_the_next_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval of full looks is a minute all the time."""
    monkeypatch.setattr(optional_kinds, "GLANCE_INTERVAL_S", 0.01)
    told, has_come = Told(), threading.Event()
    with EmbeddedCluster(load_text(CONFIG, "small.yaml", environ={}).cluster) as cluster:
        kube = KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))
        get = kube.get

        def before_it_came(path: str, *more: Any) -> Any:
            found = get(path, *more)
            if path == "/apis/kueue.x-k8s.io/v1beta2" and not has_come.is_set():
                found["resources"] = [each for each in found["resources"] if each["name"] != KIND.plural]
            return found

        monkeypatch.setattr(kube, "get", before_it_came)
        kinds = OptionalKinds(kube, Metrics(), (KIND, THERE), told, "tests")
        kinds.start()
        expect_soon(lambda: THERE in told.listed_kinds)
        assert KIND not in told.listed_kinds
        has_come.set()
        expect_soon(lambda: KIND in told.listed_kinds)
        kinds.stop()
        kinds.join(10)
        kube.close()
