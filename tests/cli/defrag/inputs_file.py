"""Inputs of a plan as a file: four nodes of four GPUs, all of one virtual cluster, each half used."""

from pathlib import Path
from typing import Any

import msgspec

from hived_extender.api.defrag import InputGroup, InputPlace, InputPod, Inputs

CONFIGURATION = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 4}
  physicalCells:
  - cellType: RACK
    cellChildren: [{cellAddress: n0}, {cellAddress: n1}, {cellAddress: n2}, {cellAddress: n3}]
virtualClusters:
  research:
    virtualCells: [{cellType: RACK.NODE, cellNumber: 4}]
"""

HOUR_S = 3600.0
NOW = 500_000.0


def group(name: str, node: str, cells: tuple[int, ...], hours: float | None = None, **more: Any) -> InputGroup:
    """A group of one pod that began to run so many hours ago."""
    spec = {"virtualCluster": "research", "priority": 0, "leafCellNumber": len(cells)}
    members = [{"podNumber": 1, "leafCellNumber": len(cells)}]
    return InputGroup(
        spec=spec | {"affinityGroup": {"name": name, "members": members}},
        chain="RACK",
        places=[[InputPlace(node, cells, ("NODE",) * len(cells))]],
        pods=[InputPod(f"uid-{name}", "team", name, node, cells)],
        started_at=None if hours is None else NOW - hours * HOUR_S,
        **({"may_move": True} | more),
    )


def half_used(**more: Any) -> Inputs:
    """A group of two GPUs on each node; those on the first nodes run longest."""
    groups = [group(f"team/g{i}", f"n{i}", (0, 1), hours=4.0 - i) for i in range(4)]
    return Inputs(at=NOW, configuration=CONFIGURATION, **({"groups": groups} | more))


def write_inputs(folder: Path, inputs: Inputs) -> Path:
    """The file, as `--state` takes it."""
    file = folder / "inputs.json"
    file.write_bytes(msgspec.json.encode(inputs))
    return file
