"""Marks on the picture: the cells of groups, as ranges of leaves."""

from hived_extender.http.pages.cells import Kind, marks_of
from tests.extender.machine.small_cluster import SmallCluster, spec_text


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
