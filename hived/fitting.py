"""Placing a new group in one view: among the cells of its VC, then on hardware (rules 6, 7)."""

import json
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hived.decisions import Wait
from hived.groups import virtual_placement
from hived.journal import mark, undo_changes
from hived.mapping import map_leaves
from hived.placement import BAD_NODE, NO_CAPACITY, PLACED, place_group
from hived.preemption import lazy_groups_below, preempt_lazily_for
from hived.specs import MIN_GUARANTEED_PRIORITY, PodRequest
from hived.state import State
from hived.topology import NO_CELL, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Cells for every pod of a group, one per leaf in canonical order; `virtual` is None if opportunistic."""

    physical: IntArray
    virtual: IntArray | None
    lazily_preempted: tuple[str, ...] = ()


class Request(NamedTuple):
    """A new group as the kernels want it."""

    pod: PodRequest
    sizes: IntArray
    counts: npt.NDArray[np.int64]
    wanted: int
    suggested: npt.NDArray[np.bool_]
    ignore: bool

    @property
    def is_guaranteed(self) -> bool:
        """Does it go through a VC?"""
        return self.pod.spec.priority >= MIN_GUARANTEED_PRIORITY

    @property
    def where(self) -> str:
        """What it is searched in, for reasons."""
        return f"VC {self.pod.spec.virtual_cluster}" if self.is_guaranteed else "physical cluster"


def no_capacity(request: Request) -> Wait:
    """The answer where not even the cells of the VC, whatever is behind them, have room."""
    return Wait(f"insufficient capacity when scheduling in {request.where}")


def fit_anywhere(state: State, request: Request, view: int) -> Placement | Wait:
    """As the reference does it (rules 6.6 to 6.9)."""
    arrays, cells = state.arrays, state.cells
    leaves = np.empty(min(request.wanted, state.topology.view_leaf_counts[view]), np.int32)
    outcome, blocker = place_group(
        arrays, cells, view, request.pod.spec.priority, state.elastic_group_count > 0, request.sizes, request.counts,
        request.suggested, request.ignore, leaves,
    )  # fmt: skip
    if outcome == NO_CAPACITY:
        return no_capacity(request)
    if outcome != PLACED:
        kind = "bad" if outcome == BAD_NODE else "non-suggested"
        node = state.topology.address(int(blocker))
        return Wait(f"have to use at least one {kind} node {node} when scheduling in {request.where}")
    if not request.is_guaranteed:
        return Placement(leaves, None)
    return map_placement(state, request, leaves)


def map_placement(state: State, request: Request, virtual: IntArray, within: int = NO_CELL) -> Placement | Wait:
    """Put physical cells behind a placement in the VC, lazily preempting what may be (rules 7)."""
    pod = request.pod
    before = mark(state)
    lazy = lazy_groups_below(state, virtual)
    state.last_plan = None
    if lazy:
        behind = state.cells.bound[state.arrays.root[virtual]]
        # kept for the event that carries the decision out, which must spare the same cells (rule 10.12)
        state.last_plan = (pod.spec.group.name, behind, virtual)
        preempt_lazily_for(state, lazy, behind, virtual, pod.spec.group.name)
    physical = np.empty(len(virtual), np.int32)
    if map_leaves(state.arrays, state.cells, virtual, request.suggested, request.ignore, within, physical):
        return Placement(physical, virtual, tuple(group.name for group in lazy))
    undo_changes(state, before)
    kind = "bad" if pod.spec.ignore_suggested_nodes else "bad or non-suggested"
    return Wait(
        f"Mapping the virtual placement would need to use at least one {kind} node"
        f" (virtual placement : {virtual_placement_text(state, virtual)})"
    )


def virtual_placement_text(state: State, virtual: IntArray) -> str:
    """`groups.virtual_placement` as compact JSON."""
    return json.dumps(virtual_placement(state, virtual), separators=(",", ":"), ensure_ascii=False)
