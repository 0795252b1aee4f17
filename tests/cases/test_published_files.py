"""Kinds of files that manuals and reports of HiveD and OpenPAI print: each is taken, or told lines and remedies."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from hived_cli import main

SOUND = """\
physicalCluster:
  skuTypes:
    GPU: {gpu: 1, cpu: 4, memory: 8Gi}
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
    POOL: {childCellType: NODE, childCellNumber: 2}
  physicalCells:
  - cellType: POOL
    cellChildren:
    - cellAddress: n1
      pinnedCellId: first
    - cellAddress: n2
virtualClusters:
  default:
    virtualCells:
    - cellType: POOL.NODE
      cellNumber: 1
    pinnedCells:
    - pinnedCellId: first
"""
INNER = SOUND.replace("\n", "\n    ").rstrip() + "\n"
OPENPAI = f"rest-server: {{port: 1}}\nhivedscheduler:\n  config: |\n    {INNER}"


def with_(*changes: tuple[str, str], text: str = SOUND) -> str:
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def validated(folder: Path, text: str) -> tuple[int, list[str]]:
    """The exit code, and the mistakes without the name of the file."""
    file = folder / "file.yaml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["config", "validate", str(file)])
    return result.exit_code, [line.removeprefix(f"{file}:") for line in result.output.splitlines()]


@pytest.mark.parametrize(
    "text", [SOUND, OPENPAI, with_(("skuTypes:\n    GPU: {gpu: 1, cpu: 4, memory: 8Gi}", "skuTypes: null"))]
)
def test_a_sound_file_is_taken(tmp_path: Path, text: str) -> None:
    assert validated(tmp_path, text)[0] == 0


REFUSED = {
    "keys of the first versions": (
        with_(("skuTypes", "gpuTypes"), ("pinnedCellId", "reservationId"), ("pinnedCells", "reservedCells")),
        {2: "did you mean skuTypes?", 11: "did you mean pinnedCellId?", 18: "did you mean pinnedCells?"},
    ),
    "a line of dots for what is left out": (f"# configuration\n...\n{OPENPAI}", {2: "without the line ..."}),
    "a template": (with_(("cellNumber: 1", 'cellNumber: {{ vc["n"] }}')), {17: "values in the place of {{ }}"}),
    "the text beside its section": (
        f"hivedscheduler:\nconfig: |\n  {SOUND.replace(chr(10), chr(10) + '  ').rstrip()}\n",
        {1: "found no config below it, but beside it on line 2"},
    ),
    "the ConfigMap around it": (
        f"apiVersion: v1\nkind: ConfigMap\ndata:\n  hivedscheduler.yaml: |\n    {INNER}",
        {2: "did you mean the text under data['hivedscheduler.yaml']?"},
    ),
    "pools where nodes are meant": (
        with_(("    pinnedCells:\n    - pinnedCellId: first\n", ""), ("\n      pinnedCellId: first", ""),
              ("POOL.NODE\n      cellNumber: 1", "POOL\n      cellNumber: 2")),
        {15: "did you mean cells of POOL.NODE?"},
    ),
    "pinned cells a level too deep": (
        with_(("    pinnedCells:\n    - pinned", "      pinnedCells:\n      - pinned")),
        {18: "did you mean pinnedCells of the virtual cluster, beside virtualCells?"},
    ),
    "the name of a node below it": (
        with_(("    - cellAddress: n2", "    - cellChildren: [{cellAddress: n2}]")),
        {12: "did you mean the cellAddress of the node itself?"},
    ),
    "half a node as a node": (
        with_(("- cellAddress: n2", "- cellAddress: n1")),
        {12: "as a part of a node, a cell type between it and its leaf cells"},
    ),
    "memory that nobody limits": (with_(("memory: 8Gi", "memory: none")), {3: "or no such key"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_another_one_is_told_its_lines_and_what_to_do(tmp_path: Path, kind: str) -> None:
    text, expected = REFUSED[kind]
    exit_code, mistakes = validated(tmp_path, text)
    assert exit_code == 1
    found: dict[int, str] = {}
    for mistake in mistakes[:-1]:
        line = int(mistake.split(":", 1)[0])
        found[line] = found.get(line, "") + mistake
    assert found.keys() == expected.keys()
    assert [line for line, remedy in expected.items() if remedy not in found[line]] == []


def test_a_shortage_of_nodes_is_no_matter_of_the_path(tmp_path: Path) -> None:
    _, mistakes = validated(tmp_path, with_(("cellNumber: 1", "cellNumber: 9")))
    assert "expected at most the 2 that there are" in mistakes[0]
    assert "did you mean" not in mistakes[0]
