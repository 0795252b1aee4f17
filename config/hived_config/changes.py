"""The differences between two configurations, in the JSON of a report (docs/http.md).

The service encodes these structs, clients decode them, and OpenAPI is made from them.
"""

from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class NodeChange(msgspec.Struct, frozen=True):
    """A node whose configuration changed, with the change in words."""

    node: str
    what: str


class CellTypeChange(msgspec.Struct, frozen=True, rename="camel"):
    """A cell type whose definition changed, with the change in words."""

    cell_type: str
    what: str


class NamedChanges(msgspec.Struct, Generic[T], frozen=True):
    """Added, removed and changed names, each list ascending."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[T, ...] = ()


class CellCount(msgspec.Struct, frozen=True, rename="camel"):
    """The number of physical cells of a type, over all chains."""

    cell_type: str
    old: int
    new: int


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """The cells of a shape that a VC is guaranteed; `cell_type` is `CHAIN`, or `CHAIN.TYPE` below the top."""

    vc: str
    cell_type: str
    old: int
    new: int


class SettingChange(msgspec.Struct, frozen=True, rename="camel"):
    """One changed value that is not a cell: a setting of the service, a rule of pods, a SKU type, a key of a VC.

    `key` is spelled as in the file; `old` and `new` are JSON values, None where there is none.
    """

    key: str
    old: Any = None
    new: Any = None
    needs_restart: bool = False


class Changes(msgspec.Struct, frozen=True, rename="camel"):
    """All differences between two configurations.

    Attributes
    ----------
    nodes : by name; changed ones have other devices, chains or cell types, or other cells above them
    cell_types : by name, as they are defined
    cells : physical cells of each type whose number changes, from the top of each chain downwards
    pinned_cells : by id; changed ones are now another cell
    virtual_clusters : by name; changed ones have other cells, pinned cells, access or another placement
    shapes : the cells that each VC is guaranteed, where their number changes; see `compare.compare`
    settings : all other values
    """

    nodes: NamedChanges[NodeChange] = NamedChanges()
    cell_types: NamedChanges[CellTypeChange] = NamedChanges()
    cells: tuple[CellCount, ...] = ()
    pinned_cells: NamedChanges[str] = NamedChanges()
    virtual_clusters: NamedChanges[str] = NamedChanges()
    shapes: tuple[Shape, ...] = ()
    settings: tuple[SettingChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True if both configurations mean the same."""
        return self == Changes()
