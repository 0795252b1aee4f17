"""Where virtual clusters are written, and the changes of their text, one after the other."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec
import yaml

from hived_config.chains import Chain
from hived_config.errors import ConfigError, Mistake
from hived_config.promises import CellTypePlace, Promise, place_of
from hived_config.reader import Reader
from hived_config.text.splices import EditedText, Splice, UneditableError
from hived_config.text.written import Written, is_alias, is_flow, scalar

_CLUSTERS = "virtualClusters"
_CELLS = "virtualCells"


class _Field(msgspec.Struct, frozen=True):
    """A key and its value; `is_block` tells whether the mapping that they are in is in block style."""

    key: yaml.ScalarNode
    value: yaml.Node
    is_block: bool

    @property
    def items(self) -> list[yaml.Node]:
        """The items of a list."""
        return list(self.value.value) if isinstance(self.value, yaml.SequenceNode) else []

    @property
    def pairs(self) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
        """The keys and values of a mapping."""
        return list(self.value.value) if isinstance(self.value, yaml.MappingNode) else []


class _Style(msgspec.Struct, frozen=True):
    """How this file writes virtual clusters: columns from a VC's key to its own keys, from those to a dash, and whether
    entries are in braces.
    """

    keys: int = 2
    dash: int = 0
    has_flow_entries: bool = True


class VcText:
    """The text of a sound configuration whose virtual clusters are being edited.

    Every change raises ConfigError for a place that cannot be changed alone: an alias, a merged mapping, an unusual
    layout.
    """

    def __init__(self, text: str, file: str, chains: Mapping[str, Chain]) -> None:
        self._chains = chains
        self._edited = EditedText(text, file)

    @property
    def whole(self) -> str:
        """The text of the file as it is now."""
        return self._edited.whole

    # ---- changes

    def add(self, vc: str, promises: list[Promise]) -> None:
        """Add a virtual cluster, behind the others."""
        clusters = self._clusters()
        style = self._style(clusters)
        name, key = self._scalar(vc), self._scalar(_CELLS)
        cells = ", ".join(self._flow_entry(each) for each in promises)
        flow = f"{name}: {{{key}: [{cells}]}}" if promises else f"{name}: {{}}"
        lines = [flow]
        if promises:
            entries = _indented(self._lines(promises, style.has_flow_entries), style.dash)
            lines = [f"{name}:", *_indented([f"{key}:", *entries], style.keys)]
        with self._changing(vc) as text:
            if clusters.pairs:
                is_apart = self._has_empty_lines(text, clusters)
                self._apply(text.add(clusters.value, lines, flow, is_apart))
            else:
                self._fill(text, clusters, _indented(lines, 2), f"{{{flow}}}")

    def remove(self, vc: str) -> None:
        """Remove a virtual cluster."""
        clusters = self._clusters()
        names = [key.value for key, _ in clusters.pairs]
        if vc not in names:
            raise self._refusal(clusters.key, vc, "a virtual cluster that is merged from elsewhere")
        with self._changing(vc) as text:
            self._apply(text.remove(clusters.key, clusters.value, names.index(vc)))

    def set(self, vc: str, promise: Promise) -> None:
        """Make the entries of a virtual cluster for one cell type one with that number, or none for 0."""
        entries = self._entries(vc, promise.place)
        if promise.count and not entries:
            self._add_entry(vc, promise)
        elif promise.count:
            self._renumber(vc, entries.pop(0), promise.count)
        for index in reversed(entries):
            cells = self._cells(vc)
            if cells is not None:
                with self._changing(vc) as text:
                    self._apply(text.remove(cells.key, cells.value, index))

    def _add_entry(self, vc: str, promise: Promise) -> None:
        field, cells = self._vc(vc), self._cells(vc)
        style = self._style(self._clusters())
        flow = self._flow_entry(promise)
        lines = _indented(self._lines([promise], style.has_flow_entries), style.dash)
        block, inline = [f"{self._scalar(_CELLS)}:", *lines], f"{self._scalar(_CELLS)}: [{flow}]"
        with self._changing(vc) as text:
            if cells is not None and cells.items:
                last = cells.items[-1]
                entries = self._lines([promise], not isinstance(last, yaml.MappingNode) or is_flow(last))
                self._apply(text.add(cells.value, entries, flow))
            elif cells is not None:
                self._fill(text, cells, lines, f"[{flow}]")
            elif field.pairs:
                self._apply(text.add(field.value, block, inline))
            else:
                self._fill(text, field, _indented(block, style.keys), f"{{{inline}}}")

    def _renumber(self, vc: str, index: int, count: int) -> None:
        cells = self._cells(vc)
        entry = cells.items[index] if cells is not None else None
        pairs = entry.value if isinstance(entry, yaml.MappingNode) else []
        found = [(key, value) for key, value in pairs if key.value == "cellNumber"]
        if not found or is_alias(found[0][1], found[0][0].end_mark.index) or self._is_alias_item(vc, index):
            raise self._refusal(self._vc(vc).key, vc, "a number of cells that stands elsewhere, behind an alias")
        number = found[0][1]
        start, end = int(number.start_mark.index), int(number.end_mark.index)
        with self._changing(vc) as text:
            if text.text[start:end] != number.value:
                raise UneditableError("a number with an anchor or a tag")
            if number.value != str(count):
                self._apply([Splice(start, end, str(count))])

    def _is_alias_item(self, vc: str, index: int) -> bool:
        cells = self._cells(vc)
        if cells is None:
            return False
        before = cells.items[index - 1].start_mark.index if index else cells.value.start_mark.index
        return is_alias(cells.items[index], before)

    # ---- where things are written

    def _find(self, parent: yaml.Node, name: str, vc: str = "") -> _Field | None:
        """A key as it is written in a mapping; None if it is not. Raises ConfigError for an alias."""
        for key, value in parent.value if isinstance(parent, yaml.MappingNode) else ():
            if key.value == name:
                if is_alias(value, key.end_mark.index):
                    raise self._refusal(key, vc, f"an alias of what stands in line {self._edited.line(value)}")
                return _Field(key, value, not is_flow(parent))
        return None

    def _clusters(self) -> _Field:
        found = self._find(self._edited.root, _CLUSTERS)
        if found is None:
            raise self._refusal(self._edited.root, "", "virtual clusters that are merged from elsewhere")
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
        if found is None and any(name == _CELLS for name, _, _ in Reader("", field.value).fields(field.value, "")):
            raise self._refusal(field.key, vc, f"{_CELLS} that are merged from elsewhere")
        return found

    def _entries(self, vc: str, place: CellTypePlace) -> list[int]:
        """Which entries of `virtualCells` promise cells of a place."""
        cells = self._cells(vc)
        entries = []
        for index, item in enumerate(cells.items if cells is not None else ()):
            fields = {name: value for name, _, value in Reader("", item).fields(item, "")}
            if place_of(self._chains, fields["cellType"].value) == place:
                entries.append(index)
        return entries

    def _refusal(self, node: yaml.Node, vc: str, found: str) -> ConfigError:
        path = f"{_CLUSTERS}.{vc}".rstrip(".")
        return ConfigError([Mistake(self._edited.file, self._edited.line(node), path, found, "it written out here")])

    # ---- how things are written

    def _style(self, clusters: _Field) -> _Style:
        """The style of the first virtual cluster with cells in block style."""
        for vc_key, vc in clusters.pairs:
            for key, cells in vc.value if isinstance(vc, yaml.MappingNode) and not is_flow(vc) else ():
                is_block = isinstance(cells, yaml.SequenceNode) and not is_flow(cells) and not is_flow(clusters.value)
                is_here = not is_alias(vc, vc_key.end_mark.index) and not is_alias(cells, key.end_mark.index)
                if key.value == _CELLS and is_block and is_here:
                    text = Written(self._edited.text)
                    column = key.start_mark.column
                    entry = cells.value[0]
                    return _Style(
                        column - vc_key.start_mark.column,
                        text.column(text.spans(cells)[0][0]) - column,
                        not isinstance(entry, yaml.MappingNode) or is_flow(entry),
                    )
        return _Style()

    @staticmethod
    def _has_empty_lines(text: Written, clusters: _Field) -> bool:
        """Whether virtual clusters stand apart from each other."""
        if len(clusters.pairs) < 2:
            return False
        start = text.line_start(int(clusters.pairs[-1][0].start_mark.index))
        before = text.text[:start].removesuffix("\n").removesuffix("\r")
        return start > 0 and not before[text.line_start(len(before)) :].strip()

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

    # ---- applying

    @contextmanager
    def _changing(self, vc: str) -> Iterator[Written]:
        """Gives the text as it is; UneditableError becomes ConfigError."""
        try:
            yield Written(self._edited.text)
        except UneditableError as error:
            line = self._edited.line(self._clusters().key)
            expected = "another way of writing it: edit it by hand"
            raise ConfigError([Mistake(self._edited.file, line, f"{_CLUSTERS}.{vc}", str(error), expected)]) from error

    def _fill(self, text: Written, field: _Field, lines: list[str], flow: str) -> None:
        self._apply(text.fill(field.key, field.value, lines, flow, field.is_block))

    def _apply(self, splices: list[Splice]) -> None:
        self._edited = self._edited.apply(splices)


def _indented(lines: list[str], columns: int) -> list[str]:
    return [" " * columns + line for line in lines]
