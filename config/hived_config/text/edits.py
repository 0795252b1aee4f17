"""Changes promises in the text of a configuration; comments and layout stay.

Every function takes the text of a sound file, plain or OpenPAI's. It returns the text of a sound file that differs only
in the virtual clusters named, which is checked first. An impossible change raises UserError, which names the possible
ones. A file that is not sound, before or after, raises ConfigError with places.
"""

from collections.abc import Callable, Mapping, Set
from typing import Any

import msgspec
import yaml

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.division import CellTypePlace, Promise, chains_of, counts_of, place_of, resolve, suggest
from hived_config.document import ConfigError, Mistake, gc_paused
from hived_config.loader import load_text
from hived_config.reader import Reader
from hived_config.text.places import (
    FileText,
    Splice,
    UneditableError,
    add,
    block_start,
    column_at,
    fill,
    is_alias,
    is_flow,
    line_start,
    remove,
    scalar,
)
from hived_config.virtual import VC_NAME

FILE = "the configuration"
_CLUSTERS = "virtualClusters"
_CELLS = "virtualCells"


@gc_paused()
def set_vc(text: str, name: str, cells: Mapping[str, int], file: str = FILE) -> str:
    """Set numbers of cells of one virtual cluster, which is added if it is new; returns the text.

    Parameters
    ----------
    text : the configuration
    name : the virtual cluster
    cells : by cell type, how many cells it is promised, 0 for none; a type not named stays as it is. A type is a path
        such as RACK.NODE, or its last part where no other chain has one of that name
    file : the name of the text in messages
    """
    edit = _Edit(text, file)
    promises = edit.promises(cells)
    if name in edit.cluster.virtual_clusters:
        for promise in promises.values():
            edit.set(name, promise)
    else:
        if not VC_NAME.fits(name) or name == "<<":
            raise UserError(f"virtual cluster {name!r}: expected {VC_NAME.what}")
        if cells and not any(cells.values()):
            edit.refuse_unknown(name)
        edit.add(name, [promise for promise in promises.values() if promise.count])
    counts = {place: promise.count for place, promise in promises.items()}
    return edit.checked({name: counts_of(edit.cluster, name) | counts})


@gc_paused()
def move_cells(text: str, count: int, cell_type: str, from_vc: str, to_vc: str, file: str = FILE) -> str:
    """Move `count` cells from one virtual cluster to another; returns the text, see `set_vc`. Pinned cells stay."""
    edit = _Edit(text, file)
    for vc in (from_vc, to_vc):
        edit.refuse_unknown(vc)
    if from_vc == to_vc:
        raise UserError(f"cells were to move from {from_vc} to {to_vc}; expected two virtual clusters")
    if count < 1:
        raise UserError(f"{count} cells were to move, expected at least 1")
    meant = resolve(edit.cluster, cell_type)
    has, gets = counts_of(edit.cluster, from_vc), counts_of(edit.cluster, to_vc)
    present = has.get(meant.place, 0)
    if present < count:
        cells = edit.cluster.virtual_clusters[from_vc].virtual_cells
        listed = ", ".join(f"{cell.cell_count} {cell.cell_type}" for cell in cells) or "none"
        raise UserError(
            f"{count} {meant.path} cells were to move from {from_vc}, which is promised {present} of them besides "
            f"pinned ones; it has: {listed}"
        )
    wanted = {
        from_vc: has | {meant.place: present - count},
        to_vc: gets | {meant.place: gets.get(meant.place, 0) + count},
    }
    for vc, counts in wanted.items():
        edit.set(vc, Promise(meant.place, meant.path, counts[meant.place]))
    return edit.checked(wanted)


@gc_paused()
def remove_vc(text: str, name: str, file: str = FILE) -> str:
    """Remove a virtual cluster; returns the text."""
    edit = _Edit(text, file)
    edit.refuse_unknown(name)
    edit.remove(name)
    return edit.checked({name: None})


class _Field(msgspec.Struct, frozen=True):
    """A key and its value; `is_block` tells whether the mapping that they are in is in block style."""

    key: yaml.ScalarNode
    value: yaml.Node
    is_block: bool

    @property
    def items(self) -> list[Any]:
        """The items of a list, or the keys and values of a mapping."""
        return list(self.value.value) if isinstance(self.value, yaml.CollectionNode) else []


class _Style(msgspec.Struct, frozen=True):
    """The style of virtual clusters in this file: columns from a VC's key to its own keys, from these to a dash, and
    whether entries are in braces.
    """

    keys: int = 2
    dash: int = 0
    has_flow_entries: bool = True


class _Edit:
    """The text of a sound configuration whose virtual clusters are being edited.

    Every change raises ConfigError for a place that cannot be changed alone: an alias, a merged mapping, an unusual
    layout.
    """

    def __init__(self, text: str, file: str) -> None:
        self.cluster: ClusterSpec = load_text(text, file, lenient=True, environ={}).cluster
        self._chains = chains_of(self.cluster)
        self._before = self._now = FileText(text, file)

    def promises(self, cells: Mapping[str, int]) -> dict[CellTypePlace, Promise]:
        """The wanted promises, by place. Raises UserError for a negative number, or a type given twice."""
        promises: dict[CellTypePlace, Promise] = {}
        for cell_type, count in cells.items():
            meant = resolve(self.cluster, cell_type)
            if count < 0:
                raise UserError(f"{cell_type}: {count} cells, expected at least 0")
            if meant.place in promises:
                raise UserError(f"cells of type {meant.path} are given twice")
            promises[meant.place] = Promise(meant.place, meant.path, count)
        return promises

    def refuse_unknown(self, name: str) -> None:
        """Raise UserError if there is no virtual cluster of that name."""
        if name not in self.cluster.virtual_clusters:
            raise UserError(f"there is no virtual cluster {name!r}; {suggest(name, self.cluster.virtual_clusters)}")

    # ---- changes

    def add(self, vc: str, promises: list[Promise]) -> None:
        """Add a virtual cluster, behind the others."""
        clusters = self._clusters()
        style = self._style(clusters)
        name, key = self._scalar(vc), self._scalar(_CELLS)
        flow, lines = f"{name}: {{}}", [f"{name}: {{}}"]
        if promises:
            flow = f"{name}: {{{key}: [{', '.join(map(self._flow_entry, promises))}]}}"
            entries = _indented(self._lines(promises, style.has_flow_entries), style.dash)
            lines = [f"{name}:", *_indented([f"{key}:", *entries], style.keys)]
        if clusters.items:
            self._change(vc, add, clusters.value, lines, flow, _are_apart(self._now.text, clusters))
        else:
            self._change(vc, fill, clusters.key, clusters.value, _indented(lines, 2), f"{{{flow}}}", True)

    def remove(self, vc: str) -> None:
        """Remove a virtual cluster."""
        clusters = self._clusters()
        names = [key.value for key, _ in clusters.items]
        if vc not in names:
            raise self._refusal(clusters.key, vc, "a virtual cluster that is merged from elsewhere")
        self._change(vc, remove, clusters.key, clusters.value, names.index(vc))

    def set(self, vc: str, promise: Promise) -> None:
        """Make the entries of a virtual cluster for one cell type one with that number, or none for 0."""
        entries = self._entries(vc, promise.place)
        if promise.count and not entries:
            self._add_entry(vc, promise)
        elif promise.count:
            self._renumber(vc, entries.pop(0), promise.count)
        for index in reversed(entries):
            cells = self._cells(vc)
            assert cells is not None  # it has entries
            self._change(vc, remove, cells.key, cells.value, index)

    def _add_entry(self, vc: str, promise: Promise) -> None:
        field, cells = self._vc(vc), self._cells(vc)
        style = self._style(self._clusters())
        flow, key = self._flow_entry(promise), self._scalar(_CELLS)
        lines = _indented(self._lines([promise], style.has_flow_entries), style.dash)
        block, inline = [f"{key}:", *lines], f"{key}: [{flow}]"
        if cells is not None and cells.items:
            last = cells.items[-1]
            entries = self._lines([promise], not isinstance(last, yaml.MappingNode) or is_flow(last))
            self._change(vc, add, cells.value, entries, flow)
        elif cells is not None:
            self._change(vc, fill, cells.key, cells.value, lines, f"[{flow}]", cells.is_block)
        elif field.items:
            self._change(vc, add, field.value, block, inline)
        else:
            lines = _indented(block, style.keys)
            self._change(vc, fill, field.key, field.value, lines, f"{{{inline}}}", field.is_block)

    def _renumber(self, vc: str, index: int, count: int) -> None:
        cells = self._cells(vc)
        assert cells is not None  # it has entries
        entry = cells.items[index]
        found = [(key, value) for key, value in entry.value if key.value == "cellNumber"]
        before = cells.items[index - 1].start_mark.index if index else cells.value.start_mark.index
        if not found or is_alias(found[0][1], found[0][0].end_mark.index) or is_alias(entry, before):
            raise self._refusal(self._vc(vc).key, vc, "a number of cells that stands elsewhere, behind an alias")
        number = found[0][1]
        if self._now.text[int(number.start_mark.index) : int(number.end_mark.index)] != number.value:
            raise self._uneditable(vc, "a number with an anchor or a tag")
        if number.value != str(count):
            splice = Splice(int(number.start_mark.index), int(number.end_mark.index), str(count))
            self._change(vc, lambda _: [splice])

    # ---- where things are written

    def _find(self, parent: yaml.Node, name: str, vc: str = "") -> _Field | None:
        """Find a key as it is written in a mapping; None if it is not. Raises ConfigError for an alias."""
        for key, value in parent.value if isinstance(parent, yaml.MappingNode) else ():
            if key.value == name:
                if is_alias(value, key.end_mark.index):
                    raise self._refusal(key, vc, f"an alias of what stands in line {self._now.line(value)}")
                return _Field(key, value, not is_flow(parent))
        return None

    def _clusters(self) -> _Field:
        found = self._find(self._now.root, _CLUSTERS)
        if found is None:
            raise self._refusal(self._now.root, "", "virtual clusters that are merged from elsewhere")
        return found

    def _vc(self, vc: str) -> _Field:
        clusters = self._clusters()
        found = self._find(clusters.value, vc, vc)
        if found is None:
            raise self._refusal(clusters.key, vc, "a virtual cluster that is merged from elsewhere")
        return found

    def _cells(self, vc: str) -> _Field | None:
        """The `virtualCells` of a virtual cluster; None if it has none."""
        field = self._vc(vc)
        found = self._find(field.value, _CELLS, vc)
        if found is None and _CELLS in _values(field.value):
            raise self._refusal(field.key, vc, f"{_CELLS} that are merged from elsewhere")
        return found

    def _entries(self, vc: str, place: CellTypePlace) -> list[int]:
        """The indices of entries of `virtualCells` that promise cells of a place."""
        cells = self._cells(vc)
        items = enumerate(cells.items if cells is not None else ())
        return [i for i, item in items if place_of(self._chains, _values(item)["cellType"].value) == place]

    def _refusal(self, node: yaml.Node, vc: str, found: str) -> ConfigError:
        path = f"{_CLUSTERS}.{vc}".rstrip(".")
        return ConfigError([Mistake(self._now.file, self._now.line(node), path, found, "it written out here")])

    # ---- how things are written

    def _style(self, clusters: _Field) -> _Style:
        """The style of the first virtual cluster with cells in block style."""
        for vc_key, vc in clusters.items:
            for key, cells in vc.value if isinstance(vc, yaml.MappingNode) and not is_flow(vc) else ():
                is_block = isinstance(cells, yaml.SequenceNode) and not is_flow(cells) and not is_flow(clusters.value)
                is_here = not is_alias(vc, vc_key.end_mark.index) and not is_alias(cells, key.end_mark.index)
                if key.value == _CELLS and is_block and is_here:
                    column, text, entry = key.start_mark.column, self._now.text, cells.value[0]
                    has_flow = not isinstance(entry, yaml.MappingNode) or is_flow(entry)
                    dash = column_at(text, block_start(text, cells))
                    return _Style(column - vc_key.start_mark.column, dash - column, has_flow)
        return _Style()

    def _scalar(self, text: str) -> str:
        """Text as this file writes it: in quotes where its keys are, as in JSON."""
        return scalar(text, self._clusters().key.style == '"')

    def _flow_entry(self, promise: Promise) -> str:
        kind, number = self._scalar("cellType"), self._scalar("cellNumber")
        return f"{{{kind}: {self._scalar(promise.path)}, {number}: {promise.count}}}"

    def _lines(self, promises: list[Promise], in_braces: bool) -> list[str]:
        """Entries of a list in block style."""
        if in_braces:
            return [f"- {self._flow_entry(each)}" for each in promises]
        kind, number = self._scalar("cellType"), self._scalar("cellNumber")
        entries = [(f"- {kind}: {self._scalar(each.path)}", f"  {number}: {each.count}") for each in promises]
        return [line for entry in entries for line in entry]

    # ---- applying and checking

    def _change(self, vc: str, change: Callable[..., list[Splice]], *arguments: Any) -> None:
        try:
            self._now = self._now.edited(change(self._now.text, *arguments))
        except UneditableError as error:
            raise self._uneditable(vc, str(error)) from error

    def _uneditable(self, vc: str, found: str) -> ConfigError:
        line, expected = self._now.line(self._clusters().key), "another way of writing it: edit it by hand"
        return ConfigError([Mistake(self._now.file, line, f"{_CLUSTERS}.{vc}", found, expected)])

    def checked(self, wanted: Mapping[str, Mapping[CellTypePlace, int] | None]) -> str:
        """Check the text and return it: it is sound, promises each virtual cluster the wanted cells, and is equal
        elsewhere.

        Nodes that share an anchor may break that. None stands for a virtual cluster that shall be gone.
        """
        stay = {vc for vc, counts in wanted.items() if counts is not None and vc in self.cluster.virtual_clusters}
        before, after = (_written(each.root, stay, wanted.keys() - stay) for each in (self._before, self._now))
        cluster = load_text(self._now.whole, self._now.file, lenient=True, environ={}).cluster
        present = {vc: counts_of(cluster, vc) if vc in cluster.virtual_clusters else None for vc in wanted}
        if before != after or {vc: _given(has) for vc, has in present.items()} != {
            vc: _given(counts) for vc, counts in wanted.items()
        }:
            names = " and ".join(f"virtualClusters.{vc}" for vc in wanted)
            raise UserError(
                f"{self._now.file}: {names} cannot be edited alone: through an anchor or an unusual layout something "
                "else would change too; edit it by hand"
            )
        return self._now.whole


def _given(counts: Mapping[CellTypePlace, int] | None) -> dict[CellTypePlace, int] | None:
    return None if counts is None else {place: count for place, count in counts.items() if count}


def _values(node: yaml.Node) -> dict[str, yaml.Node]:
    """The values of a mapping by key, merged ones too."""
    return {name: value for name, _, value in Reader("", node).fields(node, "")}


def _are_apart(text: str, clusters: _Field) -> bool:
    if len(clusters.items) < 2:
        return False
    start = line_start(text, int(clusters.items[-1][0].start_mark.index))
    return start > 0 and not text[line_start(text, start - 1) : start].strip()


def _indented(lines: list[str], columns: int) -> list[str]:
    return [" " * columns + line for line in lines]


def _written(root: yaml.Node, edited: Set[str], left_out: Set[str]) -> list[Any]:
    """A document as it is written, aliases followed: of the edited virtual clusters all but their cells."""
    known: dict[int, Any] = {}

    def written(node: yaml.Node) -> Any:
        if id(node) not in known:
            if isinstance(node, yaml.MappingNode):
                known[id(node)] = ["a mapping", *((written(key), written(value)) for key, value in node.value)]
            elif isinstance(node, yaml.SequenceNode):
                known[id(node)] = ["a list", *map(written, node.value)]
            else:
                known[id(node)] = (node.tag, node.value)
        return known[id(node)]

    def cluster(name: yaml.Node, node: yaml.Node) -> Any:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        kept = [(written(key), written(value)) for key, value in pairs if key.value != _CELLS]
        return name.value, kept if name.value in edited else written(node)

    found = []
    for key, value in root.value:
        if key.value == _CLUSTERS:
            pairs = value.value if isinstance(value, yaml.MappingNode) else []
            found.append((_CLUSTERS, [cluster(*pair) for pair in pairs if pair[0].value not in left_out]))
        else:
            found.append((written(key), written(value)))
    return found
