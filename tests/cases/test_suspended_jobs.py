"""The owner of a queued job suspends it with kubectl, until the owner resumes it (rule 32.7)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hived_extender.api.inspection import Inspector
from tests.cases.played import PATHS, Played, played_on
from tests.cases.test_shrunk_jobs import CONFIG, job, pods_of, reason
from tests.expecting import expect_equal, expect_soon
from tests.extender.queues.embedded_jobs import PYTORCH_JOBS, template

pytestmark = pytest.mark.sample(3)

EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Played]:
    with played_on(tmp_path, CONFIG, has_webhook=True) as played:
        yield played


def suspend(played: Played, name: str, is_suspended: bool = True) -> None:
    played.kube.patch(f"{PATHS['Job'].format('default')}/{name}", {"spec": {"suspend": is_suspended}})


def expect_pods(played: Played, name: str, count: int) -> None:
    expect_equal(lambda: len(pods_of(played, name)), count, f"pods of {name}")


def expect_state(played: Played, name: str, state: str) -> None:
    def look() -> str:
        found = Inspector(played.running.extender.url).queued_job(name)
        return "" if found is None else found.state

    expect_equal(look, state, f"the state of {name}")


def messages(played: Played, name: str) -> list[str]:
    events = played.kube.get(EVENTS)["items"]
    return [one["message"] for one in events if one["involvedObject"]["name"] == name]


def run_two(played: Played) -> None:
    """`first` on all cells is suspended by its owner, and `second` runs on them."""
    played.create(job("first", 4))
    expect_pods(played, "first", 4)
    played.create(job("second", 4))
    suspend(played, "first")
    expect_pods(played, "second", 4)
    expect_state(played, "first", "Held")


def test_a_job_that_its_owner_suspends_gives_its_cells_back_and_stays_suspended(cluster: Played) -> None:
    run_two(cluster)
    played_out = f"{PATHS['Job'].format('default')}/second"
    cluster.kube.delete(played_out)
    expect_pods(cluster, "second", 0)
    cluster.create(job("third", 4))
    expect_pods(cluster, "third", 4)  # behind it in the queue
    assert "its owner has suspended it" in reason(cluster, "first")
    expect_soon(lambda: any("its owner has suspended it" in text for text in messages(cluster, "first")))


def test_one_that_its_owner_resumes_waits_for_its_turn_with_an_event(cluster: Played) -> None:
    run_two(cluster)
    suspend(cluster, "first", False)
    expect_soon(lambda: any("its owner has resumed it" in text for text in messages(cluster, "first")))
    expect_state(cluster, "first", "Waiting")
    assert pods_of(cluster, "first") == [], "it waits for its turn"
    cluster.kube.delete(f"{PATHS['Job'].format('default')}/second")
    expect_pods(cluster, "first", 4)


def test_one_that_its_owner_resumes_runs_where_there_is_room(cluster: Played) -> None:
    cluster.create(job("first", 4))
    expect_pods(cluster, "first", 4)
    suspend(cluster, "first")
    expect_state(cluster, "first", "Held")
    suspend(cluster, "first", False)
    expect_pods(cluster, "first", 4)
    expect_state(cluster, "first", "Running")


def test_a_pytorch_job_that_its_owner_suspends_stays_suspended(cluster: Played) -> None:
    roles: dict[str, Any] = {"Worker": {"replicas": 1, "template": template("default", 4, "10", "100000")}}
    spec = {"runPolicy": {"suspend": True}, "pytorchReplicaSpecs": roles}
    cluster.kube.create(PYTORCH_JOBS, {"metadata": {"name": "first"}, "spec": spec})
    expect_pods(cluster, "first", 1)
    cluster.create(job("second", 4))
    cluster.kube.patch(f"{PYTORCH_JOBS}/first", {"spec": {"runPolicy": {"suspend": True}}})
    expect_pods(cluster, "second", 4)
    expect_state(cluster, "first", "Held")
    assert pods_of(cluster, "first") == [], "a suspended job has no pods"
