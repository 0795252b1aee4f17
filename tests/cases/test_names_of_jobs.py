"""Whoever creates a Job, a pod or a gang asks for it by the name that they gave it, with queues and without."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from tests.cases.played import QUEUES, Played, nodes_config, played_on, pod
from tests.expecting import expect_soon

pytestmark = pytest.mark.sample(3)

OFF = {"hivedscheduler.microsoft.com/queue": "off"}


def job(
    name: str, count: int, gpus: int = 1, *, annotations: dict[str, str] | None = None, **spec: object
) -> dict[str, object]:
    """A Job as `kubectl create` makes it: its pods are no gang."""
    template = pod("", gpus)
    del template["metadata"]["name"]
    template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {"parallelism": count, "completions": count, "template": template, **spec},
    }


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    """Four GPUs without queues: `train` runs on three, one pod of `many` runs and two wait, and so on."""
    with played_on(tmp_path_factory.mktemp("plain"), nodes_config(4)) as played:
        played.create(job("train", 3))
        expect_soon(lambda: len(played.running_pods()) == 3)
        played.create(job("many", 3))
        expect_soon(lambda: len(played.running_pods()) == 4)
        played.create(job("indexed", 2, completionMode="Indexed"), job("asleep", 2, suspend=True), job("cpu", 1, 0))
        played.create(pod("bare"))
        expect_soon(lambda: len(played.pods()) == 10)  # controllers have made all pods
        names = {f"Job/default/{name}" for name in ("many", "indexed", "asleep", "train", "cpu")} | {"default/bare"}
        known = {"train": 3, "many": 3, "indexed": 2, "cpu": 1}
        expect_soon(lambda: set(rows(played)) == names and counts(played) == known)
        yield played


def hived(played: Played, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--server", played.running.extender.url])


def delete(played: Played, *words: str) -> Result:
    return hived(played, "delete", *words, "--kubeconfig", str(played.running.cluster.hived_kubeconfig))


def rows(played: Played, *words: str) -> dict[str, dict[str, object]]:
    found = hived(played, "get", "jobs", *words, "-o", "json")
    assert found.exit_code == 0, found.output
    return {one["name"]: one for one in json.loads(found.output)["items"]}


def counts(played: Played) -> dict[str, int]:
    """How many pods of each Job the service knows."""
    jobs = [one for one in played.inspector.jobs() if one.name.startswith("Job/") and one.pods]
    return {one.name.rpartition("/")[2]: len(one.pods) for one in jobs}


def test_lists_have_each_job_once(plain: Played) -> None:
    states = {name: row["state"] for name, row in rows(plain).items()}
    assert states == {
        "Job/default/many": "Waiting",
        "default/bare": "Waiting",
        "Job/default/indexed": "Waiting",
        "Job/default/asleep": "Held",
        "Job/default/train": "Running",
        "Job/default/cpu": "Running",
    }
    assert rows(plain)["Job/default/many"]["counts"] == {"wanted": 3, "running": 1, "waiting": 2}


def test_a_job_that_runs_in_part_is_among_those_that_wait_and_those_that_run(plain: Played) -> None:
    assert "Job/default/many" in rows(plain, "--waiting")
    running = {"Job/default/many", "Job/default/train", "Job/default/cpu"}
    assert set(rows(plain, "--state", "running")) == running


@pytest.mark.parametrize("name", ["many", "default/many", "job/many", "Job/many", "Job/default/many"])
def test_all_commands_take_the_same_names(plain: Played, name: str) -> None:
    assert hived(plain, "why", name).output.startswith("Job/default/many   Waiting   1 pod of 1 GPU")
    assert list(rows(plain, name)) == ["Job/default/many"]
    assert delete(plain, name, "--dry-run").output == "Job/default/many, which goes with its pods\n"


def test_a_pod_of_a_job_is_answered_with_its_job_and_deleted_alone(plain: Played) -> None:
    runs = next(name for name in plain.running_pods() if name.startswith("many-"))
    waits = next(name for name in plain.pods() if name.startswith("many-") and name != runs)
    assert hived(plain, "why", runs).output.splitlines()[1:] == ["  on n1"]
    assert "needs 1 pod of 1 GPU; default has 4 of 4 GPUs in use" in hived(plain, "why", waits).output
    for name in (runs, waits):
        told = delete(plain, name, "--dry-run").output
        assert f"  default/{name}\n" in told
        assert "kubectl delete -n default job many" in told


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("asleep", "suspended, and in no queue: hived release asleep -n default starts it"),
        ("cpu", "Job/default/cpu   Running   no cells"),
    ],
)
def test_a_job_without_cells_is_explained_and_deleted(plain: Played, name: str, sentence: str) -> None:
    assert sentence in hived(plain, "why", name).output
    assert delete(plain, name, "--dry-run").output == f"Job/default/{name}, which goes with its pods\n"


def test_a_whole_job_may_end_in_a_trial(plain: Played) -> None:
    assert "bare with ends=train would start at once" in hived(plain, "why", "bare", "--if", "ends=train").output


def test_a_job_that_is_deleted_goes_with_all_of_its_pods(plain: Played) -> None:
    assert delete(plain, "job/indexed", "--yes").exit_code == 0
    expect_soon(lambda: not any(name.startswith("indexed-") for name in plain.pods()))
    expect_soon(lambda: "Job/default/indexed" not in rows(plain))


def test_jobs_beside_the_queues_are_known_like_those_in_them(tmp_path_factory: pytest.TempPathFactory) -> None:
    with played_on(tmp_path_factory.mktemp("queues"), nodes_config(4, more=QUEUES), has_webhook=True) as played:
        played.create(job("first", 4))
        expect_soon(lambda: len(played.running_pods()) == 4)
        played.create(
            job("second", 2), job("beside", 2, annotations=OFF), job("asleep", 2, annotations=OFF, suspend=True)
        )
        wanted = {f"Job/default/{name}" for name in ("first", "second", "beside", "asleep")}
        expect_soon(lambda: set(rows(played)) == wanted)
        assert rows(played)["Job/default/first"]["counts"] == {"wanted": 4, "running": 4}
        assert rows(played)["Job/default/second"]["counts"] == {"wanted": 2}
        assert "in no queue: hived release asleep -n default starts it" in hived(played, "why", "asleep").output
        told = "default has 4 of 4 GPUs in use by first"
        expect_soon(lambda: told in hived(played, "why", "job/beside").output, every_s=0.1)  # it has its pods by now
        assert hived(played, "hold", "job/second").output.startswith("Job/default/second: Held")
        assert hived(played, "release", "Job/second").output.startswith("Job/default/second: Waiting")
        assert "no job 'beside' is in a queue" in hived(played, "hold", "beside").output
