"""Configurations as plain documents: the one that storms begin with, and what is in any of them."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import yaml

from hived_config.document import ConfigError
from hived_config.loader import load_text
from tests.property.choices import Choices

Document = dict[str, Any]

NODE_NAMES = tuple(f"n{number:02d}" for number in range(30))
MOST_NODES = 22
FITS = 40
"""Promises that are taken back, one by one, until a configuration with less hardware is sound."""

FIRST = """\
priorityClasses: {high: 100, low: preemptible}
physicalCluster:
  skuTypes:
    GPU: {gpu: 1, cpu: 2, memory: 4Gi}
    T4: {gpu: 1, cpu: 2, memory: 4Gi}
    A10: {gpu: 1, cpu: 2, memory: 4Gi}
  cellTypes:
    PAIR: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 3}
    SMALL: {childCellType: T4, childCellNumber: 2, isNodeLevel: true}
    VM: {childCellType: A10, childCellNumber: 2, isNodeLevel: true}
    CLOUD: {childCellType: VM, childCellNumber: 2}
  physicalCells:
  - {cellType: RACK, cellChildren: [{cellAddress: n00}, {cellAddress: n01}, {cellAddress: n02}]}
  - {cellType: RACK, cellChildren: [{cellAddress: n03}, {cellAddress: n04, pinnedCellId: pin}, {cellAddress: n05}]}
  - {cellType: RACK, cellChildren: [{cellAddress: n06}, {cellAddress: n07}, {cellAddress: n08}]}
  - {cellType: SMALL, cellAddress: n09}
  - {cellType: SMALL, cellAddress: n10}
  - {cellType: CLOUD}
virtualClusters:
  a: {virtualCells: [{cellType: RACK, cellNumber: 1}, {cellType: SMALL, cellNumber: 1}]}
  b: {virtualCells: [{cellType: RACK.NODE, cellNumber: 2}, {cellType: CLOUD.VM, cellNumber: 1}]}
  c: {virtualCells: [{cellType: RACK.NODE.PAIR, cellNumber: 3}], pinnedCells: [{pinnedCellId: pin}]}
"""
"""Three chains. The nodes of the cloud have generated names: 10 and 11."""


@dataclass(frozen=True)
class Found:
    """A physical cell that a document spells out, its type, and the list that it stands in."""

    cell: Document
    cell_type: str
    siblings: list[Document]


def first_document() -> Document:
    """Where every storm begins."""
    document: Document = yaml.safe_load(FIRST)
    return document


def text_of(document: Document) -> str:
    """As it is pushed."""
    return yaml.safe_dump(document, sort_keys=False)


def loads(text: str) -> bool:
    """Is it a sound configuration?"""
    try:
        load_text(text, "storm.yaml", environ={})
    except ConfigError:
        return False
    return True


def fitted(choices: Choices, document: Document) -> Document | None:
    """The document, with fewer promises if the hardware has become too small for them; None if that does not help."""
    document = deepcopy(document)
    _forget_what_is_gone(document)
    for _ in range(FITS):
        if loads(text_of(document)):
            return document
        promises = [cell for vc in vcs(document).values() for cell in vc.get("virtualCells", ())]
        if not promises:
            return None
        promise = choices.pick(promises)
        promise["cellNumber"] -= 1
        for vc in vcs(document).values():
            vc["virtualCells"] = [cell for cell in vc.get("virtualCells", ()) if cell["cellNumber"] > 0]
    return None


def types(document: Document) -> dict[str, Document]:
    """The cell types above the leaves, by name."""
    found: dict[str, Document] = document["physicalCluster"]["cellTypes"]
    return found


def tops(document: Document) -> list[Document]:
    """The top-level cells."""
    found: list[Document] = document["physicalCluster"]["physicalCells"]
    return found


def vcs(document: Document) -> dict[str, Document]:
    """The virtual clusters by name."""
    found: dict[str, Document] = document["virtualClusters"]
    return found


def chain_of(document: Document, top: str) -> list[str]:
    """The types of a chain from its top down to the leaf."""
    chain = [top]
    while chain[-1] in types(document):
        chain.append(types(document)[chain[-1]]["childCellType"])
    return chain


def chains(document: Document) -> list[str]:
    """The chains that have cells, by the types of their tops."""
    return list(dict.fromkeys(cell["cellType"] for cell in tops(document)))


def promises_of(document: Document) -> list[str]:
    """All that a VC could be promised: the paths below the tops."""
    found = []
    for top in chains(document):
        chain = chain_of(document, top)
        found += [".".join(chain[: length + 1]) for length in range(len(chain))]
    return found


def cells(document: Document) -> Iterator[Found]:
    """Every physical cell that is spelt out."""

    def walk(siblings: list[Document], cell_type: str) -> Iterator[Found]:
        for cell in siblings:
            own = cell_type or cell["cellType"]
            yield Found(cell, own, siblings)
            below = types(document)[own]["childCellType"] if own in types(document) else ""
            yield from walk(cell.get("cellChildren", []), below)

    yield from walk(tops(document), "")


def nodes(document: Document) -> list[Found]:
    """The nodes that are spelt out."""
    return [found for found in cells(document) if types(document).get(found.cell_type, {}).get("isNodeLevel")]


def unused_nodes(document: Document) -> list[str]:
    """Names of nodes that are not configured; they may have been, and may run pods."""
    used = {found.cell.get("cellAddress") for found in nodes(document)}
    return [name for name in NODE_NAMES if name not in used]


def _forget_what_is_gone(document: Document) -> None:
    known = set(promises_of(document))
    pins = {found.cell["pinnedCellId"] for found in cells(document) if "pinnedCellId" in found.cell}
    for vc in vcs(document).values():
        vc["virtualCells"] = [cell for cell in vc.get("virtualCells", ()) if cell["cellType"] in known]
        vc["pinnedCells"] = [pin for pin in vc.get("pinnedCells", ()) if pin["pinnedCellId"] in pins]
