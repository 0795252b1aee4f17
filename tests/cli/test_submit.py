"""`hived submit`: jobs and manifests become pods, or the reason is told why not."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from hived.values.errors import UserError
from hived_cli import main
from hived_cli.helpers.answers import worst
from hived_cli.submit import print_forecasts
from hived_extender.api.inspection import Inspector
from hived_extender.api.waiting import MASKED, PodOutcome, Victim, WhatIfResult
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.kube.client import PODS, KubeClient, KubeError
from hived_jobs import creation
from hived_jobs.configuration import publish
from hived_jobs.records import KIND, record_path
from hived_jobs.submission import PlannedJob, PlannedPod
from hived_lab.embedded.apiserver.server import ApiServer
from hived_lab.start import Embedded, start_embedded
from tests.expecting import expect_soon
from tests.stub_server import Request, StubServer

pytestmark = pytest.mark.usefixtures("without_operators")

CONFIGURATION = """\
physicalCluster:
  skuTypes:
    GPU: {gpu: 1, cpu: 4, memory: 16384Mi}
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 2, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: n0}
virtualClusters:
  research:
    virtualCells:
    - {cellType: NODE, cellNumber: 1}
"""
NOBODY = "http://127.0.0.1:1"
OBJECTS = ("--dry-run", "-o", "yaml")
JOB = """\
protocolVersion: 2
name: train
type: job
prerequisites:
- {name: torch, type: dockerimage, uri: example/torch}
taskRoles:
  worker:
    instances: 2
    dockerImage: torch
    resourcePerInstance: {gpu: 1}
    commands: [run]
defaults: {virtualCluster: research}
extras:
  hivedScheduler: {jobPriorityClass: prod}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    api_server = ApiServer()
    api_server.start()
    yield api_server
    api_server.stop()


@pytest.fixture
def kube(server, monkeypatch, tmp_path) -> Iterator[KubeClient]:
    """A client of an API server without pods and configuration; the working directory is empty."""
    for variable in ("CONFIG", "KUBECONFIG", "KUBE_APISERVER_ADDRESS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HIVED_SERVER", NOBODY)
    monkeypatch.chdir(tmp_path)
    client = KubeClient.connect(server.url)
    yield client
    for pod in client.list_objects(PODS, dict).items:
        client.delete_pod(pod["metadata"]["namespace"], pod["metadata"]["name"], grace_period_s=0)
    for one in client.list_objects("/api/v1/configmaps", dict, label_selector=KIND).items:
        client.delete(f"/api/v1/namespaces/{one['metadata']['namespace']}/configmaps/{one['metadata']['name']}")
    client.close()


@pytest.fixture
def run(server, kube):
    def _run(*arguments: str, **options):
        where = ["--api-server", server.url, "--unchecked"]  # nobody answers there
        return CliRunner().invoke(main, ["submit", *arguments, *where], **options)

    return _run


@pytest.fixture
def job(write) -> str:
    return write(JOB)


@pytest.fixture
def configuration(write) -> str:
    return write(CONFIGURATION, "cluster.yaml")


def test_a_job_becomes_pods_with_priorities_that_agree(run, kube, job, configuration):
    result = run(job, "--config", configuration, "--user", "me")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "pod/train-worker-0 created",
        "pod/train-worker-1 created",
        "job me~train: hived reads 2 pods of 1 GPU at once in virtual cluster research, priority 100; it starts as "
        "soon as there is room; follow it with hived why me~train",
        "job me~train: PodEvicted -> RestartJob; PodFailed of worker -> FailJob",
    ]
    pods = kube.list_objects(PODS, dict).items
    assert [pod["metadata"]["labels"]["userName"] for pod in pods] == ["me", "me"]
    assert [pod["spec"]["priority"] for pod in pods] == [100, 100]


def test_where_no_controller_runs_it_is_told_who_replaces_pods(run, job, configuration, monkeypatch):
    monkeypatch.setattr("hived_cli.submit.is_embedded", lambda kube: False)
    told = run(job, "--config", configuration, "--user", "me").stdout.splitlines()[-1]
    assert told == "job me~train: its pods are not replaced until you run hived resume me~train -n default --watch"


def test_what_the_command_line_says_reaches_the_pods(run, kube, write, configuration):
    kube.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab"}})
    options = ["--vc", "research", "--priority", "oppo", "-n", "lab", "--scheduler-name", "mine", "--user", "me"]
    job = write(JOB.replace("virtualCluster: research", "virtualCluster: elsewhere"))
    assert run(job, "--config", configuration, *options).exit_code == 0
    pod = kube.list_objects(PODS, dict).items[0]
    spec = json.loads(pod["metadata"]["annotations"][SCHEDULING_SPEC])
    assert (spec["virtualCluster"], spec["priority"]) == ("research", -1)
    assert (pod["metadata"]["namespace"], pod["spec"]["schedulerName"], pod["spec"]["priority"]) == ("lab", "mine", -1)


def test_json_output_is_what_the_server_stored(run, job, configuration):
    listing = json.loads(run(job, "--config", configuration, "-o", "json").stdout)
    assert [bool(pod["metadata"]["uid"]) for pod in listing["items"]] == [True, True]


def test_a_dry_run_prints_what_kubectl_could_apply_and_creates_nothing(run, kube, job, configuration):
    result = run(job, "--config", configuration, *OBJECTS)
    objects = list(yaml.safe_load_all(result.stdout))
    assert [one["kind"] for one in objects] == ["PriorityClass", "Pod", "Pod"]
    assert objects[0]["metadata"]["name"] == objects[1]["spec"]["priorityClassName"]
    assert "&" not in result.stdout
    assert kube.list_objects(PODS, dict).items == []


@pytest.mark.parametrize("name", ["1e3", "0o17", "y", "12", "0x1f"])
def test_a_name_that_looks_like_something_else_is_printed_in_quotes(run, configuration, write, name):
    job = write(JOB.replace("name: train", f"name: '{name}'", 1))
    assert f'jobName: "{name}"' in run(job, "--config", configuration, *OBJECTS).stdout.replace("'", '"')


def test_a_dry_run_needs_no_cluster(kube, job, configuration):
    result = CliRunner().invoke(main, ["submit", job, "--config", configuration, *OBJECTS])
    assert (result.exit_code, result.stdout.count("kind: Pod")) == (0, 2)


def test_standard_input_is_read(run, configuration):
    result = run("-", "--config", configuration, "--dry-run", "-o", "json", input=JOB)
    assert len(json.loads(result.stdout)["items"]) == 3


def test_a_job_that_exists_is_named_as_its_users(run, kube, job, configuration):
    run(job, "--config", configuration, "--user", "me")
    result = run(job, "--config", configuration, "--user", "me")
    message = (
        "job me~train exists already in namespace default; rename the new one, or delete the old one with all its "
        "pods: hived delete me~train -n default"
    )
    assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")
    assert pod_names(kube) == ["train-worker-0", "train-worker-1"]


def test_another_users_job_of_the_name_has_the_user_in_its_pods(run, kube, job, configuration):
    run(job, "--config", configuration, "--user", "me")
    result = run(job, "--config", configuration, "--user", "You_2")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "pod/you-2-train-worker-0 created")
    pods = [pod for pod in kube.list_objects(PODS, dict).items if pod["metadata"]["name"].startswith("you")]
    assert {pod["metadata"]["labels"]["userName"] for pod in pods} == {"You_2"}
    variables = {one["name"]: one.get("value") for one in pods[0]["spec"]["containers"][0]["env"]}
    assert variables["PAI_JOB_NAME"] == "You_2~train"
    spec = json.loads(pods[0]["metadata"]["annotations"][SCHEDULING_SPEC])
    assert spec["affinityGroup"]["name"] == "You_2~train/default"


def test_of_two_that_submit_at_once_one_gets_the_plain_names(run, kube, job, configuration, monkeypatch):
    """The other one has learnt that the name is free, and then it is not."""
    run(job, "--config", configuration, "--user", "me")
    monkeypatch.setattr("hived_cli.submit.apart_from_others", lambda kube, job: job)
    result = run(job, "--config", configuration, "--user", "you")
    assert (result.exit_code, result.stdout.splitlines()[-1].split()[1]) == (0, "you~train:")
    assert pod_names(kube)[2:] == ["you-train-worker-0", "you-train-worker-1"]


def test_a_user_follows_a_job_by_its_full_name_until_it_fails(run, kube, server, job, configuration):
    for user in ("me", "you"):
        run(job, "--config", configuration, "--user", user)
    kube.patch("/api/v1/namespaces/default/pods/you-train-worker-0/status", {"status": {"phase": "Failed"}})
    followed = CliRunner().invoke(main, ["resume", "you~train", "--watch", "--api-server", server.url])
    assert (followed.exit_code, followed.stderr) == (1, "Error: job default/you~train is Failed, not Completed\n")
    expect_soon(lambda: pod_names(kube) == ["train-worker-0", "train-worker-1", "you-train-worker-0"])
    again = CliRunner().invoke(main, ["resume", "default/you~train", "--api-server", server.url])
    assert "job you~train is Failed: only a suspended or aborted job can be resumed" in again.stderr
    either = CliRunner().invoke(main, ["resume", "train", "--watch", "--api-server", server.url])
    assert (either.exit_code, "name one of me~train, you~train" in either.stderr) == (1, True)


def test_a_job_that_is_called_as_anothers_would_be_is_told_apart_from_it(run, job, write, configuration):
    run(write(JOB.replace("name: train", "name: you-train"), "other.yaml"), "--config", configuration, "--user", "me")
    run(job, "--config", configuration, "--user", "me")
    result = run(job, "--config", configuration, "--user", "you")
    assert (result.exit_code, "hived delete me~you-train" in result.stderr) == (1, True), result.stderr


def test_a_long_user_and_a_long_name_make_a_label_that_fits(run, kube, write, configuration):
    users = [f"{'u' * 60}-a", f"{'u' * 60}-b"]
    long = write(JOB.replace("name: train", f"name: {'n' * 63}"))
    for user in ("me", *users):
        assert run(long, "--config", configuration, "--user", user).exit_code == 0
    labels = {
        pod["metadata"]["labels"]["hivedscheduler.microsoft.com/job"] for pod in kube.list_objects(PODS, dict).items
    }
    assert (len(labels), max(map(len, labels))) == (3, 63)


def test_a_pod_that_exists_is_named(run, kube, job, configuration):
    run(job, "--config", configuration)
    kube.delete(record_path("default", "train"))
    result = run(job, "--config", configuration)
    message = "pod train-worker-0 exists already in namespace default; delete it or rename the job"
    assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_job_object_of_the_name_is_named_and_nothing_is_created(run, kube, job, configuration, options):
    container = {"name": "c", "image": "x"}
    spec = {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    collection = "/apis/batch/v1/namespaces/default/jobs"
    kube.create(collection, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec})
    result = run(job, "--config", configuration, *options)
    kube.delete(f"{collection}/train")
    way = "delete it or rename the job, or change it: kubectl apply"
    start = "it is suspended, start it: hived release train -n default"
    message = f"Job train (batch/v1) exists already in namespace default; {way}; {start}"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {message}\n")
    assert kube.list_objects(PODS, dict).items == []


def test_a_gang_is_created_as_a_whole_or_not_at_all(run, kube, job, configuration):
    run(job, "--config", configuration)
    kube.delete(record_path("default", "train"))
    kube.delete_pod("default", "train-worker-0", grace_period_s=0)
    result = run(job, "--config", configuration)
    message = (
        "pod train-worker-1 exists already in namespace default; delete it or rename the job; "
        "the pod created before it was deleted again"
    )
    assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")
    left = [pod["metadata"]["name"] for pod in kube.list_objects(PODS, dict).items]
    assert left == ["train-worker-1"]


@pytest.mark.parametrize(
    ("failure", "answer"),
    [
        (KeyboardInterrupt(), ""),
        (
            KubeError(0, "NoAnswer", "the connection broke"),
            "Error: pod default/train-worker-1: the connection broke; it may have been created all the same: "
            "look for it with kubectl get pod -n default train-worker-1; the pod created before it was deleted again\n",
        ),
    ],
    ids=["interrupted", "no answer"],
)
def test_a_gang_that_is_interrupted_is_taken_back(run, kube, job, configuration, monkeypatch, failure, answer):
    """The connection breaks, or somebody presses Ctrl-C, at the second pod."""
    create = KubeClient.create

    def stumble(self, path, body, **more):
        if body["metadata"]["name"] == "train-worker-1":
            raise failure
        return create(self, path, body, **more)

    monkeypatch.setattr(KubeClient, "create", stumble)
    result = run(job, "--config", configuration)
    assert result.exit_code == 1
    assert result.stderr.endswith(answer)
    assert kube.list_objects(PODS, dict).items == []


@pytest.mark.parametrize("options", [(), ("--dry-run",), OBJECTS])
def test_two_pods_of_one_name_are_refused_before_anything_is_created(run, kube, job, configuration, options):
    result = run(job, job, "--config", configuration, *options)
    message = "2 pods are named train-worker-0 in namespace default; nothing was created"
    assert (result.exit_code, result.stderr) == (1, f"Error: {message}\n")
    assert kube.list_objects(PODS, dict).items == []


def test_an_api_server_that_does_not_answer_is_named(job):
    result = CliRunner().invoke(main, ["submit", job, "--api-server", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: GET http://127.0.0.1:1/api/v1/namespaces/kube-system/configmaps/")
    assert "Connection refused" in result.stderr


def test_an_address_wins_over_a_kubeconfig_in_the_environment_that_is_gone(run, job, monkeypatch, tmp_path):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    result = CliRunner().invoke(main, ["submit", job, "--api-server", "http://127.0.0.1:1"])
    assert "Connection refused" in result.stderr


def test_nothing_is_created_if_one_file_is_bad(run, kube, job, configuration, write):
    bad = write(JOB.replace("instances: 2", "instances: 3"), "bad.yaml")
    result = run(job, bad, "--config", configuration)
    assert result.exit_code == 1
    assert "gang 'default' requests 3 SKUs, exceeds maximum 2 SKUs in VC research" in result.stderr
    assert kube.list_objects(PODS, dict).items == []


def test_warnings_go_to_stderr(run, write, configuration):
    result = run(write(JOB + "colour: blue\n"), "--config", configuration)
    assert (result.exit_code, "Warning: " in result.stderr, "colour: unknown key" in result.stderr) == (0, True, True)


def commands_to(running: Embedded) -> list[str]:
    """Options of commands that ask this cluster and its service."""
    return ["--kubeconfig", str(running.cluster.kubeconfig), "--server", running.extender.url]


def test_the_configuration_of_an_embedded_cluster_is_found_in_it(kube, job, write):
    with start_embedded(Path(write(CONFIGURATION, "published.yaml"))) as running:
        result = CliRunner().invoke(main, ["submit", job, *commands_to(running)])
    assert (result.exit_code, result.stdout.count("created")) == (0, 2), result.output


def test_a_configuration_published_again_takes_the_place_of_the_first(run, kube, job, write):
    publish(kube, Path(write(CONFIGURATION.replace("research", "elsewhere"), "first.yaml")))
    publish(kube, Path(write(CONFIGURATION, "second.yaml")))
    result = run(job, *OBJECTS)
    kube.delete("/api/v1/namespaces/kube-system/configmaps/hived-config")
    assert result.exit_code == 0, result.output


def test_the_configuration_of_the_working_directory_is_the_last_resort(run, job, write, tmp_path):
    write(CONFIGURATION, "hivedscheduler.yaml")
    assert run(job, *OBJECTS).exit_code == 0


def test_without_any_configuration_the_answer_says_what_to_do(run, job):
    result = run(job)
    assert result.exit_code == 1
    assert "give --config FILE or set CONFIG" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--priority", "high"], "priority 'high': expected crit, prod, test, oppo or a number from -1 to 1000"),
        (["--priority", "1001"], "priority '1001': expected crit, prod, test, oppo or a number from -1 to 1000"),
        (["--user", "a/b"], "user 'a/b': expected at most 63 letters, digits, '-', '_' and '.'"),
        (["--vc", "nobody"], "virtual cluster nobody does not exist; the configuration has research"),
        (["--config", "absent.yaml"], "absent.yaml: "),
    ],
)
def test_a_mistake_on_the_command_line_is_explained(arguments, message, run, job, configuration):
    result = run(job, "--config", configuration, *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {message}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "found no readable file"),
        ("a: [1", "expected"),
        ("{apiVersion: v1, metadata: {name: a}}", "found no kind"),
        ("{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {parallelism: two}}", "spec.parallelism"),
    ],
    ids=["absent", "no YAML", "unknown", "mistake"],
)
def test_a_mistake_in_a_file_is_told_before_a_cluster_that_cannot_be_reached(text, message, kube, tmp_path, write):
    file = str(tmp_path / "absent.yaml") if text is None else write(text)
    result = CliRunner().invoke(main, ["submit", file, "--kubeconfig", str(tmp_path / "no-kubeconfig")])
    assert result.exit_code == 1
    assert message in result.stderr
    assert "kubeconfig" not in result.stderr


def test_a_job_that_needs_a_configuration_is_told_of_a_cluster_that_cannot_be_reached(job, kube, tmp_path):
    result = CliRunner().invoke(main, ["submit", job, "--kubeconfig", str(tmp_path / "no-kubeconfig")])
    assert (result.exit_code, "no-kubeconfig" in result.stderr) == (1, True)


def test_a_gang_of_several_that_is_refused_counts_those_taken_back(run, kube, write, configuration):
    job = write(JOB.replace("instances: 2", "instances: 4").replace("extras:", "extras:\n  gangAllocation: false"))
    run(job, "--config", configuration)
    kube.delete(record_path("default", "train"))
    for index in range(3):
        kube.delete_pod("default", f"train-worker-{index}", grace_period_s=0)
    result = run(job, "--config", configuration)
    assert result.stderr.endswith("; the 3 pods created before it were deleted again\n")


@pytest.mark.parametrize(("priority", "is_heard"), [(61, True), (62, False)])
def test_pods_wait_for_admission_to_hear_of_their_priority_class(
    run, kube, job, configuration, monkeypatch, priority, is_heard
):
    create = KubeClient.create
    unheard, refusals = [], []

    def hear_late(self, path, body, **more):
        if path == creation.PRIORITY_CLASSES:
            unheard.append(body)
            return body
        if is_heard and len(refusals) == 3 and unheard:
            create(self, creation.PRIORITY_CLASSES, unheard.pop())
        try:
            return create(self, path, body, **more)
        except KubeError as error:
            refusals.append(error)
            raise

    passed_s = [0.0]
    clock = {"monotonic": lambda: passed_s[0], "sleep": lambda seconds: passed_s.append(passed_s.pop() + seconds)}
    monkeypatch.setattr(creation, "time", SimpleNamespace(**clock))
    monkeypatch.setattr(KubeClient, "create", hear_late)
    result = run(job, "--config", configuration, "--priority", str(priority))
    assert len(refusals) >= 3
    assert result.exit_code == (0 if is_heard else 1)
    assert (f"no PriorityClass with name hived-priority-{priority}" in result.stderr) != is_heard


POD = f"""\
apiVersion: v1
kind: Pod
metadata:
  name: notebook
  annotations: {{{SCHEDULING_SPEC}: "virtualCluster: 010"}}
spec:
  containers:
  - {{name: main, image: example/notebook, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}
"""


def test_a_pod_reaches_the_cluster_with_its_names_as_written(run, kube, write):
    result = run(write(POD))
    assert (result.exit_code, result.stdout) == (0, "pod/notebook created\n")
    annotations = kube.list_objects(PODS, dict).items[0]["metadata"]["annotations"]
    assert json.loads(annotations[SCHEDULING_SPEC])["virtualCluster"] == "010"


@pytest.mark.parametrize(
    ("sound", "damaged", "line"),
    [
        ("nvidia.com/gpu: 1", "nvidia.com/gpu:", 8),
        ("{nvidia.com/gpu: 1}", "[1]", 8),
        ("virtualCluster: 010", "a: " + "[" * 5000, 5),
        ("virtualCluster: 010", "a: b: c", 5),
        ("kind: Pod", "kind: Pod\nx: " + "[" * 5000, 3),
        ("kind: Pod", "kind: Pod\nx: !!int foo", 3),
        ("kind: Pod", "kind: Pod\n<<: 5", 3),
        ("kind: Pod", "kind: Pod\nx: !foo y", 3),
    ],
)
def test_a_malformed_pod_is_refused_with_its_line_and_nothing_is_created(sound, damaged, line, run, kube, write):
    bad = write(POD.replace(sound, damaged), "bad.yaml")
    result = run(write(POD, "sound.yaml"), bad)
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    assert result.stderr.startswith(f"Error: {bad}:{line}: ")
    assert kube.list_objects(PODS, dict).items == []


ELASTIC = """\
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata: {name: dl}
spec:
  suspend: true
  replicaSpecs:
    worker:
      replicas: 2
      template:
        spec:
          containers: [{name: main, image: example/train}]
"""
VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: vc}
spec:
  plugins: {svc: []}
  policies: [{event: PodEvicted, action: RestartJob}]
  tasks:
  - name: worker
    replicas: 2
    template: {spec: {containers: [{name: main, image: example/train}]}}
"""


def uids(kube) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kube.list_objects(PODS, dict).items}


def pod_names(kube) -> list[str]:
    return sorted(uids(kube))


@pytest.fixture
def records(kube) -> Iterator[None]:
    """Nothing that jobs leave in the cluster is there afterwards."""
    yield
    for one in kube.list_objects("/api/v1/configmaps", dict).items:
        kube.delete(f"/api/v1/namespaces/{one['metadata']['namespace']}/configmaps/{one['metadata']['name']}")


def test_a_job_of_another_controller_is_kept_and_owns_its_pods(run, kube, write, records):
    result = run(write(VOLCANO))
    assert result.exit_code == 0
    assert result.stderr.splitlines()[0] == "Warning: services left out (1): this cluster has none"
    assert result.stdout.splitlines() == [
        "configmap/vc-svc created",
        "pod/vc-worker-0 created",
        "pod/vc-worker-1 created",
        "job vc: hived reads 2 pods; follow it with hived why vc",
        "job vc: PodEvicted -> RestartJob",
    ]
    record = kube.get("/api/v1/namespaces/default/configmaps/hived-job-vc")
    assert json.loads(record["data"]["state.json"]) == {"phase": "Pending"}
    owners = [pod["metadata"]["ownerReferences"][0]["uid"] for pod in kube.list_objects(PODS, dict).items]
    assert owners == [record["metadata"]["uid"]] * 2


def test_a_job_that_is_there_already_is_refused_with_the_way_to_delete_it(run, kube, write, records):
    run(write(VOLCANO))
    result = run(write(VOLCANO))
    message = (
        "job vc exists already in namespace default; rename the new one, or delete the old one with all its pods: "
        "hived delete vc -n default"
    )
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, f"Error: {message}")
    assert pod_names(kube) == ["vc-worker-0", "vc-worker-1"]


def test_a_suspended_job_whose_file_is_submitted_again_is_refused_with_the_way_to_start_it(run, kube, write, records):
    run(write(ELASTIC))
    for text in (ELASTIC, ELASTIC.replace("suspend: true", "suspend: false")):
        result = run(write(text))
        assert "it is suspended, start it: hived release dl -n default; else rename the new one" in result.stderr
        assert (result.exit_code, pod_names(kube)) == (1, [])


def test_a_job_that_cannot_be_created_as_a_whole_leaves_nothing(run, kube, write, records):
    run(write(ELASTIC.replace("suspend: true", "suspend: false")))
    kube.delete("/api/v1/namespaces/default/configmaps/hived-job-dl")
    kube.delete_pod("default", "dl-edljob-worker-0", grace_period_s=0)
    result = run(write(ELASTIC.replace("suspend: true", "suspend: false")))
    assert result.exit_code == 1
    assert "pod dl-edljob-worker-1 exists already in namespace default" in result.stderr
    assert pod_names(kube) == ["dl-edljob-worker-1"]
    with pytest.raises(KubeError):
        kube.get("/api/v1/namespaces/default/configmaps/hived-job-dl")


def test_a_priority_class_that_is_missing_is_named_with_the_way_out(run, kube, write, records):
    result = run(write(VOLCANO.replace("plugins: {svc: []}", "priorityClassName: high")))
    assert result.exit_code == 1
    assert "no PriorityClass with name high was found" in result.stderr
    assert "create it (kubectl create priorityclass NAME --value=N), or give --priority" in result.stderr
    assert kube.list_objects("/api/v1/configmaps", dict).items == []


def test_a_suspended_job_gets_its_pods_when_it_is_resumed(run, kube, server, write, records):
    result = run(write(ELASTIC), "--priority", "prod")
    assert result.stdout.splitlines()[0] == "job dl is suspended, no pod was created: hived release dl -n default"
    assert pod_names(kube) == []
    resumed = CliRunner().invoke(main, ["resume", "dl", "--api-server", server.url])
    assert (resumed.exit_code, resumed.stdout.splitlines()[-1]) == (0, "job dl resumed")
    assert pod_names(kube) == ["dl-edljob-worker-0", "dl-edljob-worker-1"]
    assert kube.list_objects(PODS, dict).items[0]["spec"]["priority"] == 100
    again = CliRunner().invoke(main, ["resume", "default/dl", "--api-server", server.url])
    message = "Error: job dl is Pending: only a suspended or aborted job can be resumed\n"
    assert (again.exit_code, again.stderr) == (1, message)


def test_resuming_what_is_not_there_says_where_jobs_are_listed(kube, server):
    result = CliRunner().invoke(main, ["resume", "gone", "-n", "lab", "--api-server", server.url])
    assert result.exit_code == 1
    assert result.stderr == "Error: no job gone in namespace lab; `hived get jobs` lists all\n"


@pytest.fixture(scope="module")
def embedded(tmp_path_factory) -> Iterator[Embedded]:
    """A cluster of two GPUs."""
    file = tmp_path_factory.mktemp("embedded") / "cluster.yaml"
    file.write_text(CONFIGURATION)
    with start_embedded(file) as running:
        yield running


@pytest.fixture
def forecast(embedded, write):
    def _forecast(text: str, *options: str):
        where = ["--api-server", embedded.cluster.api_url, "--server", embedded.extender.url]
        return CliRunner().invoke(main, ["submit", write(text), "--dry-run", *where, "--vc", "research", *options])

    return _forecast


WITH_GPU = VOLCANO.replace("image: example/train", "image: example/train, resources: {limits: {nvidia.com/gpu: 1}}")


def test_a_dry_run_says_where_each_pod_would_run(kube, forecast, embedded):
    result = forecast(WITH_GPU, "--priority", "prod")
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "POD           WOULD   NODE   CELLS   REASON",
            "vc-worker-0   run     n0     0",
            "vc-worker-1   run     n0     1",
        ],
    )
    client = KubeClient.connect(embedded.cluster.api_url)
    assert pod_names(client) == []
    client.close()


def test_a_dry_run_says_that_kube_scheduler_places_a_gang_without_devices(kube, forecast):
    result = forecast(VOLCANO)
    places = "be left to kube-scheduler                  takes no cells: kube-scheduler chooses its node"
    assert result.stdout.splitlines()[1:] == [f"vc-worker-{number}   {places}" for number in range(2)]
    assert result.exit_code == 0


def test_a_dry_run_says_that_a_gang_could_never_run(kube, forecast):
    result = forecast(WITH_GPU.replace("replicas: 2", "replicas: 3"), "--priority", "prod")
    rows = [line.split(maxsplit=3) for line in result.stdout.splitlines()[1:]]
    assert [row[:3] for row in rows] == [[f"vc-worker-{index}", "never", "run"] for index in range(3)]
    assert all("it can never run: research has 2 GPUs in all" in row[3] for row in rows)
    assert result.exit_code == 4


TWO = WITH_GPU.replace("metadata: {name: vc}", "metadata: {name: other}")
"""As many GPUs as there are."""


@pytest.fixture
def full(embedded) -> Iterator[None]:
    """A job has all GPUs of the cluster."""
    client = KubeClient.connect(embedded.cluster.api_url)
    where = ["--api-server", embedded.cluster.api_url, "--server", embedded.extender.url]
    file = embedded.cluster.kubeconfig.with_name("full.yaml")
    file.write_text(WITH_GPU)
    result = CliRunner().invoke(main, ["submit", str(file), *where, "--vc", "research", "--priority", "prod"])
    assert result.exit_code == 0, result.output
    expect_soon(lambda: all(pod["spec"].get("nodeName") for pod in client.list_objects(PODS, dict).items))
    yield
    client.delete("/api/v1/namespaces/default/configmaps/hived-job-vc")
    expect_soon(lambda: not client.list_objects(PODS, dict).items)
    client.close()


def test_the_exit_code_of_a_dry_run_tells_a_wait(forecast, full):
    result = forecast(TWO, "--priority", "prod")
    assert (result.exit_code, result.stdout.count(" wait ")) == (3, 2)
    assert result.stdout.count("research has 2 of 2 GPUs in use by vc ") == 2


def test_pods_that_start_once_others_have_left_count_as_running(forecast, full):
    result = forecast(TWO, "--priority", "crit")
    assert (result.exit_code, result.stdout.count(" preempt  ")) == (0, 2)
    assert re.search(r" would preempt \S*vc\S* \([12] pods?\)\n", result.stdout), result.stdout


@pytest.mark.parametrize(
    ("text", "name"),
    [(WITH_GPU, "job vc"), (POD.replace("name: notebook", "name: vc-worker-0"), "pod vc-worker-0")],
)
def test_a_dry_run_says_that_a_name_exists_already(forecast, full, text, name):
    result = forecast(text, "--priority", "prod")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"Error: {name} exists already in namespace default; " in result.stderr


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        (["bind", "preempt", "not-ours"], 0),
        (["bind", "wait"], 3),
        (["wait", "never", "bind"], 4),
        (["never", "refused", "wait"], 1),
    ],
)
def test_the_exit_code_of_a_dry_run_is_that_of_the_worst_pod(outcomes, code):
    assert worst(outcomes) == code


def test_a_job_whose_file_shows_that_it_can_never_run_has_the_same_exit_code(run, kube, configuration, write):
    file = write(JOB.replace("instances: 2", "instances: 3"))
    result = run(file, "--config", configuration, "--dry-run")
    assert (result.exit_code, "exceeds maximum 2 SKUs in VC research" in result.stderr) == (4, True)


def test_a_refused_pod_has_exit_code_1(forecast):
    result = forecast(POD.replace("virtualCluster: 010", "leafCellType: V100"))
    assert (result.exit_code, result.stdout.count(" be refused ")) == (1, 1), result.output


def test_a_dry_run_of_a_suspended_job_has_nothing_to_ask(kube, forecast):
    result = forecast(ELASTIC)
    assert (result.exit_code, result.stdout) == (0, "job dl is suspended: no pod would be created\n")


def test_a_dry_run_without_a_service_says_how_to_do_without(run, write):
    result = run(write(VOLCANO), "--dry-run", "--server", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert "no answer from http://127.0.0.1:1" in result.stderr
    assert "Name it with --server, or print the objects alone: -o yaml" in result.stderr


SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {mode: fast}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
"""


@pytest.fixture
def settings(kube):
    """The path of the ConfigMap; it is deleted in the end."""
    path = "/api/v1/namespaces/default/configmaps/settings"
    yield path
    with suppress(KubeError):
        kube.delete(path)


def test_objects_beside_a_job_are_created_as_they_are(run, kube, write, settings):
    result = run(write(SETTINGS + POD))
    assert (result.exit_code, result.stdout) == (0, "configmap/settings created\npod/notebook created\n")
    assert "Warning: services left out (1): this cluster has none\n" in result.stderr
    stored = kube.get(settings)
    assert (stored["data"], stored["metadata"]["labels"]) == ({"mode": "fast"}, {"app": "web"})
    assert "ownerReferences" not in stored["metadata"]


def test_an_object_that_is_there_already_is_left_alone_if_it_is_the_same(run, kube, write, settings):
    kube.create(settings.rpartition("/")[0], yaml.safe_load(SETTINGS.partition("---")[0]))
    kube.patch(settings, {"metadata": {"labels": {"other": "x"}}})
    result = run(write(SETTINGS + POD))
    assert (result.exit_code, result.stdout) == (0, "pod/notebook created\nconfigmap/settings unchanged\n")
    assert kube.get(settings)["metadata"]["labels"] == {"app": "web", "other": "x"}


def test_an_object_that_is_there_with_another_content_is_refused_and_nothing_created(run, kube, write, settings):
    kube.create(settings.rpartition("/")[0], yaml.safe_load(SETTINGS.partition("---")[0].replace("fast", "slow")))
    result = run(write(POD + "---\n" + SETTINGS))
    assert (result.exit_code, pod_names(kube), kube.get(settings)["data"]) == (1, [], {"mode": "slow"})
    assert "configmap/settings exists already in namespace default, and is another; use kubectl apply" in result.stderr


def test_a_dry_run_has_the_objects_beside_a_job_too(kube, forecast, write):
    result = CliRunner().invoke(main, ["submit", write(SETTINGS + POD), *OBJECTS])
    assert [one["kind"] for one in yaml.safe_load_all(result.stdout)][1:] == ["ConfigMap", "Service", "Pod"]
    told = forecast(SETTINGS + POD).stdout.splitlines()
    assert told[:2] == ["configmap/settings would be created", "service/web would be created"]


@pytest.fixture
def submit(embedded, kube, write):
    """Submit to a cluster whose service can be asked; its pods are deleted in the end."""
    client = KubeClient.connect(embedded.cluster.api_url)

    def _submit(text: str, *options: str):
        where = ["--api-server", embedded.cluster.api_url, "--server", embedded.extender.url]
        return CliRunner().invoke(main, ["submit", write(text), *where, *options])

    _submit.pods = lambda: pod_names(client)
    yield _submit
    for one in client.list_objects("/api/v1/namespaces/default/configmaps", dict).items:
        if one["metadata"]["name"].startswith("hived-job-"):  # else its controller would create pods anew
            client.delete(f"/api/v1/namespaces/default/configmaps/{one['metadata']['name']}")
    for name in pod_names(client):
        with suppress(KubeError):  # its job's controller may have been first
            client.delete_pod("default", name, grace_period_s=0)
    expect_soon(lambda: not pod_names(client))
    client.close()


def test_pods_that_no_virtual_cluster_takes_are_not_created(submit, embedded):
    result = submit(POD.replace("010", "nowhere"))
    assert (result.exit_code, result.stdout, submit.pods()) == (1, "", [])
    assert result.stderr.splitlines() == [
        f"Error: nothing was created, because {embedded.extender.url} refuses the pod:",
        "  default/notebook: VC nowhere does not exists!",
        "Correct that, name the cluster's own service with --server, or create them all the same with --unchecked",
    ]


def test_every_refused_pod_has_its_reason_and_those_that_would_run_are_not_created_either(submit):
    pods = [POD.replace("010", vc).replace("name: notebook", f"name: pod-{i}")
            for i, vc in enumerate(("nowhere", "research", "nowhere", "moon"))]  # fmt: skip
    result = submit("---\n".join(pods))
    assert (result.exit_code, submit.pods()) == (1, [])
    assert "refuses 3 of 4 pods:" in result.stderr
    assert "  default/pod-0, default/pod-2: VC nowhere does not exists!\n" in result.stderr
    assert "  default/pod-3: VC moon does not exists!\n" in result.stderr


def test_a_pod_that_exists_is_told_so_before_what_the_service_says_of_it(submit, embedded):
    assert submit(POD.replace("010", "research")).exit_code == 0
    result = submit(POD.replace("010", "research"))
    assert (result.exit_code, result.stderr) == (
        1, "Error: pod notebook exists already in namespace default; delete it or rename the job\n"
    )  # fmt: skip


def test_pods_are_created_unchecked_if_somebody_wants_that(submit):
    result = submit(POD.replace("010", "nowhere"), "--unchecked")
    assert (result.exit_code, result.stderr, submit.pods()) == (0, "", ["notebook"])


def test_pods_that_have_to_wait_are_created(submit):
    assert submit(WITH_GPU, "--vc", "research", "--priority", "prod").exit_code == 0
    result = submit(TWO, "--vc", "research", "--priority", "prod")
    assert (result.exit_code, len(submit.pods())) == (0, 4), result.stderr


def test_pods_that_can_never_run_are_created_only_unchecked(submit, embedded):
    three = WITH_GPU.replace("replicas: 2", "replicas: 3")
    result = submit(three, "--vc", "research", "--priority", "prod")
    assert (result.exit_code, submit.pods()) == (1, [])
    assert f"because {embedded.extender.url} says that 3 of 3 pods can never run:\n" in result.stderr
    result = submit(three, "--vc", "research", "--priority", "prod", "--unchecked")
    assert (result.exit_code, len(submit.pods())) == (0, 3), result.stderr


def test_without_a_service_to_ask_nothing_is_created_unless_unchecked(submit, write):
    text = POD.replace("010", "research")
    result = submit(text, "--server", NOBODY)
    assert (result.exit_code, result.stdout, submit.pods()) == (1, "", [])
    assert result.stderr.startswith(
        f"Error: nothing was created, because nobody could check it: no answer from {NOBODY}: "
    )
    assert result.stderr.endswith(
        "is hived serve running there? Name it with --server; --unchecked creates all without a check\n"
    )
    result = submit(text, "--server", NOBODY, "--unchecked")
    assert (result.exit_code, result.stderr, submit.pods()) == (0, "", ["notebook"])


def test_a_pod_that_exists_is_told_so_without_a_service_too(submit):
    assert submit(POD.replace("010", "research")).exit_code == 0
    result = submit(POD.replace("010", "research"), "--server", NOBODY)
    assert "pod notebook exists already in namespace default" in result.stderr


def test_a_service_that_answers_others_is_asked_again(submit, monkeypatch):
    answer, busy = Inspector.what_if, [UserError("3 questions are being answered; ask again in a moment", 429)] * 2

    def what_if(*given):
        if busy:
            raise busy.pop()
        return answer(*given)

    monkeypatch.setattr(Inspector, "what_if", what_if)
    result = submit(POD.replace("010", "research"))
    assert (result.exit_code, result.stderr, submit.pods(), busy) == (0, "", ["notebook"], [])


def test_a_service_that_is_not_ready_needs_no_other_name(submit, monkeypatch):
    def what_if(*_):
        raise UserError("not ready: kernels are being loaded", 503)

    monkeypatch.setattr(Inspector, "what_if", what_if)
    dry, real = submit(POD, "--dry-run"), submit(POD)
    assert dry.stderr == "Error: not ready: kernels are being loaded; -o yaml prints the objects alone\n"
    assert (real.exit_code, submit.pods()) == (1, [])
    assert real.stderr == (
        "Error: nothing was created, because nobody could check it: not ready: kernels are being loaded; "
        "--unchecked creates all without a check\n"
    )


def test_a_watched_job_is_looked_after_until_it_ends(run, kube, write, records):
    done = VOLCANO.replace("event: PodEvicted, action: RestartJob", "event: PodFailed, action: TerminateJob")
    submitted = threading.Thread(target=lambda: results.append(run(write(done), "--watch")))
    results: list[Any] = []
    submitted.start()
    expect_soon(lambda: pod_names(kube) == ["vc-worker-0", "vc-worker-1"])
    kube.patch("/api/v1/namespaces/default/pods/vc-worker-1/status", {"status": {"phase": "Failed"}})
    submitted.join(60)
    [result] = results
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == ("job vc: PodFailed: vc-worker-1 has failed with exit code 0: Terminated")
    assert result.stderr.endswith("Error: job default/vc is Terminated, not Completed\n")
    assert pod_names(kube) == ["vc-worker-1"]


def test_there_is_nothing_to_watch_of_pods_without_policies(run, kube, write, configuration):
    result = run(write(POD, "pod.yaml"), "--watch", "--config", configuration)
    assert (result.exit_code, kube.list_objects(PODS, dict).items) == (1, [])
    assert "follow them with hived get jobs --watch" in result.stderr


def test_an_openpai_job_is_watched_until_enough_of_it_have_ended(run, kube, write, configuration):
    """Its other pods go then, as in OpenPAI."""
    job = write(JOB.replace("instances: 2", "instances: 2\n    completion: {minSucceededInstances: 1}"))
    results: list[Any] = []
    options = ("--config", configuration, "--user", "me", "--watch")
    submitted = threading.Thread(target=lambda: results.append(run(job, *options)))
    submitted.start()
    expect_soon(lambda: pod_names(kube) == ["train-worker-0", "train-worker-1"])
    kube.patch("/api/v1/namespaces/default/pods/train-worker-0/status", {"status": {"phase": "Succeeded"}})
    submitted.join(60)
    assert results[0].exit_code == 0, results[0].output
    assert results[0].stdout.splitlines()[-1] == "job me~train: PodSucceeded: train-worker-0 has succeeded: Completed"
    assert pod_names(kube) == ["train-worker-0"]


def test_pods_that_are_not_watched_beside_a_job_are_named(run, kube, write, records):
    done = VOLCANO.replace("event: PodEvicted, action: RestartJob", "event: PodFailed, action: TerminateJob")
    results: list[Any] = []
    submitted = threading.Thread(target=lambda: results.append(run(write(done), write(POD, "pod.yaml"), "--watch")))
    submitted.start()
    expect_soon(lambda: "vc-worker-1" in pod_names(kube) and "notebook" in pod_names(kube))
    kube.patch("/api/v1/namespaces/default/pods/vc-worker-1/status", {"status": {"phase": "Failed"}})
    submitted.join(60)
    assert "--watch does not wait for pods without policies: notebook\n" in results[0].stderr


def test_an_embedded_cluster_runs_the_policies_of_jobs_by_itself(kube, write):
    with start_embedded(Path(write(CONFIGURATION, "published.yaml"))) as running:
        result = CliRunner().invoke(main, ["submit", write(VOLCANO), *commands_to(running)])
        assert result.exit_code == 0, result.output
        with closing(KubeClient.connect(running.cluster.api_url)) as client:
            before = uids(client)
            client.delete_pod("default", "vc-worker-1")
            expect_soon(lambda: uids(client).get("vc-worker-0", before["vc-worker-0"]) != before["vc-worker-0"])


PLAIN_JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: plain}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}
"""


def test_pods_that_pass_the_queues_are_warned_of_with_a_remedy(run, write, job):
    with_queues = write(f"rules: 2\nqueues: {{enabled: true}}\n{CONFIGURATION}", "queues.yaml")
    result = run(write(PLAIN_JOB, "plain.yaml"), job, "--config", with_queues, "--vc", "research")
    assert result.exit_code == 0
    assert "job plain: hived reads 1 pod of 1 GPU in virtual cluster research" in result.stdout
    assert "it waits in the queue of research" in result.stdout
    assert "jobs wait in queues here, and plain pods do not" in result.stderr
    assert "give them the scheduling gate hivedscheduler.microsoft.com/queue" in result.stderr


@pytest.mark.parametrize(
    ("resource", "said"),
    [
        ("nvidia.com/gpus", "nvidia.com/gpus is no device, did you mean nvidia.com/gpu?"),
        ("amd.com/gpu", "asks for amd.com/gpu, which no leaf cell type means"),
        ("cpu", "1 pod without devices: they take no cells, and wait in no queue\n"),
        ("example.org/fpga", "1 pod without devices: they take no cells, and wait in no queue\n"),
    ],
)
def test_a_resource_that_is_nearly_a_device_is_named(run, write, configuration, resource, said):
    name = re.sub("[/.]", "-", resource)
    text = PLAIN_JOB.replace("nvidia.com/gpu", resource).replace("name: plain", f"name: {name}")
    result = run(write(text), "--config", configuration, "--vc", "research")
    assert (result.exit_code, said in result.stdout) == (0, True), result.output


def test_misspelt_fields_of_an_object_are_refused_as_kubectl_does(run, write, configuration):
    named = PLAIN_JOB.replace("name: plain", "name: misspelt")
    text = named.replace("restartPolicy: Never", "restartPolicy: Never\n      nodSelector: {a: b}")
    result = run(write(text), "--config", configuration, "--vc", "research")
    said = 'yaml:8: job/misspelt: strict decoding error: unknown field "spec.template.spec.nodSelector"'
    assert (result.exit_code, said in result.stderr) == (1, True), result.output
    again = run(write(named), "--config", configuration, "--vc", "research")
    assert again.exit_code == 0, again.output  # nothing of the first one was left


def test_pods_that_wait_in_a_queue_or_shall_not_are_not_warned_of(run, write):
    with_queues = write(f"rules: 2\nqueues: {{enabled: true}}\n{CONFIGURATION}", "queues.yaml")
    gated = POD.replace("name: notebook", "name: gated").replace(
        "containers:", "schedulingGates: [{name: hivedscheduler.microsoft.com/queue}]\n  containers:"
    )
    off = POD.replace("annotations: {", 'annotations: {hivedscheduler.microsoft.com/queue: "off", ')
    for name, text in (("gated", gated), ("off", off)):
        result = run(write(text, f"{name}.yaml"), "--config", with_queues, "--vc", "research")
        assert (result.exit_code, "queues" in result.stderr) == (0, False), result.stderr


def test_nobody_is_warned_of_queues_where_there_are_none(run, write, configuration):
    assert "queues" not in run(write(PLAIN_JOB), "--config", configuration, "--vc", "research").stderr


class Foreteller(StubServer):
    """Answers with the outcomes that a test has put there."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.outcomes: list[PodOutcome] = []

    def _answer(self, _: Request) -> tuple[Any, ...]:
        return 200, msgspec.json.encode(WhatIfResult(self.outcomes))


@pytest.fixture
def foreteller() -> Iterator[Foreteller]:
    with Foreteller() as server:
        yield server


def told(server: Foreteller, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    """The lines below the table, and standard error."""
    pods = [PlannedPod({"metadata": {"name": one.name}, "spec": {}}, None) for one in server.outcomes]
    assert print_forecasts(Inspector(server.url), [PlannedJob(pods)], "cv") == 0
    shown = capsys.readouterr()
    return shown.out.splitlines()[1 + len(pods) :], shown.err


def outcome(name: str, *victims: Victim, more: int = 0) -> PodOutcome:
    return PodOutcome(namespace="cv", name=name, outcome="preempt", victims=list(victims), more_victims=more)


def test_victims_are_named_and_hidden_ones_counted(foreteller: Foreteller, capsys: pytest.CaptureFixture[str]) -> None:
    foreteller.outcomes = [
        outcome("p", Victim("cv/a", "cv"), Victim("nlp/b", "nlp"), Victim(MASKED, "", 3), Victim(MASKED), more=2)
    ]
    lines, errors = told(foreteller, capsys)
    assert lines == ["It would preempt a (1 pod), nlp/b (1 pod), 2 jobs of other tenants (4 pods), 2 more jobs"]
    assert errors == ""


def test_of_several_pods_the_one_that_needs_the_cells_is_named(
    foreteller: Foreteller, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("podgroup/cv/a", "Job/cv/a", "cv/a"):
        foreteller.outcomes = [outcome("p", Victim(name, "cv", 2)), outcome("q")]
        assert told(foreteller, capsys)[0] == ["p would preempt a (2 pods)"]


def test_an_older_service_that_names_nobody_leaves_a_way_to_find_out(
    foreteller: Foreteller, capsys: pytest.CaptureFixture[str]
) -> None:
    foreteller.outcomes = [outcome("p")]
    assert "hived get jobs --node NODE" in told(foreteller, capsys)[1]
