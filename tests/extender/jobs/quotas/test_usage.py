"""The use of quotas, refusals, and jobs that leave a lowered quota (rules 25.3 to 25.6)."""

from random import Random
from typing import Any

import pytest
import yaml

from hived_extender.jobs.quotas.tree import DRAIN, LEND_LIMIT, OVERSELL, QuotaTree, read_tree
from hived_extender.jobs.quotas.usage import Running, Usage, drained, going_over
from tests.extender.jobs.quotas.trees import GPU, quota, tree
from tests.places import ROOT

FILE = yaml.safe_load((ROOT / "tests" / "extender" / "jobs" / "quotas" / "kube_queue_cases.yaml").read_text())


def read(name: str) -> QuotaTree:
    """A tree of the file."""
    written = dict(FILE["trees"][name])
    total, rate = written.pop("root"), written.pop("rate", 1)
    children = [_quota(child, of) for child, of in written.items()]
    root = quota("root", {GPU: total}, {GPU: total}, children=children, attributes={OVERSELL: str(rate)})
    return read_tree({"spec": {"root": root}})


def _quota(name: str, of: dict[str, Any]) -> dict[str, Any]:
    most: dict[str, Any] = {GPU: of["max"]} if "max" in of else {}
    if "jobs" in of:
        most["kube-queue/max-jobs"] = of["jobs"]
    attributes = {LEND_LIMIT: f'{{"{GPU}": {of["lend"]}}}'} if "lend" in of else {}
    children = [_quota(child, own) for child, own in of.get("children", {}).items()]
    return quota(name, {GPU: of["min"]}, most, attributes=attributes, children=children or None)


def playing(case: dict[str, Any]) -> Usage:
    """The use of a case."""
    usage = Usage(read(case["tree"]))
    for queue, gpus, *words in case["runs"]:
        usage.take(f"root/{queue}", {GPU: float(gpus)}, is_preemptible="fixed" not in words)
    return usage


def verdict(case: dict[str, Any]) -> str | None:
    """The quota that refuses the job of a case."""
    queue, gpus, *words = case["job"]
    found = playing(case).refusal(f"root/{queue}", {GPU: float(gpus)}, is_preemptible="fixed" not in words)
    return None if found is None else found.quota


@pytest.mark.parametrize("case", FILE["cases"], ids=lambda case: case["says"])
def test_the_filter(case: dict[str, Any]) -> None:
    assert verdict(case) == case.get("refused")


@pytest.mark.parametrize("case", FILE["shares"], ids=lambda case: case["says"])
def test_the_order_across_queues(case: dict[str, Any]) -> None:
    usage = playing(case)
    leaves = [leaf.name.removeprefix("root/") for leaf in usage.tree.leaves()]
    assert sorted(leaves, key=lambda leaf: usage.dominant_share(f"root/{leaf}")) == case["order"]


def test_the_share_of_a_leaf_is_that_of_the_resource_that_it_uses_most() -> None:
    total = {GPU: 16, "cpu": 64}
    children = [quota(name, {GPU: 8, "cpu": 32}, total) for name in ("a", "b")]
    usage = Usage(read_tree({"spec": {"root": quota("root", total, total, children=children)}}))
    usage.take("root/a", {GPU: 4.0, "cpu": 8.0})
    usage.take("root/b", {GPU: 1.0, "cpu": 24.0})
    assert (usage.dominant_share("root/a"), usage.dominant_share("root/b")) == (0.5, 0.75)


def test_the_table_has_sixty_cases() -> None:
    assert sum(len(FILE[part]) for part in ("cases", "shares")) >= 60


def test_a_refusal_is_said_in_kube_queues_words() -> None:
    found = playing({"tree": "flat", "runs": [["a", 8]]}).refusal("root/a", {GPU: 5.0})
    assert found is not None
    assert found.text == (
        "Insufficient quota(nvidia.com/gpu) in quota root/a: request 5, max 12, used 8, oversellreate 1. "
        "Wait for running jobs to complete"
    )


def test_a_refusal_by_min_says_whom_min_binds() -> None:
    usage = playing({"tree": "flat", "runs": []})
    least = usage.tree.quotas["root/a"].min[GPU]
    found = usage.refusal("root/a", {GPU: least + 1}, is_preemptible=False)
    assert found is not None
    assert found.text == (
        f"Insufficient quota(nvidia.com/gpu) in quota root/a: request {least + 1:g}, min {least:g}, used 0, "
        "oversellreate 1. Only jobs that may be preempted use more than min. Wait for running jobs to complete"
    )


def test_use_within_min_is_guaranteed() -> None:
    usage = playing({"tree": "deep", "runs": [["team/x", 6]]})
    assert usage.is_within_min("root/team/x", {GPU: 2.0, "cpu": 500.0})
    assert not usage.is_within_min("root/team/x", {GPU: 3.0})


def test_a_resource_that_no_min_names_is_no_obstacle_for_a_job_that_may_not_be_preempted() -> None:
    usage = playing({"tree": "flat", "runs": []})
    assert usage.refusal("root/a", {GPU: 8.0, "cpu": 96.0}, is_preemptible=False) is None


def reserved(tree: QuotaTree, used: dict[str, float], name: str) -> float:
    """The use of a quota as its parent sees it, by its definition."""
    found = tree.quotas[name]
    kept = found.min[GPU] - found.lend_limit.get(GPU, found.min[GPU])
    below = sum(reserved(tree, used, child) for child in found.children) if found.children else used[name]
    return max(below, kept)


def a_tree(random: Random, name: str, least: int, levels: int) -> dict[str, Any]:
    """A quota that lends some of its min, and a random tree below it."""
    children, left = [], least
    for number in range(random.randrange(4) if levels else 0):
        part = random.randint(0, left)
        left -= part
        children.append(a_tree(random, f"{name}-{number}", part, levels - 1))
    attributes = {LEND_LIMIT: f'{{"{GPU}": {random.randint(0, least)}}}'} if random.random() < 0.6 else {}
    return quota(name, {GPU: least}, {GPU: 100}, attributes=attributes, children=children or None)


@pytest.mark.parametrize("seed", range(40))
def test_reserves_that_are_counted_job_by_job_are_those_of_the_definition(seed: int) -> None:
    random = Random(seed)
    found = read_tree({"spec": {"root": a_tree(random, "root", 100, 3)}})
    leaves = [leaf.name for leaf in found.leaves()]
    usage, used, running = Usage(found), dict.fromkeys(leaves, 0.0), list[tuple[str, float]]()
    for _ in range(60):
        if running and random.random() < 0.4:
            leaf, amount = running.pop(random.randrange(len(running)))
            usage.give_back(leaf, {GPU: amount})
            used[leaf] -= amount
        else:
            leaf, amount = random.choice(leaves), float(random.randrange(12))
            running.append((leaf, amount))
            usage.take(leaf, {GPU: amount})
            used[leaf] += amount
        for name in found.quotas:
            assert usage.with_lend_limit(name, GPU) == reserved(found, used, name)


@pytest.mark.parametrize("seed", range(20))
def test_use_that_was_given_back_is_as_if_it_had_never_been(seed: int) -> None:
    random, found = Random(seed), read("deep")
    leaves = [leaf.name for leaf in found.leaves()]
    usage, running = Usage(found), list[tuple[str, dict[str, float], bool]]()
    for _ in range(200):
        if running and random.random() < 0.5:
            queue, request, fixed = running.pop(random.randrange(len(running)))
            usage.give_back(queue, request, is_preemptible=not fixed)
        else:
            job = (
                random.choice(leaves),
                {GPU: random.randrange(9) + random.random()},
                random.random() < 0.3,
            )
            running.append(job)
            usage.take(job[0], job[1], is_preemptible=not job[2])
    anew = Usage(found)
    for queue, request, fixed in running:
        anew.take(queue, request, is_preemptible=not fixed)
    for leaf in leaves:
        assert usage.dominant_share(leaf) == pytest.approx(anew.dominant_share(leaf))
        for is_preemptible in (True, False):
            one, other = (each.refusal(leaf, {GPU: 1e3}, is_preemptible=is_preemptible) for each in (usage, anew))
            assert one == other
    for queue, request, fixed in running:
        usage.give_back(queue, request, is_preemptible=not fixed)
    assert [usage.dominant_share(leaf) for leaf in leaves] == [0.0] * len(leaves)


# ---- jobs that leave a quota that was lowered below its use


JOBS = [
    Running("old", "root/a", {GPU: 4}, started_s=1.0, lost_work=400.0),
    Running("middle", "root/a", {GPU: 4}, started_s=2.0, lost_work=10.0),
    Running("new", "root/a", {GPU: 4}, started_s=3.0, lost_work=90.0),
]


def lowered(policy: str, most: int) -> QuotaTree:
    return tree(quota("a", {}, {GPU: most}, attributes={DRAIN: policy}))


def used(found: QuotaTree, jobs: list[Running]) -> Usage:
    usage = Usage(found)
    for job in jobs:
        usage.take(job.queue, job.request)
    return usage


@pytest.mark.parametrize(
    ("policy", "most", "leave"),
    [
        ("wait", 0, []),
        ("preempt-newest", 12, []),
        ("preempt-newest", 11, ["new"]),
        ("preempt-newest", 4, ["new", "middle"]),
        ("preempt-least-work", 8, ["middle"]),
        ("preempt-least-work", 3, ["middle", "new", "old"]),
    ],
)
def test_jobs_leave_by_the_policy_of_their_quota(policy: str, most: int, leave: list[str]) -> None:
    assert list(drained(used(lowered(policy, most), JOBS), JOBS)) == leave


def test_nobody_leaves_needlessly() -> None:
    jobs = [Running("small", "root/a", {GPU: 1}, 9.0), Running("large", "root/a", {GPU: 8}, 8.0)]
    assert list(drained(used(lowered("preempt-newest", 4), jobs), jobs)) == ["large"]


def test_jobs_that_may_not_be_preempted_stay() -> None:
    jobs = [Running("fixed", "root/a", {GPU: 4}, 9.0, is_preemptible=False), JOBS[0]]
    assert list(drained(used(lowered("preempt-newest", 4), jobs), jobs)) == ["old"]


def test_an_excess_is_never_negative() -> None:
    assert used(lowered("wait", 4), JOBS).over() == {"root/a": {GPU: 8.0}}
    assert used(lowered("wait", 12), JOBS).over() == {}


def test_a_job_counts_for_its_quota_and_all_above() -> None:
    inner = quota("b", {}, {GPU: 8}, attributes={DRAIN: "preempt-newest"})
    found = tree(quota("a", {}, {GPU: 8}, attributes={DRAIN: "preempt-newest"}, children=[inner]))
    jobs = [Running(str(number), "root/a/b", {GPU: 4}, float(number)) for number in range(3)]
    assert list(drained(used(found, jobs), jobs)) == ["2"]


def test_borrowers_leave_before_newer_jobs_on_their_own_cells() -> None:
    jobs = [Running("own", "root/a", {GPU: 4}, 9.0), Running("borrower", "root/a", {GPU: 4}, 1.0, is_borrowed=True)]
    assert list(drained(used(lowered("preempt-newest", 4), jobs), jobs)) == ["borrower"]
    assert list(drained(used(lowered("preempt-newest", 3), jobs), jobs)) == ["borrower", "own"]


def test_the_newest_are_above_a_quota_that_waits() -> None:
    assert going_over(used(lowered("wait", 8), JOBS), JOBS) == {"new": "root/a"}
    assert going_over(used(lowered("wait", 12), JOBS), JOBS) == {}


def test_jobs_that_may_not_be_preempted_are_above_a_quota_last() -> None:
    jobs = [Running("fixed", "root/a", {GPU: 4}, 9.0, is_preemptible=False), JOBS[0]]
    assert list(going_over(used(lowered("wait", 4), jobs), jobs)) == ["old"]
    assert list(going_over(used(lowered("wait", 0), jobs), jobs)) == ["old", "fixed"]
