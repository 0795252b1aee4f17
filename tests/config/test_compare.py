"""Differences of two configurations are found, and none where they mean the same."""

import time
from pathlib import Path

import msgspec
import pytest
import yaml

from hived.cells.layout import build_topology
from hived_config.changes import CellCount, CellTypeChange, Changes, NamedChanges, SettingChange, Shape
from hived_config.compare import compare
from hived_config.loader import Configuration, load_text
from tests.config.sound_file import SOUND, changed
from tests.places import ROOT

SAMPLES = sorted((ROOT / "config" / "samples").glob("*.yaml"))

RACKS = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: a1}, {cellAddress: a2}]}
  - {cellType: RACK, cellChildren: [{cellAddress: b1}, {cellAddress: b2}]}
  - {cellType: RACK, cellChildren: [{cellAddress: c1}, {cellAddress: c2}]}
virtualClusters:
  x:
    virtualCells:
    - {cellType: RACK, cellNumber: 2}
"""


def configuration(text: str) -> Configuration:
    return load_text(text, "f", environ={})


def between(old: str, new: str) -> Changes:
    return compare(configuration(old), configuration(new))


def after(old: str, new: str) -> Changes:
    """The differences from the sound file once one place in it is changed."""
    return between(SOUND, changed(old, new))


def reformatted(text: str) -> str:
    """The same document with every key in another order, without comments, in another style."""
    document = yaml.safe_load(text)
    if "hivedscheduler" in document:
        document = yaml.safe_load(document["hivedscheduler"]["config"])
    return str(yaml.safe_dump(document, sort_keys=True, default_flow_style=False, width=60))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_is_what_it_is_however_it_is_written(sample: Path) -> None:
    text = sample.read_text()
    assert between(text, text) == Changes()
    assert between(text, reformatted(text)).is_empty
    assert between(reformatted(text), text).is_empty


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    - {cellType: NODE.PAIR, cellNumber: 2}\n", "    - {cellType: NODE.PAIR, cellNumber: 1}\n" * 2),
        ("    - cellAddress: n0\n", "    - {cellAddress: n0, cellChildren: [{cellAddress: 0}, {}]}\n"),
        ("  - cellType: RACK\n", "  - cellType: RACK\n    cellAddress: 0\n"),
        ("  a:\n    virtualCells:\n", "  a:\n    virtualCells:\n    - {cellType: NODE, cellNumber: 0}\n"),
    ],
    ids=["one entry for two", "inner cells spelled out", "a default address", "no cells of a type"],
)
def test_two_ways_to_say_the_same_are_no_change(old: str, new: str) -> None:
    assert after(old, new).is_empty


def test_topologies_that_are_there_are_used() -> None:
    old, new = configuration(RACKS), configuration(SOUND)
    built = compare(old, new)
    assert compare(old, new, build_topology(old.cluster), build_topology(new.cluster)) == built


def test_a_new_rack_brings_nodes_and_cells() -> None:
    new = RACKS.replace(
        "virtualClusters:", "  - {cellType: RACK, cellChildren: [{cellAddress: d1}, {}]}\nvirtualClusters:"
    )
    changes = between(RACKS, new)
    assert changes == Changes(
        nodes=NamedChanges(added=("7", "d1")),
        cells=(CellCount("RACK", 3, 4), CellCount("NODE", 6, 8), CellCount("GPU", 24, 32)),
    )
    assert between(new, RACKS).nodes.removed == ("7", "d1")


def test_a_smaller_quota_loses_all_shapes_below() -> None:
    assert between(RACKS, RACKS.replace("cellNumber: 2}\n", "cellNumber: 1}\n")) == Changes(
        virtual_clusters=NamedChanges(changed=("x",)),
        shapes=(Shape("x", "RACK", 2, 1), Shape("x", "RACK.NODE", 4, 2), Shape("x", "RACK.GPU", 16, 8)),
    )


def test_pinned_cells_count_as_shapes() -> None:
    lost = after("    pinnedCells:\n    - pinnedCellId: pin\n", "")
    assert lost.virtual_clusters == NamedChanges(changed=("b",))
    assert lost.shapes == (
        Shape("b", "RACK.NODE", 1, 0), Shape("b", "RACK.PAIR", 2, 0), Shape("b", "RACK.GPU", 4, 0),
    )  # fmt: skip


def test_a_virtual_cluster_may_come_and_go() -> None:
    more = SOUND + "  c:\n    namespaces: [z]\n"
    assert between(SOUND, more) == Changes(virtual_clusters=NamedChanges(added=("c",)))
    assert between(more, SOUND) == Changes(virtual_clusters=NamedChanges(removed=("c",)))


@pytest.mark.parametrize(
    ("line", "key", "old", "new"),
    [
        ("namespaces: [team]", "namespaces", None, ["team"]),
        ("placement: topology", "placement", None, "topology"),
        ("placement: packed", "placement", None, "packed"),
        ("maxPriority: 7", "maxPriority", None, 7),
        ("movable: true", "movable", False, True),
        ("defrag: {maxGpuHours: 2.5}", "defrag", None, {"maxGpuHours": 2.5}),
        ("defrag: {maxGpuHours: 2.5, maxGroups: 3}", "defrag", None, {"maxGpuHours": 2.5, "maxGroups": 3}),
    ],
)
def test_a_key_of_a_virtual_cluster_is_named_with_both_values(line: str, key: str, old: object, new: object) -> None:
    setting = SettingChange(f"virtualClusters.a.{key}", old, new)
    more = changed("  a:\n", f"  a:\n    {line}\n")
    assert between(SOUND, more) == Changes(virtual_clusters=NamedChanges(changed=("a",)), settings=(setting,))
    back = SettingChange(f"virtualClusters.a.{key}", new, old)
    assert between(more, SOUND) == Changes(virtual_clusters=NamedChanges(changed=("a",)), settings=(back,))


def test_other_rules_are_a_changed_setting() -> None:
    assert between(SOUND, "rules: 2\n" + SOUND) == Changes(settings=(SettingChange("rules", "hived", 2),))
    assert between(SOUND, "rules: hived\n" + SOUND).is_empty


@pytest.mark.parametrize("key", ["combine", "sparing"])
def test_a_virtual_cluster_is_changed_by_a_key_of_the_better_rules(key: str) -> None:
    better = "rules: 2\n" + SOUND
    changed_too = better.replace("  a:\n", f"  a:\n    {key}: true\n", 1)
    setting = SettingChange(f"virtualClusters.a.{key}", False, True)
    assert between(better, changed_too) == Changes(virtual_clusters=NamedChanges(changed=("a",)), settings=(setting,))


def test_a_pin_on_another_node_has_moved() -> None:
    moved = SOUND.replace("      pinnedCellId: pin\n", "", 1).replace(
        "cellAddress: n0", "cellAddress: n0\n      pinnedCellId: pin"
    )
    assert between(SOUND, moved) == Changes(pinned_cells=NamedChanges(changed=("pin",)))


def test_a_pin_that_nobody_uses_is_named_too() -> None:
    assert after("cellAddress: n0", "cellAddress: n0\n      pinnedCellId: other") == Changes(
        pinned_cells=NamedChanges(added=("other",))
    )


def what(changes: Changes) -> dict[str, str]:
    return {each.node: each.what for each in changes.nodes.changed}


def test_a_node_in_another_rack_has_moved() -> None:
    swapped = RACKS.replace("a2", "?").replace("b2", "a2").replace("?", "b2")
    assert what(between(RACKS, swapped)) == {"a2": "moved to 1, formerly 0", "b2": "moved to 0, formerly 1"}


def test_another_number_of_a_rack_is_not_another_place() -> None:
    gone = "".join(line for line in RACKS.splitlines(keepends=True) if "a1" not in line)
    changes = between(RACKS, gone)
    assert changes.nodes.removed == ("a1", "a2")
    assert what(changes) == {
        "b1": "the cell above it is now called 0, formerly 1",
        "b2": "the cell above it is now called 0, formerly 1",
        "c1": "the cell above it is now called 1, formerly 2",
        "c2": "the cell above it is now called 1, formerly 2",
    }


def test_the_devices_of_a_node_are_named() -> None:
    leaves = ", ".join(f"{{cellAddress: {device}}}" for device in (2, 3, 6, 8))
    new = RACKS.replace("{cellAddress: b2}", f"{{cellAddress: b2, cellChildren: [{leaves}]}}")
    assert what(between(RACKS, new)) == {"b2": "devices 2-3,6,8, formerly 0-3"}


def test_a_node_in_another_chain_is_changed() -> None:
    single = RACKS.replace(
        "  - {cellType: RACK, cellChildren: [{cellAddress: c1}, {cellAddress: c2}]}",
        "  - {cellType: NODE, cellAddress: c1}",
    )
    assert what(between(RACKS, single)) == {"c1": "in chain NODE, formerly RACK, a top-level cell, formerly in 2"}
    back = "in chain RACK, formerly NODE, moved to 2, formerly a top-level cell"
    assert what(between(single, RACKS)) == {"c1": back}


def test_a_node_may_join_a_second_chain() -> None:
    first = SOUND.replace(
        "    PAIR:", "    CPUS: {childCellType: CPU, childCellNumber: 2, isNodeLevel: true}\n    PAIR:"
    )
    cell = "  - {cellType: CPUS, cellAddress: n0, cellChildren: [{cellAddress: 8}, {cellAddress: 9}]}\n"
    second = first.replace("virtualClusters:\n", f"{cell}virtualClusters:\n")
    assert what(between(first, second)) == {"n0": "also in chain CPUS"}
    assert what(between(second, first)) == {"n0": "no longer in chain CPUS"}
    third = second.replace("cellAddress: 9", "cellAddress: 10")
    assert what(between(second, third)) == {"n0": "in chain CPUS: devices 8,10, formerly 8-9"}


def test_another_division_of_a_node_changes_it() -> None:
    flat = RACKS.replace(
        "NODE: {childCellType: GPU, childCellNumber: 4,",
        "PAIR: {childCellType: GPU, childCellNumber: 2}\n    NODE: {childCellType: PAIR, childCellNumber: 2,",
    )
    changes = between(RACKS, flat)
    assert set(what(changes).values()) == {"its devices are divided otherwise"}
    assert changes.cell_types == NamedChanges(
        added=("PAIR",),
        changed=(CellTypeChange("NODE", "childCellType PAIR, formerly GPU, childCellNumber 2, formerly 4"),),
    )
    assert changes.shapes == (Shape("x", "RACK.PAIR", 0, 8),)


def test_a_name_of_a_cell_inside_a_node_is_seen() -> None:
    named = "    - {cellAddress: n0, cellChildren: [{cellAddress: left}, {cellAddress: right}]}\n"
    with_leaves = named.replace("left}", "left, cellChildren: [{cellAddress: 0}, {cellAddress: 1}]}").replace(
        "right}", "right, cellChildren: [{cellAddress: 2}, {cellAddress: 3}]}"
    )
    assert what(after("    - cellAddress: n0\n", with_leaves)) == {"n0": "other addresses of cells inside it"}


def test_the_order_of_cells_is_a_change() -> None:
    named = RACKS.replace("RACK, cellChildren", "RACK, cellAddress: r{}, cellChildren")
    lines = named.splitlines(keepends=True)
    numbered = [line.replace("{}", str(i)) for i, line in enumerate(lines)]
    swapped = [*numbered[:5], numbered[6], numbered[5], *numbered[7:]]
    assert between("".join(numbered), "".join(swapped)) == Changes(
        settings=(SettingChange("physicalCluster.physicalCells", "in one order", "in another order"),)
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("webServerAddress: ':9096'", "webServerAddress: ':9097'",
         SettingChange("webServerAddress", ":9096", ":9097", True)),
        ("", "kubeApiServerAddress: http://h:1", SettingChange("kubeApiServerAddress", "", "http://h:1", True)),
        ("", "kubeConfigFilePath: /f", SettingChange("kubeConfigFilePath", "", "/f", True)),
        ("", "historyFile: /f", SettingChange("historyFile", "", "/f", True)),
        ("", "forcePodBindThreshold: 4", SettingChange("forcePodBindThreshold", 3, 4)),
        ("", "waitingPodSchedulingBlockMilliSec: 9", SettingChange("waitingPodSchedulingBlockMilliSec", 0, 9)),
        ("", "preemptionBy: kube-scheduler", SettingChange("preemptionBy", "service", "kube-scheduler")),
        ("", "podDisruptionBudgets: respect", SettingChange("podDisruptionBudgets", "override", "respect")),
        ("", "evictionGraceSeconds: 1", SettingChange("evictionGraceSeconds", 30, 1)),
        ("schedulerNames: [a]", "schedulerNames: [a, b]", SettingChange("schedulerNames", ["a"], ["a", "b"])),
        ("", "priorityClasses: {high: 5}", SettingChange("priorityClasses.high", None, 5)),
        ("priorityClasses: {high: 5}", "priorityClasses: {high: 6}", SettingChange("priorityClasses.high", 5, 6)),
        ("topologyLevels: {zone: RACK}", "", SettingChange("topologyLevels.zone", "RACK", None)),
        ("", "foreignDevices: {nvidia.com/gpu: ignore}",
         SettingChange("foreignDevices.nvidia.com/gpu", None, "ignore")),
    ],
    ids=lambda value: value.key if isinstance(value, SettingChange) else None,
)  # fmt: skip
def test_every_setting_and_rule_is_compared(old: str, new: str, expected: SettingChange) -> None:
    assert between(f"{old}\n{SOUND}", f"{new}\n{SOUND}") == Changes(settings=(expected,))


def test_sku_types_are_compared() -> None:
    def with_sku(text: str) -> str:
        return SOUND.replace("physicalCluster:\n", f"physicalCluster:\n  skuTypes:\n    GPU: {text}\n")

    (change,) = between(
        with_sku("{gpu: 1, memory: 1Gi}"), with_sku("{gpu: 1, resource: a.b/c, deviceClass: c.b, nodeLabels: {x: y}}")
    ).settings
    assert change == SettingChange(
        "physicalCluster.skuTypes.GPU",
        {"gpu": 1, "cpu": 0.0, "memory": "1024Mi"},
        {"gpu": 1, "cpu": 0.0, "memory": "0Mi", "resource": "a.b/c", "deviceClass": "c.b", "nodeLabels": {"x": "y"}},
    )


def test_the_json_has_the_keys_of_a_report() -> None:
    new = RACKS.replace("cellNumber: 2}\n", "cellNumber: 1}\n").replace("c2", "d2") + "webServerAddress: ':1'\n"
    assert msgspec.json.decode(msgspec.json.encode(between(RACKS, new))) == {
        "nodes": {"added": ["d2"], "removed": ["c2"], "changed": []},
        "cellTypes": {"added": [], "removed": [], "changed": []},
        "cells": [],
        "pinnedCells": {"added": [], "removed": [], "changed": []},
        "virtualClusters": {"added": [], "removed": [], "changed": ["x"]},
        "shapes": [
            {"vc": "x", "cellType": "RACK", "old": 2, "new": 1},
            {"vc": "x", "cellType": "RACK.NODE", "old": 4, "new": 2},
            {"vc": "x", "cellType": "RACK.GPU", "old": 16, "new": 8},
        ],
        "settings": [{"key": "webServerAddress", "old": ":9096", "new": ":1", "needsRestart": True}],
    }


def large(node_prefix: str) -> str:
    racks = "".join(
        f"  - {{cellType: RACK, cellAddress: r{rack}, cellChildren: ["
        + ", ".join(f"{{cellAddress: {node_prefix}{rack}-{node}}}" for node in range(4))
        + "]}\n"
        for rack in range(4096)
    )
    types = (
        "    PAIR: {childCellType: GPU, childCellNumber: 2}\n"
        "    NODE: {childCellType: PAIR, childCellNumber: 4, isNodeLevel: true}\n"
        "    RACK: {childCellType: NODE, childCellNumber: 4}\n"
    )
    cells = "    virtualCells: [{cellType: RACK, cellNumber: 4096}]\n"
    return f"physicalCluster:\n  cellTypes:\n{types}  physicalCells:\n{racks}virtualClusters:\n  x:\n{cells}"


@pytest.mark.long
def test_16384_nodes_are_compared_within_seconds() -> None:
    old, new = configuration(large("n")), configuration(large("n").replace("n7-", "m7-"))
    old_topology, new_topology = build_topology(old.cluster), build_topology(new.cluster)
    start = time.process_time()
    changes = compare(old, new, old_topology, new_topology)
    elapsed = time.process_time() - start
    assert changes == Changes(
        nodes=NamedChanges(added=tuple(f"m7-{i}" for i in range(4)), removed=tuple(f"n7-{i}" for i in range(4)))
    )
    assert elapsed < 4  # measured 0.5 s; a loop over pairs of nodes would take minutes
