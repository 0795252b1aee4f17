"""The nodes of a configuration to come, held against those of the cluster: their names, and how many would be bad.

A name that no Kubernetes node can have is refused, unless the configuration in force has it already. A name that the
cluster does not have is a warning, as nodes may join later. A configuration with none of the cluster's nodes is refused
if the one in force has some: it is that of another cluster.
"""

from collections.abc import Collection, Iterator

import msgspec

from hived.state import State
from hived_config.errors import Mistake
from hived_config.loader import Configuration
from hived_config.node_names import (
    PLACEHOLDER,
    VALID_NAME,
    WRITTEN_NAMES,
    Likely,
    NodeNames,
    is_possible,
    made_possible,
)
from hived_config.reader import shorten
from hived_extender.api.configuration import BadCells

CELLS = "physicalCluster.physicalCells"
EACH = 20
"""Names that get a line each, if somebody likely meant another name."""

NAMED = 8
"""Names in one line."""


class Judged(msgspec.Struct, frozen=True):
    """Why a configuration is refused for its names, and what is odd about them."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def judge(old: Configuration, new: Configuration, cluster: Collection[str]) -> Judged:
    """The names of `new`, which is to replace `old`; `cluster` has the names of its nodes, none where nobody knows
    them. Its other warnings come first. Cost O(nodes).
    """
    names, nodes = new.node_names, frozenset(cluster)
    likely = Likely(nodes - names.written.keys())
    impossible = [name for name in names.written if not is_possible(name)]
    refused = [name for name in impossible if name not in old.node_names.written]
    refusals = [
        Mistake(
            names.file, names.written[name], CELLS, f"node name {shorten(name)}", VALID_NAME,
            likely.meant_by(name) or made_possible(name),
        )
        for name in refused
    ]  # fmt: skip
    if nodes:
        refusals += _foreign(old, new, nodes)
    lines = {names.written[name] for name in refused}
    joined = {each.line for each in names.generated if nodes.issuperset(each.names())} if nodes else set()
    warnings = [
        each
        for each in new.warnings
        if not (each.expected == VALID_NAME and each.line in lines)
        and not (each.expected == WRITTEN_NAMES and each.line in joined)
    ]
    if nodes:
        warnings += _unknown(names, nodes, likely)
    return Judged(tuple(map(str, refusals)), tuple(map(str, warnings)))


def _foreign(old: Configuration, new: Configuration, nodes: Collection[str]) -> Iterator[Mistake]:
    """A mistake where no node of the file is in the cluster, though nodes of the present file are."""
    if any(name in nodes for name in new.node_names.all()):
        return
    present = sum(name in nodes for name in old.node_names.all())
    if present:
        found = "no node that the cluster has"
        expected = f"at least one: of the configuration in force, it has {present} (is this that of another cluster?)"
        yield Mistake(new.node_names.file, 0, CELLS, found, expected)


def _unknown(names: NodeNames, nodes: Collection[str], likely: Likely) -> Iterator[Mistake]:
    """Warnings of nodes that the cluster does not have: those first that somebody may have misspelt."""
    unknown = [
        name for name in names.written if name not in nodes and is_possible(name) and not name.startswith(PLACEHOLDER)
    ]
    others = []
    told = 0
    for name in unknown:
        meant = likely.meant_by(name) if told < EACH else ""
        if not meant:
            others.append(name)
            continue
        told += 1
        found = f"node {shorten(name)}, which the cluster does not have"
        yield Mistake(names.file, names.written[name], CELLS, found, "one of its nodes", meant, is_warning=True)
    if others:
        shown = ", ".join(others[:NAMED]) + (f" and {len(others) - NAMED:,} more" if len(others) > NAMED else "")
        count = f"{len(others):,} nodes that the cluster does" if len(others) > 1 else "a node that the cluster does"
        found = f"{count} not have: {shown}"
        expected = "each to join later, as its cells are bad until then"
        yield Mistake(names.file, names.written[others[0]], CELLS, found, expected, is_warning=True)


def bad_nodes(state: State) -> list[BadCells]:
    """The bad nodes of each cell type at node level that has some, in file order."""
    cells, topology = state.cells, state.topology
    found = []
    for chain in topology.chains:
        slot = int(topology.arrays.level_offset[topology.chain_index[chain.name]]) + chain.node_level
        first = int(topology.arrays.level_base[slot])
        nodes = topology.arrays.node[first : first + int(topology.arrays.level_size[slot])]
        bad = nodes[cells.node_bad[nodes] != 0]
        if bad.size:
            names = [topology.node_names[node] for node in bad[:NAMED].tolist()]
            path = ".".join(dict.fromkeys((chain.name, chain.types[chain.node_level - 1])))
            found.append(BadCells(path, int(bad.size), int(nodes.size), names))
    return found
