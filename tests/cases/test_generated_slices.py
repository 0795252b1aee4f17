"""Machines with devices of several resources become cells of each; a new one takes a place in each chain."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from hived_cli import main
from tests.cases.played import Played, played_on, pod

GPU, SMALL, LARGE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
RACK = "example.com/rack"
NAMED = [word for resource in (GPU, SMALL, LARGE) for word in ("--resource", resource)]
MIXED = {GPU: 4, SMALL: 14, LARGE: 4}


def node(name: str, devices: dict[str, int], rack: str = "r1") -> dict[str, Any]:
    amounts = {"cpu": "24", "memory": "200Gi", **{resource: str(count) for resource, count in devices.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", RACK: rack}},
        "spec": {},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


class Machines:
    """Nodes in a file, and a configuration that is made of them."""

    def __init__(self, folder: Path, *nodes: dict[str, Any]) -> None:
        self.nodes, self.file = folder / "nodes.json", folder / "out.yaml"
        self.become(*nodes)

    def become(self, *nodes: dict[str, Any]) -> None:
        self.nodes.write_text(json.dumps({"kind": "List", "items": list(nodes)}))

    def run(self, *args: str) -> Result:
        result = CliRunner().invoke(main, ["config", *args])
        assert result.exit_code == 0, result.output
        return result

    def generate(self, *more: str) -> str:
        """The notes of `generate`; the file is sound."""
        notes = self.run("generate", "--nodes", str(self.nodes), "--force", "-o", str(self.file), *more).stderr
        self.run("validate", str(self.file))
        return notes

    def cells(self) -> dict[str, int]:
        """How many leaf cells each node has of each resource, as NODE RESOURCE."""
        physical = yaml.safe_load(self.file.read_text())["physicalCluster"]
        types, skus = physical["cellTypes"], physical["skuTypes"]
        found: dict[str, int] = {}
        stack = [(cell, cell["cellType"]) for cell in physical["physicalCells"]]
        while stack:
            cell, name = stack.pop()
            kind = types[name]
            if kind.get("isNodeLevel"):
                resource = skus[kind["childCellType"]].get("resource", GPU)
                found[f"{cell['cellAddress']} {resource}"] = kind["childCellNumber"]
            stack += [(child, kind["childCellType"]) for child in cell.get("cellChildren", ())]
        return found


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path, node("a1", MIXED), node("a2", {GPU: 8}))


def of(name: str, devices: dict[str, int]) -> dict[str, int]:
    return {f"{name} {resource}": count for resource, count in devices.items()}


def test_every_resource_that_is_named_becomes_cells(machines: Machines) -> None:
    assert machines.generate(*NAMED) == f"wrote {machines.file}\n"
    assert machines.cells() == of("a1", MIXED) | of("a2", {GPU: 8})
    assert "from 2 machines" in machines.file.read_text()


def test_mig_devices_that_are_not_named_are_said_to_be_left_out(machines: Machines) -> None:
    notes = machines.generate("--resource", GPU, "--resource", SMALL)
    assert f"Note: 1 node whose MIG devices are left out: name these with --resource as well: a1 ({LARGE})" in notes
    assert machines.cells() == of("a1", {GPU: 4, SMALL: 14}) | of("a2", {GPU: 8})


def test_racks_of_such_machines_are_filled_up_in_each_chain_and_a_new_machine_takes_its_places(
    tmp_path: Path,
) -> None:
    there = [node(name, MIXED, rack) for name, rack in (("a1", "r1"), ("a2", "r1"), ("a3", "r2"))]
    machines = Machines(tmp_path, *there)
    machines.generate(*NAMED, "--levels", RACK, "--pad")
    names = [place.split()[0] for place in machines.cells()]
    assert sum(name.startswith("placeholder-") for name in names) == 3
    machines.become(*there, node("a4", MIXED, "r2"))
    args = ["--nodes", str(machines.nodes), "--levels", RACK, *NAMED]
    machines.run("sync", "-f", str(machines.file), "--yes", *args)
    assert machines.cells() == {
        place: count for name in ("a1", "a2", "a3", "a4") for place, count in of(name, MIXED).items()
    }
    assert "up to date" in machines.run("sync", "-f", str(machines.file), "--dry-run", *args).output


def test_a_node_with_fewer_devices_of_one_resource_is_told_by_sync(machines: Machines) -> None:
    machines.generate(*NAMED)
    machines.become(node("a1", MIXED | {SMALL: 7}), node("a2", {GPU: 8}))
    result = machines.run("sync", "-f", str(machines.file), "--dry-run", "--nodes", str(machines.nodes), *NAMED)
    assert "1 node with another number of devices than their cell type has: a1 (7)" in result.output


def test_devices_of_another_resource_on_a_node_of_the_file_get_cells_by_sync(machines: Machines) -> None:
    machines.generate(*NAMED)
    machines.become(node("a1", MIXED), node("a2", {GPU: 8, SMALL: 14}))
    args = ["--nodes", str(machines.nodes), *NAMED]
    machines.run("sync", "-f", str(machines.file), "--yes", *args)
    assert machines.cells() == of("a1", MIXED) | of("a2", {GPU: 8, SMALL: 14})
    assert "up to date" in machines.run("sync", "-f", str(machines.file), "--dry-run", *args).output


def test_devices_of_another_resource_that_no_chain_has_are_told_by_sync(machines: Machines) -> None:
    machines.generate("--resource", GPU)
    args = ["--nodes", str(machines.nodes), "--resource", GPU, "--resource", SMALL]
    result = machines.run("sync", "-f", str(machines.file), "--dry-run", *args)
    assert "1 node left out, as no cell type is of their product and number of devices: a1" in result.output


def test_a_node_of_the_file_whose_cells_are_its_cpus_alone_stays_as_it_is(tmp_path: Path) -> None:
    machines = Machines(tmp_path, node("a1", {}))
    machines.generate("--cpu")
    machines.become(node("a1", {GPU: 4}))
    result = machines.run("sync", "-f", str(machines.file), "--dry-run", "--nodes", str(machines.nodes))
    assert "up to date" in result.output


@pytest.fixture
def played(machines: Machines, tmp_path: Path) -> Iterator[Played]:
    machines.generate(*NAMED)
    with played_on(tmp_path, machines.file.read_text()) as running:
        yield running


def test_pods_of_every_resource_run_on_the_made_cells(played: Played) -> None:
    played.create(
        *(
            pod(name, 0, requests={of_pod: count})
            for name, of_pod, count in (
                ("whole", GPU, 4),
                ("small", SMALL, 14),
                ("large", LARGE, 4),
                ("eight", GPU, 8),
            )
        )
    )
    played.expect_running("whole", "small", "large", "eight")
    assert {name: node for name, node in played.running_pods().items() if node == "a2"} == {"eight": "a2"}
