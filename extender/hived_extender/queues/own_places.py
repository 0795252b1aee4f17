"""The virtual leaves that a job has in the live cluster, so that the schedule of its virtual cluster has it there too.

They are not written onto jobs: the cells that pods are bound to say it, whoever leads.
"""

from collections.abc import Iterable

from hived.groups import virtual_leaves
from hived.state import State
from hived_extender.queues.units import Unit
from hived_extender.service.stand_ins import sizes_of


def leaves_of(state: State, unit: Unit, groups: Iterable[str], held: tuple[int, ...]) -> tuple[int, ...]:
    """The virtual leaves of a unit in slot order; empty if they are not all known, or it has borrowed them.

    `groups` are the groups of its pods, `held` the leaves of the slots that no pod has yet.
    """
    left = sizes_of(unit.spec.group.members)
    slots: list[tuple[int, tuple[int, ...]]] = []
    for name in groups:
        leaves = virtual_leaves(state, name)
        sizes = sizes_of(state.groups[name].spec.group.members) if leaves else []
        for size in sizes:
            if size not in left:
                return ()
            left.remove(size)
        slots += _split(sizes, leaves)
    if sum(left) != len(held):
        return ()
    slots += _split(left, held)
    slots.sort(key=lambda slot: slot[0])  # members are sorted by size
    return tuple(leaf for _, leaves in slots for leaf in leaves)


def _split(sizes: list[int], leaves: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
    """The leaves of each slot, with its size."""
    found, at = [], 0
    for size in sizes:
        found.append((size, leaves[at : at + size]))
        at += size
    return found
