"""All pods of a job one by one: those that wait or run, have ended, or are not made yet."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.nodes import EXIT_CODE, RUN_SECONDS
from hived_lab.start import Embedded, start_embedded
from tests.cli.test_holding import CONFIGURATION
from tests.expecting import expect_soon

JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"


def spec(count: int, at_once: int, seconds: str = "100000", exit_code: int = 0, **more: Any) -> dict[str, Any]:
    """The spec of an indexed Job of pods with a GPU each, which run for so long."""
    containers = [{"name": "m", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    annotations = {RUN_SECONDS: seconds, EXIT_CODE: str(exit_code)}
    pod = {"schedulerName": "hived", "restartPolicy": "Never", "containers": containers}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    return {"completions": count, "parallelism": at_once, "completionMode": "Indexed", "template": template, **more}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    file = tmp_path_factory.mktemp("pods") / "cluster.yaml"
    file.write_text(CONFIGURATION)
    with start_embedded(file) as running:
        kube = KubeClient.connect(kubeconfig=str(running.cluster.hived_kubeconfig))
        jobs = {
            "array": spec(5, 2),
            "asleep": spec(3, 3, suspend=True),
            "done": spec(2, 2, "0"),
            "broken": spec(2, 1, "0", 3, backoffLimit=0),
        }
        for name, each in jobs.items():
            kube.create("/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": name}, "spec": each})
        kube.create(
            JOB_SETS,
            {
                "metadata": {"name": "set"},
                "spec": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": spec(2, 1)}}]},
            },
        )
        yield running
        kube.close()


def run(cluster: Embedded, *words: str) -> Result:
    where = ["--server", cluster.extender.url, "--kubeconfig", str(cluster.cluster.hived_kubeconfig)]
    return CliRunner().invoke(main, [*words, *where])


def pods(cluster: Embedded, *words: str) -> list[tuple[str, str]]:
    """The name of each pod, without what was drawn for it, and its state; and why that is so."""
    result = run(cluster, "get", "jobs", *words, "--pods", "-o", "json")
    members = json.loads(result.output)["items"][0].get("members", []) if result.exit_code == 0 else []
    told = [(each["name"].removeprefix("default/"), each["state"], each.get("reason", "")) for each in members]
    return [(name if "not made" in why else name[:-6], f"{state} {why}".strip()) for name, state, why in told]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ["array"],
            [("array-0", "Running"), ("array-1", "Running"), ("array-2 to array-4", "Waiting it is not made yet")],
        ),
        (["asleep"], [("asleep-0 to asleep-2", "Held it is not made yet")]),
        (["set"], [("set-w-0-0", "Running"), ("set-w-0-1", "Waiting it is not made yet")]),
        (["done", "--ended"], [("done-0", "Completed exit code 0"), ("done-1", "Completed exit code 0")]),
        (["broken", "--ended"], [("broken-0", "Failed exit code 3")]),
    ],
)
def test_a_job_has_all_of_its_pods(cluster: Embedded, words: list[str], expected: list[tuple[str, str]]) -> None:
    expect_soon(lambda: pods(cluster, *words) == expected)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("array-1", ["Job/default/array   Running"]),
        ("array-3", ["default/array-3   Waiting   of Job/default/array", "it is not made yet"]),
        ("default/asleep-2", ["default/asleep-2   Held", "it is not made yet"]),
        ("pod/broken-0", ["   Failed   of Job/default/broken", "exit code 3, ended ", " on n"]),
    ],
)
def test_one_pod_is_named_by_its_index(cluster: Embedded, name: str, said: list[str]) -> None:
    expect_soon(lambda: all(each in run(cluster, "why", name).output for each in said))


def test_an_index_that_the_job_does_not_have_is_unknown(cluster: Embedded) -> None:
    result = run(cluster, "why", "array-5")
    assert (result.exit_code, "no job, gang, group or pod 'array-5'" in result.stderr) == (1, True)


def test_the_table_of_jobs_that_have_ended_has_their_pods(cluster: Embedded) -> None:
    expect_soon(lambda: "exit code 3" in run(cluster, "get", "jobs", "broken", "--ended", "--pods").output)
