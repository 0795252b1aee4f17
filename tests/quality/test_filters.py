"""The filters prove nothing that trying every placement refutes."""

from itertools import product

import pytest

from hived.specs import Rules
from tests.core.builders import quota, rack_cluster
from tests.quality.exhaustive import Found, Wanted, exists, own_form, placements
from tests.quality.filters import Hall, equal_one_is_clean, lowest_level
from tests.quality.plain import OPPORTUNISTIC, Facts, Plain, Running
from tests.quality.small import KINDS, Load, walk


@pytest.mark.parametrize("kind", ["NODE", "RACK"])
def test_a_level_that_the_filter_finds_has_a_placement_and_few_are_missed(kind: str) -> None:
    found = missed = 0
    for seed in range(8):
        for asked in walk(kind, Rules.HIVED, Load(bad=5), seed, 40):
            hall = Hall(asked.before.plain)
            if len(set(asked.wanted.sizes)) > 1:
                continue
            level = lowest_level(hall, asked.before, asked.wanted, hall.top_level + 2)
            every = [
                asked.before.plain.common_level(leaf for pod in each.pods for leaf in pod)
                for each in placements(asked.before, asked.wanted)
            ]
            best = max(min(every), hall.node_level) if every else None
            assert level is None or (best is not None and best <= level)
            found += level is not None and level == best
            missed += level != best
    assert found > 20 * missed


def test_an_equal_placement_that_the_filter_finds_exists_and_few_are_missed() -> None:
    found = missed = 0
    for kind, seed in product(KINDS, range(12)):
        for asked in walk(kind, Rules.HIVED, Load(), seed, 40):
            running, before = asked.answer.running, asked.before
            if not asked.answer.victims or running is None:
                continue
            form = own_form(before, asked.wanted, Found(running.pods, running.roots))
            exact = any(own_form(before, asked.wanted, each) == form for each in placements(before, asked.wanted))
            proved = equal_one_is_clean(before, running)
            assert exact or not proved
            found += proved
            missed += exact and not proved
    assert found > 5 * missed


def test_a_group_within_a_rack_has_no_equal_place_in_another_one() -> None:
    facts = Facts(Plain(rack_cluster(quota("A", {"RACK.NODE": 4}))))
    leaf = facts.plain.leaf_at["RACK", "n0", 0]
    node = facts.plain.above(leaf, facts.plain.level_of("NODE"))
    for name in ("n0", "n1"):
        facts.add(Running(name, "A", -1, ((facts.plain.leaf_at["RACK", name, 0],),), frozenset()))
    running = Running("g", "A", 0, (facts.plain.leaves[node],), frozenset({node}))
    assert equal_one_is_clean(facts, running)
    assert not equal_one_is_clean(facts, running, "RACK")
    hall = Hall(facts.plain)
    assert lowest_level(hall, facts, Wanted("g", "A", 0, (2,) * 3), 9) is None
    assert lowest_level(hall, facts, Wanted("g", "A", 0, (1,) * 3), 9) == hall.top_level
    assert lowest_level(hall, facts, Wanted("g", "A", 0, (1,) * 5, within="RACK"), 9) is None
    assert lowest_level(hall, facts, Wanted("g", "A", 0, (1,) * 5), 9) == hall.top_level + 1


def test_opportunistic_groups_need_no_right() -> None:
    for asked in walk("PAIR", Rules.HIVED, Load(opportunistic=100), 1, 40):
        if asked.wanted.priority == OPPORTUNISTIC and len(set(asked.wanted.sizes)) == 1:
            hall = Hall(asked.before.plain)
            found = lowest_level(hall, asked.before, asked.wanted, hall.top_level + 2)
            assert (found is not None) == exists(asked.before, asked.wanted)
