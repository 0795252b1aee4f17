"""Counted free cells, against the core that is asked for as many, and for one more."""

from random import Random

import pytest

from hived.cells.state import State
from hived.life.status import copy_cells
from hived.scheduler import handle
from hived.values.decisions import Bind, Wait
from hived.values.errors import UserError
from hived.values.events import NodeHealthChanged, Phase, PodAllocated, ScheduleRequested
from hived.values.specs import PodRequest
from hived_config.loader import load_text
from hived_extender.api.waiting import FreeCells, leaf_rows
from hived_extender.insight.free_cells import free_cells
from tests.core.builders import healthy_state, pod, quota, rack_cluster
from tests.property.false_waits import KINDS, World, change, new_world, random_group, small_spec

STEPS = 8


def rows_of(state: State, vc: str) -> dict[str, FreeCells]:
    return {row.level: row for row in free_cells(state) if row.vc == vc}


def run(state: State, request: PodRequest) -> None:
    """The group starts."""
    decision = handle(state, ScheduleRequested(request, Phase.FILTERING))
    assert isinstance(decision, Bind)
    handle(state, PodAllocated(request, decision.bind_info))


def starts(world: World, row: FreeCells, count: int) -> bool:
    """Would a gang for so many whole cells start at once, once opportunistic jobs have left?"""
    asked = pod("probe", vc=row.vc, members=((count, row.leaves),), pinned_cell_id=row.pinned)
    if row.level == "RACK":
        asked = pod("probe", vc=row.vc, members=((2, 4),), pinned_cell_id=row.pinned, within_cell="RACK")
    try:
        return not isinstance(world.ask(asked, None), Wait)
    except UserError:  # more than the cluster has
        return False


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(40))
def test_the_core_starts_as_many_whole_cells_as_are_counted_and_no_more(seed: int) -> None:
    source = Random(seed)
    world = new_world(small_spec(source, KINDS[seed % len(KINDS)], combines=False))
    for _ in range(STEPS):
        change(source, world, 0.1)
        if source.random() < 0.5:
            node = source.choice(world.state.topology.node_names)
            world.set_health(node, is_healthy=node in world.facts.bad)
        group = random_group(source, world, has_wishes=False)
        decision = world.ask(group, None)
        if isinstance(decision, Bind):
            world.bind(group, decision)
        for row in free_cells(world.state):
            assert row.promised == row.in_use + row.free + row.bad
            assert 0 <= row.lent <= row.free
            assert row.bad >= 0
            if row.level == "RACK":
                assert not row.promised or starts(world, row, 1) == (row.free > 0), row
                continue
            assert not row.free or starts(world, row, row.free), row
            # smaller cells in pieces may do for pods of their size, but not for whole nodes
            assert row.level != "NODE" or not starts(world, row, row.free + 1), row


def test_lent_cells_are_free_and_counted_as_lent_and_borrowed() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("o", vc="B", priority=-1, members=((3, 2),)))
    own, other = rows_of(state, "A")["NODE"], rows_of(state, "B")["NODE"]
    assert (own.free, own.lent, own.in_use, own.borrowed) == (2, 1, 0, 0)
    assert (other.free, other.lent, other.borrowed) == (2, 1, 3)


def test_a_bad_cell_that_a_job_uses_is_in_use_and_told_as_bad() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("g", vc="A", priority=0, members=((1, 2),)))
    held = state.groups["g"].physical[0]
    handle(state, NodeHealthChanged(state.topology.node_names[state.arrays.node[held]], is_healthy=False))
    rows = rows_of(state, "A")
    assert (rows["GPU"].in_use, rows["GPU"].in_use_bad, rows["GPU"].bad) == (2, 2, 0)
    assert (rows["NODE"].in_use, rows["NODE"].in_use_bad) == (1, 1)


def test_a_cell_in_use_in_part_is_in_use_and_its_smaller_cells_are_free() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("g", vc="A", priority=0, members=((1, 1),)))
    rows = rows_of(state, "A")
    assert (rows["NODE"].in_use, rows["NODE"].free) == (1, 1)
    assert (rows["GPU"].in_use, rows["GPU"].free, rows["GPU"].promised) == (1, 3, 4)


def test_bad_nodes_are_missed_only_where_the_rest_is_too_little() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": 2}), quota("B", {"RACK.NODE": 1})))
    handle(state, NodeHealthChanged("n0", False))
    assert (rows_of(state, "A")["NODE"].free, rows_of(state, "A")["NODE"].bad) == (2, 0)
    handle(state, NodeHealthChanged("n1", False))
    handle(state, NodeHealthChanged("n2", False))
    assert (rows_of(state, "A")["NODE"].free, rows_of(state, "A")["NODE"].bad) == (1, 1)


def test_racks_are_counted_as_a_whole() -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 2})))
    run(state, pod("g", vc="A", priority=0, members=((1, 2),)))
    rows = rows_of(state, "A")
    assert (rows["RACK"].free, rows["NODE"].free, rows["GPU"].free) == (1, 3, 6)


def test_pinned_cells_have_rows_of_their_own() -> None:
    spec = rack_cluster(quota("A", {"RACK.NODE": 1}, ("pin",)), quota("B", {}), pins={"n3": "pin"})
    found = [(row.level, row.pinned, row.free) for row in free_cells(healthy_state(spec)) if row.vc == "A"]
    assert found == [("NODE", "", 1), ("GPU", "", 2), ("NODE", "pin", 1), ("GPU", "pin", 2)]


def test_a_copy_of_the_cells_gives_the_same_rows() -> None:
    state = healthy_state(rack_cluster())
    run(state, pod("g", vc="A", priority=0, members=((1, 1),)))
    assert free_cells(copy_cells(state)) == free_cells(state)


ONE_GPU_NODES = """\
physicalCluster:
  cellTypes:
    T4-NODE: {childCellType: T4, childCellNumber: 1, isNodeLevel: true}
    T4-RACK: {childCellType: T4-NODE, childCellNumber: 1}
    A10-NODE: {childCellType: A10, childCellNumber: 2, isNodeLevel: true}
    TWIN: {childCellType: A10, childCellNumber: 1, isNodeLevel: true}
  physicalCells:
  - {cellType: T4-RACK, cellChildren: [{cellAddress: t0}]}
  - {cellType: T4-RACK, cellChildren: [{cellAddress: t1}]}
  - {cellType: T4-RACK, cellChildren: [{cellAddress: t2}], pinnedCellId: own}
  - {cellType: T4-RACK, cellChildren: [{cellAddress: t3}], pinnedCellId: other}
  - {cellType: A10-NODE, cellAddress: a0}
  - {cellType: TWIN, cellAddress: w0}
virtualClusters:
  A:
    virtualCells: [{cellType: T4-RACK, cellNumber: 1}, {cellType: A10-NODE, cellNumber: 1}]
    pinnedCells: [{pinnedCellId: own}, {pinnedCellId: other}]
  B:
    virtualCells: [{cellType: T4-RACK.T4-NODE, cellNumber: 1}, {cellType: TWIN, cellNumber: 1}]
"""


def test_leaf_cells_count_once_where_larger_cells_have_one_each() -> None:
    state = healthy_state(load_text(ONE_GPU_NODES, "one.yaml", environ={}).cluster)
    rows = leaf_rows(free_cells(state))
    assert {row.level for row in rows} == {"T4", "A10"}
    totals = {vc: sum(row.promised for row in rows if row.vc == vc) for vc in ("A", "B")}
    assert totals == {"A": 1 + 2 + 2, "B": 1 + 1}
    run(state, pod("o", vc="B", priority=-1, members=((2, 1),), leaf_cell_type="T4"))
    assert sum(row.borrowed for row in leaf_rows(free_cells(state)) if row.vc == "B") == 2
