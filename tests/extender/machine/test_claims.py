"""Claims are played once for many requests, with the same outcome as for each alone (rule 31.7)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from hived.cells.state import State
from hived.scenario import Asked, Scenario, least_prefix
from hived.scheduler import handle
from hived.values.decisions import Bind
from hived.values.events import PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import PodRequest, Rules
from hived_extender.machine.claims import Afterwards, Claim, Stage, met
from tests.core.builders import fingerprint, healthy_state, pod, rack_cluster
from tests.long import batches


@dataclass
class Cluster:
    """See `claims.Present`."""

    state: State
    version: int = 0
    now_s: float | None = None

    def take(self, wanted: PodRequest) -> bool:
        """Let a pod have cells if some are free."""
        found = handle(self.state, ScheduleRequested(wanted))
        if isinstance(found, Bind):
            self.version += 1
            handle(self.state, PodAllocated(wanted, found.bind_info))
        return isinstance(found, Bind)

    def leave(self, gone: PodRequest) -> None:
        """A pod is gone."""
        self.version += 1
        handle(self.state, PodDeleted(gone))


def some_pod(source: Random, name: str) -> PodRequest:
    return pod(
        name, vc=source.choice("AB"), priority=source.choice([-1, -1, 0]), members=((1, source.choice([1, 2, 4])),)
    )


def busy(source: Random, count: int) -> tuple[Cluster, list[PodRequest]]:
    """A cluster with some pods, a few of which have left again."""
    cluster = Cluster(healthy_state(replace(rack_cluster(racks=3, gpus=4), rules=Rules.BETTER)))
    present = [one for one in (some_pod(source, f"p{i}") for i in range(count)) if cluster.take(one)]
    for gone in source.sample(present, len(present) // 4):
        cluster.leave(gone)
        present.remove(gone)
    return cluster, present


def some_claims(source: Random, present: list[PodRequest]) -> list[Claim]:
    leaving = source.sample(present, 4)
    return [Claim(Asked(some_pod(source, f"c{i}")), leaving[2 * i : 2 * i + 2]) for i in range(2)]


def met_on_copies(
    cluster: Cluster, claims: Sequence[Claim], first: Asked | None = None
) -> tuple[list[bool], list[bool]]:
    """Which claims get their cells one by one, and which if all leave together, on copies of the state."""

    def starts(state: Scenario, asked: Asked) -> bool:
        return isinstance(state.start(asked), Bind)

    found = list[bool](), list[bool]()
    for together, answers in zip((False, True), found, strict=True):
        state = Scenario.copied(cluster.state)
        if first is not None:
            state.start(first)
        if together:
            state.leave(one for claim in claims for one in claim.leaving)
        for claim in claims:
            state.leave(claim.leaving)
            answers.append(claim.asked is None or starts(state, claim.asked))
    return found


def test_claims_are_met_as_on_copies_and_nothing_changes() -> None:
    disturbed = differing = 0
    for seed in range(40):
        source = Random(seed)
        cluster, present = busy(source, 16)
        claims = some_claims(source, present)
        before = met(cluster, claims)
        for number in range(6):
            first = Asked(some_pod(source, f"f{number}"))
            known, expected = fingerprint(cluster.state), met_on_copies(cluster, claims, first)
            assert met(cluster, claims, first) == expected, seed
            assert fingerprint(cluster.state) == known, seed
            differing += expected[0] != expected[1]
            if cluster.take(some_pod(source, f"n{number}")):
                disturbed += met(cluster, claims) != before
                assert met(cluster, claims) == met_on_copies(cluster, claims), seed
    assert disturbed > 20, disturbed
    assert differing, "some claims get their cells only one by one, or only together"


@pytest.mark.parametrize("seeds", batches(quick=15, long=60))
def test_as_few_leave_as_if_each_question_were_asked_both_ways(seeds: range) -> None:
    counts = dict[int, int]()
    for seed in seeds:
        source = Random(seed)
        cluster, present = busy(source, 24)
        claims = some_claims(source, present)
        taken = {one.uid for claim in claims for one in claim.leaving}
        pods = {one.uid: [one] for one in present if one.uid not in taken}
        asked = Asked(pod("due", vc=source.choice("AB"), members=((source.choice([1, 2]), 4),)))
        found = Afterwards(Stage(), cluster, claims, ()).least_leaving(asked, pods)
        assert found == least_leaving_both_ways(Afterwards(Stage(), cluster, claims, ()), asked, pods), seed
        counts[-1 if found is None else len(found)] = counts.get(-1 if found is None else len(found), 0) + 1
    assert sum(count for size, count in counts.items() if size > 0) > len(seeds) // 3, counts


def test_the_pods_that_leave_for_claims_have_left_too_where_all_leave_together() -> None:
    counts = {True: 0, False: 0}
    for seed in range(80):
        source = Random(seed)
        cluster, present = busy(source, 24)
        claims = some_claims(source, present)
        asked, gone = Asked(pod("due", vc=source.choice("AB"), members=((1, 4),))), source.sample(present, 3)
        state = Scenario.copied(cluster.state)
        state.leave({one.uid: one for one in [*gone, *(pod for claim in claims for pod in claim.leaving)]}.values())
        for claim in claims:
            state.start(claim.asked)
        expected = isinstance(state.start(asked), Bind)
        taken = {one.uid for claim in claims for one in claim.leaving}
        gone = [one for one in gone if one.uid not in taken]
        assert Afterwards(Stage(), cluster, claims, ()).binds_together(asked, gone) == expected, seed
        counts[expected] += 1
    assert min(counts.values()) > 3, counts


def least_leaving_both_ways(
    afterwards: Afterwards, asked: Asked, pods: Mapping[str, list[PodRequest]]
) -> list[str] | None:
    def binds(names: Sequence[str]) -> bool:
        gone = [pods[name][0] for name in names]
        return afterwards.binds_in_turn(asked, gone) and afterwards.binds_together(asked, gone)

    return least_prefix(list(pods), binds)
