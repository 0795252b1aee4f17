"""The text of a configuration, kept up to date with nodes that come and go.

A place in the file is never given up, as virtual clusters have been promised it: a node that is gone keeps its place
until a new node of the same kind takes it. To the scheduler it is a bad cell; a placeholder is one from the beginning.
A new node takes the place of a placeholder or of a gone node in its own group; if there is none, its chain grows by a
tree, filled up with placeholders. Only addresses are written and trees appended: types, virtual clusters, comments and
everything else stay as they are, byte by byte. Syncing twice changes nothing the second time.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from hived.errors import InvariantError, UserError
from hived_config.chains import Chain
from hived_config.generating.chain_finder import ChainFinder, aligned
from hived_config.generating.growth import Growth, node_names
from hived_config.generating.machines import Machine, counted, in_order, listed, notes_on
from hived_config.generating.nameless import Nameless
from hived_config.generating.naming import Names
from hived_config.generating.node_places import NodeGroup, NodePlace, read_trees
from hived_config.generating.nodes import Reading, absent_resources, labels_of, machines_of, name_of
from hived_config.generating.writing import NewCell, block, flow
from hived_config.loader import Configuration, load_text
from hived_config.node_names import PLACEHOLDER
from hived_config.text.places import FileText, Splice, UneditableError, add, replace_scalar


class Synced(msgspec.Struct, frozen=True):
    """The new text, its changes (none: it is the old one), and notes for people."""

    text: str
    changes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def synced(
    text: str,
    nodes: Iterable[Mapping[str, Any]],
    reading: Reading | None = None,
    *,
    file: str = "the configuration",
    at_least: Mapping[str, int] | None = None,
    in_use: Collection[str] = (),
) -> Synced:
    """Bring the nodes of a configuration up to date.

    Parameters
    ----------
    text : a configuration, plain or inside an OpenPAI file
    nodes : all nodes of the cluster as the API server sends them, also those that are no concern of hived
    reading : how they are read; with `levels`, a node only takes a place in a cell of its own group
    file : the name of the text in messages
    at_least : by cell type at node level, how many places there are to be, such as the maximum of a node group
    in_use : names of nodes whose places are not taken even if they are gone, as work still counts there

    Raises ConfigError if the text is no sound configuration. Raises UserError for an unknown type in `at_least`, or
    text in a form that cannot be edited.
    """
    before = load_text(text, file, lenient=True, environ={})
    edited = FileText(text, file)
    work = _Sync(edited.text, file, before, list(nodes), reading or Reading(), frozenset(in_use))
    work.place_newcomers()
    for node_type, count in (at_least or {}).items():
        work.make_room(node_type, count)
    try:
        edits = work.edits()
        after = edited.edited(edits).whole if edits else text
    except UneditableError as error:
        raise UserError(f"{file}: found {error}, so it cannot be edited in place; write it in a plainer way") from error
    if edits:
        _check(before, load_text(after, file, lenient=True, environ={}))
    return Synced(after, tuple(work.changes), tuple(work.notes()))


def _check(before: Configuration, after: Configuration) -> None:
    """Nothing but physical cells may have changed."""
    old, new = before.cluster, after.cluster
    kept = ("rules", "cell_types", "virtual_clusters", "sku_types")
    if any(getattr(old, name) != getattr(new, name) for name in kept):
        raise InvariantError("syncing nodes changed more of the configuration than its physical cells")


class _Note(Enum):
    """A note on nodes, in the order in which people read them."""

    GONE = "of the file not in the cluster, their places kept"
    NAMELESS = "of the file without names, for which the cluster has no node; a new node takes such a place"
    NAMELESS_FOR_EVER = (
        "of the file without names, for which the cluster has no node; no other node takes their places until each is "
        "written with a cellAddress of its own"
    )
    UNKNOWN = "left out, as no cell type is of their product and number of devices"
    AMBIGUOUS = "left out, as several leaf cell types could be theirs (say which with nodeLabels in skuTypes)"
    HOMELESS = "left out, as their group has no room, or their labels do not say which it is"
    DIFFERENT = "with another number of devices than their cell type has"


GONE = 2
"""The rank of a place that a node had, after placeholders and places without a name."""


def _rank(place: NodePlace) -> int:
    """The order in which new nodes take places."""
    return 0 if place.is_placeholder else 1 if place.is_generated else GONE


class _Sync:
    """One run over one text."""

    def __init__(
        self,
        text: str,
        file: str,
        configuration: Configuration,
        nodes: Sequence[Mapping[str, Any]],
        reading: Reading,
        in_use: frozenset[str],
    ) -> None:
        self.changes: list[str] = []
        self._text = text
        self._trees = read_trees(text, file)
        found = machines_of(nodes, reading)
        self._absent = list(absent_resources(nodes, reading))
        self._machines: dict[str, list[Machine]] = {}
        for machine in found.machines:
            self._machines.setdefault(machine.name, []).append(machine)
        self._labels = {name_of(node): labels_of(node) for node in nodes}
        self._kept = in_use
        self._places = list(self._trees.places())
        self._finder = ChainFinder(configuration, self._places, self._machines)
        self._names = Names([*self._labels, *(place.name for place in self._places), *self._trees.addresses()])
        self._growth = Growth(self._trees, self._names)
        self._renamed: dict[NodePlace | NodeGroup, str] = {}
        self._new: list[NewCell] = []
        self._told: dict[_Note, list[str]] = {note: [] for note in _Note}
        self._indexes: dict[tuple[NodeGroup, int], dict[str, NodeGroup]] = {}
        self._vacancies: dict[NodeGroup, Iterator[NodePlace]] = {}

    # ---- nodes that are not in the file

    def place_newcomers(self) -> None:
        """Give every machine that the file does not have a place, or make a tree for it.

        A node of the file may have devices of another resource now. One with no devices of its cells stays as it is.
        """
        placed = {
            (place.name, machine.resource)
            for place in self._places
            if (machine := self._finder.machine_at(place)) is not None
        }
        apart = {place.name for place in self._places} - {name for name, _ in placed}
        homeless: dict[Chain, list[Machine]] = {}
        for machine in in_order(machine for own in self._machines.values() for machine in own):
            if machine.name in apart or (machine.name, machine.resource) in placed:
                continue
            chains = self._chains_for(machine)
            place = next((place for chain in chains if (place := self._vacancy(chain, machine))), None)
            if place is not None:
                self._take(place, machine)
            elif chains:
                homeless.setdefault(self._trees.chains[chains[0].name], []).append(machine)
        for chain, machines in homeless.items():
            self._grow(chain, machines)
        present = self._labels.keys()
        filled = {place.root for place in self._renamed if isinstance(place, NodePlace) and place.root is not None}
        for place in self._places:
            is_rewritten = place in self._renamed or (place.root is not None and place.root in filled)
            if place.name not in present and not place.is_placeholder and not is_rewritten:
                self._told[self._note_of(place)].append(place.name)

    def _note_of(self, place: NodePlace) -> _Note:
        """The note on a node that is gone, or never was."""
        if not place.is_generated:
            return _Note.GONE
        return _Note.NAMELESS if place.is_writable else _Note.NAMELESS_FOR_EVER

    def _chains_for(self, machine: Machine) -> list[Chain]:
        """The chains that a machine can be in, best first: chains with as many levels as it has groups."""
        chains, problem = self._finder.chains_for(machine, self._labels[machine.name])
        if problem:
            self._told[_Note.AMBIGUOUS if chains else _Note.UNKNOWN].append(machine.name)
            return []
        depth = sum(map(bool, machine.groups))
        exact = [chain for chain in chains if chain.node_depth == depth]
        return exact if exact and depth else chains

    def _vacancy(self, chain: Chain, machine: Machine) -> NodePlace | None:
        """A place of the chain for a machine, of a placeholder before that of a gone node; None if there is none."""
        groups = aligned(chain, machine)
        if groups is None:
            return None
        group: NodeGroup | None = self._trees.tops[chain.name]
        for depth, name in enumerate(groups):
            assert group is not None
            group = self._index(group, depth, chain).get(name) or self._adopt(group, depth, name, chain)
            if group is None:
                return None
        return next(self._vacant(group), None) if group else None

    def _vacant(self, group: NodeGroup) -> Iterator[NodePlace]:
        """The vacant places in a group, each once."""
        if group not in self._vacancies:
            every = [place for place in group.every_place() if self._is_vacant(place)]
            self._vacancies[group] = iter(sorted(every, key=_rank))
        return (place for place in self._vacancies[group] if place not in self._renamed)

    def _is_vacant(self, place: NodePlace) -> bool:
        is_there = place.name in self._labels or place.name in self._kept
        return place.is_writable and not is_there and place not in self._renamed

    def _index(self, parent: NodeGroup, depth: int, chain: Chain) -> dict[str, NodeGroup]:
        """The groups in `parent` by their name: the labels of their nodes give it, or else their address."""
        key = (parent, depth)
        if key not in self._indexes:
            index: dict[str, NodeGroup] = {}
            for group in parent.groups:
                index.setdefault(self._label(group, depth, chain), group)
            self._indexes[key] = index
        return self._indexes[key]

    def _label(self, group: NodeGroup, depth: int, chain: Chain) -> str:
        for place in group.every_place():
            machines = self._machines.get(place.name)
            groups = None if machines is None else aligned(chain, machines[0])
            if groups is not None and len(groups) > depth:
                return groups[depth]
        return group.address

    def _adopt(self, parent: NodeGroup, depth: int, name: str, chain: Chain) -> NodeGroup | None:
        """Give a group of nothing but placeholders to a group of nodes that the file does not have yet."""
        for group in parent.groups:
            is_free = group not in self._renamed and (group.scalar is not None or not group.address)
            places = list(group.every_place()) if is_free else []
            if places and all(_rank(place) < GONE and self._is_vacant(place) for place in places):
                if group.scalar is not None:
                    self._renamed[group] = self._new_address(parent, name)
                self._index(parent, depth, chain)[name] = group
                return group
        return None

    def _new_address(self, parent: NodeGroup, name: str) -> str:
        """An address for a group, made up only if the name is in use: cells side by side have one each."""
        return Names(self._renamed.get(group, group.address) for group in parent.groups).new(name)

    def _take(self, place: NodePlace, machine: Machine) -> None:
        self._renamed[place] = machine.name
        before = f"without a name, called {place.name} for now" if place.is_generated else f"of {place.name}"
        self.changes.append(f"{machine.name} takes the place {before} ({place.node_type})")

    def _grow(self, chain: Chain, machines: Sequence[Machine]) -> None:
        """Append trees for machines that found no place, except for those whose group is full."""
        newcomers = []
        for machine in machines:
            groups = aligned(chain, machine)
            top = self._trees.tops[chain.name]
            if groups is None or (groups and groups[0] in self._index(top, 0, chain)):
                self._told[_Note.HOMELESS].append(machine.name)
            else:
                groups = (self._new_address(top, groups[0]), *groups[1:]) if groups else ()
                newcomers.append((groups, machine.name))
        grown = self._growth.trees_for(chain, newcomers)
        self._append(chain, grown.cells)
        self._told[_Note.HOMELESS] += grown.left

    def _append(self, chain: Chain, cells: Sequence[NewCell]) -> None:
        for cell in cells:
            names = node_names(cell)
            real = [name for name in names if not name.startswith(PLACEHOLDER)]
            placeholders = counted(len(names) - len(real), "placeholder") if len(real) < len(names) else ""
            nodes = " and ".join(filter(None, (listed(real), placeholders)))
            self.changes.append(f"a new {chain.name} for {nodes}")
        self._new += cells

    # ---- nodes to come

    def make_room(self, node_type: str, count: int) -> None:
        """Append trees of placeholders until there are `count` places for nodes of a type."""
        chains = [chain for chain in self._trees.chains.values() if chain.types[chain.node_depth] == node_type]
        if not chains:
            known = dict.fromkeys(chain.types[chain.node_depth] for chain in self._trees.chains.values())
            raise UserError(f"no cell type {node_type!r} at node level: expected one of {', '.join(known)}")
        chain = min(chains, key=lambda chain: chain.node_depth)
        written = sum(place.node_type == node_type for place in self._places)
        new = sum(len(node_names(cell)) for cell in self._new if any(cell.cell_type == chain.name for chain in chains))
        if written + new < count:
            grown = self._growth.placeholders_for(chain, count - written - new)
            number = "a new" if len(grown.cells) == 1 else f"{len(grown.cells)} new"
            self.changes.append(f"{number} {chain.name} for {counted(grown.placeholders, 'placeholder')}")
            self._new += grown.cells

    # ---- the outcome

    def edits(self) -> list[Splice]:
        """The changes of the text."""
        edits = [replace_scalar(cell.scalar, name) for cell, name in self._renamed.items() if cell.scalar is not None]
        taken = {place: name for place, name in self._renamed.items() if isinstance(place, NodePlace)}
        has_numbers = any(place.is_generated and place.name in self._labels for place in self._places)
        nameless = Nameless(self._text, self._names, lambda name: has_numbers or name in self._kept)
        edits += nameless.edits(taken)
        if not self._new:
            return edits
        lines = [line for cell in self._new for line in block(cell, "")]
        return [*edits, *add(self._text, self._trees.cells, lines, ", ".join(map(flow, self._new)))]

    def notes(self) -> Iterator[str]:
        """Notes for people."""
        yield from self._absent
        different: dict[str, str] = {}
        for place in self._places:
            machine = self._finder.machine_at(place)
            if machine is not None and self._finder.is_different(place, machine):
                different.setdefault(place.name, f"{place.name} ({machine.device_count})")
        yield from notes_on((self._told | {_Note.DIFFERENT: list(different.values())}).items())
