"""Replacements in the text of a configuration for nodes that come and go."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import yaml

from hived_config.generating.writing import scalar
from hived_config.text.splices import Splice


@dataclass(frozen=True, slots=True)
class NewCell:
    """A cell to be written; a node is written on one line, with everything below it."""

    address: str = ""
    cell_type: str = ""
    children: tuple["NewCell", ...] = ()
    is_node: bool = False


def renaming(text: str, node: yaml.ScalarNode, name: str) -> Splice:
    """Write another name for a scalar, in quotes like its own if it has some."""
    start, stop = node.start_mark.index, node.end_mark.index
    mark = text[start : start + 1]
    if mark == '"':
        return Splice(start, stop, json.dumps(name, ensure_ascii=False))
    return Splice(start, stop, "'" + name.replace("'", "''") + "'" if mark == "'" else scalar(name))


def appending(text: str, cells: yaml.SequenceNode, new: Iterable[NewCell]) -> Splice:
    """Write more cells at the end of a list, in its own style, before comments that follow it."""
    stop = cells.end_mark.index
    if cells.flow_style:
        at = stop - 1
        has_comma = not cells.value or _without_comments(text[cells.start_mark.index : at]).rstrip().endswith(",")
        return Splice(at, at, ("" if has_comma else ", ") + ", ".join(map(flow, new)))
    at = _end_of_lines(text, stop)
    lines = [line for cell in new for line in block(cell, " " * cells.start_mark.column)]
    return Splice(at, at, "".join("\n" + line for line in lines))


def _without_comments(text: str) -> str:
    return re.sub(r"(?m)(^|\s)#.*$", "", text)


def _end_of_lines(text: str, stop: int) -> int:
    """Where the last line before `stop` ends that is neither blank nor only a comment."""
    at = stop
    while True:
        start = text.rfind("\n", 0, at) + 1
        line = text[start:at].strip()
        if line and not line.startswith("#"):
            return start + len(text[start:at].rstrip("\r\n"))
        if start == 0:
            return stop
        at = start - 1


def flow(cell: NewCell) -> str:
    """A cell in flow style, every text in quotes: so it is JSON as well."""
    fields = []
    if cell.cell_type:
        fields.append(f'"cellType": {json.dumps(cell.cell_type)}')
    if cell.address:
        fields.append(f'"cellAddress": {json.dumps(cell.address, ensure_ascii=False)}')
    if cell.children:
        fields.append(f'"cellChildren": [{", ".join(map(flow, cell.children))}]')
    return "{" + ", ".join(fields) + "}"


def block(cell: NewCell, indent: str) -> Iterator[str]:
    """A cell as lines."""
    if cell.is_node:
        yield f"{indent}- {_compact(cell)}"
        return
    fields = []
    if cell.cell_type:
        fields.append(f"cellType: {scalar(cell.cell_type)}")
    if cell.address:
        fields.append(f"cellAddress: {scalar(cell.address)}")
    fields.append("cellChildren:")
    for i, line in enumerate(fields):
        yield f"{indent}{'  ' if i else '- '}{line}"
    for child in cell.children:
        yield from block(child, f"{indent}  ")


def _compact(cell: NewCell) -> str:
    """A node in flow style; devices are numbers."""
    fields = [f"cellType: {scalar(cell.cell_type)}"] if cell.cell_type else []
    if cell.address:
        address = cell.address if cell.address.isdecimal() and not cell.is_node else scalar(cell.address)
        fields.append(f"cellAddress: {address}")
    if cell.children:
        fields.append(f"cellChildren: [{', '.join(map(_compact, cell.children))}]")
    return "{" + ", ".join(fields) + "}"
