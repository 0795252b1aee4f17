"""`hived submit` of jobs whose kind the cluster has: they are created as they are, and hived says what it reads."""

import json
import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import yaml
from click.testing import CliRunner

from hived.values.errors import UserError
from hived_cli import main
from hived_extender.jobs.kinds.koordinator import PREFIX as GANG
from hived_extender.kube.client import KubeClient, KubeError
from hived_jobs.kinds import read_jobs
from hived_jobs.objects import plan_as_object
from hived_jobs.served import Served
from hived_jobs.submission import Submission
from hived_jobs.trainer import annotate_pods, pod_metadata
from hived_lab.start import start_embedded
from tests.expecting import expect_soon
from tests.stub_server import Request, StubServer

CONFIGURATION = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: n0}
virtualClusters:
  research: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
  spare: {}
"""
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: sweep}
spec:
  parallelism: 2
  completions: 3
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}
"""
TORCH = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: torch}
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - {name: pytorch, image: x, resources: {limits: {nvidia.com/gpu: 1}}}
"""
RAY = """\
apiVersion: ray.io/v1
kind: RayService
metadata: {name: serve}
spec:
  rayClusterConfig:
    headGroupSpec:
      template: {spec: {containers: [{name: head, image: ray}]}}
    workerGroupSpecs:
    - groupName: gpus
      replicas: 2
      template: {spec: {containers: [{name: worker, image: ray, resources: {limits: {nvidia.com/gpu: 2}}}]}}
"""
SPARK = """\
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata: {name: fit}
spec: {type: Python}
"""
JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture(scope="module", params=["", "rules: 2\nqueues: {enabled: true}\n"], ids=["no queues", "queues"])
def cluster(request, tmp_path_factory) -> Iterator[SimpleNamespace]:
    """A cluster of four GPUs, without queues and with them."""
    file = tmp_path_factory.mktemp("objects") / "cluster.yaml"
    file.write_text(request.param + CONFIGURATION)
    with start_embedded(file, has_webhook=bool(request.param)) as running:
        yield SimpleNamespace(
            api_url=running.cluster.api_url, service_url=running.extender.url, has_queues=bool(request.param)
        )


@pytest.fixture
def kube(cluster, monkeypatch, tmp_path) -> Iterator[KubeClient]:
    """A client; all job objects are deleted in the end. The working directory is empty."""
    monkeypatch.chdir(tmp_path)
    client = KubeClient.connect(cluster.api_url)
    yield client
    for path in (JOBS, "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"):
        for one in client.list_objects(path, dict).items:
            client.delete(f"{path}/{one['metadata']['name']}", with_dependents=True)
    expect_soon(lambda: not client.list_objects("/api/v1/pods", dict).items)
    client.close()


@pytest.fixture
def submit(cluster, kube, write):
    where = ["--api-server", cluster.api_url, "--server", cluster.service_url]

    def _submit(text: str, *options: str, **more):
        return CliRunner().invoke(main, ["submit", write(text), *where, "--user", "me", *options], **more)

    return _submit


def stored(kube, name: str = "sweep"):
    return kube.get(f"{JOBS}/{name}")


def test_a_job_is_created_as_it_is_with_what_the_submitter_says(cluster, submit, kube):
    result = submit(JOB, "--vc", "research", "--priority", "prod")
    end = "waits in the queue of research" if cluster.has_queues else "starts as soon as there is room"
    asks = "2 pods of 1 GPU at once" if cluster.has_queues else "2 pods of 1 GPU"
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "job/sweep created",
            f"job sweep: hived reads {asks} in virtual cluster research, priority 100; it {end}",
        ],
    )
    job = stored(kube)
    assert (job["spec"]["parallelism"], job["spec"]["completions"]) == (2, 3)
    assert job["metadata"]["annotations"]["hivedscheduler.microsoft.com/user"] == "me"
    template = job["spec"]["template"]
    assert template["spec"]["schedulerName"] == "hivedscheduler-ds-research"
    assert template["spec"]["priorityClassName"] == "hived-priority-100"
    assert template["metadata"]["annotations"]["hivedscheduler.microsoft.com/virtual-cluster"] == "research"
    expect_soon(lambda: stored(kube).get("status", {}).get("ready") == 2)


RUN = "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: nightly}\nspec: {schedule: '@yearly', jobTemplate: %s}\n"
TRAIN = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: train}
spec: {runtimeRef: {name: torch-distributed}%s}
"""
OVERRIDE = ", podTemplateOverrides: [{targetJobs: [{name: node}], spec: {nodeSelector: {a: b}}}]"


def printed(submit, text: str, *options: str):
    result = submit(text, "--dry-run", "-o", "yaml", *options)
    assert result.exit_code == 0, result.output
    return next(one for one in yaml.safe_load_all(result.stdout) if one["kind"] != "PriorityClass")


def test_a_run_of_a_cron_job_is_its_submitters(submit):
    [job] = [yaml.safe_load(JOB)]
    made = printed(submit, RUN % json.dumps({"spec": job["spec"]}))
    assert made["spec"]["jobTemplate"]["metadata"]["annotations"] == {"hivedscheduler.microsoft.com/user": "me"}


def test_a_train_job_patches_its_runtime_with_what_the_submitter_says(submit):
    made = printed(submit, TRAIN % "", "--vc", "research", "--priority", "5")
    assert made["metadata"]["annotations"]["hivedscheduler.microsoft.com/user"] == "me"
    [patch] = made["spec"]["runtimePatches"]
    assert patch["manager"] == "hivedscheduler.microsoft.com/submit"
    [node] = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    words = {"virtual-cluster": "research", "priority": "5", "user": "me"}
    assert node["name"] == "node"
    assert node["template"]["spec"]["template"]["metadata"] == {
        "annotations": {f"hivedscheduler.microsoft.com/{key}": text for key, text in words.items()}
    }


def test_a_train_job_with_overrides_of_pods_gets_another_one(submit):
    spec = printed(submit, TRAIN % OVERRIDE, "--vc", "research")["spec"]
    assert "runtimePatches" not in spec
    assert spec["podTemplateOverrides"][0]["spec"] == {"nodeSelector": {"a": "b"}}
    told = spec["podTemplateOverrides"][1]
    assert told["targetJobs"] == [{"name": "node"}]
    assert told["metadata"]["annotations"]["hivedscheduler.microsoft.com/virtual-cluster"] == "research"


@pytest.mark.parametrize(
    ("field", "known"),
    [
        ("runtimePatches", {"suspend", "runtimePatches"}),
        ("runtimePatches", set()),
        ("podTemplateOverrides", {"podTemplateOverrides"}),
    ],
)
def test_a_train_job_is_written_as_the_trainer_of_the_cluster_reads_it(field, known):
    spec = {}
    annotate_pods(spec, {"a": "b"}, known)
    assert list(spec) == [field]
    assert pod_metadata(spec, "annotations") == {"a": "b"}


def test_a_trainer_that_gives_pods_no_annotations_is_named():
    with pytest.raises(UserError, match=r"install Kubeflow Trainer 2\.1 or later, or write it"):
        annotate_pods({}, {"a": "b"}, {"suspend"})


def test_the_fields_of_a_kind_are_those_of_its_schema():
    kind = {"group": "trainer.kubeflow.org", "version": "v1alpha1", "kind": "TrainJob"}
    schema = {"x-kubernetes-group-version-kind": [kind], "properties": {"spec": {"properties": {"suspend": {}}}}}
    with StubServer(lambda _: (200, {"components": {"schemas": {"some": {}, "train": schema}}})) as server:
        served = Served(KubeClient.connect(server.url))
        assert list(served.spec_fields("trainer.kubeflow.org/v1alpha1", "TrainJob")) == ["suspend"]
        assert not served.spec_fields("batch/v1", "Job")


def test_options_that_no_template_takes_are_warned_of(tmp_path):
    file = tmp_path / "spark.yaml"
    file.write_text(SPARK)
    [document] = read_jobs(str(file))
    plan_as_object(document, Submission("me", virtual_cluster="research"))
    [warning] = document.warnings
    told = "--vc, --priority and --gpu-type are not written into SparkApplication fit: no pod template was found"
    assert told in warning


def test_a_job_of_kubeflow_has_the_words_of_its_gang(submit, kube):
    assert submit(TORCH, "--vc", "research").exit_code == 0
    job = kube.get("/apis/kubeflow.org/v1/namespaces/default/pytorchjobs/torch")
    annotations = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["metadata"]["annotations"]
    assert (annotations[f"{GANG}name"], annotations[f"{GANG}min-available"]) == ("torch", "2")


def test_a_dry_run_says_what_would_run_and_creates_nothing(submit, kube):
    result = submit(JOB, "--vc", "research", "--dry-run")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "job/sweep would be created")
    assert result.stdout.count(" run ") == 2
    with pytest.raises(KubeError, match="404"):
        stored(kube)


def test_a_generated_name_is_printed_and_in_the_json(submit, kube):
    text = JOB.replace("{name: sweep}", "{generateName: sweep-}")
    result = submit(text, "--vc", "research", "-o", "json")
    [job] = [one for one in json.loads(result.stdout)["items"] if one["kind"] == "Job"]
    name = job["metadata"]["name"]
    assert re.fullmatch(r"sweep-[a-z0-9]{5}", name)
    second = submit(text, "--vc", "research").stdout
    made = re.search(r"job/(sweep-[a-z0-9]{5}) created\njob \1: hived reads", second)
    assert made is not None
    assert stored(kube, made[1])["metadata"]["name"] != name


def test_what_kubectl_shows_of_a_job_can_be_submitted_again(submit, kube):
    submit(JOB, "--vc", "research")
    job = stored(kube)
    kube.delete(f"{JOBS}/sweep", with_dependents=True)
    expect_soon(lambda: not kube.list_objects(JOBS, dict).items)
    for key in ("selector",):
        job["spec"].pop(key, None)
    job["spec"]["template"]["metadata"].pop("labels", None)
    job["spec"]["suspend"] = False
    listing = {"apiVersion": "v1", "kind": "List", "items": [job]}
    assert submit(json.dumps(listing), "--vc", "research").exit_code == 0


def test_nothing_of_a_file_is_created_if_the_cluster_lacks_a_kind(submit, kube):
    result = submit(f"{JOB}---\n{SPARK}", "--vc", "research")
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "kind: this cluster has no SparkApplication (sparkoperator.k8s.io/v1beta2): install the Spark operator, or "
        "take it out of the file\n"
    )
    with pytest.raises(KubeError, match="404"):
        stored(kube)


def test_nothing_of_a_file_is_created_if_the_server_refuses_a_later_object(submit, kube):
    bad = JOB.replace("sweep", "bad").replace("completions: 3", "completions: 3\n  completionMode: Sometimes")
    result = submit(f"{JOB}---\n{bad}", "--vc", "research")
    assert result.exit_code == 1
    bad = TORCH.replace("{name: torch}", "{name: torch, labels: {a: 'x y'}}")
    result = submit(f"{JOB}---\n{bad}", "--vc", "research")
    assert result.exit_code == 1
    assert "pytorchjob/torch: " in result.stderr
    assert "nothing was created" in result.stderr
    with pytest.raises(KubeError, match="404"):
        stored(kube)


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_job_that_is_there_already_is_refused_and_nothing_else_is_told(submit, kube, options):
    submit(JOB, "--vc", "research")
    before = stored(kube)["metadata"]["uid"]
    result = submit(JOB, "--vc", "research", "--begin", "+1h", *options)
    assert (result.exit_code, result.stdout) == (1, "")
    refusal = "Error: Job sweep (batch/v1) exists already in namespace default; delete it or rename the job"
    assert result.stderr.startswith(refusal)
    assert stored(kube)["metadata"]["uid"] == before


def test_a_job_may_have_the_name_of_one_of_another_kind(submit, kube):
    torch = TORCH.replace("{name: torch}", "{name: sweep}")
    assert submit(JOB, "--vc", "research").exit_code == 0
    other = submit(torch, "--vc", "research")
    assert (other.exit_code, other.stdout.splitlines()[0]) == (0, "pytorchjob/sweep created"), other.stderr
    again = submit(torch, "--vc", "research")
    assert "PyTorchJob sweep (kubeflow.org/v1) exists already in namespace default" in again.stderr
    both = f"{JOB}---\n{torch}".replace("sweep", "both")
    assert submit(both, "--vc", "research", "--dry-run").exit_code in (0, 3)
    twice = submit(f"{JOB}---\n{JOB}".replace("sweep", "both"), "--vc", "research")
    assert "2 objects of kind Job are named both in namespace default; nothing was created" in twice.stderr


def test_a_watched_job_is_waited_for(submit, kube):
    results = []
    watcher = threading.Thread(target=lambda: results.append(submit(JOB, "--vc", "research", "--watch")))
    watcher.start()
    expect_soon(lambda: stored_or_none(kube))
    kube.delete(f"{JOBS}/sweep", with_dependents=True)
    watcher.join(60)
    assert results[0].exit_code == 1
    assert results[0].stderr.endswith("Error: job default/sweep is gone, not Completed\n")


def stored_or_none(kube):
    try:
        return stored(kube)
    except KubeError:
        return None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{JOB}---\n{JOB}", "2 objects of kind Job are named sweep in namespace default; nothing was created"),
        ("{apiVersion: v1, kind: List, items: []}", "items: found none, expected at least one job"),
        ("---\n---\n", "is empty; expected a job or a pod manifest"),
        ("{kind: Job, metadata: {name: a}}", "found no apiVersion"),
        ("{apiVersion: batch/v1, metadata: {name: a}}", "found no kind"),
        ("{name: a}", "found no apiVersion and kind, or protocolVersion: 2 of an OpenPAI job"),
        ("[1]", "found a list, expected a mapping of names to values"),
        (JOB.replace("batch/v1", "batch/v1beta1"), "no Job (batch/v1beta1): write apiVersion: batch/v1, which it has"),
        (JOB.replace("Job", "Jobb"), "this cluster has no Jobb (batch/v1); did you mean Job?"),
        (
            TORCH.replace("PyTorchJob", "PyTorchJobs").replace("kubeflow.org", "example.com"),
            "did you mean PyTorchJob? Else install what serves example.com",
        ),
        (JOB.replace("batch/v1", "example.com/v1"), "this cluster has no Job (example.com/v1): install what serves"),
        (JOB.replace("{name: sweep}", "{}"), "metadata.name: missing; expected a text"),
        (JOB.replace("containers:", "container:"), "spec.template: expected a pod template"),
    ],
    ids=[
        "same",
        "empty list",
        "empty",
        "no version",
        "no kind",
        "neither",
        "list",
        "version",
        "misspelt",
        "misspelt or lacking",
        "group",
        "no name",
        "template",
    ],
)
def test_a_mistake_is_told_and_nothing_is_created(text, message, submit, kube):
    result = submit(text, "--vc", "research")
    assert result.exit_code == 1
    assert message in result.stderr
    assert stored_or_none(kube) is None


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("https://example.com/job.yaml", "curl -fsSL https://example.com/job.yaml | hived submit -"),
        (".", "is a folder; name the files in it, such as ./*.yaml"),
    ],
)
def test_an_address_and_a_folder_have_a_remedy(file, message, cluster, kube):
    result = CliRunner().invoke(main, ["submit", file, "--api-server", cluster.api_url])
    assert (result.exit_code, message in result.stderr) == (1, True)


# ---- kinds of a cluster that an embedded one does not have


class Api(StubServer):
    """An API server that has the kinds of `served`, and takes every object."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.served = {
            "/apis/ray.io/v1": [("rayservices", "RayService", True)],
            "/apis/example.com/v1": [("trains", "Train", True), ("fleets", "Fleet", False)],
        }
        self.created: list[tuple[str, dict]] = []

    def _answer(self, request: Request) -> tuple[int, object]:
        if request.target == "/version":
            return 200, {}
        if rows := self.served.get(request.target):
            named = [{"name": plural, "kind": kind, "namespaced": is_in} for plural, kind, is_in in rows]
            return 200, {"resources": named}
        if request.method == "POST" and "dryRun=All" not in request.target:
            manifest = json.loads(request.body)
            self.created.append((request.target, manifest))
            return 201, {**manifest, "metadata": {**manifest["metadata"], "uid": "1"}}
        return (201, json.loads(request.body)) if request.method == "POST" else (404, {"message": "not found"})


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        yield server


@pytest.fixture
def run(api, write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = write(CONFIGURATION, "cluster.yaml")

    def _run(text: str, *options: str):
        where = ["--api-server", api.url, "--unchecked", "--config", config, "--user", "me"]
        return CliRunner().invoke(main, ["submit", write(text), *where, *options])

    return _run


def test_a_ray_service_gets_the_scheduler_in_all_its_templates(run, api):
    result = run(RAY, "--vc", "research")
    said = "job serve: hived reads 2 pods of 2 GPUs each in virtual cluster research, priority 0; it starts as soon as"
    assert (result.exit_code, said in result.stdout) == (0, True), result.stderr
    [(target, made)] = api.created
    assert target.partition("?")[0] == "/apis/ray.io/v1/namespaces/default/rayservices"
    cluster = made["spec"]["rayClusterConfig"]
    for template in (cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"]):
        assert template["spec"]["schedulerName"] == "hivedscheduler-ds-research"
        assert template["metadata"]["annotations"]["hivedscheduler.microsoft.com/virtual-cluster"] == "research"


def test_a_kind_that_nobody_knows_is_created_with_a_line_about_what_is_read_of_it(run, api):
    text = """\
apiVersion: example.com/v1
kind: Train
metadata: {name: slow}
spec:
  stages:
  - {pod: {spec: {containers: [{name: main, image: x}]}}}
  - {pod: {spec: {containers: [{name: main, image: x}], schedulerName: mine}}}
---
{apiVersion: example.com/v1, kind: Fleet, metadata: {name: all}, spec: {size: 3}}
"""
    result = run(text)
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "train/slow created",
            "fleet/all created",
            "job slow: hived does not follow a Train: 2 pod templates found, whose pods it will schedule as they come",
            "job all: hived reads nothing of a Fleet: no pod template was found in it",
        ],
    ), result.stderr
    (_, train), (target, fleet) = api.created
    assert [stage["pod"]["spec"]["schedulerName"] for stage in train["spec"]["stages"]] == ["hived", "mine"]
    assert (target.partition("?")[0], fleet["metadata"]) == ("/apis/example.com/v1/fleets", {"name": "all"})


def test_objects_can_be_printed_without_a_cluster(write, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("CONFIG", "KUBECONFIG", "KUBE_APISERVER_ADDRESS"):
        monkeypatch.delenv(variable, raising=False)
    result = CliRunner().invoke(main, ["submit", write(RAY), "--dry-run", "-o", "yaml", "--vc", "research"])
    assert result.exit_code == 0, result.stderr
    assert yaml.safe_load(result.stdout)["kind"] == "RayService"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "restartPolicy",
            "restartPolicy",
            "it names no virtual cluster: add --vc research or --vc spare to hived submit",
        ),
        ("nvidia.com/gpu: 1", "nvidia.com/gpu: 5", "it can never run"),
    ],
)
def test_a_job_that_is_suspended_is_checked_as_others_are(submit, kube, old, new, says):
    text = JOB.replace("spec:\n  par", "spec:\n  suspend: true\n  par").replace(old, new)
    options = [] if old == new else ["--vc", "research"]
    result = submit(text, *options)
    assert (result.exit_code, says in result.stderr) == (1, True), result.output
    assert "nothing was created" in result.stderr
    assert submit(text, *options, "--dry-run").exit_code == (1 if old == new else 4)
    with pytest.raises(KubeError):
        stored(kube)
    assert submit(text, *options, "--unchecked").exit_code == 0


@pytest.mark.parametrize(
    ("options", "starts"),
    [
        ([], "hived release sweep -n default starts it"),
        (["--begin", "2100-01-01T00:00:00Z"], "hived starts it once it may"),
    ],
)
def test_what_starts_a_suspended_job_is_said(cluster, submit, options, starts):
    result = submit(JOB.replace("spec:\n  par", "spec:\n  suspend: true\n  par"), "--vc", "research", *options)
    end = "waits in the queue of research" if cluster.has_queues else f"is suspended: {starts}"
    assert result.stdout.splitlines()[-1].endswith(f"; it {end}")
