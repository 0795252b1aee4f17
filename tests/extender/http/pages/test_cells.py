"""Cells on pages: keys and counts as the state says, one copy for all pages, bytes on the wire, and marks of groups."""

import struct
import threading
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hived.cells.topology import NO_CELL
from hived.life.status import copy_cells
from hived.values.errors import UserError
from hived_extender.http.pages.cells import (
    FRESH_S,
    MOST_RANGES,
    MOST_VCS,
    CellRange,
    Frame,
    Frames,
    Kind,
    Use,
    is_bad,
    leaf_keys,
    marks_of,
    names,
    read_ranges,
    runs_of,
    tiles,
    use_of,
    vc_of,
)
from hived_extender.machine.verbs import NotLeadingError
from tests.extender.machine.small_cluster import SmallCluster, preempt_args, spec_text


def looks(small: SmallCluster) -> list[tuple[Use, str, bool]]:
    cells = copy_cells(small.state)
    (keys,) = leaf_keys(cells)
    return [
        (use_of(key), cells.vc_names[vc_of(key)] if vc_of(key) != NO_CELL else "", is_bad(key)) for key in keys.tolist()
    ]


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ([], [(Use.FREE, "", False)] * 16),
        ([spec_text(leaf_cells=2)], [(Use.USED, "a", False)] * 2 + [(Use.FREE, "", False)] * 14),
        ([spec_text(vc="b", leaf_cells=4, priority=-1)], [(Use.LENT, "b", False)] * 4 + [(Use.FREE, "", False)] * 12),
    ],
    ids=["idle", "guaranteed", "opportunistic"],
)
def test_cells_show_their_use_and_their_user(specs: list[str], expected: list[tuple[Use, str, bool]]) -> None:
    small = SmallCluster()
    for spec in specs:
        small.place("p", spec)
    assert sorted(looks(small)) == sorted(expected)


def test_cells_of_a_bad_node_are_bad_whether_in_use_or_not() -> None:
    small = SmallCluster(bad_nodes=("n3",))
    assert looks(small)[12:] == [(Use.FREE, "", True)] * 4
    assert not any(each[2] for each in looks(small)[:12])


def test_a_preemptor_reserves_the_cells_of_its_victims() -> None:
    small = SmallCluster()
    for name in ("low-0", "low-1"):
        small.place(name)
    pod = small.create("high", spec_text(priority=1))
    small.filter(pod)
    assert [use for use, _, _ in looks(small)].count(Use.RESERVED) == 0, "filter alone reserves nothing"
    small.service.preempt_victims(preempt_args(pod, ["n0"]))
    assert [use for use, _, _ in looks(small)].count(Use.RESERVED) == 4


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.integers(1, 4), st.randoms(use_true_random=False))
def test_runs_count_every_leaf_of_every_cell_once(kinds: list[int], leaf_count: int, random: Random) -> None:
    cells = 5
    keys = np.array([random.choice(kinds) for _ in range(cells * leaf_count)], np.uint16)
    runs = runs_of(keys, leaf_count)
    start = 0
    for cell, length in enumerate(runs.lengths.tolist()):
        own = sorted(keys[cell * leaf_count : (cell + 1) * leaf_count].tolist())
        found = list(
            zip(runs.keys[start : start + length].tolist(), runs.counts[start : start + length].tolist(), strict=True)
        )
        assert found == [(key, own.count(key)) for key in sorted(set(own))]
        start += length
    assert start == len(runs.keys)


def test_keys_ascend_as_they_are_drawn() -> None:
    assert Use.USED < Use.RESERVED < Use.LENT < Use.FREE
    assert MOST_VCS == 1023


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_callers_share_a_copy_for_a_while_and_then_see_what_has_changed() -> None:
    small, clock = SmallCluster(), Clock()
    frames = Frames(small.service.reader, clock)
    first = frames.latest()
    clock.now_s += 10 * FRESH_S
    assert frames.latest() is first  # nothing is copied while nothing changes
    small.place("p")
    assert frames.latest() is first
    clock.now_s += FRESH_S
    second = frames.latest()
    assert second is not first
    assert second.version != first.version
    assert second.layout is first.layout
    small.place("q")
    clock.now_s -= 1000
    assert frames.latest() is not second  # a clock that goes back stops no page


def test_a_tile_is_made_once_for_all_who_look_at_it() -> None:
    frame = Frames(SmallCluster().service.reader).latest()
    wanted = CellRange(0, 3, 0, 4)
    assert frame.runs(wanted) is frame.runs(CellRange(0, 3, 0, 4))


def test_many_threads_get_the_same_copy() -> None:
    frames = Frames(SmallCluster().service.reader, Clock())
    found = []
    threads = [threading.Thread(target=lambda: found.append(frames.latest())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(each) for each in found}) == 1
    assert len(found) == 8


def test_the_layout_has_the_shape_of_every_chain() -> None:
    layout = Frames(SmallCluster().service.reader).latest().layout
    (chain,) = layout.chains
    assert (chain.name, chain.types, chain.children) == ("RACK", ("GPU", "PAIR", "NODE", "RACK"), (0, 2, 2, 4))
    assert (chain.node, chain.roots, layout.vcs, layout.letters) == (2, 1, ("a", "b", "empty"), ("A", "B", "E"))


def test_a_replica_that_does_not_lead_has_no_cells_to_show() -> None:
    with pytest.raises(NotLeadingError):
        Frames(SmallCluster(is_leading=False).service.reader).latest()


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


def test_a_group_is_marked_in_as_few_ranges_as_its_cells_stand_in() -> None:
    small = SmallCluster()
    small.place("p", spec_text(leaf_cells=2))
    small.place("q", spec_text(group="g", leaf_cells=4))
    small.place("r", spec_text(leaf_cells=1))
    (group,) = (name for name in small.groups() if name.endswith("g"))
    ((chain, first, end, kind),) = marks_of(small.state, {group: Kind.LOST})
    assert (chain, end - first, kind) == (0, 4, Kind.LOST)


def test_cells_that_do_not_stand_together_have_marks_of_their_own() -> None:
    small = SmallCluster()
    small.place("p", spec_text(group="g", leaf_cells=1, pods=2, members=None))
    names = list(small.groups())
    assert sum(end - first for _, first, end, _ in marks_of(small.state, dict.fromkeys(names, Kind.CHOSEN))) == len(
        [cell for name in names for cell in small.state.groups[name].physical if cell >= 0]
    )


def test_a_group_that_is_gone_has_no_marks() -> None:
    assert marks_of(SmallCluster().state, {"ns:none": Kind.HARMED}) == []
