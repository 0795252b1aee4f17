"""From a configuration to the nodes of a cluster."""

from hived.specs import CellTypeSpec, ClusterSpec, PhysicalCellSpec, SkuTypeSpec
from hived_config.rules import PodRules
from hived_extender.pods.wire import ENABLE_LIMIT
from hived_lab.embedded.nodes import machines_of

TYPES = {
    "BOX": CellTypeSpec("BOX", "GPU", 4, True),
    "RACK": CellTypeSpec("RACK", "BOX", 2),
    "SERVER": CellTypeSpec("SERVER", "CPU", 2, True),
}
CELLS = (
    PhysicalCellSpec("RACK", "r", children=(PhysicalCellSpec(address="b"), PhysicalCellSpec(address="a"))),
    PhysicalCellSpec("SERVER", "c"),
)


def test_every_configured_node_is_a_machine() -> None:
    machines = machines_of(ClusterSpec(TYPES, CELLS, {}))
    assert [machine.name for machine in machines] == ["a", "b", "c"]
    assert all(machine.capacity["pods"] == "110" for machine in machines)


def test_a_placeholder_is_no_machine() -> None:
    boxes = PhysicalCellSpec(address="a"), PhysicalCellSpec(address="placeholder-r-1")
    rack = PhysicalCellSpec("RACK", "r", children=boxes)
    assert [machine.name for machine in machines_of(ClusterSpec(TYPES, (rack,), {}))] == ["a"]


def test_a_machine_offers_the_skus_of_its_leaf_cells() -> None:
    skus = {"GPU": SkuTypeSpec(gpu=1, cpu=6.5, memory_mib=1024), "CPU": SkuTypeSpec(cpu=2, memory_mib=512)}
    box, _, server = machines_of(ClusterSpec(TYPES, CELLS, {}, skus))
    assert dict(box.capacity) == {
        "cpu": "26000m",
        "memory": "4096Mi",
        "pods": "110",
        "nvidia.com/gpu": "4",
        ENABLE_LIMIT: "1000000",
    }
    assert (server.capacity["cpu"], "nvidia.com/gpu" in server.capacity) == ("4000m", False)


def test_without_skus_a_leaf_cell_is_a_gpu() -> None:
    box, _, server = machines_of(ClusterSpec(TYPES, CELLS, {}))
    assert (box.capacity["nvidia.com/gpu"], server.capacity["nvidia.com/gpu"]) == ("4", "2")


def test_a_machine_has_the_devices_and_the_labels_that_pods_choose_it_by() -> None:
    labels = {"GPU": {"amd.com/gpu.product-name": "MI300X"}}
    box, _, server = machines_of(ClusterSpec(TYPES, CELLS, {}), PodRules({"GPU": "amd.com/gpu"}, node_labels=labels))
    assert (box.capacity["amd.com/gpu"], "nvidia.com/gpu" in box.capacity) == ("4", False)
    assert (box.labels, server.labels) == (labels["GPU"], {})


def test_a_node_with_cells_of_two_chains_offers_both() -> None:
    slots = (PhysicalCellSpec(address="8"), PhysicalCellSpec(address="9"))
    cells = (PhysicalCellSpec("BOX", "both"), PhysicalCellSpec("SERVER", "both", children=slots))
    (machine,) = machines_of(ClusterSpec(TYPES, cells, {}))
    assert machine.capacity["nvidia.com/gpu"] == "6"
