"""The pods that start together (rules 26.1, 26.3), from existing pods alone: as tables, without a service."""

import time
from dataclasses import dataclass

import pytest

from hived_extender.jobs.asks import Ask
from hived_extender.jobs.kinds.description import Description, GangKey, JobPart, MatchPolicy
from hived_extender.jobs.wire import Owner
from hived_extender.machine.gangs.gang import Ended
from hived_extender.machine.gangs.plans import MOST_ABSENT, Plan
from hived_extender.machine.gangs.table import Gangs
from hived_extender.machine.pods import PodRecord, PodState, Seen, Translation

KEY = GangKey("ns", "train")
OLD, NEW = Owner("Job", "train", "uid-old", True), Owner("Job", "train", "uid-new", True)
FIRST, SECOND = Owner("Job", "train-a", "uid-a", True), Owner("Job", "train-b", "uid-b", True)


@dataclass(frozen=True)
class One:
    """A pod: `state` is waiting, bound, leaving, succeeded or failed, `created` a time."""

    state: str
    created: int
    owner: Owner | None = None
    policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    minimum: int = 3


def gangs_of(*pods: One) -> Gangs:
    """The gang of these pods, named p0, p1 and so on."""
    gangs = Gangs()
    for number, one in enumerate(pods):
        described = Description("test", gang=KEY, minimum=one.minimum, match_policy=one.policy)
        created = f"2026-01-01T00:00:{one.created:02d}Z"
        if one.state in {"succeeded", "failed"}:
            gangs.end(f"u{number}", Ended(described, one.state == "succeeded", created, one.owner))
            continue
        is_waiting = one.state == "waiting"
        record = PodRecord(
            f"u{number}",
            f"p{number}",
            "ns",
            state=PodState.WAITING if is_waiting else PodState.BOUND,
            seen=Seen(created=created, owner=one.owner, is_leaving=one.state == "leaving"),
            translation=Translation(0, described, Ask("a", 0, 1)),
        )
        gangs.join(record)
    return gangs


def plan_of(*pods: One) -> Plan:
    return gangs_of(*pods).plan(KEY)


def starting(plan: Plan) -> list[str]:
    return [] if plan.round is None else [record.name for record in plan.round.members]


def three(state: str, created: int, owner: Owner | None = None, **more: int) -> list[One]:
    return [One(state, created, owner, **more) for _ in range(3)]  # passed on as they are


@pytest.mark.parametrize(
    "before",
    [
        three("leaving", 1),
        three("bound", 1, OLD),  # deleted in the background: Kubernetes has not come to them yet
        three("succeeded", 1),
        three("succeeded", 1, OLD),
        three("succeeded", 1, FIRST),
        [One("leaving", 1, OLD), One("bound", 1, OLD), One("succeeded", 1, OLD)],
        [One("leaving", 1)],
    ],
)
def test_a_gang_that_is_created_anew_starts_whole(before: list[One]) -> None:
    count = len(before)
    assert starting(plan_of(*before, *three("waiting", 9, NEW))) == [f"p{count + number}" for number in range(3)]


@pytest.mark.parametrize("before", [three("leaving", 1), three("bound", 1, OLD), three("succeeded", 1, OLD)])
def test_the_first_pod_of_a_gang_that_is_created_anew_waits_for_the_others(before: list[One]) -> None:
    assert "1 of 3 pods created" in plan_of(*before, One("waiting", 9, NEW)).forming


@pytest.mark.parametrize(
    "others",
    [
        [One("bound", 1), One("bound", 1), One("leaving", 1)],
        [One("bound", 1, NEW), One("bound", 1, NEW), One("failed", 1, NEW)],
        [One("bound", 1, FIRST), One("bound", 1, FIRST), One("leaving", 1, OLD)],  # one Job of several, created anew
        [One("succeeded", 1, NEW), One("succeeded", 1, NEW), One("failed", 1, NEW)],
        [One("succeeded", 1), One("succeeded", 1), One("failed", 1)],
        [One("succeeded", 1, FIRST), One("succeeded", 1, FIRST), One("failed", 1, NEW)],
        three("succeeded", 1, NEW),  # a Job of more pods than run at once
        [*three("succeeded", 1, FIRST), One("bound", 1, SECOND)],
    ],
)
def test_a_pod_that_is_replaced_starts_alone(others: list[One]) -> None:
    plan = plan_of(*others, One("waiting", 9, NEW))
    assert (plan.round, plan.forming, plan.refusal) == (None, "", "")


@pytest.mark.parametrize("policy", [MatchPolicy.WAITING_AND_RUNNING, MatchPolicy.WAITING_RUNNING_SUCCEED])
def test_pods_that_leave_do_not_count_towards_the_minimum(policy: MatchPolicy) -> None:
    pods = [One(state, 1, policy=policy) for state in ("leaving", "leaving", "waiting")]
    assert "1 of 3 pods created" in plan_of(*pods).forming


def test_a_gang_that_is_created_anew_may_have_another_minimum() -> None:
    before = three("leaving", 1, OLD, minimum=3)
    again = [One("waiting", 9, NEW, minimum=2), One("waiting", 9, NEW, minimum=2)]
    assert starting(plan_of(*before, *again)) == ["p3", "p4"]


def test_what_leaves_is_not_missed() -> None:
    gangs = gangs_of(*three("leaving", 1), *three("bound", 9))
    (surplus,) = [record for record in gangs.placed_with(KEY) if record.name == "p0"]
    assert gangs.is_surplus(surplus)


def test_a_pod_that_ended_well_and_is_then_deleted_counts_no_more() -> None:
    gangs = gangs_of(One("succeeded", 9, NEW), One("waiting", 9, NEW))
    assert gangs.plan(KEY).forming == ""
    (ended,) = gangs.ended.values()
    gangs.end("u0", Ended(ended.description, True, ended.created, ended.owner, is_leaving=True))
    assert "1 of 3 pods created" in gangs.plan(KEY).forming


@pytest.mark.parametrize("namespace", ["ns", "other"])
def test_a_message_names_few_of_many_gangs_that_are_missing(namespace: str) -> None:
    others = tuple(GangKey(namespace, f"g{number}") for number in range(1000))
    translation = Translation(0, Description("test", gang=KEY, groups=others), Ask("a", 0, 1))
    record = PodRecord("u", "p", "ns", translation=translation)
    gangs = Gangs()
    gangs.join(record)
    forming = gangs.plan(KEY).forming
    assert "g0" in forming
    assert forming.endswith("and 992 more")
    assert len(forming) < 3000


def test_gangs_that_start_together_lack_no_more_pods_than_one_may() -> None:
    keys = (KEY, GangKey("ns", "other"))
    leader = JobPart("topology", "workers", "0", 1, is_leader=True)
    gangs = Gangs()
    for key in keys:
        described = Description("test", gang=key, groups=keys, minimum=MOST_ABSENT, job_part=leader)
        gangs.join(PodRecord(key.name, key.name, "ns", translation=Translation(0, described, Ask("a", 0, 1))))
    refusal = gangs.plan(KEY).refusal
    assert refusal.startswith(
        f"podgroup/ns/other, podgroup/ns/train lacks {2 * (MOST_ABSENT - 1)} pods that are created after"
    )


def test_a_gang_whose_pods_have_an_owner_each_is_planned_at_once() -> None:
    gangs = gangs_of(*(One("waiting", 1, Owner("Job", "train", f"uid-{number}", True)) for number in range(4000)))
    began = time.thread_time()
    assert gangs.plan(KEY).round is not None
    assert time.thread_time() - began < 2.0
