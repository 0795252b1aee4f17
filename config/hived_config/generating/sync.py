"""Keeps the text of a configuration up to date as nodes come and go.

A place in the file is permanent, as virtual clusters have been promised it: a node that is gone keeps its place until a
new node of the same kind takes it. To the scheduler it is a bad cell; a placeholder is one from the beginning. A new
node takes the place of a placeholder or of a gone node in its own group; if there is none, its chain grows by a tree,
filled up with placeholders. Only addresses are written and trees appended: types, virtual clusters, comments and
everything else stay as they are, byte by byte. Syncing twice changes nothing the second time.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
import yaml

from hived.values.errors import InvariantError, UserError
from hived_config.chains import Chain
from hived_config.generating.generate import NewCell, block, compact
from hived_config.generating.machines import (
    NVIDIA_GPU,
    Machine,
    Names,
    full_name,
    in_order,
    notes_on,
    short_name,
)
from hived_config.generating.node_places import NodeGroup, NodePlace, NodeTrees, read_trees
from hived_config.generating.nodes import Reading, absent_resources, labels_of, machines_of, name_of
from hived_config.loader import Configuration, load_text
from hived_config.node_names import PLACEHOLDER
from hived_config.text.places import FileText, Splice, UneditableError, add, is_flow, replace_scalar, scalar
from hived_config.words import counted, listed


class ChainFinder:
    """Facts about the chains of a file: from its SKU types, and from the machines that it has already."""

    def __init__(
        self, configuration: Configuration, places: Iterable[NodePlace], machines: Mapping[str, Sequence[Machine]]
    ) -> None:
        self._rules = configuration.rules
        self._skus = configuration.cluster.sku_types
        self._chains: dict[str, Chain] = {}
        self._learnt: dict[tuple[str, str], set[str]] = {}
        self._machines = machines
        self._devices: Counter[tuple[str, str]] = Counter()
        places = list(places)
        for place in places:
            key = place.name, self._resource(place.chain.types[-1])
            self._devices[key] += place.chain.leaf_counts[place.chain.node_depth]
        for place in places:
            self._chains.setdefault(place.chain.name, place.chain)
            machine = self.machine_at(place)
            if machine is not None and not self.is_different(place, machine):
                leaf = place.chain.types[-1]
                self._learnt.setdefault((machine.product, machine.resource), set()).add(leaf)

    def machine_at(self, place: NodePlace) -> Machine | None:
        """The machine with the devices of a place, None if there is none; CPUs beside devices are no machine."""
        resource = self._resource(place.chain.types[-1])
        return next((each for each in self._machines.get(place.name, ()) if each.resource == resource), None)

    def is_different(self, place: NodePlace, machine: Machine) -> bool:
        """True if the machine has another number of devices than its places together."""
        if not machine.resource:
            return machine.device_count != place.chain.leaf_counts[place.chain.node_depth]
        return machine.device_count != self._devices[place.name, machine.resource]

    def chains_for(self, machine: Machine, labels: Mapping[str, str]) -> tuple[list[Chain], bool]:
        """The chains whose nodes are machines of this kind, in file order, and true if they do not answer: there are
        none, or they have several leaf cell types.
        """
        fitting = [
            chain
            for chain in self._chains.values()
            if chain.leaf_counts[chain.node_depth] == machine.device_count
            and self._resource(chain.types[-1]) == machine.resource
        ]
        by_labels = [chain for chain in fitting if self._is_labelled(chain.types[-1], labels)]
        others = [chain for chain in fitting if not self._rules.node_labels.get(chain.types[-1])]
        learnt = self._learnt.get((machine.product, machine.resource), set())
        by_machines = [chain for chain in others if chain.types[-1] in learnt]
        names = {machine.product.lower(), full_name(machine.product).lower(), short_name(machine.product).lower()}
        by_name = [chain for chain in others if chain.types[-1].lower() in names]
        chains = by_labels or by_machines or by_name
        return chains, len({chain.types[-1] for chain in chains}) != 1

    def _is_labelled(self, leaf: str, labels: Mapping[str, str]) -> bool:
        wanted = self._rules.node_labels.get(leaf, {})
        return bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())

    def _resource(self, leaf: str) -> str:
        """The resource of leaf cells, "" of CPUs."""
        if leaf in self._skus and not self._skus[leaf].gpu:
            return ""
        return self._rules.resources.get(leaf, NVIDIA_GPU)


def aligned(chain: Chain, machine: Machine) -> tuple[str, ...] | None:
    """The groups of a machine, one for each level of a chain above the nodes, outermost first.

    () if there are no such levels, or no groups were read; None if it has too few.
    """
    if not machine.groups or not chain.node_depth:
        return ()
    groups = tuple(filter(None, machine.groups))
    return groups[-chain.node_depth :] if len(groups) >= chain.node_depth else None


Newcomer = tuple[tuple[str, ...], str]
"""A node to come: what it stands in below the cell in question, one group for each level or none, and its name."""


class NewTrees(msgspec.Struct, frozen=True):
    """New top cells; `placeholders` counts their nodes that do not exist, `left` names nodes without room."""

    cells: tuple[NewCell, ...]
    placeholders: int
    left: tuple[str, ...]


class Growth:
    """Makes top cells of the chains of a file; `names` are taken, so placeholders may not use them."""

    def __init__(self, trees: NodeTrees, names: Names) -> None:
        self._names = names
        self._left: list[str] = []
        self._devices: dict[str, tuple[NewCell, ...]] = {}
        for place in trees.places():
            if place.chain.name not in self._devices:
                self._devices[place.chain.name] = _copied(place.children)

    def trees_for(self, chain: Chain, nodes: Sequence[Newcomer]) -> NewTrees:
        """The fewest trees that hold the nodes, with all nodes of one outermost group in one tree."""
        self._left = []
        cells = [self._tree(chain, 0, group, own) for group, own in _divided(chain, 0, nodes)]
        return self._grown(cells)

    def placeholders_for(self, chain: Chain, count: int) -> NewTrees:
        """Trees of `count` nodes that do not exist."""
        trees = -(-count // _node_count(chain, 0))
        return self._grown([self._tree(chain, 0, "", ()) for _ in range(trees)])

    def _grown(self, cells: Sequence[NewCell]) -> NewTrees:
        names = [name for cell in cells for name in node_names(cell)]
        return NewTrees(tuple(cells), sum(name.startswith(PLACEHOLDER) for name in names), tuple(self._left))

    def _tree(self, chain: Chain, depth: int, group: str, nodes: Sequence[Newcomer], path: str = "") -> NewCell:
        """A cell at a depth with as many of the nodes as fit; the others are left."""
        cell_type = "" if depth else chain.name
        path = "-".join(filter(None, (path, group)))
        if depth == chain.node_depth:
            name = nodes[0][1] if nodes else self._placeholder(chain, path)
            return NewCell(name, cell_type, self._devices.get(chain.name, ()), is_node=True)
        if not nodes:
            group = self._placeholder(chain, path)
            path = group.removeprefix(PLACEHOLDER)
        room = chain.fan_out[depth]
        batches = _divided(chain, depth + 1, nodes)
        self._left += [name for _, own in batches[room:] for _, name in own]
        batches = batches[:room] + [("", [])] * (room - len(batches))
        return NewCell(group, cell_type, tuple(self._tree(chain, depth + 1, *batch, path) for batch in batches))

    def _placeholder(self, chain: Chain, path: str) -> str:
        return self._names.numbered(f"{PLACEHOLDER}{path or chain.types[chain.node_depth]}".lower())


def _node_count(chain: Chain, depth: int) -> int:
    return chain.leaf_counts[depth] // chain.leaf_counts[chain.node_depth]


def _divided(chain: Chain, depth: int, nodes: Sequence[Newcomer]) -> list[tuple[str, Sequence[Newcomer]]]:
    """Divide the nodes among the cells at `depth`: by group, or one after the other if that is unknown."""
    if nodes and nodes[0][0]:
        by_group: dict[str, list[Newcomer]] = {}
        for groups, name in nodes:
            by_group.setdefault(groups[0], []).append((groups[1:], name))
        return list(by_group.items())
    size = _node_count(chain, depth)
    return [("", nodes[at : at + size]) for at in range(0, len(nodes), size)]


def node_names(cell: NewCell) -> list[str]:
    """The names of the nodes in a new cell."""
    if cell.is_node:
        return [cell.address]
    return [name for child in cell.children for name in node_names(child)]


def _copied(items: yaml.SequenceNode | None) -> tuple[NewCell, ...]:
    """Copy the cells below a node as written, for other nodes like it."""
    cells = []
    for item in items.value if items else ():
        fields = {key.value: value for key, value in item.value} if isinstance(item, yaml.MappingNode) else {}
        address, children = fields.get("cellAddress"), fields.get("cellChildren")
        cells.append(
            NewCell(
                str(address.value) if isinstance(address, yaml.ScalarNode) else "",
                children=_copied(children if isinstance(children, yaml.SequenceNode) else None),
            )
        )
    return tuple(cells)


_CHILDREN = "cellChildren"
_ADDRESS = "cellAddress"


class Nameless:
    """Writes names into a text. `keeps` is true for a generated name of a real node; others become placeholders."""

    def __init__(self, text: str, names: Names, keeps: Callable[[str], bool]) -> None:
        self._text = text
        self._names = names
        self._keeps = keeps

    def edits(self, taken: Mapping[NodePlace, str]) -> Iterator[Splice]:
        """The edits for nodes that take places, some of which have no name in the text."""
        roots: dict[NodeGroup, None] = {}
        for place, name in taken.items():
            if place.mapping is not None:
                yield from self._name(place.mapping, name)
            elif place.root is not None:
                roots[place.root] = None
        for root in roots:
            assert root.mapping is not None  # its places would not be writable
            cells = self._children(root, taken, root.address)
            lines = [f"{_CHILDREN}:", *(line for cell in cells for line in block(cell, ""))]
            yield from self._add(root.mapping, _CHILDREN, lines, f"[{', '.join(map(compact, cells))}]",
                                 f"[{', '.join(compact(each, is_json=True) for each in cells)}]")  # fmt: skip

    def _children(self, group: NodeGroup, taken: Mapping[NodePlace, str], path: str) -> tuple[NewCell, ...]:
        below = [NewCell(children=self._children(each, taken, path)) for each in group.groups]
        return (*below, *(NewCell(self._name_of(place, taken, path), is_node=True) for place in group.places))

    def _name_of(self, place: NodePlace, taken: Mapping[NodePlace, str], path: str) -> str:
        if place in taken:
            return taken[place]
        if self._keeps(place.name):
            return place.name
        return self._names.numbered(f"{PLACEHOLDER}{path or place.node_type}".lower())

    def _name(self, mapping: yaml.MappingNode, name: str) -> Iterator[Splice]:
        plain, quoted = scalar(name), scalar(name, quotes=True)
        return self._add(mapping, _ADDRESS, [f"{_ADDRESS}: {plain}"], plain, quoted)

    def _add(self, mapping: yaml.MappingNode, key: str, lines: list[str], plain: str, quoted: str) -> Iterator[Splice]:
        """Give a cell a key: as `lines` in block style, else on one line, as JSON where its keys are quoted."""
        is_json = any(each.style == '"' for each, _ in mapping.value)
        short = f'"{key}": {quoted}' if is_json else f"{key}: {plain}"
        if mapping.value:
            yield from add(self._text, mapping, lines, short)
        else:
            assert is_flow(mapping)  # YAML has no other way to write an empty one
            close = int(mapping.end_mark.index) - 1
            yield Splice(close, close, short)


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
    """Update the nodes of a configuration.

    Parameters
    ----------
    text : a configuration, plain or inside an OpenPAI file
    nodes : all nodes of the cluster as the API server sends them, also the ones without use for hived
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
    """Raise InvariantError if anything but physical cells changed."""
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
    """Sort key of new nodes, in the order in which they take places."""
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
        """Place every machine that the file does not have, or make a tree for it.

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
        """The note on a node that is gone, or never existed."""
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
        """Find a place of the chain for a machine, of a placeholder before that of a gone node.

        None if there is none.
        """
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
        """Give a group of placeholders alone to a group of nodes that is new to the file."""
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
        """Append trees for machines without a place, unless their group is full."""
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
        flow = ", ".join(compact(cell, is_json=True) for cell in self._new)
        return [*edits, *add(self._text, self._trees.cells, lines, flow)]

    def notes(self) -> Iterator[str]:
        """Notes for people."""
        yield from self._absent
        different: dict[str, str] = {}
        for place in self._places:
            machine = self._finder.machine_at(place)
            if machine is not None and self._finder.is_different(place, machine):
                different.setdefault(place.name, f"{place.name} ({machine.device_count})")
        yield from notes_on((self._told | {_Note.DIFFERENT: list(different.values())}).items())
