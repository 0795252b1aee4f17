"""Cells that are due to Kueue's Workloads: jobs of queues leave for them, and large ones do not starve.

Virtual cluster research has three of four nodes with eight GPUs, and is Kueue's; team has one, and a queue of its own.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import UNITS, Jobs, jobs_on
from tests.extender.queues.kueue.kueue_by_hand import KueueByHand
from tests.extender.queues.kueue.workload_objects import pod_set, template

pytestmark = pytest.mark.sample(4)

CONFIG = """
rules: 2
queues: {enabled: true}
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}
  physicalCells:
  - {cellType: NODE, cellAddress: n1}
  - {cellType: NODE, cellAddress: n2}
  - {cellType: NODE, cellAddress: n3}
  - {cellType: NODE, cellAddress: n4}
virtualClusters:
  research:
    virtualCells: [{cellType: NODE, cellNumber: 3}]
  team:
    virtualCells: [{cellType: NODE, cellNumber: 1}]
    queue: {borrow: true}
"""


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    with jobs_on(tmp_path, CONFIG) as found:
        yield found


@pytest.fixture
def kueue(jobs: Jobs) -> KueueByHand:
    found = KueueByHand(jobs.kube)
    found.declare()
    return found


def has_quota(kueue: KueueByHand, name: str, nodes: int, at: int = 0, *, priority: int = 0) -> None:
    """A Workload for so many nodes gets quota; `at` is the second of it."""
    kueue.queue(name, pod_set(count=nodes, made_of=template(8)), priority=priority)
    kueue.reserve(name, at=f"2026-11-23T10:00:{at:02}Z")


def borrowers(jobs: Jobs, count: int) -> list[str]:
    """Team's own job runs, and so many others on idle cells of research."""
    names = [f"job{number}" for number in range(count + 1)]
    for name in names:
        jobs.create(name, "team")
        jobs.expect(partial(jobs.runs, name))
    return names[1:]


def evicted_for(jobs: Jobs, name: str) -> str:
    """Who got the cells of a job that was evicted, as its unit says; "" if it was not."""
    (unit,) = (each for each in jobs.kube.get(UNITS)["items"] if each["metadata"]["name"] == name)
    conditions = {each["type"]: each for each in unit["status"]["conditions"]}
    evicted = conditions["Evicted"]
    return str(evicted["message"]) if evicted["status"] == "True" else ""


def test_jobs_on_lent_cells_are_called_back_for_a_gang_of_kueues(jobs: Jobs, kueue: KueueByHand) -> None:
    first, second, third = borrowers(jobs, 3)
    has_quota(kueue, "gang", 2)
    kueue.expect("gang", "Ready", "cells are held: ")
    jobs.expect(lambda: jobs.waits(second) and jobs.waits(third), lambda: jobs.queued("team") == [second, third])
    assert jobs.runs("job0", first)


def test_a_job_that_left_for_kueue_says_so_and_runs_again_later(jobs: Jobs, kueue: KueueByHand) -> None:
    (first,) = borrowers(jobs, 1)
    has_quota(kueue, "gang", 3)
    kueue.expect("gang", "Ready")
    jobs.expect(lambda: jobs.waits(first), lambda: evicted_for(jobs, first) != "")
    assert evicted_for(jobs, first) == "its cells went to Workload/default/gang"
    kueue.finish("gang")
    jobs.expect(lambda: jobs.runs(first), lambda: evicted_for(jobs, first) == "")


def test_nobody_else_borrows_the_cells_that_jobs_leave_for_kueue(jobs: Jobs, kueue: KueueByHand) -> None:
    borrowers(jobs, 3)
    for number in range(4):
        jobs.create(f"next{number}", "team")
    jobs.expect(lambda: len(jobs.queued("team")) == 4)
    has_quota(kueue, "gang", 3)
    kueue.expect("gang", "Ready")
    attempts = [
        each["status"].get("attempts", 0)
        for each in jobs.kube.get("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/queueunits")["items"]
        if each["metadata"]["name"].startswith("next")
    ]
    assert attempts == [0, 0, 0, 0]


def test_an_opportunistic_gang_of_kueues_calls_nobody_back(jobs: Jobs, kueue: KueueByHand) -> None:
    names = borrowers(jobs, 3)
    kueue.queue("spare", pod_set(count=1, made_of=template(8, priority="-1")))
    kueue.reserve("spare")
    kueue.expect("spare", "Pending", "waits for cells")
    assert jobs.runs(*names)


def test_small_workloads_do_not_go_past_a_large_one_onto_its_cells(jobs: Jobs, kueue: KueueByHand) -> None:
    has_quota(kueue, "runs", 1, at=0)
    kueue.expect("runs", "Ready")
    has_quota(kueue, "large", 3, at=1)
    kueue.expect("large", "Pending", "research has")
    has_quota(kueue, "small", 1, at=2)
    kueue.expect("small", "Pending", "kept for a Workload that had quota before it")
    kueue.finish("runs")
    kueue.expect("large", "Ready")
    assert kueue.check("small")["state"] == "Pending"
    kueue.finish("large")
    kueue.expect("small", "Ready")


def test_a_small_workload_goes_past_beside_the_cells_of_a_large_one(jobs: Jobs, kueue: KueueByHand) -> None:
    has_quota(kueue, "runs", 2, at=0)
    kueue.expect("runs", "Ready")
    has_quota(kueue, "large", 2, at=1)
    kueue.expect("large", "Pending", "research has")
    has_quota(kueue, "small", 1, at=2)
    kueue.expect("small", "Ready")
    assert kueue.check("large")["state"] == "Pending"


def test_a_large_workload_does_not_starve_behind_small_ones_that_keep_coming(jobs: Jobs, kueue: KueueByHand) -> None:
    for number in range(3):
        has_quota(kueue, f"runs{number}", 1, at=number)
        kueue.expect(f"runs{number}", "Ready")
    has_quota(kueue, "large", 2, at=10)
    kueue.expect("large", "Pending", "research has")
    for number in range(3):
        has_quota(kueue, f"small{number}", 1, at=20 + number)
    for number in range(3):
        kueue.finish(f"runs{number}")
    kueue.expect("large", "Ready")
    states = [kueue.check(f"small{number}")["state"] for number in range(3)]
    assert states.count("Ready") <= 1, "two nodes of three are the large one's"
    expect_soon(lambda: kueue.check("small0")["state"] == "Ready")


def test_a_later_workload_of_higher_priority_goes_first(jobs: Jobs, kueue: KueueByHand) -> None:
    has_quota(kueue, "runs", 3, at=0)
    kueue.expect("runs", "Ready")
    has_quota(kueue, "large", 3, at=1)
    kueue.expect("large", "Pending")
    has_quota(kueue, "urgent", 1, at=2, priority=100)
    kueue.expect("urgent", "Pending", "1 of 2")
    kueue.finish("runs")
    kueue.expect("urgent", "Ready")
    assert kueue.check("large")["state"] == "Pending"


def test_a_large_workload_keeps_its_place_though_its_cells_are_lent(jobs: Jobs, kueue: KueueByHand) -> None:
    has_quota(kueue, "runs", 1, at=0)
    kueue.expect("runs", "Ready")
    names = borrowers(jobs, 2)
    has_quota(kueue, "large", 3, at=1)
    kueue.expect("large", "Pending", "research has")
    has_quota(kueue, "small", 1, at=2)
    kueue.expect("small", "Pending", "2 of 2")
    assert jobs.runs(*names)
    kueue.finish("runs")
    kueue.expect("large", "Ready")
    assert kueue.check("small")["state"] == "Pending"
