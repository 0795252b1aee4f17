"""Jobs that have ended on an embedded cluster, as owners ask for them: with queues, and after a restart (rules 35)."""

import json
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from hived_cli import main
from hived_config.loader import load
from hived_extender.api.waiting import Job
from hived_extender.kube.client import KubeClient
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.embedded.nodes import EXIT_CODE, EXIT_REASON
from tests.extender.queues.embedded_jobs import CONFIG, JOBS, PODS, Jobs, jobs_on, template
from tests.extender.queues.test_restart import service

HISTORY = "historyFile: {}\n"


def ended(jobs: Jobs) -> dict[str, Job]:
    """The jobs that have ended, by short name."""
    return {job.name.rpartition("/")[2]: job for job in jobs.inspector.jobs({"ended": ("1d",)})}


def state(jobs: Jobs, name: str) -> str:
    """How a job has ended, "" if it has not."""
    found = ended(jobs).get(name)
    return "" if found is None else found.state


def say(jobs: Jobs, *words: str) -> str:
    """The output of a command."""
    result = CliRunner().invoke(main, [*words, "--server", jobs.running.extender.url])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_job_that_was_reclaimed_says_by_whom_after_it_has_completed(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        for name in ("lent", "own"):
            jobs.create(name, "a", seconds="3" if name == "lent" else "100000")
        jobs.expect(lambda: jobs.runs("lent", "own"))
        victim = next(job.name for job in jobs.inspector.jobs() if job.is_borrowed).rpartition("/")[2]
        jobs.create("owner", "b", priority="30")
        jobs.expect(lambda: jobs.runs("owner"), lambda: jobs.waits(victim))
        for name in {"own", "owner"} - {victim}:
            jobs.delete(name)
        jobs.expect(lambda: jobs.runs(victim))
        jobs.delete(victim)
        jobs.expect(lambda: state(jobs, victim) == "Deleted")
        (loss,) = ended(jobs)[victim].ended.evictions  # type: ignore[union-attr]  # one that has ended
        assert (loss.by, loss.why, loss.priority) == ("Job/default/owner", "reclaim", 30)
        assert (ended(jobs)[victim].queue, ended(jobs)[victim].priority) == ("a", 10)
        assert "for Job/default/owner (priority 30): lent cells were reclaimed" in say(jobs, "why", victim)


def test_use_counts_jobs_that_run_and_jobs_that_have_ended(tmp_path: Path) -> None:
    with jobs_on(tmp_path) as jobs:
        for name in ("gone", "stays"):
            jobs.create(name, "a", seconds="100000")
        jobs.expect(lambda: jobs.runs("gone", "stays"))
        jobs.delete("gone")
        jobs.expect(lambda: state(jobs, "gone") == "Deleted")
        (running,) = [job for job in jobs.inspector.jobs() if job.used is not None]
        assert running.used is not None
        (row,) = json.loads(say(jobs, "get", "usage", "--by", "queue", "-o", "json"))["items"]
        assert (row["name"], row["share"], row["jobs"], row["gpus"]) == ("a", 100.0, 2, running.used.gpus)
        assert running.used.gpus > 0
        assert row["gpu_hours"] >= running.used.gpu_hours
        assert say(jobs, "get", "usage", "--no-headers").split()[0] == "a"


@pytest.mark.parametrize("since", ["8d", "soon"])
def test_use_of_another_time_is_refused(since: str) -> None:
    result = CliRunner().invoke(main, ["get", "usage", "--since", since])
    assert (result.exit_code, "'--since'" in result.output) == (2, True)


def test_a_borrower_preempted_before_anyone_asked_says_by_whom_when_it_runs_and_when_it_has_ended(
    tmp_path: Path,
) -> None:
    with jobs_on(tmp_path) as jobs:
        jobs.create("own")
        jobs.expect(lambda: jobs.runs("own"))
        jobs.create("lent")
        jobs.expect(lambda: jobs.runs("lent"))
        jobs.create("owner", "b", priority="30")
        jobs.expect(lambda: jobs.runs("owner"), lambda: jobs.waits("lent"))
        jobs.delete("own")
        jobs.expect(lambda: jobs.runs("lent"))
        why = jobs.inspector.why("Job/default/lent")
        assert why is not None
        assert why.job.preempted is not None
        assert (why.job.state, why.job.preempted.by) == ("Running", "Job/default/owner")
        (pod,) = [pod for pod in jobs.kube.get(PODS)["items"] if pod["metadata"]["name"].startswith("lent-")]
        jobs.kube.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": {"phase": "Succeeded"}})
        jobs.expect(lambda: state(jobs, "lent") == "Completed")
        found = ended(jobs)["lent"]
        assert (found.vc, found.priority, found.queue, found.asks) == ("a", 10, "a", "1 node of 8 GPUs")
        for words in (("why", "lent"), ("get", "jobs", "--ended", "-o", "wide")):
            assert say(jobs, *words).count("owner (priority 30): lent cells were reclaimed") == 1


def test_a_job_says_its_exit_code_its_deadline_and_that_it_never_ran(tmp_path: Path) -> None:
    with jobs_on(tmp_path, CONFIG.replace("queues: {enabled: true}", "").replace("queue: {borrow: true}", "")) as jobs:
        notes = {EXIT_CODE: "137", EXIT_REASON: "OOMKilled"}
        pod = template("a", 2, "10", "0.5")
        pod["metadata"]["annotations"] |= notes
        jobs.kube.create(JOBS, {"metadata": {"name": "oom"}, "spec": {"backoffLimit": 0, "template": pod}})
        late = {"activeDeadlineSeconds": 1, "template": template("a", 2, "10", "1000")}
        jobs.kube.create(JOBS, {"metadata": {"name": "late"}, "spec": late})
        jobs.create("good", gpus=1, pods=2, seconds="0.5", suspend=False)
        jobs.create("held")
        jobs.expect(
            lambda: state(jobs, "oom") == "Failed",
            lambda: state(jobs, "late") == "Failed",
            lambda: state(jobs, "good") == "Completed",
        )
        jobs.delete("held")
        jobs.expect(lambda: state(jobs, "held") == "Deleted")
        text = say(jobs, "get", "jobs", "--ended", "-o", "wide")
        assert "exit code 137 (OOMKilled) of pod default/oom-" in text
        assert "DeadlineExceeded" in text
        assert "it never ran" in text
        assert say(jobs, "get", "jobs", "--state", "completed", "good").count("Completed") == 1
        assert "Failed" in say(jobs, "why", "oom")
        pages = [urlopen(f"{jobs.running.extender.url}/page/jobs/{name}") for name in ("oom", "default/oom", "job/oom")]
        assert pages[0].url.endswith("/page/jobs/Job/default/oom")
        assert all("exit code 137" in page.read().decode() for page in pages)
        jobs.delete("good")
        assert "ran" in say(jobs, "why", "good")
        assert "no such job" in say(jobs, "get", "jobs", "--ended", "--vc", "b").lower()


def test_a_job_that_is_suspended_to_wait_for_its_turn_has_not_ended(tmp_path: Path) -> None:
    with jobs_on(tmp_path, CONFIG.replace("queue: {borrow: true}", "")) as jobs:
        jobs.create("runs")
        jobs.expect(lambda: jobs.runs("runs"))
        jobs.create("behind", suspend=False)
        jobs.expect(lambda: jobs.state("behind") == "Waiting", lambda: jobs.waits("behind"))
        jobs.delete("runs")
        jobs.expect(lambda: state(jobs, "runs") == "Deleted", lambda: jobs.runs("behind"))
        assert state(jobs, "behind") == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--waiting",), "--waiting and --ended exclude each other"),
        (("--state", "running"), "--state Running and --ended exclude each other"),
        (("--since", "5"), "'--since': expected a length of time such as 90m"),
    ],
)
def test_words_that_do_not_go_with_ended_are_refused(words: tuple[str, ...], message: str) -> None:
    result = CliRunner().invoke(main, ["get", "jobs", "--ended", *words])
    assert (result.exit_code, message in result.output) == (2, True)


def test_a_new_process_knows_the_jobs_of_an_earlier_one_and_how_those_ended_that_nobody_saw(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(CONFIG + HISTORY.format(tmp_path / "history.db"))
    with (
        EmbeddedCluster(load(file).cluster) as cluster,
        closing(KubeClient.connect(kubeconfig=str(cluster.hived_kubeconfig))) as kube,
    ):
        with service(file, cluster, kube) as jobs:
            jobs.create("over", gpus=1, seconds="0.1")
            jobs.expect(lambda: state(jobs, "over") == "Completed")
            for name in ("ends", "goes", "stays"):
                jobs.create(name, gpus=1)
            jobs.expect(lambda: jobs.runs("ends", "goes", "stays"))
        for name in ("ends", "goes"):
            (uid,) = [pod for pod in kube.get(PODS)["items"] if pod["metadata"]["name"].startswith(name)]
            status = {"phase": "Succeeded"}
            kube.patch(f"{PODS}/{uid['metadata']['name']}/status", {"status": status})
        jobs.delete("goes")
        with service(file, cluster, kube) as jobs:
            jobs.expect(lambda: state(jobs, "goes") == "Unknown", lambda: state(jobs, "ends") == "Completed")
            assert state(jobs, "over") == "Completed"
            assert state(jobs, "stays") == ""
