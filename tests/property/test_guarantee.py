"""The guarantee and its price under better rules, on small random clusters.

Groups of a virtual cluster start at the same moments as if it were alone on its cells, whatever others do. Nobody is
evicted where an equal choice evicts nobody, nor a group that loses more than another one would.
"""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from hived.life.invariants import broken_rule
from hived.values.specs import ClusterSpec, Rules
from tests.quality.exhaustive import Found, Wanted, cheapest_victims, exists, own_form, placements
from tests.quality.plain import OPPORTUNISTIC, Running
from tests.quality.play import Answer, Play
from tests.quality.small import KINDS, PINNED, Asked, Load, small_cluster, walk
from tests.quality.small import _group as random_group

SEEDS = range(14)


class Queue:
    """The groups of one virtual cluster that wait, in order; the first one that fits not lets none pass."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.waiting: list[Wanted] = []

    def serve(self) -> Iterator[str]:
        while self.waiting and self.play.ask(self.waiting[0]).kind != "wait":
            yield self.waiting.pop(0).name


def alone(spec: ClusterSpec, vc: str) -> ClusterSpec:
    """The cluster as it would be without the other virtual clusters."""
    return replace(spec, virtual_clusters={vc: spec.virtual_clusters[vc]})


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_groups_start_when_they_would_in_a_private_cluster(kind: str, seed: int) -> None:
    source = Random(f"{kind} {seed}")
    spec = small_cluster(kind, Rules.BETTER, source)
    shared, private = Play(spec), Play(alone(spec, "A"))
    queue, own = Queue(shared), Queue(private)
    for step in range(40):
        wanted = random_group(f"g{step}", spec, Load(opportunistic=40, mixed=20), source, shared.facts)
        if source.random() < 0.65:
            if wanted.vc == "A" and wanted.priority > OPPORTUNISTIC:
                queue.waiting.append(wanted)
                own.waiting.append(wanted)
            else:
                shared.ask(wanted)
        elif shared.facts.groups:
            name = source.choice(sorted(shared.facts.groups))
            shared.end(name)
            if name in private.facts.groups:
                private.end(name)
        assert list(queue.serve()) == list(own.serve())
        assert broken_rule(shared.state) is None


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", [*KINDS, PINNED])
@pytest.mark.parametrize("seed", range(5))
def test_groups_of_several_priorities_start_and_preempt_as_in_a_private_cluster(kind: str, seed: int) -> None:
    """A group that does not fit lets others pass; of its own VC the same groups leave."""
    source = Random(f"{kind} {seed} priorities")
    spec = small_cluster(kind, Rules.BETTER, source)
    shared, private = Play(spec), Play(alone(spec, "A"))
    waiting: list[Wanted] = []
    for step in range(40):
        wanted = random_group(f"g{step}", spec, Load(opportunistic=35, gangs=40, mixed=40), source, shared.facts)
        if source.random() < 0.35 and shared.facts.groups:
            name = source.choice(sorted(shared.facts.groups))
            shared.end(name)
            if name in private.facts.groups:
                private.end(name)
        elif wanted.vc == "A" and wanted.priority > OPPORTUNISTIC:
            waiting.append(replace(wanted, priority=source.choice([0, 0, 1, 5])))
        else:
            shared.ask(wanted, float(step))
        for one in list(waiting):
            answer, own = shared.ask(one, float(step)), private.ask(one, float(step))
            assert (answer.kind == "wait") == (own.kind == "wait")
            assert names_of_guaranteed(answer) == names_of_guaranteed(own)
            if answer.kind != "wait":
                waiting.remove(one)
        assert broken_rule(shared.state) is None


def names_of_guaranteed(answer: Answer) -> set[str]:
    """The victims in the VC of a group."""
    return {victim.name for victim in answer.victims if victim.priority > OPPORTUNISTIC}


@pytest.mark.sample(12)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_leaves_for_a_choice_that_is_equal_to_another_one(kind: str, seed: int) -> None:
    for asked in walk(kind, Rules.BETTER, Load(), seed, 25):
        assert broken_rule(asked.play.state) is None
        if asked.answer.kind == "wait":
            assert not exists(asked.before, asked.wanted)
        if asked.answer.kind == "preempt" and asked.answer.running is not None:
            check_victims(asked, asked.answer.running)


def check_victims(asked: Asked, running: Running) -> None:
    """No choice with the same future of the VC evicts nobody, or groups that lose less work."""
    before, wanted, victims = asked.before, asked.wanted, asked.answer.victims

    def loss(group: Running) -> float:
        return group.leaf_count * (asked.now - group.started)

    form = own_form(before, wanted, Found(running.pods, running.roots), frozenset(victim.name for victim in victims))
    assert all(own_form(before, wanted, found) != form for found in placements(before, wanted))
    best = cheapest_victims(before, wanted, loss, lambda found: own_form(before, wanted, found) == form)
    assert best is not None
    assert sum(map(loss, victims)) <= best[0]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kind", "seed"), [("RACK", 16), ("RACK", 51), ("RACK", 70), ("RACK", 73), ("MIX", 77), ("MIX", 97), ("NODE", 1)]
)
def test_nobody_leaves_beside_bad_nodes_for_a_choice_that_is_equal_to_another_one(kind: str, seed: int) -> None:
    for asked in walk(kind, Rules.BETTER, Load(bad=4, not_suggested=25), seed, 60):
        assert broken_rule(asked.play.state) is None
        if asked.answer.victims and asked.answer.running is not None:
            placed = Found(asked.answer.running.pods, asked.answer.running.roots)
            form = own_form(asked.before, asked.wanted, placed)
            found = placements(asked.before, asked.wanted)
            assert all(own_form(asked.before, asked.wanted, each) != form for each in found)


@pytest.mark.sample(8)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_a_sparing_vc_evicts_only_if_no_placement_at_all_evicts_nobody(kind: str, seed: int) -> None:
    source = Random(f"{kind} {seed}")
    spec = small_cluster(kind, Rules.BETTER, source)
    vcs = {name: replace(vc, spares=True) for name, vc in spec.virtual_clusters.items()}
    play = Play(replace(spec, virtual_clusters=vcs))
    for step in range(25):
        if play.facts.groups and source.random() < 0.4:
            play.end(source.choice(sorted(play.facts.groups)))
            continue
        wanted = random_group(f"g{step}", spec, Load(), source, play.facts)
        has_place = exists(play.facts, wanted)
        answer = play.ask(wanted)
        assert (answer.kind == "bind") == has_place
