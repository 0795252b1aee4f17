"""Pods that no queue lets go use a leaf of the quota tree: their owners read it, and jobs of the leaf count them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hived_extender.api.queues import QueueReport
from tests.cases.played import GPU, PREFIX, pod
from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import PODS, TREES, Jobs, jobs_on

pytestmark = pytest.mark.sample(3)

CONFIG = """
rules: 2
queues: {enabled: true}
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}
  physicalCells: [{cellType: NODE, cellAddress: n1}, {cellType: NODE, cellAddress: n2}]
virtualClusters:
  a:
    virtualCells: [{cellType: NODE, cellNumber: 2}]
"""
USED_UP = "Insufficient quota(nvidia.com/gpu) in quota root/a: request {}, max 4, used {}, oversellreate 1. "
WAIT, NEVER = "Wait for running jobs to complete", "It can never run: ask for less, or raise the quota"


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    """A cluster with one leaf of 4 GPUs, 2 of them promised."""
    with jobs_on(tmp_path, CONFIG) as found:
        most = {GPU: 16}
        leaf = {"name": "a", "namespaces": ["default"], "min": {GPU: 2}, "max": {GPU: 4}}
        root = {"name": "root", "min": most, "max": most, "children": [leaf]}
        found.kube.create(TREES, {"metadata": {"name": "elasticquotatree"}, "spec": {"root": root}})
        found.expect(lambda: found.running.extender.service.machine.holds.quotas.tree is not None)
        yield found


def create(jobs: Jobs, name: str, gpus: int, **more: Any) -> None:
    """A plain pod of virtual cluster a."""
    jobs.kube.create(PODS, pod(name, gpus, vc="a", **more))


def is_bound(jobs: Jobs, name: str) -> bool:
    """Has a pod a node?"""
    return bool(jobs.kube.get(f"{PODS}/{name}")["spec"].get("nodeName"))


def sentence(jobs: Jobs, name: str) -> str:
    """The words of `hived why` about a pod, "" if it says nothing yet."""
    found = jobs.inspector.why(name)
    if found is None or found.certificate is None or found.certificate.cause != "quota":
        return ""
    return found.certificate.sentence


def leaf(jobs: Jobs) -> QueueReport:
    """The leaf as `hived get queue` has it."""
    return next(one for one in jobs.inspector.queues() if one.name == "root/a")


def test_a_pod_beyond_the_quota_is_told_so_and_never_that_there_is_room(jobs: Jobs) -> None:
    create(jobs, "first", 3)
    jobs.expect(lambda: is_bound(jobs, "first"))
    create(jobs, "second", 2)
    jobs.expect(lambda: sentence(jobs, "default/second") == USED_UP.format(2, 3) + WAIT)
    found = jobs.inspector.why("default/second")
    assert found is not None
    assert found.certificate is not None
    assert found.certificate.untried == "it asks for cells only once its quota has room"
    jobs.kube.delete(f"{PODS}/first")
    jobs.expect(lambda: is_bound(jobs, "second"))


def test_a_pod_larger_than_the_quota_is_told_that_it_can_never_run(jobs: Jobs) -> None:
    create(jobs, "large", 5)
    jobs.expect(lambda: sentence(jobs, "default/large") == USED_UP.format(5, 0) + NEVER)
    found = jobs.inspector.why("default/large")
    assert found is not None
    assert found.certificate is not None
    assert found.certificate.never


def test_a_job_of_a_queue_counts_plain_pods_of_its_leaf_and_starts_once_they_end(jobs: Jobs) -> None:
    create(jobs, "plain", 3)
    jobs.expect(lambda: is_bound(jobs, "plain"))
    jobs.create("train", gpus=2)
    jobs.expect(lambda: jobs.reason("train").startswith(USED_UP.format(2, 3)))
    assert jobs.waits("train")
    found = leaf(jobs)
    assert (found.used[GPU], found.running, found.waiting) == (3, 1, 1)
    jobs.kube.delete(f"{PODS}/plain")
    jobs.expect(lambda: jobs.runs("train"))


def test_a_job_that_is_due_takes_its_quota_back_from_opportunistic_pods_of_no_queue(jobs: Jobs) -> None:
    create(jobs, "old", 1, priority=-1)
    jobs.expect(lambda: is_bound(jobs, "old"))
    create(jobs, "new", 3, priority=-1)
    jobs.expect(lambda: is_bound(jobs, "new"))
    jobs.create("train", gpus=2)
    jobs.expect(lambda: jobs.runs("train"))
    assert [one["metadata"]["name"] for one in jobs.kube.get(PODS)["items"] if "-" not in one["metadata"]["name"]] == [
        "old"
    ]


def test_a_job_that_says_off_counts_beside_jobs_of_the_queue(jobs: Jobs) -> None:
    jobs.create("queued", gpus=3)
    jobs.expect(lambda: jobs.runs("queued"))
    jobs.create("off", gpus=2, suspend=False, annotations={f"{PREFIX}queue": "off"})
    expect_soon(lambda: any(one["metadata"]["name"].startswith("off-") for one in jobs.kube.get(PODS)["items"]))
    name = next(one["metadata"]["name"] for one in jobs.kube.get(PODS)["items"] if "off-" in one["metadata"]["name"])
    jobs.expect(lambda: sentence(jobs, f"default/{name}") == USED_UP.format(2, 3) + WAIT)
    jobs.delete("queued")
    jobs.expect(lambda: is_bound(jobs, name))
    found = expect_soon(lambda: (one := leaf(jobs)).used == {GPU: 2.0} and one)
    assert (found.running, found.waiting) == (1, 0), "it counts in the leaf as one job, which is in no queue"


def test_a_dry_run_heeds_the_quota(jobs: Jobs) -> None:
    create(jobs, "first", 3)
    jobs.expect(lambda: is_bound(jobs, "first"))
    outcomes = jobs.inspector.what_if([pod("one", 1, vc="a"), pod("two", 1, vc="a")])
    assert [one.outcome for one in outcomes] == ["bind", "wait"]
    assert outcomes[1].reason == USED_UP.format(1, 4) + WAIT
