"""Pods of no unit use quotas, and entitled units take theirs back from opportunistic ones (rule 31.10)."""

from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from hived_extender.jobs.quotas.tree import Quota, QuotaTree
from hived_extender.queues.ledger import TreeLedger
from hived_extender.queues.policies import Rules
from hived_extender.queues.queued_jobs import QueuedJobs
from hived_extender.queues.reasons import OverQuota
from hived_extender.queues.tree_use import usage_of
from hived_extender.queues.units import Evict, OtherUse, Unit
from tests.extender.queues.small import Desk, unit

LEAF = "root/A"


def desk_with(most: float = 4.0, least: float = 4.0, jobs: int | None = None) -> Desk:
    """Queues with one leaf, of virtual cluster A."""
    desk = Desk()
    root = Quota("root", min={"gpu": 16.0}, max={"gpu": 16.0}, children=(LEAF,))
    leaf = Quota(LEAF, "root", min={"gpu": least}, max={"gpu": most}, max_jobs=jobs)
    desk.queues.told_rules(Rules(), partial(TreeLedger, QuotaTree({"root": root, LEAF: leaf})))
    return desk


def job(key: str, gpus: int) -> Unit:
    """A job of the leaf."""
    return replace(unit(key, gpus=gpus), queue=LEAF, request={"gpu": float(gpus)})


def use(gpus: float, *lent: str, jobs: int = 1) -> OtherUse:
    """Pods on cells of the virtual cluster, or these opportunistic groups."""
    return OtherUse(LEAF, {"gpu": gpus}, {} if lent else {"gpu": gpus}, jobs, lent)


def orders(desk: Desk) -> list[tuple[str, ...]]:
    """The groups that a turn evicts."""
    return [each.groups for each in desk.queues.turn(desk.now, desk.live) if isinstance(each, Evict)]


@pytest.mark.parametrize("limit", ["max", "jobs"])
def test_a_unit_waits_for_guaranteed_pods_of_no_unit_and_starts_when_they_are_gone(limit: str) -> None:
    desk = desk_with(jobs=1 if limit == "jobs" else None)
    desk.queues.told_others((use(2.0 if limit == "max" else 1.0),))
    assert desk.come(job("a", 3)) == []
    reason = desk.queues.refusal("a")
    assert isinstance(reason, OverQuota)
    assert "Insufficient quota" in reason.text
    desk.queues.told_others(())
    assert desk.turn() == ["a"]


def test_pods_beyond_the_request_of_a_unit_count_without_a_job_more() -> None:
    desk = desk_with(jobs=2)
    assert desk.come(job("a", 1)) == ["a"]
    desk.queues.told_others((use(2.0, jobs=0),))
    assert desk.come(job("b", 2)) == []
    assert desk.come(job("c", 1)) == ["c"]


def test_new_rules_keep_the_count() -> None:
    desk = desk_with()
    desk.queues.told_others((use(4.0),))
    root = Quota("root", min={"gpu": 16.0}, max={"gpu": 16.0}, children=(LEAF,))
    leaf = Quota(LEAF, "root", min={"gpu": 4.0}, max={"gpu": 5.0})
    desk.queues.told_rules(Rules(), partial(TreeLedger, QuotaTree({"root": root, LEAF: leaf})))
    assert desk.come(job("a", 2), job("b", 1)) == ["b"]


def test_a_unit_that_is_due_has_the_fewest_opportunistic_groups_leave_the_newest_first() -> None:
    desk = desk_with()
    desk.queues.told_others((use(1.0, "old"), use(2.0, "mid"), use(1.0, "new")))
    desk.queues.arrived(job("a", 2))
    assert orders(desk) == [("mid",)]
    desk.queues.room_made()
    assert orders(desk) == [], "they were told already"
    desk.queues.told_others((use(1.0, "old"), use(1.0, "new")))
    assert desk.turn() == ["a"]


def test_nobody_leaves_for_a_unit_that_would_stay_above_its_quota() -> None:
    desk = desk_with()
    desk.queues.told_others((use(3.0), use(1.0, "lent")))
    desk.queues.arrived(job("a", 2))
    assert orders(desk) == []


def test_the_pods_beyond_the_request_of_a_unit_count_once_although_its_job_asks_for_them_by_now() -> None:
    desk = desk_with(most=8.0)
    assert desk.come(job("a", 2)) == ["a"]
    desk.queues.told_others((use(2.0, jobs=0),))
    grown = SimpleNamespace(key="a", asks=job("a", 4), life=SimpleNamespace(has_cells=True))
    known = desk.queues
    queues = cast(
        QueuedJobs,
        SimpleNamespace(entries={"a": grown}, others=known.others, running_unit=known.running_unit),
    )
    trees = {most: QuotaTree({LEAF: Quota(LEAF, max={"gpu": most})}) for most in (3.0, 4.0)}
    over = {most: usage_of(each, queues).over() for most, each in trees.items()}
    assert over == {3.0: {LEAF: {"gpu": 1.0}}, 4.0: {}}
