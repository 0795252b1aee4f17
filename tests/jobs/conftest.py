"""A cluster for submission: two kinds of GPU node, a CPU node, three virtual clusters, one pinned node."""

from pathlib import Path

import pytest

from hived.values.specs import (
    CellTypeSpec,
    ClusterSpec,
    PhysicalCellSpec,
    SkuTypeSpec,
    VirtualCellSpec,
    VirtualClusterSpec,
)
from hived_jobs.submission import Submission

CLUSTER = ClusterSpec(
    cell_types={
        "BIG-NODE": CellTypeSpec("BIG-NODE", "BIG", 4, is_node_level=True),
        "BIG-POOL": CellTypeSpec("BIG-POOL", "BIG-NODE", 3),
        "SMALL-NODE": CellTypeSpec("SMALL-NODE", "SMALL", 2, is_node_level=True),
        "CPU-NODE": CellTypeSpec("CPU-NODE", "CPU", 8, is_node_level=True),
    },
    physical_cells=(
        PhysicalCellSpec(
            "BIG-POOL",
            children=(
                PhysicalCellSpec(address="big-0"),
                PhysicalCellSpec(address="big-1"),
                PhysicalCellSpec(address="big-2", pinned_cell_id="PIN"),
            ),
        ),
        PhysicalCellSpec("SMALL-NODE", "small-0"),
        PhysicalCellSpec("CPU-NODE", "cpu-0"),
    ),
    virtual_clusters={
        "research": VirtualClusterSpec(
            "research",
            (VirtualCellSpec("BIG-POOL.BIG-NODE", 1), VirtualCellSpec("SMALL-NODE", 1)),
            pinned_cell_ids=("PIN",),
        ),
        "product": VirtualClusterSpec("product", (VirtualCellSpec("BIG-POOL.BIG-NODE", 1),)),
        "batch": VirtualClusterSpec("batch", (VirtualCellSpec("CPU-NODE", 1),)),
    },
    sku_types={
        "BIG": SkuTypeSpec(gpu=1, cpu=8, memory_mib=65536),
        "SMALL": SkuTypeSpec(gpu=1, cpu=4, memory_mib=16384),
        "CPU": SkuTypeSpec(gpu=0, cpu=2, memory_mib=4096),
    },
)


@pytest.fixture
def submission() -> Submission:
    return Submission(user="me", cluster=CLUSTER)


@pytest.fixture
def write(tmp_path: Path):
    """Write a job file; returns its path as text."""

    def _write(text: str, name: str = "job.yaml") -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return _write
