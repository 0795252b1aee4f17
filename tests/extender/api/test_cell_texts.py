"""Texts of cells: the same bytes as the encoded mappings of `hived.life.status`, in any state."""

import random
from itertools import chain

import pytest

from hived.cells.state import State
from hived.life import status
from hived.values.errors import UserError
from hived_config.loader import load_text
from hived_extender.api import cell_texts
from hived_extender.api.cell_texts import CellTexts
from hived_extender.jobs.wire import encode
from hived_extender.machine.core import Core
from tests.extender.machine.small_cluster import NODES, SmallCluster, node, spec_text

NAMED = """\
physicalCluster:
  cellTypes:
    PAIR: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 2}
    ROW: {childCellType: RACK, childCellNumber: 2}
  physicalCells:
  - cellType: ROW
    cellAddress: 'a "row"'
    cellChildren:
    - {cellAddress: é, cellChildren: [{cellAddress: n0}, {cellAddress: n1}]}
    - cellChildren: [{cellAddress: n2}, {cellAddress: n3, cellChildren: [{cellAddress: '7'}, {}]}]
  - {cellType: ROW, cellChildren: [{cellChildren: [{cellAddress: m0}, {}]}, {}]}
virtualClusters:
  a:
    virtualCells: [{cellType: ROW.RACK.NODE, cellNumber: 2}, {cellType: ROW.RACK, cellNumber: 1}]
  b:
    virtualCells: [{cellType: ROW, cellNumber: 1}]
"""


def named_state() -> State:
    """Two rows of four nodes; all are bad, as none has been seen."""
    return Core(load_text(NAMED, "named.yaml", environ={}).cluster, None, int, id).state


def check(cells: status.CellStatus) -> None:
    """Compare both ways to describe all cells."""
    texts = CellTexts(cells)
    assert b"".join(texts.physical_cluster()) == encode(list(status.iter_physical_cluster(cells)))
    for vc in texts.vc_names:
        assert b"".join(texts.virtual_cluster(vc)) == encode(list(status.iter_virtual_cluster(cells, vc)))


@pytest.mark.parametrize("seed", range(5))
def test_texts_are_those_of_the_encoded_mappings(seed: int) -> None:
    rng, small = random.Random(seed), SmallCluster()
    for number in range(12):
        vc, leaf_cells, priority = rng.choice("ab"), rng.choice((1, 2, 4)), rng.choice((-1, 0, 5))
        small.filter(small.create(f"p{number}", spec_text(vc=vc, leaf_cells=leaf_cells, priority=priority)))
        if rng.random() < 0.3:
            small.service.node_seen(node(rng.choice(NODES), is_ready=rng.random() < 0.5))
        check(small.service.reader.cells())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 15])
def test_slices_of_any_size_make_the_same_text(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(cell_texts, "SLICE", size)
    check(status.copy_cells(named_state()))


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_slice_has_few_cells_and_those_bound_to_them(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(cell_texts, "SLICE", size)
    texts = CellTexts(status.copy_cells(named_state()))
    slices = chain(texts.physical_cluster(), *(texts.virtual_cluster(vc) for vc in texts.vc_names))
    assert max(each.count(b'"cellAddress"') for each in slices) <= 2 * size


def test_addresses_are_the_same_one_by_one_and_together() -> None:
    one, other = named_state(), named_state()
    check(status.copy_cells(one))
    count = len(one.topology.arrays.parent)
    assert [one.topology.address(cell) for cell in range(count)] == [
        other.topology.address(cell) for cell in range(count)
    ]


def test_an_unknown_vc_is_an_error_at_once() -> None:
    with pytest.raises(UserError, match="VC none not found"):
        CellTexts(SmallCluster().service.reader.cells()).virtual_cluster("none")
