"""Figures of another scheduler, measured on this machine, to compare ours with: `--reference FILE`.

docs/performance.md describes the file. Figures of another machine are refused: their ratios would say nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tests.benchmarks.figures import Summary
from tests.benchmarks.report import ROWS
from tests.benchmarks.targets import Sizes

MACHINE_KEYS = ("cpu", "cores")
"""What has to be the same as here, of what `describe_machine` says."""


class ReferenceError(Exception):
    """A file that cannot be compared with, in words for whoever wrote it."""


class _Machine(msgspec.Struct):
    cpu: str
    cores: int


class _File(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    measured: str
    machine: _Machine
    nodes: dict[str, dict[str, Summary]]


class Reference:
    """What was measured, when, and the figures by size and row."""

    def __init__(self, name: str, measured: str, sizes: Sizes) -> None:
        self.name = name
        self.measured = measured
        self.sizes = sizes


def read_reference(path: Path, machine: Mapping[str, Any]) -> Reference:
    """The figures of a file that was measured on `machine`. Raises ReferenceError."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError) as error:
        raise ReferenceError(f"{path}: {error}") from None
    for key in MACHINE_KEYS:
        if getattr(file.machine, key) != machine[key]:
            there, here = getattr(file.machine, key), machine[key]
            raise ReferenceError(f"{path}: measured on another machine: its {key} is {there!r}, here it is {here!r}")
    if not any(file.nodes.values()):
        raise ReferenceError(f"{path}: `nodes` has no figures")
    return Reference(file.name, file.measured, {_size(path, text): _rows(path, text, file) for text in file.nodes})


def _size(path: Path, text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ReferenceError(f"{path}: `nodes` has the key {text!r}, expected a number of nodes")
    return int(text)


def _rows(path: Path, size: str, file: _File) -> dict[str, Summary]:
    rows = file.nodes[size]
    for key, summary in rows.items():
        where = f"{path}: nodes[{size!r}][{key!r}]"
        if key not in ROWS:
            raise ReferenceError(f"{where}: no row has this name; `--rows` lists all")
        expected = ROWS[key].parts
        if expected[0] not in summary or not summary.keys() <= {*expected, "p50", "p99", "max", "value"}:
            raise ReferenceError(f"{where}: expected {' and '.join(expected)}, given {', '.join(summary) or 'nothing'}")
        if any(figure <= 0 for figure in summary.values()):
            raise ReferenceError(f"{where}: figures must be above 0")
    return rows
