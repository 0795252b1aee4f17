"""Whole files: samples, recorded clusters, anything at all, and the largest ones."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hived.scheduler import check_invariants, new_state
from hived.values.specs import ClusterSpec
from hived_config.document import ConfigError
from hived_config.loader import load, load_cluster, load_text
from tests.config.sound_file import SOUND, cluster_of, mistakes_of
from tests.places import ROOT, SHARED
from tests.property.examples import examples

SAMPLES = sorted((ROOT / "config" / "samples").glob("*.yaml"))
RECORDED = sorted(
    path
    for pattern in ("parity/configs/*.yaml", "parity/robust/configs/*.yaml", "lab/hived-*.yaml")
    for path in SHARED.glob(pattern)
)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_cluster_has_neither_mistakes_nor_warnings_and_starts(path: Path) -> None:
    configuration = load(path, environ={})
    assert configuration.warnings == ()
    check_invariants(new_state(configuration.cluster))


def test_there_are_sample_clusters() -> None:
    assert len(SAMPLES) >= 4


@pytest.mark.skipif(not RECORDED, reason="no recorded clusters: there is no shared folder beside the checkout")
def test_every_recorded_cluster_loads_except_the_one_with_a_node_twice() -> None:
    refused = []
    for path in RECORDED:
        try:
            load_cluster(path)
        except ConfigError as error:
            refused.append((path.name, error.message.split(": ", 1)[1]))
    assert refused == [
        (
            "dup-node.yaml",
            "physicalCluster.physicalCells[1]: found node 'n0' given twice (first on line 5), "
            "expected each node once in a chain, and each of its devices once; parts of a node are cells of a type "
            "between it and its leaf cells",
        )
    ]


@pytest.mark.parametrize(
    ("start", "stop", "mistakes"),
    [
        (
            "physicalCluster",
            "virtualClusters",
            ["f:1: found no physicalCluster, expected the physical cluster (a mapping)"],
        ),
        ("  cellTypes", "  physicalCells", ["f:2: physicalCluster: found no cellTypes, expected cell types by name"]),
        (
            "  physicalCells",
            "virtualClusters",
            ["f:2: physicalCluster: found no physicalCells, expected a list of physical cells"],
        ),
        ("virtualClusters", "", ["f:1: found no virtualClusters, expected virtual clusters by name"]),
    ],
)
def test_a_missing_part_is_a_mistake(start: str, stop: str, mistakes: list[str]) -> None:
    end = SOUND.index(stop) if stop else len(SOUND)
    assert mistakes_of(SOUND[: SOUND.index(start)] + SOUND[end:]) == mistakes


def test_a_missing_part_does_not_hide_mistakes_in_the_others() -> None:
    text = SOUND[: SOUND.index("virtualClusters")].replace("n0", "a/b").replace("Number: 2}", "Number: 0}", 1)
    assert [mistake.split(", expected")[0] for mistake in mistakes_of(text)] == [
        "f:1: found no virtualClusters",
        "f:3: physicalCluster.cellTypes.PAIR.childCellNumber: found 0",
        "f:9: physicalCluster.physicalCells[0].cellChildren[0].cellAddress: found 'a/b'",
    ]


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("physicalCluster: []", ["f:1: physicalCluster: found a list"]),
        ("physicalClusters: {}", ["f:1: physicalClusters: found unknown key 'physicalClusters'"]),
        (
            "physicalCluster: {physicalCells: [{cellType: NODE, cellAdress: n0}], skuTypes: {GPU: {gpus: 1}}}",
            [
                "f:1: physicalCluster: found no cellTypes",
                "f:1: physicalCluster.skuTypes.GPU.gpus: found unknown key 'gpus'",
                "f:1: physicalCluster.physicalCells[0].cellAdress: found unknown key 'cellAdress'",
            ],
        ),
        (
            "physicalCluster: {cellTypes: {NODE: {childCellType: GPU, childCellNumber: two}}}",
            [
                "f:1: physicalCluster: found no physicalCells",
                "f:1: physicalCluster.cellTypes.NODE.childCellNumber: found two",
            ],
        ),
    ],
)
def test_mistakes_of_virtual_clusters_are_listed_whatever_the_physical_cluster_is_like(
    text: str, mistakes: list[str]
) -> None:
    virtual = (
        "virtualClusters: {A: {virtualCells: [{cellType: NODE, cellNumber: -1}], pinnedCells: [{pinnedCellID: p}]}}"
    )
    assert [mistake.split(", expected")[0] for mistake in mistakes_of(f"{text}\n{virtual}")] == [
        *mistakes,
        "f:2: virtualClusters.A.virtualCells[0].cellNumber: found -1",
        "f:2: virtualClusters.A.pinnedCells[0].pinnedCellID: found unknown key 'pinnedCellID'",
    ]


# ---- whatever is in a file, it is a cluster or a ConfigError


def expect_refused_or_sound(content: bytes, path: Path) -> ClusterSpec | None:
    """The cluster in a file with this content, None if it is refused; anything else is a failure of the test."""
    path.write_bytes(content)
    try:
        return load_cluster(path)
    except ConfigError as refusal:
        error = refusal
    assert error.mistakes
    assert all(mistake.found and mistake.expected for mistake in error.mistakes)
    assert len(error.message.splitlines()) == len(error.mistakes)
    return None


@given(st.binary(max_size=200))
@example(b"\xef\xbb\xbf")
@example(b"{?: ")
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_refused_politely(tmp_path: Path, content: bytes) -> None:
    expect_refused_or_sound(content, tmp_path / "f.yaml")


def values() -> st.SearchStrategy[str]:
    """YAML values of all kinds, in flow style, some of which make sense somewhere in a configuration."""
    words = ["RACK", "NODE", "PAIR", "GPU", "n0", "pin", "0", "1", "2", "-1", "1.5", "1e9", "9" * 30, "~", "''", "'2'"]
    keys = ["cellType", "cellAddress", "cellChildren", "pinnedCellId", "cellNumber", "childCellType", "<<", "[]", "~"]
    scalars = st.sampled_from([*words, "true", "*a", "&a x", "!t x", "RACK.NODE", "a/b"])
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
            | st.dictionaries(st.sampled_from(keys), inner, max_size=4).map(
                lambda items: "{" + ", ".join(f"{key}: {value}" for key, value in items.items()) + "}"
            )
        ),
        max_leaves=6,
    )


PLACES = [
    "{childCellType: GPU, childCellNumber: 2}",
    "GPU,",
    "true",
    "- cellAddress: n0",
    "n1",
    "{cellType: NODE, cellAddress: n2}",
    "{cellType: RACK.NODE, cellNumber: 1}",
    "NODE.PAIR",
    "- pinnedCellId: pin\n",
    "  a:",
    "  b:",
]


@given(st.lists(st.tuples(st.sampled_from(PLACES), values()), min_size=1, max_size=3))
@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_in_any_place_is_refused_politely_or_the_core_can_start(
    tmp_path: Path, edits: list[tuple[str, str]]
) -> None:
    text = SOUND
    for place, value in edits:
        lead = "- " if place.startswith("-") else "  " if place.startswith("  ") else ""
        tail = "\n" if place.endswith("\n") else "," if place.endswith(",") else ":" if place.endswith(":") else ""
        text = text.replace(place, lead + value + tail)
    cluster = expect_refused_or_sound(text.encode(), tmp_path / "f.yaml")
    if cluster is not None:
        check_invariants(new_state(cluster))


@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_refused_politely_or_sound(tmp_path: Path, chance: random.Random) -> None:
    content = bytearray(SOUND.encode())
    for _ in range(chance.randint(1, 5)):
        at = chance.randrange(len(content))
        content[at : at + chance.randint(0, 3)] = bytes(chance.choices(b"{}[]:,-'\"\n\t &*!|>~0129xyz\xff", k=2))
    expect_refused_or_sound(bytes(content), tmp_path / "f.yaml")


# ---- the largest clusters


def pools(nodes: int, node: Callable[[int], str]) -> str:
    """A cluster of 8-GPU nodes: GPU, PCIe pair, node, rack of 16, pool of 128; `node` writes one node."""
    lines = [
        "physicalCluster:",
        "  cellTypes:",
        "    PAIR: {childCellType: GPU, childCellNumber: 2}",
        "    NODE: {childCellType: PAIR, childCellNumber: 4, isNodeLevel: true}",
        "    RACK: {childCellType: NODE, childCellNumber: 16}",
        "    POOL: {childCellType: RACK, childCellNumber: 8}",
        "  physicalCells:",
    ]
    for number in range(nodes):
        if number % 128 == 0:
            lines += ["  - cellType: POOL", "    cellChildren:"]
        if number % 16 == 0:
            lines.append("    - cellChildren:")
        lines.append(node(number))
    lines += ["virtualClusters:", f"  a: {{virtualCells: [{{cellType: POOL, cellNumber: {nodes // 128}}}]}}"]
    return "\n".join(lines)


def to_node_level(number: int) -> str:
    """A node whose GPUs are left to be generated."""
    return f"      - cellAddress: node-{number}"


def to_gpu_level(number: int) -> str:
    """A node with all its GPUs written out."""
    pairs = "".join(
        f"\n        - cellAddress: {pair}\n          cellChildren:"
        f"\n          - cellAddress: {2 * pair}\n          - cellAddress: {2 * pair + 1}"
        for pair in range(4)
    )
    return f"      - cellAddress: node-{number}\n        cellChildren:{pairs}"


def test_a_cluster_written_to_its_gpus_is_the_one_written_to_its_nodes() -> None:
    assert cluster_of(pools(256, to_gpu_level)) == cluster_of(pools(256, to_node_level))


@pytest.mark.long
@pytest.mark.parametrize("node", [to_node_level, to_gpu_level])
def test_16384_nodes_load(node: Callable[[int], str], record_property: Callable[[str, object], None]) -> None:
    text = pools(16_384, node)
    start = time.perf_counter()
    cluster = load_text(text, "f", environ={}).cluster
    elapsed = time.perf_counter() - start
    record_property("seconds", elapsed)
    print(f"\n16,384 nodes, {len(text) / 1e6:.1f} MB, {node.__name__}: {elapsed:.2f} s")
    assert len(cluster.physical_cells) == 128
    assert cluster.physical_cells[127].children[7].children[15].address == "node-16383"
