"""Jobs that leave a quota that was lowered below its use."""

import pytest

from hived_extender.jobs.quotas.tree import DRAIN, QuotaTree
from hived_extender.jobs.quotas.usage import Running, Usage, drained, going_over
from tests.extender.jobs.quotas.trees import GPU, quota, tree

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
