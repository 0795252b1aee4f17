"""A job that needs less than it started with gives the rest back at once: the next one of its queue starts."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hived_extender.api.inspection import Inspector
from hived_lab.embedded.nodes import EXIT_CODE, RUN_SECONDS
from tests.cases.played import FOR_EVER, GPU, PATHS, PREFIX, QUEUES, Played, nodes_config, played_on, pod
from tests.expecting import expect_soon

pytestmark = pytest.mark.sample(3)

CONFIG = nodes_config(4, more=QUEUES)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Played]:
    with played_on(tmp_path, CONFIG, has_webhook=True) as played:
        yield played


def template(gpus: int = 1, **labels: str) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: gpus}}}
    metadata = {"annotations": {RUN_SECONDS: FOR_EVER}, "labels": labels}
    return {"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [container]}}


def job(name: str, pods: int, *, gpus: int = 1, completions: int | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods if completions is None else completions,
            "template": template(gpus),
        },
    }


def pods_of(played: Played, job: str) -> list[str]:
    return sorted(name for name in played.running_pods() if name.startswith(f"{job}-"))


def count_is(played: Played, job: str, count: int) -> Callable[[], bool]:
    return lambda: len(pods_of(played, job)) == count


def succeed(played: Played, *pods: str) -> None:
    for name in pods:
        notes = {EXIT_CODE: "0", RUN_SECONDS: "0"}
        played.kube.patch(f"{PATHS['Pod'].format('default')}/{name}", {"metadata": {"annotations": notes}})


def change(played: Played, name: str, **spec: Any) -> None:
    played.kube.patch(f"{PATHS['Job'].format('default')}/{name}", {"spec": spec})


def run_big_and_ask_small(played: Played, big: dict[str, Any]) -> None:
    """A job on all four GPUs, and one that waits for two."""
    played.create(big)
    expect_soon(count_is(played, "big", 4))
    played.create(job("small", 2))
    expect_soon(lambda: reason(played, "small") != "")


def scale_down(played: Played) -> None:
    """The job runs two pods from now on; its controller deletes the others."""
    change(played, "big", parallelism=2)


def reason(played: Played, name: str) -> str:
    found = Inspector(played.running.extender.url).queued_job(name)
    return "" if found is None else found.reason


def test_cells_of_a_job_that_is_scaled_down_are_the_next_jobs(cluster: Played) -> None:
    run_big_and_ask_small(cluster, job("big", 4, completions=10))
    scale_down(cluster)
    expect_soon(count_is(cluster, "small", 2))
    assert len(pods_of(cluster, "big")) == 2


def test_a_job_that_is_scaled_up_again_waits_for_its_turn(cluster: Played) -> None:
    run_big_and_ask_small(cluster, job("big", 4, completions=10))
    scale_down(cluster)
    expect_soon(count_is(cluster, "small", 2))
    change(cluster, "big", parallelism=4)
    expect_soon(count_is(cluster, "big", 0))
    assert len(pods_of(cluster, "small")) == 2


@pytest.fixture
def gang(cluster: Played) -> list[str]:
    """A gang of four plain pods that run, oldest first."""
    for number in range(4):
        cluster.create(member(f"big-{number}", 4))
    expect_soon(count_is(cluster, "big", 4))
    found = {name: one["metadata"] for name, one in cluster.pods().items()}
    return sorted(found, key=lambda name: (found[name]["creationTimestamp"], found[name]["uid"]))


@pytest.mark.parametrize("order", [(0, 3), (3, 0), (1, 2)], ids=["oldest first", "youngest first", "between"])
def test_a_gang_of_plain_pods_gives_back_with_each_member_that_succeeds_or_is_deleted(
    cluster: Played, gang: list[str], order: tuple[int, int]
) -> None:
    first, second = (gang[place] for place in order)
    cluster.create(job("next-a", 1), job("next-b", 1))
    succeed(cluster, first)
    expect_soon(count_is(cluster, "next", 1))
    cluster.delete(second)
    expect_soon(count_is(cluster, "next", 2))
    assert pods_of(cluster, "big") == sorted(set(gang) - {first, second})


def test_a_gang_of_plain_pods_gives_back_after_a_deletion_and_a_success(cluster: Played, gang: list[str]) -> None:
    cluster.create(job("next-a", 1), job("next-b", 1))
    cluster.delete(gang[3])
    expect_soon(count_is(cluster, "next", 1))
    succeed(cluster, gang[0])
    expect_soon(count_is(cluster, "next", 2))
    assert pods_of(cluster, "big") == sorted(gang[1:3])


def test_a_gang_of_plain_pods_whose_members_end_at_once_gives_back(cluster: Played, gang: list[str]) -> None:
    cluster.create(job("small", 2))
    expect_soon(lambda: reason(cluster, "small") != "")
    succeed(cluster, gang[0])
    cluster.delete(gang[3])
    expect_soon(count_is(cluster, "small", 2))
    assert pods_of(cluster, "big") == sorted(gang[1:3])


def replicas(kind: str, roles: str, first: str) -> dict[str, Any]:
    """A job of Kubeflow's with one pod of the first role and three workers."""
    counts = {first: 1, "Worker": 3}
    container = {"PyTorchJob": "pytorch", "TFJob": "tensorflow", "MPIJob": "mpi"}[kind]
    specs = {name: {"replicas": count, "template": template()} for name, count in counts.items()}
    for each in specs.values():
        each["template"]["spec"]["containers"][0]["name"] = container
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "big"},
        "spec": {"runPolicy": {"suspend": True}, roles: specs},
    }


def job_set() -> dict[str, Any]:
    """Four Jobs of one pod each."""
    child = {"spec": {"parallelism": 1, "completions": 1, "template": template()}}
    jobs = [{"name": "workers", "replicas": 4, "template": child}]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "big"},
        "spec": {"suspend": True, "replicatedJobs": jobs},
    }


@pytest.mark.parametrize(
    "big",
    [
        job("big", 4),
        job_set(),
        replicas("PyTorchJob", "pytorchReplicaSpecs", "Master"),
        replicas("TFJob", "tfReplicaSpecs", "Chief"),
        replicas("MPIJob", "mpiReplicaSpecs", "Launcher"),
    ],
    ids=lambda big: big["kind"],
)
def test_members_of_jobs_of_any_kind_give_back_what_they_had_when_they_succeed(
    cluster: Played, big: dict[str, Any]
) -> None:
    run_big_and_ask_small(cluster, big)
    succeed(cluster, *pods_of(cluster, "big")[2:])  # workers: the first of each kind goes on
    expect_soon(count_is(cluster, "small", 2))
    assert len(pods_of(cluster, "big")) == 2


def test_an_affinity_group_whose_pods_succeeded_gives_back(tmp_path: Path) -> None:
    with played_on(tmp_path, CONFIG.replace("queues: {enabled: true}\n", "")) as played:
        group = {"name": "g", "members": [{"podNumber": 4, "leafCellNumber": 1}]}
        spec = {"virtualCluster": "default", "priority": 1, "leafCellNumber": 1, "affinityGroup": group}
        notes = {f"{PREFIX}pod-scheduling-spec": json.dumps(spec)}
        played.create(*(pod(f"big-{number}", annotations=notes) for number in range(4)))
        expect_soon(count_is(played, "big", 4))
        played.create(pod("next", 2))
        expect_soon(lambda: played.why("next").sentence != "")
        succeed(played, "big-0", "big-3")
        played.expect_running("next")
        assert pods_of(played, "big") == ["big-1", "big-2"]


def member(name: str, count: int) -> dict[str, Any]:
    """A plain pod of a gang, in the words of the coscheduling plugin."""
    made = template()
    labels = {
        "pod-group.scheduling.sigs.k8s.io/name": "big",
        "pod-group.scheduling.sigs.k8s.io/min-available": str(count),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {**made["metadata"]["annotations"], f"{PREFIX}priority": "1"},
            "labels": labels,
        },
        "spec": {"schedulerName": "hived", **made["spec"]},
    }


def test_an_affinity_group_keeps_its_name_while_one_of_its_pods_goes_on(cluster: Played) -> None:
    members = [{"podNumber": 2, "leafCellNumber": 1}]
    spec = {"virtualCluster": "default", "leafCellNumber": 1, "affinityGroup": {"name": "pair", "members": members}}
    for number in range(2):
        cluster.create(pod(f"pair-{number}", annotations={f"{PREFIX}pod-scheduling-spec": json.dumps(spec)}))
    expect_soon(count_is(cluster, "pair", 2))
    succeed(cluster, "pair-0")
    expect_soon(lambda: [each.pods for each in cluster.inspector.jobs()] == [["default/pair-1"]])
    assert [each.name for each in cluster.inspector.jobs()] == ["default:pair"]
    succeed(cluster, "pair-1")
    found = expect_soon(lambda: cluster.inspector.jobs({"ended": ("1h",)}))
    assert [(each.name, each.state, each.pods) for each in found] == [
        ("default:pair", "Completed", ["default/pair-0", "default/pair-1"])
    ]
