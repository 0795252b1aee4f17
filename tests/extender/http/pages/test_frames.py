"""One copy of the cells for all pages."""

import threading

import pytest

from hived_extender.http.pages.cells import FRESH_S, CellRange, Frames
from hived_extender.machine.verbs import NotLeadingError
from tests.extender.machine.small_cluster import SmallCluster


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_callers_share_a_copy_for_a_while_and_then_see_what_has_changed() -> None:
    small, clock = SmallCluster(), Clock()
    frames = Frames(small.service.reader, clock)
    first = frames.latest()
    small.place("p")
    assert frames.latest() is first
    clock.now_s += FRESH_S
    second = frames.latest()
    assert second is not first
    assert second.version != first.version
    assert second.layout is first.layout


def test_nothing_is_copied_while_nothing_changes() -> None:
    clock = Clock()
    frames = Frames(SmallCluster().service.reader, clock)
    first = frames.latest()
    clock.now_s += 10 * FRESH_S
    assert frames.latest() is first


def test_a_clock_that_goes_back_does_not_stop_the_pages() -> None:
    small, clock = SmallCluster(), Clock()
    frames = Frames(small.service.reader, clock)
    first = frames.latest()
    small.place("p")
    clock.now_s -= 1000
    assert frames.latest() is not first


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
