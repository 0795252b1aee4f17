"""The JSON schema knows what the readers know: their keys, and the mistakes of key and kind that they note."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft7Validator

from hived_cli import main
from hived_config import reference
from hived_config.document import PLAIN, ConfigError, compose
from hived_config.loader import load_text
from hived_config.openpai import inner_text
from hived_config.reader import NULLS
from hived_config.reference import SCHEMA
from tests.config.sound_file import SOUND, changed, mistakes_of
from tests.places import ROOT

SAMPLES = sorted((ROOT / "config" / "samples").glob("*.yaml"))
RECORDED = sorted((ROOT.parent / "shared").glob("parity/configs/*.yaml"))
DEFINITIONS = SCHEMA["definitions"] | {"document": SCHEMA}
VALIDATOR = Draft7Validator(SCHEMA)


def instance(node: yaml.Node) -> Any:
    """A document as an editor reads it: YAML 1.2, in which `no` and `12:30:45` are text."""
    if isinstance(node, yaml.SequenceNode):
        return [instance(item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        merged = [instance(value) for key, value in node.value if key.value == "<<"]
        own = {key.value: instance(value) for key, value in node.value if key.value != "<<"}
        return {key: value for each in merged for key, value in each.items()} | own
    if node.tag != PLAIN:
        return node.value
    if node.value in NULLS:
        return None
    if node.value in ("true", "false"):
        return node.value == "true"
    if re.fullmatch(r"-?[0-9]+", node.value):
        return int(node.value)
    return float(node.value) if re.fullmatch(r"-?[0-9]+\.[0-9]+", node.value) else node.value


def faults(text: str) -> list[str]:
    """The objections of the schema to a document."""
    errors = sorted(VALIDATOR.iter_errors(instance(compose(text, "f"))), key=lambda error: list(map(str, error.path)))
    return [f"{error.json_path}: {error.message}" for error in errors]


def test_the_schema_is_one() -> None:
    Draft7Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_cluster_is_valid(path: Path) -> None:
    assert faults(inner_text(path.read_text(), path.name)) == []


@pytest.mark.skipif(not RECORDED, reason="no recorded clusters: there is no shared folder beside the checkout")
def test_every_recorded_cluster_is_valid() -> None:
    assert {path.name: found for path in RECORDED if (found := faults(path.read_text()))} == {}


def test_every_mapping_of_the_schema_has_its_keys_and_no_others() -> None:
    assert {name for name, record in DEFINITIONS.items() if record["additionalProperties"] is not False} == set()


def test_every_mapping_that_the_schema_refers_to_is_defined() -> None:
    referred = re.findall(r"#/definitions/(\w+)", json.dumps(SCHEMA))
    assert set(referred) == SCHEMA["definitions"].keys()


def test_everything_in_the_schema_is_described() -> None:
    records = DEFINITIONS.values()
    assert [record for record in records if not record["description"]] == []
    assert [key for record in records for key, value in record["properties"].items() if not value["description"]] == []


FULL = SOUND.replace("  physicalCells:", "  skuTypes:\n    GPU: {gpu: 1}\n  physicalCells:").replace(
    "  a:\n", "  a:\n    namespaces: [one]\n"
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("physicalCluster:", "extra: 1\nphysicalCluster:"),
        ("physicalCluster:", "physicalcluster:"),
        ("physicalCluster:", "webServerAddress: '9096'\nphysicalCluster:"),
        ("physicalCluster:", "webServerAddress: [1]\nphysicalCluster:"),
        ("physicalCluster:", "forcePodBindThreshold: -1\nphysicalCluster:"),
        ("physicalCluster:", "forcePodBindThreshold: 1.5\nphysicalCluster:"),
        ("physicalCluster:", "evictionGraceSeconds: '3'\nphysicalCluster:"),
        ("physicalCluster:", "preemptionBy: me\nphysicalCluster:"),
        ("physicalCluster:", "podDisruptionBudgets: ignore\nphysicalCluster:"),
        ("physicalCluster:", "schedulerNames: []\nphysicalCluster:"),
        ("physicalCluster:", "schedulerNames: hived\nphysicalCluster:"),
        ("physicalCluster:", "schedulerNames: ['{x}']\nphysicalCluster:"),
        ("physicalCluster:", "priorityClasses: {a: 1001}\nphysicalCluster:"),
        ("physicalCluster:", "priorityClasses: {a: urgent}\nphysicalCluster:"),
        ("physicalCluster:", "topologyLevels: {a: [RACK]}\nphysicalCluster:"),
        ("physicalCluster:", "foreignDevices: {nvidia.com/gpu: keep}\nphysicalCluster:"),
        ("physicalCluster:", "kubeApiServerAddress: 'a b'\nphysicalCluster:"),
        ("childCellNumber: 2}", "childCellNumber: 0}"),
        ("childCellNumber: 2}", "childCellNumber: '2'}"),
        ("childCellNumber: 2}", "childCellNumbr: 2}"),
        ("childCellType: GPU, ", ""),
        ("childCellType: GPU", "childCellType: [GPU]"),
        ("isNodeLevel: true", "isNodeLevel: 1"),
        ("isNodeLevel: true", "isNodeLevel: maybe"),
        ("  - cellType: RACK\n", "  - cellAddress: r\n"),
        ("cellAddress: n0", "cellAdress: n0"),
        ("cellAddress: n0", "cellAddress: a/b"),
        ("cellAddress: n0", "cellAddress: {}"),
        ("cellAddress: n2", "cellChildren: {}"),
        ("    - cellAddress: n0", "    -"),
        ("{gpu: 1}", "{gpus: 1}"),
        ("{gpu: 1}", "{gpu: -1}"),
        ("{gpu: 1}", "{cpu: many}"),
        ("{gpu: 1}", "{memory: 5 GB}"),
        ("{gpu: 1}", "{resource: gpu}"),
        ("{gpu: 1}", "{deviceClass: A_b}"),
        ("{gpu: 1}", "{nodeLabels: {a: 'b c'}}"),
        ("{gpu: 1}", "{nodeLabels: {'a b': b}}"),
        ("cellNumber: 1", "cellNumber: -1"),
        ("cellNumber: 1", "cellNumber: one"),
        ("cellType: RACK.NODE", "cellType: ''"),
        ("{cellType: RACK.NODE, ", "{"),
        ("      pinnedCellId: pin\n", "      pinnedCellId: []\n"),
        ("    - pinnedCellId: pin\n", "    - pinnedCellId:\n"),
        ("    - pinnedCellId: pin\n", "    - pin\n"),
        ("namespaces: [one]", "namespaces: [One]"),
        ("namespaces: [one]", "namespaces: one"),
        ("namespaces: [one]", "namespaces: [{name: One}]"),
        ("namespaces: [one]", "namespaces: [{nam: one}]"),
        ("namespaces: [one]", "namespaces: [[one]]"),
        ("namespaces: [one]", "namespaces: [{matchLabels: {'a b': c}}]"),
        ("namespaces: [one]", "namespaces: [{matchLabels: {a: 'b c'}}]"),
        ("namespaces: [one]", "namespaces: [{matchExpressions: {key: a, operator: Exists}}]"),
        ("namespaces: [one]", "namespaces: [{matchExpressions: [{operator: Exists}]}]"),
        ("namespaces: [one]", "namespaces: [{matchExpressions: [{key: a, operator: Has}]}]"),
        ("namespaces: [one]", "maxPriority: 1001"),
        ("namespaces: [one]", "maxPriority: low"),
        ("physicalCluster:", "access: nobody\nphysicalCluster:"),
        ("physicalCluster:", "opportunistic: [a]\nphysicalCluster:"),
        ("physicalCluster:", "opportunistic: {}\nphysicalCluster:"),
        ("physicalCluster:", "opportunistic: {namespaces: [{name: a, maxPriority: 1}]}\nphysicalCluster:"),
        ("namespaces: [one]", "placement: near"),
        ("physicalCluster:", "rules: 3\nphysicalCluster:"),
        ("physicalCluster:", "rules:\nphysicalCluster:"),
        ("physicalCluster:", "certify:\nphysicalCluster:"),
        ("namespaces: [one]", "combine: pairs"),
        ("namespaces: [one]", "combine: false\n    sparing:"),
        ("virtualClusters:\n  a:", "virtualClusters:\n  a/b:"),
        ("    virtualCells:\n    - {cellType: RACK.NODE, cellNumber: 1}", "    virtualCells: {}"),
    ],
)
def test_a_mistake_of_key_or_kind_is_one_by_the_schema_too(old: str, new: str) -> None:
    assert old in FULL
    text = FULL.replace(old, new, 1)
    assert mistakes_of(text)
    assert faults(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("physicalCluster:", "webServerAddress:\npriorityClasses: {a: -1, b: prod, c: 1000}\nphysicalCluster:"),
        ("physicalCluster:", "kubeApiServerAddress: HTTPS://[::1]:6443/x\nphysicalCluster:"),
        ("physicalCluster:", "schedulerNames: ['gpus-{vc}', 010, 'a{vc}b']\nphysicalCluster:"),
        ("cellAddress: n0", "cellAddress: 4"),
        ("cellAddress: n0", "cellAddress: no"),
        ("cellAddress: n0", "cellAddress:"),
        ("isNodeLevel: true", "isNodeLevel: Yes"),
        ("- {cellType: NODE, cellAddress: n2}", "- {<<: {cellType: NODE}, cellAddress: n2}"),
        ("{gpu: 1}", "{gpu: 0, cpu: 1.5, memory: 4096, nodeLabels: {example.com/x: 1}}"),
        ("{gpu: 1}", ""),
        ("    - pinnedCellId: pin\n", "    - pinnedCellId: pin\n  c:\n"),
        ("namespaces: [one]", "namespaces: [1]\n    placement: topology"),
        ("namespaces: [one]", "namespaces:\n    placement:"),
        ("namespaces: [one]", "placement: packed"),
        ("physicalCluster:", "rules: hived\nphysicalCluster:"),
        ("physicalCluster:", "rules: 2\nphysicalCluster:"),
        ("physicalCluster:", "rules: '2'\nphysicalCluster:"),
        ("namespaces: [one]", "combine: false\n    sparing: false"),
        ("namespaces: [one]", "namespaces: [{name: 1}, {matchLabels: {a: 1, b.c/d: e}}]\n    maxPriority: prod"),
        ("namespaces: [one]", "namespaces:\n    - matchExpressions: [{key: a, operator: In, values: [b, 2]}]"),
        ("namespaces: [one]", "maxPriority:"),
        ("physicalCluster:", "access:\nopportunistic:\nphysicalCluster:"),
        ("physicalCluster:", "access: everybody\nopportunistic: {namespaces: []}\nphysicalCluster:"),
        (
            "physicalCluster:",
            "access: namespaces\nopportunistic: {namespaces: [a, {matchLabels: {b: c}}]}\nphysicalCluster:",
        ),
    ],
)
def test_what_the_loader_accepts_is_valid(old: str, new: str) -> None:
    assert old in FULL
    text = FULL.replace(old, new, 1)
    load_text(text, "f", environ={})
    assert faults(text) == []


def test_what_only_the_loader_sees_is_no_matter_of_the_schema() -> None:
    text = changed("cellAddress: n0", "cellAddress: n1")
    with pytest.raises(ConfigError, match="given twice"):
        load_text(text, "f", environ={})
    assert faults(text) == []


def test_the_tables_of_the_page_are_those_of_the_schema() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- keys: (\w+) -->", page)) == reference.TITLES.keys()
    assert reference.refresh(page) == page, (
        "bring it up to date: python -m hived_config.reference docs/configuration.md"
    )


def test_a_table_that_is_out_of_date_is_replaced_and_the_rest_kept(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- keys: pinnedCell -->\nold\n<!-- end of keys -->\nafter\n")
    reference.main([str(page)])
    assert page.read_text() == (
        f"before\n<!-- keys: pinnedCell -->\n{reference.table('pinnedCell')}\n<!-- end of keys -->\nafter\n"
    )


def test_the_command_prints_the_schema_or_its_tables() -> None:
    printed = CliRunner().invoke(main, ["config", "schema"])
    assert (printed.exit_code, json.loads(printed.output)) == (0, SCHEMA)
    tables = CliRunner().invoke(main, ["config", "schema", "--format", "markdown"]).output
    assert tables == reference.as_markdown() + "\n"
    assert "| `cellChildren` | generated | list |" in tables
