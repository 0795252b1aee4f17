"""Kubernetes nodes -> machines: what counts, what is left out, what people are told."""

import pytest

from hived.values.errors import UserError
from hived_config.generating.machines import Machine, natural_key
from hived_config.generating.nodes import Reading, machines_of, parse_selector
from hived_config.selectors import matches
from tests.config.generating import machine_room as room


def only(node: room.Node, reading: Reading | None = None) -> Machine:
    (machine,) = machines_of([node], reading).machines
    return machine


def test_a_machine_has_what_is_allocatable_and_the_product_that_its_label_says() -> None:
    machine = only(room.node("n", rack="r1"), Reading(levels=(room.ZONE, room.RACK)))
    assert (machine.product, machine.device_count, machine.cpu, machine.memory_mib) == (room.V100, 8, 63.5, 515 * 1024)
    assert (machine.groups, machine.node_labels) == (("", "r1"), {"nvidia.com/gpu.product": room.V100})


def test_without_a_label_the_product_is_the_resource() -> None:
    plain = room.node("n", product="")
    assert (only(plain).product, only(plain).node_labels) == ("nvidia.com/gpu", {})


def test_another_label_can_name_the_product() -> None:
    node = room.node("n")
    node["metadata"]["labels"]["example.com/gpu"] = "v100-big"
    machine = only(node, Reading(product_label="example.com/gpu"))
    assert (machine.product, machine.node_labels) == ("v100-big", {"example.com/gpu": "v100-big"})


def test_other_resources_are_found_and_each_that_is_there_is_a_machine() -> None:
    amounts = {"cpu": "8", "memory": "64Gi", "amd.com/gpu": "4", "example.com/npu": "16"}
    node = room.node("n", product="", allocatable=amounts, capacity=amounts)
    node["metadata"]["labels"]["amd.com/gpu.product-name"] = "AMD_Instinct_MI300X"
    assert (only(node).resource, only(node).product, only(node).device_count) == (
        "amd.com/gpu",
        "AMD_Instinct_MI300X",
        4,
    )
    npu, gpu = machines_of([node], Reading(resources=("example.com/npu", "amd.com/gpu"))).machines
    assert (npu.resource, npu.product, npu.device_count) == ("example.com/npu", "example.com/npu", 16)
    assert gpu.device_count == 4
    assert (npu.cpu, gpu.cpu) == (8 * 16 / 20, 8 * 4 / 20)


def test_a_mig_device_has_its_part_of_the_cpus_and_memory_that_a_gpu_has() -> None:
    amounts = {"cpu": "30", "memory": "30Gi", "nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "7"}
    amounts["nvidia.com/mig-3g.40gb"] = "7"
    node = room.node("n", allocatable=amounts, capacity=amounts)
    reading = Reading(resources=("nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu"))
    machines = {each.resource.rpartition("/")[2]: each for each in machines_of([node], reading).machines}
    assert {name: each.cpu for name, each in machines.items()} == {"mig-1g.10gb": 6, "mig-3g.40gb": 18, "gpu": 6}
    assert machines["gpu"].product == room.V100


def test_mig_devices_that_are_not_named_are_said_to_be_left_out() -> None:
    amounts = {"cpu": "30", "memory": "30Gi", "nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "7"}
    found = machines_of([room.node("n", allocatable=amounts, capacity=amounts), room.node("o")])
    assert len(found.machines) == 2
    assert found.notes == (
        "1 node whose MIG devices are left out: name these with --resource as well: n (nvidia.com/mig-1g.10gb)",
    )


def test_nodes_that_cannot_take_part_are_left_out_and_named() -> None:
    master = room.node("master")
    master["spec"] = {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}
    mig = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"}
    nodes = [
        master,
        room.node("web", gpus=0),
        room.node("mig", allocatable=mig),
        room.node("odd", allocatable={"cpu": "x"}),
    ]
    found = machines_of(nodes)
    assert found.machines == ()
    assert found.notes == (
        "1 node left out, without devices: web",
        "1 node left out, whose devices are not looked for: name their resource with --resource: "
        "mig (nvidia.com/gpu: 8, allocatable 0; nvidia.com/mig-1g.10gb: 0, allocatable 7)",
        "1 node left out, of the control plane and closed to pods: master",
        "1 node with a number of devices, CPUs or memory that cannot be read: odd",
    )


@pytest.mark.parametrize("with_cpus", [False, True])
def test_a_node_whose_devices_cannot_be_had_is_no_node_of_cpus(with_cpus: bool) -> None:
    gone = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "0"}
    other = {"cpu": "8", "memory": "64Gi", "rdma/hca": "4", "habana.ai/gaudi": "8", "nvidia.com/gpu": "0"}
    network = {"cpu": "8", "memory": "64Gi", "rdma/hca": "4", "nvidia.com/gpu": "0"}
    nodes = [
        room.node("gone", allocatable=gone),
        room.node("other", allocatable=other, capacity=other),
        room.node("network", allocatable=network, capacity=network),
    ]
    found = machines_of(nodes, Reading(with_cpus=with_cpus))
    assert [machine.name for machine in found.machines] == ["network"] * with_cpus
    assert found.notes[-2:] == (
        "1 node left out, none of whose devices is allocatable: gone (nvidia.com/gpu: 8, allocatable 0)",
        "1 node left out, whose devices are not looked for: name their resource with --resource: "
        "other (habana.ai/gaudi: 8, allocatable 8)",
    )


@pytest.mark.parametrize(
    ("resources", "notes"),
    [
        (("nvidia.com/gpu",), ()),
        (("nvidia.com/gpu", "amd.com/gpu"), ()),
        (
            ("nvidia.com/gpu", "nvidia.com/gpuu"),
            ("no node has nvidia.com/gpuu (--resource); nodes have nvidia.com/gpu",),
        ),
        (("a.b/c", "d"), ("no node has a.b/c or d (--resource); nodes have nvidia.com/gpu",)),
    ],
)
def test_a_named_resource_that_no_node_has_is_told(resources: tuple[str, ...], notes: tuple[str, ...]) -> None:
    found = machines_of([room.node("n"), room.node("web", gpus=0)], Reading(resources=resources))
    assert [note for note in found.notes if "--resource)" in note] == [*notes]


def test_fewer_devices_than_there_are_and_shared_ones_are_told() -> None:
    reduced = room.node("reduced", allocatable={"cpu": "8", "memory": "1Gi", "nvidia.com/gpu": "7"})
    shared = room.node("shared", gpus=32)
    shared["metadata"]["labels"]["nvidia.com/gpu.replicas"] = "4"
    found = machines_of([reduced, shared])
    assert [machine.device_count for machine in found.machines] == [7, 32]
    assert [note.split(":")[0] for note in found.notes] == [
        "1 node counted with the devices that are allocatable, which are fewer than there are",
        "1 node whose devices are shared by time slicing",
    ]


def test_cpus_become_cells_if_that_is_wished_and_some_can_be_kept_back() -> None:
    machine = only(room.node("n", gpus=0, cpu="8"), Reading(with_cpus=True, reserved_cpu=1.5, reserved_memory_mib=1024))
    assert (machine.product, machine.device_count, machine.cpu, machine.resource) == ("CPU", 6, 6, "")
    assert machine.memory_mib == 514 * 1024


@pytest.mark.parametrize("node", [{}, {"metadata": {}}, {"metadata": {"name": "n"}, "status": {}, "spec": None}])
def test_a_node_may_lack_anything(node: room.Node) -> None:
    assert machines_of([node]).machines == ()


@pytest.mark.parametrize(
    ("selector", "is_chosen"),
    [
        ("", True),
        ("pool=gpu", True),
        ("pool==gpu, !spare", True),
        ("pool!=gpu", False),
        ("zone!=a", True),
        ("pool", True),
        ("spare", False),
        ("pool=gpu,zone=a", False),
    ],
)
def test_a_selector_chooses_as_kubectl_does(selector: str, is_chosen: bool) -> None:
    assert matches(parse_selector(selector), {"pool": "gpu"}) is is_chosen


@pytest.mark.parametrize("selector", ["pool in (a)", "=a", "!pool=a"])
def test_a_selector_that_cannot_be_read_is_refused(selector: str) -> None:
    with pytest.raises(UserError, match="expected KEY, !KEY, KEY=VALUE or KEY!=VALUE"):
        parse_selector(selector)


def test_names_are_sorted_as_people_do() -> None:
    names = ["n10", "n2", "n2a", "a", "10", "9", "n02"]
    assert sorted(names, key=natural_key) == ["9", "10", "a", "n02", "n2", "n2a", "n10"]
