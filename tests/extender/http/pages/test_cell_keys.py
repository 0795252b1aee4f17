"""Looks of cells: leaf by leaf as the state says, and larger cells as the sum of their leaves."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hived.cells.topology import NO_CELL
from hived.life.status import copy_cells
from hived_extender.http.pages.cells import MOST_VCS, Use, is_bad, leaf_keys, runs_of, use_of, vc_of
from tests.extender.machine.small_cluster import SmallCluster, preempt_args, spec_text


def looks(small: SmallCluster) -> list[tuple[Use, str, bool]]:
    cells = copy_cells(small.state)
    (keys,) = leaf_keys(cells)
    return [
        (use_of(key), cells.vc_names[vc_of(key)] if vc_of(key) != NO_CELL else "", is_bad(key)) for key in keys.tolist()
    ]


def test_an_idle_cluster_is_free() -> None:
    assert looks(SmallCluster()) == [(Use.FREE, "", False)] * 16


def test_a_guaranteed_job_uses_cells_in_the_name_of_its_virtual_cluster() -> None:
    small = SmallCluster()
    small.place("p", spec_text(leaf_cells=2))
    assert looks(small) == [(Use.USED, "a", False)] * 2 + [(Use.FREE, "", False)] * 14


def test_an_opportunistic_job_is_lent_its_cells() -> None:
    small = SmallCluster()
    small.place("p", spec_text(vc="b", leaf_cells=4, priority=-1))
    assert sorted(set(looks(small))) == [(Use.LENT, "b", False), (Use.FREE, "", False)]


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
