"""Kubernetes nodes for the tests of generated configurations."""

from typing import Any

ZONE, BLOCK, RACK = "topology.kubernetes.io/zone", "example.com/block", "example.com/rack"
V100, A100 = "Tesla-V100-SXM2-32GB", "NVIDIA-A100-SXM4-80GB"

Node = dict[str, Any]


def node(
    name: str, product: str = V100, gpus: int = 8, *, zone: str = "", block: str = "", rack: str = "",
    cpu: str = "63500m", memory: str = "515Gi", **status: Any,
) -> Node:  # fmt: skip
    """A node as the API server sends it; `status` replaces parts of its status."""
    labels = {"nvidia.com/gpu.product": product, ZONE: zone, BLOCK: block, RACK: rack}
    amounts = {"cpu": cpu, "memory": memory, "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    return {
        "metadata": {"name": name, "labels": {key: value for key, value in labels.items() if value}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts} | status,
    }


def hall(zones: int = 2, blocks: int = 4, racks: int = 8, nodes: int = 16) -> list[Node]:
    """Nodes in racks, racks in blocks, blocks in zones; the last zone has another product."""
    made = []
    for zone in range(zones):
        for block in range(blocks):
            for rack in range(racks):
                for number in range(nodes):
                    place = f"{zone}-{block}-{rack}"
                    made.append(
                        node(
                            f"node-{place}-{number}",
                            V100 if zone < zones - 1 else A100,
                            zone=f"zone-{zone}",
                            block=f"block-{zone}-{block}",
                            rack=f"rack-{place}",
                        )
                    )
    return made
