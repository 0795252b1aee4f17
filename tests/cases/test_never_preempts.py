"""Pods whose preemption policy is Never wait for others to end, and reclaim lent cells alone (rule 27.7)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cases.played import PATHS, Played, nodes_config, played_on, pod
from tests.expecting import expect_soon
from tests.known import queues_rest

pytestmark = pytest.mark.sample(3)

CONFIG = nodes_config(2, other_vc="other: {namespaces: [other], virtualCells: []}")

CLASSES = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: never}
value: 900
preemptionPolicy: Never
"""

GANG = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    with played_on(tmp_path, CONFIG) as running:
        running.create(CLASSES)
        yield running


def reason(played: Played, name: str) -> str:
    found = played.inspector.why(f"default/{name}")
    return "" if found is None else found.job.sentence


def expect_waiting(played: Played, name: str) -> None:
    expect_soon(lambda: "preemptionPolicy is Never" in reason(played, name))


def test_a_pod_of_such_a_class_waits_and_starts_before_a_later_low_one(played: Played) -> None:
    played.create(pod("low-0"), pod("low-1"))
    played.expect_running("low-0", "low-1")
    played.create(pod("high", priority=900, priorityClassName="never"))
    expect_waiting(played, "high")
    assert set(played.running_pods()) == {"low-0", "low-1"}
    played.create(pod("low-2"))
    expect_soon(lambda: reason(played, "low-2"))
    played.delete("low-0")
    played.expect_running("high", "low-1")
    assert "low-2" not in played.running_pods()


def test_a_gang_with_one_such_pod_preempts_nobody(played: Played) -> None:
    played.create(pod("low-0"), pod("low-1"))
    played.expect_running("low-0", "low-1")
    played.create(
        pod("g-0", priority=900, annotations=GANG),
        pod("g-1", priority=900, annotations=GANG, preemptionPolicy="Never", priorityClassName="never"),
    )
    expect_waiting(played, "g-0")
    assert set(played.running_pods()) == {"low-0", "low-1"}
    played.delete("low-0")
    played.delete("low-1")
    played.expect_running("g-0", "g-1")


DEFAULT = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: usual}
value: 0
globalDefault: true
preemptionPolicy: Never
"""
QUEUES = CONFIG.replace("rules: 2", "rules: 2\nqueues: {enabled: true}")


@contextmanager
def queued_behind(folder: Path, low: int, *, classes: str = CLASSES, **spec: Any) -> Iterator[Played]:
    """A cluster with queues, on which a job of priority `low` has all GPUs, and job `high` has come."""
    with played_on(folder, QUEUES, has_webhook=True) as played:
        played.create(classes, job("low", low))
        expect_soon(lambda: pods_of(played, "low"))
        expect_soon(lambda: played.running.extender.queues.classes._never)  # before the job that names it
        played.create(job("high", 900, **spec))
        yield played


def job(name: str, priority: int, **spec: Any) -> dict[str, Any]:
    made = pod("of-job", 2, priority=priority, restartPolicy="Never", **spec)
    template = {"metadata": made["metadata"], "spec": made["spec"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


def pods_of(played: Played, name: str) -> list[str]:
    return [one for one in played.running_pods() if one.startswith(f"{name}-")]


@pytest.mark.parametrize(
    "spec",
    [
        {"priorityClassName": "never"},
        {"priorityClassName": "never", "preemptionPolicy": "Never"},
        {"classes": DEFAULT},
    ],
    ids=["class", "class and pod", "default class"],
)
def test_nor_does_a_queued_job_of_such_a_class_call_anybody_back(tmp_path: Path, spec: dict[str, Any]) -> None:
    with queued_behind(tmp_path, 1, **spec) as played:
        expect_soon(lambda: played.inspector.queued_job("high"))
        expect_soon(lambda: queues_rest(played.running))
        found = played.inspector.queued_job("high")
        waiting = "" if found is None else found.reason
        assert "in use; its preemptionPolicy is Never, so no job of lower priority leaves for it" in waiting
        assert pods_of(played, "low")
        played.kube.delete(f"{PATHS['Job'].format('default')}/low")
        expect_soon(lambda: pods_of(played, "high"))


def test_a_queued_job_preempts_once_its_class_is_deleted(tmp_path: Path) -> None:
    with queued_behind(tmp_path, 1, priorityClassName="never") as played:
        expect_soon(lambda: (found := played.inspector.queued_job("high")) and "Never" in found.reason)
        assert pods_of(played, "low")
        played.kube.delete(f"{PATHS['PriorityClass']}/never")
        expect_soon(lambda: not pods_of(played, "low"))


def test_a_queued_job_of_such_a_class_takes_lent_cells_back(tmp_path: Path) -> None:
    with queued_behind(tmp_path, -1, priorityClassName="never") as played:
        expect_soon(lambda: pods_of(played, "high"))
        assert not pods_of(played, "low"), "the lent cells are given back"
        low = played.kube.get(f"{PATHS['Job'].format('default')}/low")
        assert low["spec"]["suspend"], "the borrower waits in its queue again"


def test_lent_cells_are_taken_back_whatever_the_policy(played: Played) -> None:
    played.create(pod("lent-0", gpus=2, priority=-1))
    played.expect_running("lent-0")
    played.create(pod("high", priority=900, priorityClassName="never"))
    played.expect_running("high")
    assert "lent-0" not in played.running_pods()


def foretold(played: Played, *pods: dict[str, Any]) -> list[tuple[str, str]]:
    """The outcome and the reason for pods that do not exist yet."""
    bodies = [{**one, "metadata": {"namespace": "default", **one["metadata"]}} for one in pods]
    return [(one.outcome, one.reason) for one in played.inspector.what_if(bodies)]


def test_a_dry_run_of_a_pod_of_such_a_class_evicts_nobody_and_says_so(played: Played) -> None:
    played.create(pod("low-0"), pod("low-1"))
    played.expect_running("low-0", "low-1")
    ((outcome, why),) = foretold(played, pod("high", priority=900, priorityClassName="never"))
    assert outcome == "wait"
    assert "preemptionPolicy is Never" in why
    ((outcome, _),) = foretold(played, pod("high", priority=900))
    assert outcome == "preempt"
    ((outcome, _),) = foretold(played, pod("high", priority=900, priorityClassName="unknown"))
    assert outcome == "preempt"


def test_a_dry_run_of_a_gang_with_one_such_pod_evicts_nobody(played: Played) -> None:
    played.create(pod("low-0"), pod("low-1"))
    played.expect_running("low-0", "low-1")
    told = foretold(
        played,
        pod("g-0", priority=900, annotations=GANG),
        pod("g-1", priority=900, annotations=GANG, priorityClassName="never"),
    )
    assert {outcome for outcome, _ in told} == {"wait"}


def test_a_dry_run_of_such_a_pod_takes_back_lent_cells(played: Played) -> None:
    played.create(pod("lent-0", gpus=2, priority=-1))
    played.expect_running("lent-0")
    ((outcome, _),) = foretold(played, pod("high", priority=900, priorityClassName="never"))
    assert outcome == "preempt"


def test_a_dry_run_goes_by_the_class_of_pods_that_name_none(played: Played) -> None:
    played.create(pod("low-0"), pod("low-1"))
    played.expect_running("low-0", "low-1")
    played.create(CLASSES.replace("{name: never}", "{name: usual}") + "globalDefault: true\n")
    ((outcome, why),) = foretold(played, pod("high", priority=900))
    assert outcome == "wait"
    assert "preemptionPolicy is Never" in why
