"""Defragmentation as a puzzle of numbers: who may move, where there is room, what is to become free (rules 28).

A *bin* is a candidate node of the virtual cluster: a virtual cell of node level, or a preassigned cell below that. A
pod lies in one bin, and any leaf cells of it will do. So a bin has an amount of leaves, and a group takes an amount of
each bin that it is in. With these names, for each bin b after the moves:

    own(b)       leaves of groups of the VC that stay
    arriving(b)  leaves of groups that were moved there
    wanted(b)    leaves of wanted things placed there
    lent(b)      leaves that others use opportunistically, and who stay

    own(b) + arriving(b) + wanted(b) <= capacity(b)      what is wanted fits: opportunistic users leave for it
    own(b) + arriving(b) + lent(b)   <= capacity(b)      moved groups take nothing from groups that stay

Costs are integers, so that plans compare exactly: leaf-seconds lost, then the number of groups.

The cells that are wanted: `2xNODE` are two cells of a type, `4x8` is one gang of four pods of eight leaf cells.
"""

import re

import msgspec

from hived.values.errors import UserError
from hived.values.specs import MemberSpec

COUNT_BITS = 24
"""A cost is `lost << COUNT_BITS | groups`: no plan moves 16 million groups."""


NO_BINS: frozenset[int] = frozenset()


def cost_of(lost: int, groups: int) -> int:
    """Leaf-seconds lost before the number of groups, as one number."""
    return (lost << COUNT_BITS) + groups


def parts_of(cost: int) -> tuple[int, int]:
    """Leaf-seconds lost, and groups, of a cost."""
    return cost >> COUNT_BITS, cost & ((1 << COUNT_BITS) - 1)


class Mover(msgspec.Struct, frozen=True):
    """A group that may be moved, or a gang of another dialect, as one.

    Attributes
    ----------
    names : its affinity groups; one, but for such a gang
    pods : (bin, leaves) of each pod; of a guest, the leaves that it takes of each bin
    is_guest : in opportunistic use; it may have to wait afterwards
    refused : for each pod, the bins that Kubernetes' rules keep it from; empty if they keep none from any
    """

    names: tuple[str, ...]
    pods: tuple[tuple[int, int], ...]
    cost: int
    is_guest: bool = False
    refused: tuple[frozenset[int], ...] = ()

    def refused_to(self, pod: int) -> frozenset[int]:
        """The bins that one of its pods may not come to."""
        return self.refused[pod] if self.refused else NO_BINS

    def has_elsewhere(self, bins: int) -> bool:
        """May any of its pods come to another one of so many bins than it is in?"""
        return not self.refused or any(
            len(refused | {bin_}) < bins for refused, (bin_, _) in zip(self.refused, self.pods, strict=True)
        )


class Spot(msgspec.Struct, frozen=True):
    """A cell that could become free: the amount of each bin that it takes, and the movers in it."""

    bins: tuple[int, ...]
    amounts: tuple[int, ...]
    movers: frozenset[int]


class Kind(msgspec.Struct, frozen=True):
    """Things wanted that are alike: `count` times whole cells at `spots`, or else gangs of pods with these `sizes`.

    sizes : descending; only without spots
    ranges : the bins of a gang have to be in one of these, as (first, past the last); all bins if there are none
    refused : (size, bins) that Kubernetes' rules keep its pods of this size from
    """

    text: str
    count: int
    spots: tuple[Spot, ...] = ()
    sizes: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int], ...] = ()
    refused: tuple[tuple[int, frozenset[int]], ...] = ()

    def refused_to(self, size: int) -> frozenset[int]:
        """The bins that its pods of a size may not come to."""
        return dict(self.refused).get(size, NO_BINS)


class Puzzle(msgspec.Struct, frozen=True):
    """Bins with their room, groups that may move, and things that want room.

    Attributes
    ----------
    capacity : leaves of each bin that can be had
    fixed : leaves of groups of the VC that may not be moved, per bin
    lent : leaves in opportunistic use of groups that may not be moved, per bin
    parents : the cell above each bin, for locality
    """

    capacity: tuple[int, ...]
    fixed: tuple[int, ...]
    lent: tuple[int, ...]
    parents: tuple[int, ...]
    movers: tuple[Mover, ...]
    kinds: tuple[Kind, ...]


class Solution(msgspec.Struct, frozen=True):
    """The movers that move, and their places.

    Attributes
    ----------
    met : per kind, how many of it get room
    moved : numbers of movers, ascending
    bins : of each moved mover that is no guest, the bin of each of its pods
    bound_met, bound_cost : no solution meets more in all; of those that meet as much, none costs less
    """

    met: tuple[int, ...]
    moved: tuple[int, ...]
    bins: dict[int, tuple[int, ...]]
    cost: int
    bound_met: int
    bound_cost: int

    @property
    def is_optimal(self) -> bool:
        """Is it proven that none is better?"""
        return sum(self.met) == self.bound_met and self.cost == self.bound_cost


MOST_SHAPES = 4096
"""Wanted at once; a larger number is a slip."""

_SHAPE = re.compile(r"([1-9][0-9]{0,5})x(\S+)")
_POD_SIZE = re.compile(r"[1-9][0-9]{0,5}")


class Shape(msgspec.Struct, frozen=True):
    """One thing wanted. Either a whole cell of `cell_type`, or `members`: the pods of one gang.

    `job` is the name of a waiting job that asks for it. All its pods have to be below one cell of `within_cell`.
    """

    text: str
    cell_type: str = ""
    members: tuple[MemberSpec, ...] = ()
    job: str = ""
    within_cell: str = ""


def read_wants(texts: tuple[str, ...]) -> tuple[Shape, ...]:
    """One shape for each thing wanted, in the order given. Raises UserError."""
    shapes: list[Shape] = []
    for text in texts:
        shapes += _read(text)
        if len(shapes) > MOST_SHAPES:
            raise UserError(f"more than {MOST_SHAPES} cells are wanted: ask for fewer")
    return tuple(shapes)


def _read(text: str) -> list[Shape]:
    found = _SHAPE.fullmatch(text)
    if found is None:
        raise UserError(
            f"--want {text!r}: expected COUNTxCELLTYPE, such as 2xNODE, or PODSxLEAVES for one gang, such as 4x8"
        )
    count, what = int(found[1]), found[2]
    if _POD_SIZE.fullmatch(what):
        return [Shape(text, members=(MemberSpec(count, int(what)),))]
    if count > MOST_SHAPES:
        raise UserError(f"--want {text!r}: at most {MOST_SHAPES} cells can be wanted")
    return [Shape(f"1x{what}", cell_type=what)] * count
