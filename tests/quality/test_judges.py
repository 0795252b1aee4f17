"""The judges: cases by hand, against all that the core does, and filters that prove nothing that trying refutes."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from hived.values.specs import Rules
from tests.core.builders import quota, rack_cluster
from tests.quality import large
from tests.quality.exhaustive import Found, Wanted, cheapest_victims, exists, may_evict, own_form, placements
from tests.quality.filters import Hall, equal_one_is_clean, lowest_level
from tests.quality.large import NODES, Workload, trace_workload
from tests.quality.plain import OPPORTUNISTIC, Facts, Plain, Running, is_safe
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


HEAD = "job,tenant,submitted_s,duration_s,gpus\n"


def workload(folder: Path, rows: str, load: float = 0.5) -> Workload:
    (folder / "jobs.csv").write_text(HEAD + rows)
    return trace_workload(str(folder / "jobs.csv"), load)


def test_arrivals_are_moved_to_the_load_and_durations_stay(tmp_path: Path) -> None:
    jobs, nodes, notes = workload(tmp_path, "a,x,0,600,8\nb,x,7,600,8\nc,y,100,600,8\n")
    assert [(job.duration, job.sizes) for job in jobs] == [(600.0, (8,))] * 3
    assert jobs[2].submitted * NODES * 8 * 0.5 == pytest.approx(3 * 8 * 600)
    assert jobs[1].submitted / jobs[2].submitted == pytest.approx(0.07)
    assert sum(nodes.values()) == NODES
    assert notes == ()


def test_jobs_without_a_tenant_have_a_vc(tmp_path: Path) -> None:
    assert set(workload(tmp_path, "a,,0,600,8\nb,,9,600,8\n").nodes) == {"default"}


def test_what_is_left_out_or_joined_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "MOST_VCS", 2)
    monkeypatch.setattr(large, "MOST_JOBS", 4)
    rows = "a,a,0,9,8\nb,b,1,8,8\nc,c,2,7,8\n"
    jobs, nodes, notes = workload(tmp_path, rows + "d,c,7,1,2496\ne,c,9,1,8\n")
    assert {job.vc for job in jobs} == set(nodes) == {"c", "others"}
    assert [job.name for job in jobs] == ["j0", "j1", "j2"]
    assert notes == (
        "4 of 5 jobs, the first ones whose pods fit on a node",
        "the smallest 2 tenants are one VC",
        "1 jobs are larger than their VC, and left out",
    )
