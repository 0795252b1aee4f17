"""Facts about devices in few words, and the losses that follow from them.

n0 and n1 have four leaf cells of type A each. n2 has two of type B and two of type C, which are one resource; n3 has
two of type D, each of which is two devices.
"""

from collections.abc import Collection
from typing import Any

import msgspec

from hived.cells.layout import build_topology
from hived_config.loader import load_text
from hived_extender.jobs.wire import Node, Pod
from hived_extender.machine.devices.dra import (
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
    read_claim,
    read_class,
    read_slice,
)
from hived_extender.machine.devices.shortage import Loss, Losses
from hived_extender.machine.devices.table import DeviceTable, Part, allocatable_of, use_of

GPU = "nvidia.com/gpu"
CLASS = "gpu.nvidia.com"
CONFIG = """\
physicalCluster:
  skuTypes:
    A: {{gpu: 1}}
    B: {{gpu: 1, resource: b.c/gpu}}
    C: {{gpu: 1, resource: b.c/gpu}}
    D: {{gpu: 2, resource: d/gpu}}
  cellTypes:
    A4: {{childCellType: A, childCellNumber: 4, isNodeLevel: true}}
    B2: {{childCellType: B, childCellNumber: 2, isNodeLevel: true}}
    C2: {{childCellType: C, childCellNumber: 2, isNodeLevel: true}}
    D2: {{childCellType: D, childCellNumber: 2, isNodeLevel: true}}
  physicalCells:
  - {{cellType: A4, cellAddress: n0}}
  - {{cellType: A4, cellAddress: n1}}
  - {{cellType: B2, cellAddress: n2}}
  - {{cellType: C2, cellAddress: n2, cellChildren: [{{cellAddress: 2}}, {{cellAddress: 3}}]}}
  - {{cellType: D2, cellAddress: n3}}
virtualClusters: {{}}
{more}
"""


class Core:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.lost: dict[tuple[str, str], tuple[int, tuple[int, ...]]] = {}
        self.calls: list[tuple[str, int]] = []

    def set_lost(self, node: str, leaf_type: str, count: int, known: tuple[int, ...]) -> None:
        self.calls.append((node, count))
        self.lost[node, leaf_type] = count, known
        if not count:
            del self.lost[node, leaf_type]


class Floor:
    """A table of facts and the losses that follow; facts are settled one by one."""

    def __init__(self, more: str = "") -> None:
        configuration = load_text(CONFIG.format(more=more), "floor.yaml", environ={})
        topology = build_topology(configuration.cluster)
        self.table = DeviceTable()
        self.losses = Losses(topology, configuration.cluster, configuration.rules)
        self.core = Core()
        self.holders: set[str] = set()

    def node(self, name: str, **allocatable: Any) -> None:
        """A node reports these amounts, by resource with `__` for `/` and `_` for `.`, beside its CPUs."""
        named = {key.replace("__", "/").replace("_", "."): value for key, value in allocatable.items()}
        value = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", **named}}}
        self.table.put_node(name, allocatable_of(msgspec.convert(value, Node)))
        self.settle()

    def pod(self, name: str, node: str, count: int, resource: str = GPU, phase: str = "Running") -> None:
        """A pod is seen, which requests devices in one container."""
        seen = pod(name, node, [{"name": "main", "resources": {"limits": {resource: str(count)}}}], phase)
        use = use_of(seen)
        if use is None:
            self.table.drop(Part.PODS, name)
        else:
            self.table.put_pod(use, node)
        self.settle()

    def slice(
        self, node: str, devices: list[dict[str, Any]], *, generation: int = 1, of: int = 1, part: int = 0
    ) -> None:
        """A ResourceSlice of NVIDIA's driver is seen."""
        pool = {"name": node, "generation": generation, "resourceSliceCount": of}
        spec = {"driver": CLASS, "nodeName": node, "pool": pool, "devices": devices}
        item = msgspec.convert({"metadata": {"name": f"{node}-{part}"}, "spec": spec}, ResourceSlice)
        found = read_slice(item)
        assert found is not None
        self.table.put_slice(item.metadata.key, *found)
        self.settle()

    def device_class(self, *expressions: str, name: str = CLASS) -> None:
        """A DeviceClass is seen."""
        spec = {"selectors": [{"cel": {"expression": each}} for each in expressions]}
        item = msgspec.convert({"metadata": {"name": name}, "spec": spec}, DeviceClass)
        self.table.put_class(name, read_class(item))
        self.settle()

    def claim(self, name: str, node: str, devices: list[str], pods: Collection[str] = (), **more: Any) -> None:
        """A claim is seen; without devices it is not allocated."""
        found = read_claim(claim(name, node, devices, pods, **more))
        if found is None:
            self.table.drop(Part.CLAIMS, f"ns/{name}")
        else:
            self.table.put_claim(f"ns/{name}", *found)
        self.settle()

    def settle(self) -> list[Loss]:
        """Tell the core; returns the losses that are other ones."""
        changed, self.table.changed = self.table.changed, {}
        table = self.table
        return self.losses.settle(self.core, table.nodes, table.classes, changed, self.holders.__contains__)


def pod(name: str, node: str, containers: list[dict[str, Any]], phase: str = "Running", **spec: Any) -> Pod:
    """A pod as the watch reads it; its uid is its name."""
    value = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"nodeName": node, "containers": containers, **spec},
        "status": {"phase": phase},
    }
    return msgspec.convert(value, Pod)


def claim(
    name: str, node: str, devices: list[str], pods: Collection[str] = (), *, asks_for: str = CLASS, **metadata: Any
) -> ResourceClaim:
    """A claim of the newest version."""
    results = [{"request": "gpus", "driver": CLASS, "pool": node, "device": each} for each in devices]
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}
    value = {
        "metadata": {"name": name, "namespace": "ns", **metadata},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": asks_for}}]}},
        "status": {
            "allocation": allocation if devices else None,
            "reservedFor": [{"resource": "pods", "name": each, "uid": each} for each in pods],
        },
    }
    return msgspec.convert(value, ResourceClaim)


def gpus(*indices: int, tainted: Collection[int] = ()) -> list[dict[str, Any]]:
    """Devices as NVIDIA's driver publishes them."""
    return [
        {
            "name": f"gpu-{index}",
            "attributes": {"type": {"string": "gpu"}, "uuid": {"string": f"GPU-{index}"}},
            **({"taints": [{"key": "broken", "effect": "NoSchedule"}]} if index in tainted else {}),
        }
        for index in indices
    ]
