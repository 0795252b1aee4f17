"""What differs between two configurations: plain values, and their JSON."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class NamedChanges:
    """Things that have names: which came, which went, and which are not what they were, each list ascending."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """`{"added": [...], "removed": [...], "changed": [...]}`."""
        return {"added": list(self.added), "removed": list(self.removed), "changed": list(self.changed)}


@dataclass(frozen=True, slots=True)
class ExplainedChanges:
    """As `NamedChanges`; `changed` has pairs of a name and what is different, in words."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[tuple[str, str], ...] = ()

    def as_json(self, key: str) -> dict[str, Any]:
        """The three lists; what has changed as `{key: name, "what": text}`."""
        changed = [{key: name, "what": what} for name, what in self.changed]
        return {"added": list(self.added), "removed": list(self.removed), "changed": changed}


@dataclass(frozen=True, slots=True)
class CellCount:
    """How many physical cells of a type there are, over all chains."""

    cell_type: str
    old: int
    new: int

    def as_json(self) -> dict[str, Any]:
        """`{"cellType", "old", "new"}`."""
        return {"cellType": self.cell_type, "old": self.old, "new": self.new}


@dataclass(frozen=True, slots=True)
class Shape:
    """How many cells of a shape a VC is guaranteed; `cell_type` is `CHAIN`, or `CHAIN.TYPE` below the top."""

    vc: str
    cell_type: str
    old: int
    new: int

    def as_json(self) -> dict[str, Any]:
        """`{"vc", "cellType", "old", "new"}`."""
        return {"vc": self.vc, "cellType": self.cell_type, "old": self.old, "new": self.new}


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One value that is no cell: a setting of the service, a rule of how pods are read, a SKU type.

    `key` is spelled as in the file; `old` and `new` are JSON values, None where there is none.
    """

    key: str
    old: Any
    new: Any
    needs_restart: bool = False

    def as_json(self) -> dict[str, Any]:
        """`{"key", "old", "new", "needsRestart"}`."""
        return {"key": self.key, "old": self.old, "new": self.new, "needsRestart": self.needs_restart}


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that differs between two configurations.

    Attributes
    ----------
    nodes : by name; changed ones have other devices, chains or cell types, or other cells above them
    cell_types : by name, as they are defined
    cells : physical cells of each type whose number changes, from the top of each chain downwards
    pinned_cells : by id; changed ones are now another cell
    virtual_clusters : by name; changed ones have other cells, pinned cells, access or another placement
    shapes : what each VC is guaranteed, where its number changes; see `compare.compare`
    settings : all other values
    """

    nodes: ExplainedChanges = field(default_factory=ExplainedChanges)
    cell_types: ExplainedChanges = field(default_factory=ExplainedChanges)
    cells: tuple[CellCount, ...] = ()
    pinned_cells: NamedChanges = field(default_factory=NamedChanges)
    virtual_clusters: NamedChanges = field(default_factory=NamedChanges)
    shapes: tuple[Shape, ...] = ()
    settings: tuple[SettingChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether both configurations mean the same."""
        return self == Changes()

    def as_json(self) -> dict[str, Any]:
        """The `changes` of a report, as the service's HTTP interface describes them."""
        return {
            "nodes": self.nodes.as_json("node"),
            "cellTypes": self.cell_types.as_json("cellType"),
            "cells": [each.as_json() for each in self.cells],
            "pinnedCells": self.pinned_cells.as_json(),
            "virtualClusters": self.virtual_clusters.as_json(),
            "shapes": [each.as_json() for each in self.shapes],
            "settings": [each.as_json() for each in self.settings],
        }
