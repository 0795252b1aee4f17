"""A Job goes on until as many pods have succeeded as it needs, also in a queue, where others wait behind it."""

from pathlib import Path
from typing import Any

import pytest

from hived_lab.embedded.nodes import EXIT_CODE, RUN_SECONDS
from tests.cases.played import GPU, PATHS, PREFIX, QUEUES, Played, nodes_config, played_on
from tests.expecting import expect_soon

pytestmark = pytest.mark.sample(3)

CONFIG = nodes_config(4)
QUEUED = nodes_config(4, more=QUEUES)


def job(name: str, gpus: int = 1, seconds: str = "1", code: str = "0", **spec: Any) -> dict[str, Any]:
    """A Job whose pods end so soon, with this code."""
    notes = {RUN_SECONDS: seconds, EXIT_CODE: code, f"{PREFIX}virtual-cluster": "default", f"{PREFIX}priority": "1"}
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: gpus}}}
    pod = {"schedulerName": "hived", "restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"annotations": notes}, "spec": pod}
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}
    }  # fmt: skip


def status(played: Played, name: str) -> dict[str, Any]:
    found: dict[str, Any] = played.kube.get(f"{PATHS['Job'].format('default')}/{name}").get("status", {})
    return found


def ends(played: Played, name: str) -> dict[str, str]:
    """How a Job has ended: its last condition, and the reason."""
    return {
        one["type"]: one["reason"]
        for one in status(played, name).get("conditions", [])
        if one["type"] in ("Complete", "Failed") and one["status"] == "True"
    }


def test_a_third_pod_is_made_when_one_has_succeeded(played: Played) -> None:
    played.create(job("tail", parallelism=2, completions=3))
    expect_soon(lambda: ends(played, "tail"))
    assert ends(played, "tail") == {"Complete": "CompletionsReached"}
    found = status(played, "tail")
    assert (found["succeeded"], found.get("failed"), found.get("active")) == (3, None, None)
    assert found["startTime"] <= found["completionTime"]
    assert len(played.pods()) == 3


def test_a_larger_tail_than_the_cells_goes_on_as_they_get_free(played: Played) -> None:
    played.create(job("tail", 4, "0", parallelism=2, completions=3))
    expect_soon(lambda: ends(played, "tail") == {"Complete": "CompletionsReached"})
    found = status(played, "tail")
    assert (found["succeeded"], found.get("failed")) == (3, None), "each pod has all cells in its turn, and succeeds"
    assert len(played.pods()) == 3, "a pod that waits for cells is not made again"


def test_each_index_of_an_indexed_job_has_a_pod(played: Played) -> None:
    played.create(job("tail", parallelism=2, completions=3, completionMode="Indexed"))
    expect_soon(lambda: ends(played, "tail") == {"Complete": "CompletionsReached"})
    assert status(played, "tail")["completedIndexes"] == "0-2"
    assert {pod["spec"]["hostname"] for pod in played.pods().values()} == {"tail-0", "tail-1", "tail-2"}


def test_a_job_whose_pods_fail_too_often_has_failed_and_frees_its_cells(played: Played) -> None:
    played.create(job("broken", 4, "0", "1", backoffLimit=1))
    expect_soon(lambda: ends(played, "broken") == {"Failed": "BackoffLimitExceeded"})
    assert status(played, "broken")["failed"] == 2
    played.create(job("next", 4, "0"))
    expect_soon(lambda: ends(played, "next"))


def test_fewer_pods_at_a_time_free_cells_for_others(played: Played) -> None:
    played.create(job("wide", 2, "100000", parallelism=2, completions=2))
    expect_soon(lambda: len(played.running_pods()) == 2)
    played.create(job("next", 2, "100000"))
    played.kube.patch(f"{PATHS['Job'].format('default')}/wide", {"spec": {"parallelism": 1}})
    expect_soon(lambda: sorted(name.split("-")[0] for name in played.running_pods()) == ["next", "wide"])
    assert "failed" not in status(played, "wide")


@pytest.mark.parametrize(
    ("spec", "code", "end"),
    [
        ({"parallelism": 2, "completions": 3}, "0", "Complete"),
        ({"parallelism": 2, "completions": 2, "backoffLimit": 0}, "1", "Failed"),
    ],
    ids=["completions", "failures"],
)
def test_a_job_behind_it_in_a_queue_starts_when_it_has_ended(
    tmp_path: Path, spec: dict[str, int], code: str, end: str
) -> None:
    with played_on(tmp_path, QUEUED, has_webhook=True) as played:
        played.create(job("tail", 2, code=code, **spec))
        expect_soon(lambda: not played.kube.get(f"{PATHS['Job'].format('default')}/tail")["spec"]["suspend"])
        played.create(job("next", 4, "0"))
        expect_soon(lambda: list(ends(played, "next")) == ["Complete"])
        expect_soon(lambda: ends(played, "tail"))  # its cells are free before its controller has counted its pods
        assert list(ends(played, "tail")) == [end]
