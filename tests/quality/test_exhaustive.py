"""The judge of small clusters: cases by hand, and against all that the core does."""

from typing import Any

import pytest

from hived.specs import Rules
from tests.core.builders import quota, rack_cluster
from tests.quality.exhaustive import Found, Wanted, cheapest_victims, exists, may_evict, own_form, placements
from tests.quality.plain import Facts, Plain, Running, is_safe
from tests.quality.small import KINDS, Load, walk


def facts_of(*vcs: Any, **size: Any) -> Facts:
    return Facts(Plain(rack_cluster(*vcs, **size)))


def leaves(facts: Facts, node: str, *devices: int) -> tuple[int, ...]:
    return tuple(facts.plain.leaf_at["RACK", node, device] for device in devices)


def root(facts: Facts, node: str, kind: str) -> int:
    return facts.plain.above(leaves(facts, node, 0)[0], facts.plain.level_of(kind))


def test_a_node_is_not_taken_from_the_last_rack_that_somebody_is_promised() -> None:
    facts = facts_of(quota("A", {"RACK": 1}), quota("B", {"RACK.NODE": 2}))
    assert is_safe(facts, {root(facts, "n0", "NODE"): "B", root(facts, "n1", "NODE"): "B"})
    assert not is_safe(facts, {root(facts, "n0", "NODE"): "B", root(facts, "n2", "NODE"): "B"})


def test_more_cells_than_promised_are_not_safe() -> None:
    facts = facts_of(quota("A", {"RACK.NODE": 1}))
    assert not is_safe(facts, {root(facts, "n0", "NODE"): "A", root(facts, "n1", "NODE"): "A"})


def test_every_place_of_a_pod_is_found_once() -> None:
    facts = facts_of()
    found = list(placements(facts, Wanted("g", "A", 0, (1,))))
    assert {facts.plain.node[each.pods[0][0]] for each in found} == {"n0", "n1", "n2", "n3"}
    assert len(found) == 4


def test_a_lent_cell_is_free_only_for_those_who_may_evict() -> None:
    facts = facts_of(quota("A", {"RACK.NODE": 4}))
    for node in ("n0", "n1", "n2", "n3"):
        facts.add(Running(node, "A", -1, (leaves(facts, node, 0),), frozenset()))
    wanted = Wanted("g", "A", 0, (2,))
    assert not exists(facts, wanted)
    assert exists(facts, wanted, may_evict(facts, wanted))
    assert not exists(facts, Wanted("g", "A", -1, (2,)), may_evict(facts, Wanted("g", "A", -1, (2,))))


def test_the_cheapest_victims_are_found() -> None:
    facts = facts_of(quota("A", {"RACK.NODE": 4}))
    for cost, node in ((3, "n0"), (2, "n1"), (4, "n2"), (5, "n3")):
        facts.add(Running(node, "A", -1, (leaves(facts, node, 0),), frozenset(), float(cost)))
    found = cheapest_victims(facts, Wanted("g", "A", 0, (2, 2)), lambda group: group.started)
    assert found == (5.0, frozenset({"n0", "n1"}))


def test_swapping_empty_cells_leaves_the_own_form_as_it_is_and_another_mate_does_not() -> None:
    facts = facts_of()
    facts.add(Running("old", "A", 0, (leaves(facts, "n0", 0),), frozenset({root(facts, "n0", "NODE")})))
    wanted = Wanted("g", "A", 0, (1,))
    forms = {facts.plain.node[each.pods[0][0]]: own_form(facts, wanted, each) for each in placements(facts, wanted)}
    assert forms["n1"] == forms["n2"] == forms["n3"] != forms["n0"]


def test_cells_of_one_group_are_not_the_same_for_the_future() -> None:
    facts = facts_of()
    two = (leaves(facts, "n0", 0), leaves(facts, "n1", 0))
    facts.add(Running("old", "A", 0, two, frozenset(root(facts, node, "NODE") for node in ("n0", "n1"))))
    wanted = Wanted("g", "A", 0, (1,))
    forms = {facts.plain.node[each.pods[0][0]]: own_form(facts, wanted, each) for each in placements(facts, wanted)}
    assert forms["n0"] != forms["n1"]


def test_a_pod_larger_than_a_cell_needs_a_vc_that_combines() -> None:
    wanted = Wanted("g", "A", 0, (4,))
    for kind in ("PAIR",):
        for asked in walk(kind, Rules.HIVED, Load(opportunistic=0), 3, 1):
            assert not exists(asked.before, wanted)
            combined = Wanted("g", "A", 0, (4,), combines=True)
            claims = asked.before.claims(asked.before.owners(), "A")
            assert exists(asked.before, combined) == (sum(claims.values()) >= 2)


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_the_core_does_is_one_of_the_placements(kind: str) -> None:
    load = Load(mixed=30, bad=5, not_suggested=10, within=20)
    for seed in range(5):
        for asked in walk(kind, Rules.HIVED, load, seed, 40):
            if asked.answer.running is None:
                continue
            gone = frozenset(victim.name for victim in asked.answer.victims)
            placed = Found(asked.answer.running.pods, asked.answer.running.roots)
            form = own_form(asked.before, asked.wanted, placed, gone)
            may_take = may_evict(asked.before, asked.wanted) if gone else None
            found = placements(asked.before, asked.wanted, may_take)
            assert any(own_form(asked.before, asked.wanted, each, gone) == form for each in found), asked
