"""`nvidia-smi topo -m` -> levels below the node."""

import pytest

from hived_config.document import ConfigError
from hived_config.generating.machines import DeviceGroups, Machine
from hived_config.generating.topologies import Topology, inner_of, parse_matrix, with_topologies
from tests.config.generating import gpu_topologies as known


def read(text: str) -> tuple[DeviceGroups, list[str]]:
    return inner_of(parse_matrix(text, "f"))


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        (known.CUBE_MESH, (("SWITCH", 2), ("SOCKET", 4))),
        (known.SWITCHED, (("SWITCH", 2),)),
        (known.WORKSTATION, ()),
        (known.BRIDGED, (("NVLINK", 2),)),
    ],
)
def test_levels_are_what_joins_equal_groups_of_gpus(text: str, levels: tuple[tuple[str, int], ...]) -> None:
    inner, notes = read(text)
    assert (inner.levels, notes) == (levels, [])


def test_gpus_that_belong_together_stand_together_whatever_their_numbers() -> None:
    assert read(known.BRIDGED)[0].order == (0, 2, 1, 3)
    assert read(known.CUBE_MESH)[0].order == ()


def test_nvlink_without_adapters_leaves_only_what_the_affinity_tells() -> None:
    lines = known.CUBE_MESH.split("\n")
    without = ["\t".join(word for i, word in enumerate(line.split("\t")) if i not in range(9, 13)) for line in lines]
    assert read("\n".join(without))[0].levels == (("SOCKET", 4),)


def test_groups_of_unequal_size_are_left_out_with_a_note() -> None:
    assert read(known.LOPSIDED) == (
        DeviceGroups(),
        ["no SOCKET level: its groups are not of one size (GPU0+GPU1+GPU2, GPU3)"],
    )
    inner, notes = read(known.PASTED)
    assert inner.levels == (("SWITCH", 2), ("SOCKET", 4))
    assert notes == ["no PCIE level: its groups are not of one size (GPU0+GPU1+GPU2+GPU3, GPU4+GPU5, GPU6+GPU7)"]


def test_switches_below_a_switch_are_a_level_of_their_own() -> None:
    nested = known.PASTED.replace("NODE    NODE", "PXB     PXB ").replace("SYS ", "NODE")
    assert read(nested)[0].levels == (("SWITCH", 2), ("PCIE", 4))


def test_groups_that_cut_through_each_other_are_left_out_with_a_note() -> None:
    crossed = known.printed(
        """
     GPU0 GPU1 GPU2 GPU3 CPU_Affinity
GPU0 X    PIX  NV4  SYS  0-1
GPU1 PIX  X    SYS  NV4  0-1
GPU2 NV4  SYS  X    PIX  0-1
GPU3 SYS  NV4  PIX  X    0-1
"""
    )
    inner, notes = read(crossed)
    assert inner.levels == (("SWITCH", 2),)
    assert notes[0] == "no NVLINK level: its groups cut through those of SWITCH"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GPU0\tGPU1", "GPUO\tGPU1", "f: found no line with the columns GPU0, GPU1, ..."),
        ("GPU1\tPHB\t X ", "GPU1\tPHB\tPHB", "f:3: found 'PHB' between GPU1 and itself, expected X"),
        ("GPU1\tPHB\t X ", "GPU1\tFAR\t X ", "f:3: found 'FAR' between GPU1 and GPU0, expected one of PIX"),
        ("GPU1\tPHB\t X ", "GPU1\tSYS\t X ", "f:3: found SYS from GPU1 to GPU0, but PHB from GPU0 to GPU1"),
        ("GPU2\tPHB\tPHB", "GPU3\tPHB\tPHB", "f:4: found the row of GPU3, expected the row of GPU2"),
        ("GPU3\tPHB\tPHB\tPHB\t X \t0-63\t0\tN/A", "GPU3\tPHB", "f:5: found 1 values for GPU3, expected at least 4"),
        ("GPU3\tPHB\tPHB\tPHB\t X \t0-63\t0\tN/A\n", "", "f:6: found a line that begins with 'Legend:'"),
    ],
)  # fmt: skip
def test_a_matrix_with_a_mistake_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    assert old in known.WORKSTATION
    with pytest.raises(ConfigError) as caught:
        parse_matrix(known.WORKSTATION.replace(old, new, 1), "f")
    assert str(caught.value).startswith(message)


def test_a_text_that_ends_early_is_refused() -> None:
    with pytest.raises(ConfigError, match="found the end after 1 rows, expected the row of GPU1"):
        parse_matrix("\n".join(known.WORKSTATION.split("\n")[:2]), "f")


def test_a_topology_applies_to_machines_by_name_pattern_or_product() -> None:
    machines = [Machine("dgx-1", "V100", 8), Machine("dgx-2", "A100", 8), Machine("other", "V100", 8)]
    mesh = Topology.parse("dgx-*", known.CUBE_MESH, "mesh")
    switched = Topology.parse("A100", known.SWITCHED, "switched")
    found = with_topologies(machines, [mesh, switched])
    assert [machine.inner for machine in found.machines] == [mesh.inner, switched.inner, DeviceGroups()]


def test_a_topology_of_other_machines_does_not_apply_and_says_so() -> None:
    mesh = Topology.parse("", known.CUBE_MESH, "mesh")
    stray = Topology.parse("nobody", known.CUBE_MESH, "stray")
    found = with_topologies([Machine("a", "V100", 4), Machine("b", "V100", 8)], [mesh, stray])
    assert [machine.inner.levels for machine in found.machines] == [(), mesh.inner.levels]
    assert found.notes == (
        "mesh: 8 GPUs, so it does not apply to a",
        "stray: no machine and no product is called nobody",
    )
