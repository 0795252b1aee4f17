"""The holders of some cells at this moment, and the bad nodes.

Looks at the service itself, for a few cells: lists of all jobs take a while at thousands of nodes, and are older.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from hived.cells.state import NO_GROUP
from hived.cells.topology import NO_CELL, IntArray, LongArray, Topology
from hived.values.decisions import HoldingGroup
from hived_config.selectors import Selector, matches
from hived_extender.api.waiting import BadNode, Holder
from hived_extender.insight.snapshot import bad_nodes_of, open_machine
from hived_extender.machine.certificates import GroupFacts, holders_of, rfc3339
from hived_extender.machine.explaining import CacheFacts, GroupMembers
from hived_extender.machine.machine import Machine
from hived_extender.machine.service import Service

Span = tuple[int, int]
"""Physical leaf cells by their indices: the first one, and the end, not included."""

MOST = 12
"""Groups that are named of one span, those with most cells."""


class Held(msgspec.Struct, frozen=True):
    """The jobs that have some cells, or have reserved them, most cells first; `more` are not named."""

    holders: tuple[Holder, ...] = ()
    more: int = 0


def held(service: Service, topology: Topology, spans: Sequence[Span], most: int = MOST) -> list[Held]:
    """The jobs that have cells of each span; nobody if the service has another topology by now.

    Raises NotLeadingError, InvariantError. Cost O(pods of `most` groups) for each span. The lock is held for copies:
    of the spans, then for each of them of the pods of these groups, and of what is lent.
    """
    service.check_leads()
    with open_machine(service) as machine:
        state = machine.verbs.core.state
        if state.topology is not topology:
            return [Held() for _ in spans]
        taken = [(state.cells.using[slice(*one)].copy(), state.cells.reserving[slice(*one)].copy()) for one in spans]
    found = []
    for (first, _), (using, reserving) in zip(spans, taken, strict=True):
        numbers, counts = np.unique(np.concatenate([using, reserving]), return_counts=True)
        order = np.lexsort((numbers, -counts))
        chosen = [number for number in numbers[order].tolist() if number != NO_GROUP]
        if not chosen:
            found.append(Held())
            continue
        span = slice(first, first + len(using))
        with open_machine(service) as machine:
            copied = _copied(machine, topology, chosen[:most], span)
        found.append(Held(tuple(_holders(copied, topology, first, using, reserving)), len(chosen[most:])))
    return found


def troubles(service: Service, topology: Topology) -> dict[str, BadNode]:
    """The nodes that cannot be used, or not wholly, in the order of the configuration; none of another topology.

    Raises NotLeadingError, InvariantError. Cost O(nodes with troubles), under the lock.
    """
    service.check_leads()
    with open_machine(service) as machine:
        state = machine.verbs.core.state
        found = bad_nodes_of(machine, state) if state.topology is topology else {}
    ordered = sorted(found, key=topology.node_index.__getitem__)
    return {name: BadNode(name, found[name][0], rfc3339(found[name][1])) for name in ordered}


def nodes_meeting(service: Service, selector: Selector) -> set[str]:
    """The nodes of the cluster whose labels meet a selector. Raises NotLeadingError, InvariantError. Cost O(nodes)."""
    service.check_leads()
    with open_machine(service) as machine:
        found = {name: machine.cache.nodes.ruled(name) for name in machine.verbs.core.state.topology.node_names}
    return {name for name, node in found.items() if node is not None and matches(selector, node.labels)}


def on_nodes(service: Service, topology: Topology, names: Iterable[str]) -> list[Held]:
    """The jobs on each of these nodes. Raises as `held`. Cost O(leaf cells), and as `held`."""
    arrays = topology.arrays
    leaves = np.flatnonzero(arrays.level[: topology.physical_count] == 1)
    found = []
    for name in names:
        own = leaves[arrays.node[leaves] == topology.node_index[name]]
        runs = np.split(own, np.flatnonzero(np.diff(own) != 1) + 1)  # several where it is in more than one chain
        parts = held(service, topology, [(int(run[0]), int(run[-1]) + 1) for run in runs])
        found.append(Held(tuple(one for part in parts for one in part.holders), sum(part.more for part in parts)))
    return found


class _Copied(NamedTuple):
    """A copy made under the lock: groups by number with their pods, and the lent cells of a span."""

    groups: dict[int, tuple[HoldingGroup, GroupMembers]]
    lent_to: IntArray
    bound: IntArray


def _copied(machine: Machine, topology: Topology, numbers: Sequence[int], span: slice) -> _Copied:
    """None of the groups if the service has another topology by now."""
    core, groups = machine.verbs.core, {}
    state, facts = core.state, CacheFacts(machine.cache, core)
    for number in numbers if state.topology is topology else ():
        if (group := state.group_by_number.get(number)) is not None:
            named = HoldingGroup(group.name, group.priority, group.vc, False, ())
            groups[number] = named, facts.members(group.name)
    lent_to = state.cells.lent_to[span].copy()
    return _Copied(groups, lent_to, state.cells.bound.copy() if (lent_to != NO_CELL).any() else state.cells.bound[:0])


def _holders(copied: _Copied, topology: Topology, first: int, using: IntArray, reserving: IntArray) -> Iterator[Holder]:
    """The jobs of these groups; `using` and `reserving` are those of leaf cells from `first` on."""
    facts, lenders = _Facts(copied), dict[str, dict[str, None]]()
    groups = []
    for number, (group, _) in copied.groups.items():
        own: LongArray = np.flatnonzero((using == number) | (reserving == number))
        lent = own[copied.lent_to[own] != NO_CELL] if (using == number).any() else own[:0]
        leaves = tuple((first + own).tolist())
        groups.append(HoldingGroup(group.name, group.priority, group.vc, len(lent) > 0, leaves))
        if len(lent):
            known = facts.of_group(group.name)
            owners = _owners(topology, copied.bound, first + lent)
            lenders.setdefault(group.name if known is None else known.job, {}).update(owners)
    for one in holders_of(groups, topology, facts):
        yield replace(one, lent_by=sorted(lenders.get(one.group, ())))


def _owners(topology: Topology, bound_to: IntArray, leaves: LongArray) -> dict[str, None]:
    """The virtual clusters that physical leaf cells are promised to now; none for those that nobody holds."""
    cells, owners = leaves, np.full(len(leaves), NO_CELL, np.int64)
    while len(cells) and (cells != NO_CELL).any():
        bound = np.where(cells == NO_CELL, NO_CELL, bound_to[cells])
        owners = np.where(owners == NO_CELL, bound, owners)
        cells = np.where(cells == NO_CELL, NO_CELL, topology.arrays.parent[cells])
    names = topology.vc_names
    vcs = {topology.forest_of(cell).vc for cell in np.unique(owners[owners != NO_CELL]).tolist()}
    return {names[vc]: None for vc in vcs if 0 <= vc < len(names)}


class _Facts:
    """The groups; each is looked at once."""

    def __init__(self, copied: _Copied) -> None:
        self._found = {group.name: members.facts for group, members in copied.groups.values()}

    def of_group(self, name: str) -> GroupFacts | None:
        """A group with cells."""
        return self._found.get(name)
