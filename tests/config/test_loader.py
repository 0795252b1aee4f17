"""Whole files: what is read, every mistake at once, files of OpenPAI, and `hived config validate`."""

import json
import random
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hived.scheduler import check_invariants, new_state
from hived.values.specs import ClusterSpec
from hived_cli import main
from hived_config.document import ConfigError
from hived_config.loader import load, load_cluster, load_text
from hived_config.openpai import inner_text, is_plainly_own
from tests.config.sound_file import SOUND, changed, cluster_of, mistakes_of
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
            "expected another name; or, as a part of a node, a cell type between it and its leaf cells",
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
        (
            "physicalClusters: {}",
            [
                "f:1: physicalClusters: found unknown key 'physicalClusters'",
                "f:1: physicalClusters: found no cellTypes",
                "f:1: physicalClusters: found no physicalCells",
            ],
        ),
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
        *["f:2: virtualClusters.A.pinnedCells[0].pinnedCellID: found unknown pinned cell 'p'"] * ("cellAdress" in text),
    ]


@pytest.mark.parametrize(
    ("key", "misspelt"),
    [
        ("childCellNumber", "childCelNumber"),
        ("childCellType", "childCelltyp"),
        ("cellTypes", "cellType"),
        ("physicalCells", "physicalCell"),
        ("physicalCluster", "physicalClusters"),
        ("virtualClusters", "virtualCluster"),
        ("virtualCells", "virtualCell"),
        ("cellNumber", "cellNummber"),
        ("cellAddress", "cellAdress"),
    ],
)
def test_a_misspelt_key_hides_no_other_mistake(key: str, misspelt: str) -> None:
    text = (
        "physicalCluster:\n"
        "  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}\n"
        "  physicalCells: [{cellType: NODE, cellAddress: n0}, {cellType: NODE, cellAddress: n0}]\n"
        "virtualClusters: {A: {virtualCells: [{cellType: NODE, cellNumber: 3}], maxPriority: high}}\n"
    )
    found = mistakes_of(text.replace(f"{key}:", f"{misspelt}:"))
    assert [mistake.split(": found ")[1][:16] for mistake in found if "unknown key" not in mistake] == [
        mistake.split(": found ")[1][:16] for mistake in mistakes_of(text)
    ]
    assert f"unknown key '{misspelt}'" in "\n".join(found)


def test_another_word_is_not_taken_for_a_key() -> None:
    text = "physicalCluster: {}\nvirtualClusters: {A: {virtualCells: [], priority: high}}\n"
    assert not [mistake for mistake in mistakes_of(text) if "found high" in mistake]


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
    assert len(error.message.splitlines()) == len(error.mistakes) + bool(error.left_out)
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


OUTER = """\
cluster:
  common: {cluster-id: pai}
hivedscheduler:
  webservice-port: 30096
  config: |
INNER
rest-server: {x: 1}
"""


def inside(text: str) -> str:
    """A services-configuration.yaml with this as the scheduler's configuration."""
    return OUTER.replace("INNER\n", textwrap.indent(text, "    "))


def test_a_configuration_inside_an_openpai_file_is_read_like_a_plain_one() -> None:
    assert cluster_of(inside(SOUND)) == cluster_of(SOUND)


def test_mistakes_have_their_line_in_the_outer_file() -> None:
    text = inside(changed("cellAddress: n0", "cellAdress: n0"))
    (mistake,) = mistakes_of(text)
    line = next(number for number, line in enumerate(text.splitlines(), start=1) if "cellAdress" in line)
    place = "hivedscheduler.config.physicalCluster.physicalCells[0].cellChildren[0].cellAdress"
    assert mistake.startswith(f"f:{line}: {place}: found unknown key")


def test_a_syntax_error_has_its_line_in_the_outer_file() -> None:
    (mistake,) = mistakes_of(inside("physicalCluster: {}\n\tx: 1\n"))
    assert mistake.startswith("f:7: found a tab, expected spaces")


def test_blank_lines_and_comments_before_the_configuration_count() -> None:
    mistake, *_ = mistakes_of(inside("\n# a comment\n\nphysicalClusters: {}\nvirtualClusters: {}\n"))
    assert mistake.startswith("f:9: hivedscheduler.config.physicalClusters: found unknown key")


def test_a_configuration_in_quotes_is_read_as_well() -> None:
    escaped = SOUND.replace("\n", "\\n")
    assert cluster_of(f'hivedscheduler: {{config: "{escaped}"}}\n') == cluster_of(SOUND)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("hivedscheduler: {port: 1}", "f:1: hivedscheduler: found no config"),
        ("hivedscheduler:", "f:1: hivedscheduler: found no config"),
        ("hivedscheduler:\n  config:\n    physicalCluster: {}", "f:3: hivedscheduler.config: found a mapping"),
        ("hivedscheduler:\n  ? [a, b]\n  : x", "f:2: hivedscheduler: found no config"),
        ("hivedscheduler: {config: }", "f:1: hivedscheduler.config: found nothing"),
    ],
)
def test_an_openpai_file_without_a_configuration_as_text_is_a_mistake(text: str, mistake: str) -> None:
    assert mistakes_of(text) == [f"{mistake}, expected the scheduler's configuration as text (config: |)"]


def test_an_empty_configuration_inside_an_openpai_file_is_a_mistake() -> None:
    assert mistakes_of("hivedscheduler:\n  config: ''\n") == [
        "f:1: found an empty document, expected a scheduler configuration"
    ]


def test_a_configuration_that_is_given_twice_is_a_mistake_beside_those_in_the_first() -> None:
    text = "hivedscheduler:\n  config: |\n    physicalCluster: 1\n  config: |\n    {}\nhivedscheduler: {}\n"
    assert [mistake.split(", expected")[0] for mistake in mistakes_of(text)] == [
        "f:3: hivedscheduler.config: found no virtualClusters",
        "f:3: hivedscheduler.config.physicalCluster: found 1",
        "f:4: hivedscheduler.config: found 'config' given twice (first on line 2)",
        "f:6: hivedscheduler: found 'hivedscheduler' given twice (first on line 1)",
    ]


def test_a_misspelt_config_is_recognised() -> None:
    assert mistakes_of("hivedscheduler:\n  confg: |\n    {}\n") == [
        "f:2: hivedscheduler: found no config, expected the scheduler's configuration as text (config: |) "
        "(did you mean config instead of confg?)"
    ]


def test_a_configuration_of_its_own_is_known_for_one_without_reading_it() -> None:
    assert is_plainly_own(SOUND)


@pytest.mark.parametrize(
    "key",
    [
        "hivedscheduler",
        '"hivedscheduler"',
        '"hived\\x73cheduler"',
        '? "hivedsched\\\n  uler"\n',
        "&key hivedscheduler",
        "? |-\n  hivedscheduler\n",
        "!!str hivedscheduler",
    ],
)
def test_a_file_with_a_section_for_the_scheduler_is_never_taken_for_its_own_configuration(key: str) -> None:
    text = f"{key}: {{config: inner}}\nrest-server: {{password: secret}}\n"
    assert (inner_text(text, "f"), is_plainly_own(text)) == ("inner", False)


BAD = SOUND.replace("cellAddress: n0", "cellAdress: n0").replace("childCellNumber: 2}", "childCellNumber: 0}", 1)


def run(*arguments: str | Path) -> Result:
    """The outcome of `hived config validate` with these arguments."""
    return CliRunner().invoke(main, ["config", "validate", *map(str, arguments)])


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    """A file without mistakes."""
    path = tmp_path / "sound.yaml"
    path.write_text(SOUND)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    """A file with an unknown key and a wrong count."""
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return path


def test_a_sound_file_is_summed_up_with_exit_code_0(sound: Path) -> None:
    result = run(sound)
    assert (result.exit_code, result.output) == (0, f"{sound}: valid, cell chains NODE, RACK; 2 virtual clusters\n")


def test_every_mistake_of_every_file_is_listed_with_exit_code_1(sound: Path, bad: Path, tmp_path: Path) -> None:
    result = run(bad, sound, tmp_path / "none.yaml")
    assert result.exit_code == 1
    assert [line.split(", expected")[0].replace(str(tmp_path), "") for line in result.output.splitlines()] == [
        "/bad.yaml:3: physicalCluster.cellTypes.PAIR.childCellNumber: found 0",
        "/bad.yaml:9: physicalCluster.physicalCells[0].cellChildren[0].cellAdress: found unknown key 'cellAdress'",
        "/bad.yaml: 2 mistakes",
        "/bad.yaml: not checked yet, because of these mistakes: what is below cells of type PAIR, and promises of it",
        "/sound.yaml: valid, cell chains NODE, RACK; 2 virtual clusters",
        "/none.yaml: found no readable file (No such file or directory)",
        "/none.yaml: 1 mistake",
    ]


def test_other_commands_say_what_they_did_not_check_too(bad: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(bad)
    assert caught.value.message.endswith("mistakes: what is below cells of type PAIR, and promises of it")


def test_lenient_turns_unknown_keys_into_warnings(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(f"extra: 1\n{SOUND}")
    result = run(path, "--lenient")
    assert result.exit_code == 0
    assert result.output.startswith(f"{path}:1: warning: extra: found unknown key 'extra', expected one of ")
    assert run(path).exit_code == 1


def test_scripts_get_json(sound: Path, bad: Path) -> None:
    result = run(bad, sound, "--format", "json")
    assert result.exit_code == 1
    answer = json.loads(result.output)
    assert answer["valid"] is False
    assert [(file["file"], file["valid"], len(file["mistakes"])) for file in answer["files"]] == [
        (str(bad), False, 2),
        (str(sound), True, 0),
    ]
    assert answer["files"][0]["mistakes"][1] == {
        "line": 9,
        "path": "physicalCluster.physicalCells[0].cellChildren[0].cellAdress",
        "found": "unknown key 'cellAdress'",
        "expected": "one of cellType, cellAddress, pinnedCellId, cellChildren",
        "suggestion": "cellAddress",
    }


def test_warnings_are_apart_from_mistakes_in_json(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(f"extra: 1\n{SOUND}")
    (file,) = json.loads(run(path, "--lenient", "--format", "json").output)["files"]
    assert (file["valid"], file["mistakes"], file["warnings"][0]["path"]) == (True, [], "extra")


@pytest.mark.parametrize("arguments", [(), ("--format", "xml", "f.yaml"), ("--strict", "f.yaml")])
def test_wrong_usage_has_exit_code_2(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_the_help_shows_examples() -> None:
    result = run("--help")
    assert result.exit_code == 0
    assert "hived config validate hivedscheduler.yaml" in result.output
