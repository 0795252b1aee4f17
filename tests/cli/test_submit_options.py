"""`hived submit --time, --array, --begin, --after`: what they write into a job, and what they refuse."""

import time
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3
import yaml
from click.testing import CliRunner

from hived_cli import main
from hived_extender.jobs.kinds.marks import AFTER, BEGIN, HELD
from hived_extender.jobs.progress import EXPECTED_DURATION, write_time
from hived_extender.kube.client import KubeClient, KubeError
from hived_jobs.kinds import read_jobs
from hived_jobs.options import Options, read_after, read_begin, read_limit, write_options
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.start import start_embedded
from tests.cli.test_submit_objects import CONFIGURATION, JOB, JOBS, RAY, TORCH
from tests.expecting import expect_soon
from tests.job_files import ALL

NOW_S = 1_796_040_000.0
FAR = "2100-01-01T00:00:00Z"
CRON = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: x}]}}}}
"""
STATEFUL = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec: {template: {spec: {containers: [{name: main, image: x}]}}}
"""
LEADER = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: lws}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 2
    workerTemplate: {spec: {containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: note}
spec: {containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
TRAIN = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: tune}
spec: {runtimeRef: {name: torch-distributed}}
"""
RAY_JOB = RAY.replace("RayService", "RayJob").replace(
    "rayClusterConfig", "shutdownAfterJobFinishes: true\n  rayClusterSpec"
)
LIMIT = "activeDeadlineSeconds"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """An API server with the kinds of an embedded cluster."""
    api_server = ApiServer()
    api_server.start()
    yield api_server
    api_server.stop()


@pytest.fixture
def run(write, monkeypatch, tmp_path):
    """A dry run that prints objects, without a cluster unless one is named."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("CONFIG", "KUBECONFIG", "KUBE_APISERVER_ADDRESS"):
        monkeypatch.delenv(variable, raising=False)
    write(CONFIGURATION, "hivedscheduler.yaml")
    return lambda text, *options: CliRunner().invoke(
        main, ["submit", write(text), "--dry-run", "-o", "yaml", "--user", "me", *options]
    )


@pytest.fixture
def printed(run, server):
    """All objects that would be created in a cluster with the kinds of an embedded one, or without a cluster."""

    def _printed(text: str, *options: str, in_cluster: bool = True) -> list[Any]:
        result = run(text, *options, *(["--api-server", server.url] if in_cluster else []))
        assert result.exit_code == 0, result.output
        return list(yaml.safe_load_all(result.stdout))

    return _printed


def at(value: Any, place: str) -> Any:
    """The value at keys with dots between them; numbers are those of items."""
    for step in place.split("."):
        value = value[int(step) if step.isdecimal() else step]
    return value


@pytest.mark.parametrize(
    ("text", "in_cluster", "place"),
    [
        (JOB, True, f"spec.{LIMIT}"),
        (ALL["JobSet"], True, f"spec.replicatedJobs.0.template.spec.{LIMIT}"),
        (TORCH, True, f"spec.runPolicy.{LIMIT}"),
        (POD, True, f"spec.{LIMIT}"),
        (CRON, False, f"spec.jobTemplate.spec.{LIMIT}"),
        (RAY_JOB, False, f"spec.{LIMIT}"),
        (JOB, False, f"spec.{LIMIT}"),
        (ALL["Volcano Job"], False, f"spec.{LIMIT}"),
        (ALL["Volcano Job"], True, f"spec.tasks.0.template.spec.{LIMIT}"),
    ],
    ids=[
        "Job",
        "JobSet",
        "PyTorchJob",
        "Pod",
        "CronJob",
        "RayJob",
        "pods of a Job",
        "pods of a Volcano Job",
        "Volcano Job",
    ],
)
def test_a_run_limit_is_where_the_kind_has_it(text: str, in_cluster: bool, place: str, printed) -> None:
    assert at(printed(text, "--time", "1h30m", in_cluster=in_cluster)[-1], place) == 5400


def test_a_run_limit_of_a_kind_without_one_is_told_to_hived(printed) -> None:
    [job] = printed(TRAIN, "--time", "2h", in_cluster=False)
    assert job["metadata"]["annotations"][EXPECTED_DURATION] == "7200s"


@pytest.mark.parametrize(
    ("array", "spec", "env"),
    [
        ("6", (6, 6), {}),
        ("6%2", (6, 2), {}),
        ("0-4%9", (5, 5), {}),
        ("1-9:4", (3, 3), {"HIVED_ARRAY_FIRST": "1", "HIVED_ARRAY_STEP": "4"}),
    ],
)
def test_an_array_is_an_indexed_job(array: str, spec: tuple[int, int], env: dict[str, str], printed) -> None:
    job = printed(JOB, "--array", array)[-1]["spec"]
    assert (job["completions"], job["parallelism"], job["completionMode"]) == (*spec, "Indexed")
    container = job["template"]["spec"]["containers"][0]
    assert {one["name"]: one["value"] for one in container.get("env", ())} == env


@pytest.mark.parametrize(
    ("text", "in_cluster", "place"),
    [
        (JOB, True, "spec.suspend"),
        (ALL["JobSet"], True, "spec.suspend"),
        (TORCH, True, "spec.runPolicy.suspend"),
        (RAY_JOB, False, "spec.suspend"),
        (TRAIN, False, "spec.suspend"),
    ],
    ids=["Job", "JobSet", "PyTorchJob", "RayJob", "TrainJob"],
)
def test_a_job_that_begins_later_is_created_suspended(text: str, in_cluster: bool, place: str, printed) -> None:
    job = printed(text, "--begin", FAR, in_cluster=in_cluster)[-1]
    annotations = job["metadata"]["annotations"]
    assert (at(job, place), annotations[BEGIN], annotations[HELD]) == (True, FAR, "true")


@pytest.mark.parametrize(
    ("text", "in_cluster", "place"),
    [
        (POD, True, ""),
        (STATEFUL, False, "spec.template"),
        (JOB, False, ""),
        (ALL["Volcano Job"], False, ""),
    ],
    ids=["Pod", "StatefulSet", "pods of a Job", "pods of a Volcano Job"],
)
def test_pods_that_begin_later_have_a_gate(text: str, in_cluster: bool, place: str, printed) -> None:
    made = printed(text, "--begin", FAR, in_cluster=in_cluster)[-1]
    pod = at(made, place) if place else made
    assert pod["spec"]["schedulingGates"] == [{"name": "hivedscheduler.microsoft.com/queue"}]
    assert pod["metadata"]["annotations"][BEGIN] == FAR


RUNS_ON = RAY_JOB.replace("shutdownAfterJobFinishes: true", "shutdownAfterJobFinishes: false")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (ALL["Deployment"], ["--time", "2h"], "a Deployment does not end, so it has no run limit: leave --time out"),
        (STATEFUL, ["--time", "2h"], "a StatefulSet does not end"),
        (JOB, ["--time", "long"], "expected a length of time such as 90m, 1h30m, 2d or 1-12:00:00, found 'long'"),
        (JOB, ["--time", "0"], "--time: a limit without end is none: leave it out"),
        (JOB, ["--time", "UNLIMITED"], "--time: a limit without end is none: leave it out"),
        (TORCH, ["--array", "5"], "a PyTorchJob has no array: write its template into a Job (batch/v1)"),
        (POD, ["--array", "5"], "a Pod has no array"),
        (JOB, ["--array", "0"], "found 0 indexes, expected 1 to 100,000"),
        (JOB, ["--array", "9-1"], "expected a first index up to the last one"),
        (JOB, ["--array", "1-9:0"], "a step of at least 1"),
        (JOB, ["--array", "5%0"], "with %0 none would ever run"),
        (JOB, ["--array", "1,3"], "expected N, A-B, A-B:STEP, and %LIMIT behind it"),
        (JOB, ["--begin", "2020-01-01T00:00:00Z"], "that has passed"),
        (
            JOB,
            ["--begin", "soon"],
            "--begin: expected a moment such as 18:00, 6pm, tomorrow, 'friday 9:00', 2026-12-24,",
        ),
        (JOB, ["--begin", "12/24/26"], "or so long from now: +2h, now+30m, now+1hour; found '12/24/26'"),
        (JOB, ["--begin", "+90"], "--begin: expected a length of time such as 90m"),
        (JOB, ["--begin", "+0m"], "expected a length of time above 0"),
        (CRON, ["--begin", "+1h"], "hived cannot hold a CronJob back: give it a schedule of that time"),
        (RAY, ["--begin", "+1h"], "hived cannot hold a RayService back: submit it at that time"),
        (RUNS_ON, ["--begin", "+1h"], "KubeRay suspends no RayJob whose cluster outlives it"),
        (JOB, ["--after", "prep"], "--after: there is no cluster to look for these jobs in"),
        (JOB, ["--after", "afternotok:prep"], "found 'afternotok', expected afterok (it succeeded) or afterany"),
        (JOB, ["--after", "prep,"], "expected the names of jobs, such as prepare or afterany:load:prepare"),
        ("{apiVersion: v1, kind: Secret, metadata: {name: s}}", ["--time", "2h"], "there is none in the files"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_remedy(text: str, options: list[str], message: str, run) -> None:
    result = run(text, *options)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", (("afterok", "a"),)),
        ("a,afterany:b:c", (("afterok", "a"), ("afterany", "b"), ("afterany", "c"))),
        ("afterok:a,a", (("afterok", "a"),)),
        ("Job/default/a", (("afterok", "Job/default/a"),)),
    ],
)
def test_after_is_read_as_slurm_writes_it(text: str, expected: tuple[tuple[str, str], ...]) -> None:
    assert read_after(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("+1h30m", "2026-11-30T13:30:00Z"),
        ("now+1hour", "2026-11-30T13:00:00Z"),
        ("now + 30 minutes", "2026-11-30T12:30:00Z"),
        ("now+60", "2026-11-30T12:01:00Z"),
        ("18:00", "2026-11-30T17:00:00Z"),
        ("13:00", "2026-12-01T12:00:00Z"),
        ("6:30 PM", "2026-11-30T17:30:00Z"),
        ("12am", "2026-11-30T23:00:00Z"),
        ("noon", "2026-12-01T11:00:00Z"),
        ("tomorrow", "2026-11-30T23:00:00Z"),
        ("9am tomorrow", "2026-12-01T08:00:00Z"),
        ("tomorrow+9h", "2026-12-01T08:00:00Z"),
        ("friday", "2026-12-03T23:00:00Z"),
        ("mon 9:00", "2026-12-07T08:00:00Z"),
        ("mon 19:00", "2026-11-30T18:00:00Z"),
        ("2026-12-24", "2026-12-23T23:00:00Z"),
        ("2026-12-24T18:00", "2026-12-24T17:00:00Z"),
        ("2027-07-01 18:00:30", "2027-07-01T16:00:30Z"),
        ("2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z"),
        ("2026-12-24T18:00+05:00", "2026-12-24T13:00:00Z"),
    ],
)
def test_a_moment_is_read_as_people_type_it_in_the_zone_of_their_machine(text: str, expected: str, berlin) -> None:
    found = read_begin(text, NOW_S)
    assert found is not None
    assert write_time(found) == expected


@pytest.fixture
def berlin(monkeypatch) -> Iterator[None]:
    """A machine in Berlin, where it is Monday, 13:00."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_now_holds_nothing_back() -> None:
    assert read_begin("now", NOW_S) is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("90m", 5400), ("1h30m", 5400), ("1 Hour 30 minutes", 5400), ("90min", 5400), ("2:00", 120),
        ("2:00:00", 7200), ("1-12", 129_600), ("1-12:00:00", 129_600), ("2weeks", 1_209_600),
    ],
)  # fmt: skip
def test_a_run_limit_is_read_as_people_and_slurm_write_it(text: str, seconds: int) -> None:
    assert read_limit(text) == seconds


def test_the_answer_has_the_moment_in_utc_and_here_and_the_length(run, write, berlin) -> None:
    result = run(POD, "--begin", "2100-01-01T18:00", "--time", "90")
    assert result.exit_code == 0, result.output
    assert "begin: '2100-01-01T17:00:00Z'" in result.stdout
    [document] = read_jobs(write(POD))
    told = write_options(document, Options(read_limit("90"), begin_s=read_begin("2100-01-01T18:00", NOW_S)), None)
    assert told == [
        "run limit 1:30:00 (hours:minutes:seconds)",
        "begins at 2100-01-01T17:00:00Z (2100-01-01 18:00 CET) at the earliest",
    ]


# ---- on a cluster


@pytest.fixture(scope="module", params=["", "rules: 2\nqueues: {enabled: true}\n"], ids=["no queues", "queues"])
def cluster(request, tmp_path_factory) -> Iterator[SimpleNamespace]:
    """A cluster of four GPUs, without queues and with them."""
    file = tmp_path_factory.mktemp("options") / "cluster.yaml"
    file.write_text(request.param + CONFIGURATION)
    with start_embedded(file, has_webhook=bool(request.param)) as running:
        yield SimpleNamespace(
            api_url=running.cluster.api_url, service_url=running.extender.url, has_queues=bool(request.param)
        )


@pytest.fixture
def kube(cluster) -> Iterator[KubeClient]:
    client = KubeClient.connect(cluster.api_url)
    yield client
    for one in client.list_objects(JOBS, dict).items:
        client.delete(f"{JOBS}/{one['metadata']['name']}", with_dependents=True)
    for one in client.list_objects("/api/v1/namespaces/default/pods", dict).items:
        with suppress(KubeError):  # its job was faster
            client.delete_pod("default", one["metadata"]["name"], grace_period_s=0)
    expect_soon(lambda: not client.list_objects("/api/v1/pods", dict).items)
    client.close()


@pytest.fixture
def submit(cluster, kube, write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    where = ["--api-server", cluster.api_url, "--server", cluster.service_url, "--vc", "research", "--user", "me"]
    return lambda text, *options: CliRunner().invoke(main, ["submit", write(text), *where, *options])


def named(name: str) -> str:
    return JOB.replace("name: sweep", f"name: {name}").replace("completions: 3", "completions: 2")


def has_pods(kube: KubeClient, name: str) -> bool:
    return kube.get(f"{JOBS}/{name}").get("status", {}).get("ready") == 2


def test_a_job_waits_until_another_has_succeeded(submit, kube: KubeClient) -> None:
    submit(named("prep"))
    result = submit(named("use"), "--after", "prep")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "waits for Job prep (afterok)"), result.stderr
    assert "Warning" not in result.stderr
    uid = kube.get(f"{JOBS}/prep")["metadata"]["uid"]
    assert kube.get(f"{JOBS}/use")["metadata"]["annotations"][AFTER] == f"afterok:Job.batch/prep/{uid}"
    expect_soon(lambda: has_pods(kube, "prep"))
    assert kube.get(f"{JOBS}/use")["spec"]["suspend"] is True
    for pod in kube.list_objects("/api/v1/namespaces/default/pods", dict, label_selector="job-name=prep").items:
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
        kube.patch(path, {"status": {"phase": "Succeeded"}})
    expect_soon(lambda: has_pods(kube, "use"))


def test_a_job_and_a_pod_begin_at_their_moment(submit, kube: KubeClient) -> None:
    result = submit(f"{named('late')}---\n{POD}", "--begin", "+2s")
    assert (result.exit_code, result.stdout.count("begins at ")) == (0, 2), result.stderr
    expect_soon(lambda: has_pods(kube, "late"))
    expect_soon(lambda: kube.get("/api/v1/namespaces/default/pods/note").get("status", {}).get("phase") == "Running")


def test_lists_and_why_say_when_a_job_begins(submit, cluster, kube: KubeClient) -> None:
    submit(named("late"), "--begin", FAR)
    where = ["--server", cluster.service_url]

    def said(*words: str) -> str:
        return CliRunner().invoke(main, [*words, *where]).stdout

    expect_soon(lambda: f"begins at {FAR}, as its author says" in said("get", "jobs"))
    assert f"begins at {FAR}, as its author says" in said("why", "late")


SET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: first}
spec:
  replicatedJobs:
  - name: w
    template:
      spec:
        parallelism: 2
        completions: 2
        template:
          spec:
            restartPolicy: Never
            containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 2}}}]
"""
FULL = "nvidia.com/gpu: 2"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (JOB.replace("nvidia.com/gpu: 1", FULL), "jobs"),
        (SET, "jobsets"),
        (TORCH.replace("nvidia.com/gpu: 1", FULL), "pytorchjobs"),
    ],
    ids=["Job", "JobSet", "PyTorchJob"],
)
def test_the_run_limit_of_a_job_bounds_the_wait_of_the_next(text: str, kind: str, submit, cluster, kube) -> None:
    assert submit(text, "--time", "2h").exit_code == 0
    expect_soon(lambda: len(running(kube)) == 2)
    submit(named("next"))
    where = ["--server", cluster.service_url]
    try:
        expect_soon(lambda: "UNTIL AT THE LATEST" in CliRunner().invoke(main, ["why", "next", *where]).stdout)
        expect_soon(lambda: "(bounded)" in CliRunner().invoke(main, ["get", "jobs", *where]).stdout)
    finally:
        group = {"jobs": "batch/v1", "jobsets": "jobset.x-k8s.io/v1alpha2", "pytorchjobs": "kubeflow.org/v1"}[kind]
        path = f"/apis/{group}/namespaces/default/{kind}"
        for one in kube.list_objects(path, dict).items:
            kube.delete(f"{path}/{one['metadata']['name']}", with_dependents=True)


def running(kube: KubeClient) -> list[Any]:
    """The pods that run."""
    return [
        one for one in kube.list_objects("/api/v1/pods", dict).items if one.get("status", {}).get("phase") == "Running"
    ]


def test_a_set_whose_pods_have_gates_is_held_and_released_by_its_name(cluster, submit, kube: KubeClient) -> None:
    result = submit(LEADER, "--begin", FAR)
    end = "it waits in the queue of research" if cluster.has_queues else "it is held: hived starts it once it may"
    assert result.stdout.splitlines()[-1].endswith(end)
    where = ["--server", cluster.service_url]

    def said(*words: str) -> str:
        return CliRunner().invoke(main, [*words, *where]).output

    expect_soon(lambda: f"begins at {FAR}, as its author says" in said("why", "lws"))
    assert said("why", "lws").startswith("LeaderWorkerSet/default/lws   Held   ")
    released = said("release", "lws", "--now", "--api-server", cluster.api_url)
    expect_soon(lambda: all(one["spec"].get("nodeName") for one in kube.list_objects("/api/v1/pods", dict).items))
    kube.delete("/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets/lws", with_dependents=True)
    assert released == "LeaderWorkerSet/default/lws: released\n"


def test_the_page_of_queues_says_where_there_are_none(cluster) -> None:
    answer = urllib3.request("GET", f"{cluster.service_url}/page/queues", headers={"Accept": "text/html"})
    assert (answer.status == 404) is not cluster.has_queues
    assert ("There are no queues: jobs get cells as they come" in answer.data.decode()) is not cluster.has_queues


def test_jobs_of_all_namespaces_are_listed_as_kubectl_does(cluster) -> None:
    assert CliRunner().invoke(main, ["get", "jobs", "-A", "--server", cluster.service_url]).exit_code == 0


def test_the_runs_of_a_cron_job_are_said_to_wait_in_the_queue(cluster, submit, kube: KubeClient) -> None:
    result = submit(CRON.replace("image: x", "image: x, resources: {limits: {nvidia.com/gpu: 1}}"))
    end = "makes Jobs which wait in the queue of research" if cluster.has_queues else "starts as soon as there is room"
    assert result.stdout.splitlines()[-1].endswith(f"; it {end}")
    kube.delete("/apis/batch/v1/namespaces/default/cronjobs/nightly")


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("nothing", "there is no job object nothing in namespace default that hived could wait for"),
        ("lab/prep", "it is in namespace lab, and a job of default waits for jobs of default alone"),
        ("Job/lab/prep", "it is in namespace lab"),
        ("JobSet/sweep", "there is no job object sweep in namespace default"),
    ],
)
def test_a_job_to_wait_for_that_is_not_here_is_refused(after: str, message: str, submit, kube: KubeClient) -> None:
    submit(JOB)
    result = submit(named("use"), "--after", after)
    assert (result.exit_code, message in result.stderr) == (1, True), result.stderr
    with pytest.raises(KubeError, match="404"):
        kube.get(f"{JOBS}/use")


def test_a_job_that_has_failed_already_is_not_waited_for(submit, kube: KubeClient) -> None:
    submit(JOB.replace("spec:\n", "spec:\n  backoffLimit: 0\n", 1))
    expect_soon(lambda: has_pods(kube, "sweep"))
    for pod in kube.list_objects("/api/v1/namespaces/default/pods", dict).items:
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/status"
        with suppress(KubeError):  # the first failure ends the job, and the other pod
            kube.patch(path, {"status": {"phase": "Failed"}})
    expect_soon(lambda: "Failed" in str(kube.get(f"{JOBS}/sweep").get("status", {}).get("conditions")))
    result = submit(named("use"), "--after", "sweep")
    assert (result.exit_code, "it has failed" in result.stderr) == (1, True)
    assert submit(named("use"), "--after", "afterany:sweep").exit_code == 0
    expect_soon(lambda: has_pods(kube, "use"))
