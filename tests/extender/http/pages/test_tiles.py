"""Cells on the wire: bytes that mean what the state is, and refusals of ranges that nobody has."""

import struct

import pytest

from hived.values.errors import UserError
from hived_extender.http.pages.cells import MOST_RANGES, CellRange, Frame, Frames, Use, names, read_ranges, tiles
from tests.extender.machine.small_cluster import SmallCluster, spec_text

Tile = tuple[tuple[int, int, int], list[list[tuple[int, int]]]]


def frame_of(small: SmallCluster) -> Frame:
    return Frames(small.service.reader).latest()


def decoded(body: bytes) -> list[Tile]:
    """As the script of the page reads it."""
    found, at = [], 0
    while at < len(body):
        chain, level, first, cells, runs = struct.unpack_from("<5I", body, at)
        counts = struct.unpack_from(f"<{runs}I", body, at + 20)
        keys = struct.unpack_from(f"<{runs}H", body, at + 20 + 4 * runs)
        lengths = struct.unpack_from(f"<{cells}H", body, at + 20 + 6 * runs)
        pairs = iter(zip(keys, counts, strict=True))
        found.append(((chain, level, first), [[next(pairs) for _ in range(length)] for length in lengths]))
        assert next(pairs, None) is None
        at += -(-(20 + 6 * runs + 2 * cells) // 4) * 4
    assert at == len(body)
    return found


FREE = Use.FREE << 10
USED_BY_A = 1


def test_tiles_have_the_cells_of_each_range_in_order() -> None:
    small = SmallCluster()
    small.place("p", spec_text(leaf_cells=2))
    body = tiles(frame_of(small), read_ranges("0.3.0-2,0.1.1-4,0.4.0-1"))
    assert decoded(body) == [
        ((0, 3, 0), [[(USED_BY_A, 2), (FREE, 2)], [(FREE, 4)]]),
        ((0, 1, 1), [[(USED_BY_A, 1)], [(FREE, 1)], [(FREE, 1)]]),
        ((0, 4, 0), [[(USED_BY_A, 2), (FREE, 14)]]),
    ]


def test_names_are_the_last_parts_of_addresses() -> None:
    assert names(frame_of(SmallCluster()), read_ranges("0.3.1-4")) == [["n1", "n2", "n3"]]


@pytest.mark.parametrize(
    "text", ["", "0", "0.1", "0.1.0", "0.1.0-", "a.1.0-1", "0.1.0-1,", "0.1.-1-2", "0.1.0-1 ", "٣.1.0-1"]
)
def test_a_question_that_is_no_list_of_ranges_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"CHAIN\.LEVEL\.FIRST-END"):
        read_ranges(text)


def test_more_than_a_screen_holds_is_refused() -> None:
    with pytest.raises(UserError, match="at most 64 ranges"):
        read_ranges(",".join(["0.1.0-1"] * (MOST_RANGES + 1)))
    with pytest.raises(UserError, match="at most 131072 cells"):
        read_ranges("0.1.0-99999999")


@pytest.mark.parametrize(
    "wanted",
    [
        CellRange(1, 1, 0, 1),
        CellRange(0, 0, 0, 1),
        CellRange(0, 5, 0, 1),
        CellRange(0, 1, 0, 17),
        CellRange(0, 1, 3, 3),
    ],
)
def test_cells_that_there_are_none_of_are_not_found(wanted: CellRange) -> None:
    with pytest.raises(UserError, match="load the page again") as error:
        tiles(frame_of(SmallCluster()), [wanted])
    assert error.value.code == 404
