"""Claims are played once for many requests, with the same outcome as for each alone (rule 31.7)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import pytest

from hived.cells.state import State
from hived.scenario import Asked, least_prefix
from hived.scheduler import handle
from hived.values.decisions import Bind
from hived.values.events import PodAllocated, PodDeleted, ScheduleRequested
from hived.values.specs import PodRequest, Rules
from hived_extender.machine.claims import Afterwards, Claim, Stage
from tests.core.builders import healthy_state, pod, rack_cluster
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


def test_claims_are_played_anew_beside_each_pod_that_has_come_or_gone() -> None:
    disturbed = 0
    for seed in range(40):
        source = Random(seed)
        cluster, present = busy(source, 16)
        claims, stage = some_claims(source, present), Stage()
        before = stage.met(cluster, claims)
        for number in range(6):
            if cluster.take(some_pod(source, f"n{number}")):
                disturbed += stage.met(cluster, claims) != before
                assert stage.met(cluster, claims) == Stage().met(cluster, claims), seed
        cluster.leave(present[-1])
        assert stage.met(cluster, claims) == Stage().met(cluster, claims), seed
    assert disturbed > 20, disturbed


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


def least_leaving_both_ways(
    afterwards: Afterwards, asked: Asked, pods: Mapping[str, list[PodRequest]]
) -> list[str] | None:
    def binds(names: Sequence[str]) -> bool:
        gone = [pods[name][0] for name in names]
        return afterwards.binds_in_turn(asked, gone) and afterwards.binds_together(asked, gone)

    return least_prefix(list(pods), binds)
