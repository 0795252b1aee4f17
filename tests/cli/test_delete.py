"""`hived delete` against the embedded API server: jobs by their records, gangs and groups by the service's word."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from hived_cli import main
from hived_config.loader import load
from hived_extender.api.queues import QueuedJob
from hived_extender.api.waiting import JobState, PodCounts
from hived_extender.jobs.annotations import BIND_INFO, SCHEDULING_SPEC
from hived_extender.kube.client import PODS, KubeClient, KubeError
from hived_jobs.creation import create_jobs
from hived_jobs.kinds import plan_documents, read_jobs
from hived_jobs.records import record_path
from hived_jobs.submission import Submission
from hived_lab.embedded.apiserver.server import ApiServer
from tests.cli.waiting_service import GANG, GONE, SOLO, WaitingService

JOB = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train}
spec:
  policies: [{event: PodEvicted, action: RestartJob}]
  tasks:
  - name: worker
    replicas: 3
    template: {spec: {containers: [{name: main, image: example/train}]}}
"""
OPENPAI_JOB = """\
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
"""
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
GROUP_OF_TWO = ", affinityGroup: {name: pair, members: [{podNumber: 2, leafCellNumber: 1}]}"
RECORDS = "/api/v1/configmaps"


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    api_server = ApiServer()
    api_server.start()
    yield api_server
    api_server.stop()


@pytest.fixture
def kube(server: ApiServer) -> Iterator[KubeClient]:
    client = KubeClient.connect(server.url)
    yield client
    for path in (PODS, RECORDS):
        for each in client.list_objects(path, dict).items:
            meta = each["metadata"]
            kind = path.rsplit("/", 1)[1]
            client.delete(f"/api/v1/namespaces/{meta['namespace']}/{kind}/{meta['name']}", grace_period_s=0)
    client.close()


@pytest.fixture
def service() -> Iterator[WaitingService]:
    with WaitingService() as running:
        yield running


@pytest.fixture
def delete(server: ApiServer, service: WaitingService) -> Any:
    def run(*arguments: str, **options: Any) -> Result:
        where = ["--api-server", server.url, "--server", service.url]
        return CliRunner().invoke(main, ["delete", *arguments, *where], **options)

    return run


@pytest.fixture
def job(kube: KubeClient, write: Any) -> None:
    """A submitted job of three pods."""
    submission = Submission("me")
    create_jobs(kube, submission, plan_documents(read_jobs(write(JOB)), submission)[0])


def create(kube: KubeClient, *names: str, owner: dict[str, Any] | None = None) -> None:
    """Plain pods in the namespace default."""
    for name in names:
        metadata = {"name": name, "namespace": "default", **({"ownerReferences": [owner]} if owner else {})}
        spec = {"containers": [{"name": "main", "image": "example/train"}]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        kube.create("/api/v1/namespaces/default/pods", body)


def left(kube: KubeClient, path: str = PODS) -> list[str]:
    """The names of all objects that are there."""
    return sorted(each["metadata"]["name"] for each in kube.list_objects(path, dict).items)


def test_a_submitted_job_goes_with_its_record_and_all_its_pods(delete: Any, kube: KubeClient, job: None) -> None:
    create(kube, "other")
    result = delete("train", "--yes")
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "job default/train, with 3 pods and its record",
            "  default/train-worker-0, default/train-worker-1, default/train-worker-2",
            "job/train deleted",
            *(f"pod/train-worker-{index} deleted" for index in range(3)),
        ],
    )
    assert (left(kube), left(kube, RECORDS)) == (["other"], [])


@pytest.mark.parametrize("name", [["default/train"], ["train", "-n", "default"]])
def test_a_dry_run_deletes_nothing(delete: Any, kube: KubeClient, job: None, name: list[str]) -> None:
    result = delete(*name, "--dry-run", "-o", "json")
    pods = [f"default/train-worker-{index}" for index in range(3)]
    assert json.loads(result.stdout) == {"pods": pods, "jobs": ["default/train"], "deleted": False}
    assert (len(left(kube)), left(kube, RECORDS)) == (3, ["hived-job-train"])


def test_nothing_is_deleted_if_nobody_can_be_asked(delete: Any, kube: KubeClient, job: None) -> None:
    result = delete("train", input="y\n")
    assert (result.exit_code, "give --yes" in result.stderr) == (1, True)
    assert len(left(kube)) == 3


def create_openpai(kube: KubeClient, write: Any, user: str, role: str = "worker") -> None:
    """A submitted OpenPAI job of two pods, of which the service knows nothing yet."""
    submission = Submission(user, cluster=load(write(CONFIGURATION, "cluster.yaml"), environ={}).cluster)
    file = write(OPENPAI_JOB.replace("worker", role), "openpai.yaml")
    create_jobs(kube, submission, plan_documents(read_jobs(file), submission)[0])


@pytest.mark.parametrize("name", ["train", "default/train"])
def test_an_openpai_job_goes_by_its_name_before_the_service_knows_it(
    delete: Any, kube: KubeClient, service: WaitingService, write: Any, name: str
) -> None:
    service.is_down = True
    create_openpai(kube, write, "me")
    create(kube, "other")
    result = delete(name, "--yes")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "job default/me~train, with 2 pods and its record")
    assert left(kube) == ["other"]


@pytest.mark.parametrize("has_records", [True, False])
def test_a_job_name_of_two_users_deletes_nothing(
    delete: Any, kube: KubeClient, write: Any, *, has_records: bool
) -> None:
    for user in ("me", "you"):
        create_openpai(kube, write, user)
    for name in () if has_records else ("train", "you-train"):
        kube.delete(record_path("default", name))
    result = delete("train", "--yes")
    expected = "jobs of several users are named train in namespace default: name one of me~train, you~train"
    assert (result.exit_code, result.stderr, len(left(kube))) == (1, f"Error: {expected}\n", 4)
    assert delete("default/you~train", "--yes").exit_code == 0
    assert left(kube) == ["train-worker-0", "train-worker-1"]
    assert delete("train", "--yes").exit_code == 0
    assert left(kube) == []


@pytest.mark.parametrize(("group", "code", "names"), [("", 0, []), (GROUP_OF_TWO, 1, ["pod"])])
def test_a_pod_goes_before_the_service_knows_it_if_its_spec_says_that_it_is_alone(
    delete: Any, kube: KubeClient, group: str, code: int, names: list[str]
) -> None:
    spec = f"{{virtualCluster: research, priority: 1, leafCellNumber: 1{group}}}"
    metadata = {"name": "pod", "namespace": "default", "annotations": {SCHEDULING_SPEC: spec}}
    body = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "example/train"}]}}
    kube.create("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", **body})
    result = delete("pod", "--yes")
    assert (result.exit_code, left(kube)) == (code, names), result.output


def test_a_gang_of_a_moment_ago_is_asked_for_once_more(delete: Any, kube: KubeClient, service: WaitingService) -> None:
    create(kube, "gang-0", "gang-1")
    service.jobs = []
    service.unseen = [
        replace(GANG, name="podgroup/default/gang", namespace="default", pods=["default/gang-0", "default/gang-1"])
    ]
    assert delete("podgroup/default/gang", "--yes").exit_code == 0
    assert left(kube) == []


def test_a_gang_goes_by_the_pods_that_the_service_names(delete: Any, kube: KubeClient, service: WaitingService) -> None:
    create(kube, "gang-0", "gang-1", "other")
    pods = ["default/gang-0", "default/gang-1", "default/gone"]
    service.jobs = [replace(GANG, name="podgroup/default/gang", namespace="default", pods=pods)]
    result = delete("podgroup/default/gang", "--yes", "-o", "json")
    assert json.loads(result.stdout)["pods"] == ["default/gang-0", "default/gang-1"]
    assert left(kube) == ["other"]


@pytest.mark.parametrize(("pods", "records"), [(3, []), (2, ["hived-job-train"])])
def test_a_record_goes_with_the_last_pod_of_its_job(
    delete: Any, kube: KubeClient, service: WaitingService, job: None, pods: int, records: list[str]
) -> None:
    service.jobs = [
        replace(
            GANG,
            name="me~x/group",
            namespace="default",
            pods=[f"default/train-worker-{index}" for index in range(pods)],
        )
    ]
    result = delete("me~x/group", "--yes")
    assert result.exit_code == 0, result.output
    assert (len(left(kube)), left(kube, RECORDS)) == (3 - pods, records)
    assert ("2 of these pods may be created again" in result.stderr) == bool(records)


def test_a_controller_that_would_create_the_pods_again_is_named(
    delete: Any, kube: KubeClient, service: WaitingService
) -> None:
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "torch", "uid": "u", "controller": True}
    create(kube, "gang-0", owner=owner)
    service.jobs = [replace(GANG, name="podgroup/default/gang", namespace="default", pods=["default/gang-0"])]
    result = delete("podgroup/default/gang", "--dry-run")
    warning = "Warning: 1 of these pods may be created again; delete that instead: kubectl delete "
    assert (result.exit_code, result.stderr) == (0, f"{warning}-n default pytorchjob torch\n")


SETS = "/apis/apps/v1/namespaces/default/statefulsets"
LWS = "leaderworkerset.x-k8s.io/v1"
LEADERS = f"/apis/{LWS}/namespaces/default/leaderworkersets"


@pytest.mark.parametrize(("kind", "path"), [("StatefulSet", SETS), ("LeaderWorkerSet", LEADERS)])
def test_the_object_goes_after_which_a_job_is_called(
    delete: Any, kube: KubeClient, service: WaitingService, kind: str, path: str
) -> None:
    """It may have made the object that made the pods."""
    owner = None
    for version, each, where in ((LWS, "LeaderWorkerSet", LEADERS), ("apps/v1", "StatefulSet", SETS)):
        metadata = {"name": "serve", **({"ownerReferences": [owner]} if owner else {})}
        uid = kube.create(where, {"metadata": metadata, "spec": {}})["metadata"]["uid"]
        owner = {"apiVersion": version, "kind": each, "name": "serve", "uid": uid, "controller": True}
    create(kube, "serve-0", owner=owner)
    name = f"{kind}/default/serve"
    service.jobs = [replace(GANG, name=name, namespace="default", pods=["default/serve-0"])]
    result = delete("serve", "--yes")
    assert (result.exit_code, result.output.splitlines()) == (
        0,
        [f"{name}, which goes with its pods", f"{name} deleted"],
    )
    assert left(kube, path.replace("namespaces/default/", "")) == []
    for where in {SETS, LEADERS} - {path}:
        kube.delete(f"{where}/serve")


@pytest.mark.parametrize(("phase", "exit_code"), [("Succeeded", 0), ("Failed", 0), ("Running", 1)])
def test_of_a_job_that_has_ended_its_pods_go_unless_they_go_on(
    delete: Any, kube: KubeClient, service: WaitingService, phase: str, exit_code: int
) -> None:
    """A pod that goes on has the name of one that has ended."""
    create(kube, "gang-0")
    kube.patch("/api/v1/namespaces/default/pods/gang-0/status", {"status": {"phase": phase}})
    service.jobs = [
        replace(GANG, name="podgroup/default/gang", namespace="default", state="Completed", pods=["default/gang-0"])
    ]
    result = delete("podgroup/default/gang", "--yes")
    assert (result.exit_code, left(kube)) == (exit_code, [] if exit_code == 0 else ["gang-0"]), result.output


def test_a_plain_pod_that_queued_has_one_name_once_it_has_ended(
    delete: Any, kube: KubeClient, service: WaitingService
) -> None:
    create(kube, "solo")
    kube.patch("/api/v1/namespaces/default/pods/solo/status", {"status": {"phase": "Succeeded"}})
    row = replace(GANG, name="Gang/default/solo", namespace="default", state="Completed", pods=["default/solo"])
    service.jobs = [row]
    told = ["what is left of default/solo, which has ended", "  default/solo", "pod/solo deleted"]
    assert delete("Gang/default/solo", "--yes").output.splitlines() == told


def test_of_a_job_that_ran_twice_the_pods_of_its_latest_run_go(
    delete: Any, kube: KubeClient, service: WaitingService
) -> None:
    create(kube, "again-0")
    kube.patch("/api/v1/namespaces/default/pods/again-0/status", {"status": {"phase": "Succeeded"}})
    name = "podgroup/default/gang"
    service.jobs = [
        replace(GANG, name=name, namespace="default", state="Completed", pods=[f"default/{pod}"])
        for pod in ("again-0", "g-0")
    ]
    result = delete(name, "--yes")
    assert (result.exit_code, left(kube)) == (0, []), result.output


@pytest.mark.parametrize(("name", "code"), [("far/lone", 0), ("lone", 1)])
@pytest.mark.parametrize("state", ["Running", "Completed"])
def test_a_pod_of_a_namespace_that_was_not_given_stays(
    delete: Any, kube: KubeClient, service: WaitingService, name: str, code: int, state: JobState
) -> None:
    pod = {"metadata": {"name": "lone"}, "spec": {"containers": [{"name": "main", "image": "example/train"}]}}
    if "far" not in left(kube, "/api/v1/namespaces"):
        kube.create("/api/v1/namespaces", {"metadata": {"name": "far"}})
    kube.create("/api/v1/namespaces/far/pods", pod)
    if state == "Completed":
        kube.patch("/api/v1/namespaces/far/pods/lone/status", {"status": {"phase": "Succeeded"}})
    service.jobs = [replace(GANG, name="far/lone", namespace="far", state=state, pods=["far/lone"])]
    result = delete(name, "--yes")
    assert (result.exit_code, "hived delete lone -n far --yes" in result.stderr) == (code, bool(code))
    assert left(kube) == ["lone"] * code
    delete("lone", "-n", "far", "--yes")
    assert left(kube) == []


@pytest.mark.parametrize("status", [404, 403])
def test_the_pods_go_where_what_made_them_is_gone_or_hidden(
    delete: Any, kube: KubeClient, service: WaitingService, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": True}
    create(kube, "web-1-a", owner=owner)
    asked = KubeClient.get

    def get(self: KubeClient, path: str, *others: Any, **options: Any) -> Any:
        if status == 403 and path.endswith("/replicasets/web-1"):
            raise KubeError(403, "Forbidden", "not yours")
        return asked(self, path, *others, **options)

    monkeypatch.setattr(KubeClient, "get", get)
    name = "Deployment/default/web"
    service.jobs = [replace(GANG, name=name, namespace="default", pods=["default/web-1-a"])]
    result = delete(name, "--yes")
    assert (result.exit_code, left(kube)) == (0, []), result.output


@pytest.mark.parametrize("is_over", [True, False])
def test_the_object_of_a_job_goes_once_it_has_ended(
    delete: Any, kube: KubeClient, service: WaitingService, is_over: bool
) -> None:
    """One that goes on has been made anew under its name."""
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    kube.create(jobs, {"metadata": {"name": "over"}, "spec": {"template": template}})
    if is_over:
        ends = [{"type": each, "status": "True"} for each in ("SuccessCriteriaMet", "Complete")]
        kube.patch(f"{jobs}/over/status", {"status": {"conditions": ends}})
    service.jobs = [
        replace(GANG, name="Job/default/over", namespace="default", api_version="batch/v1", state="Completed", pods=[])
    ]
    result = delete("over", "--yes")
    assert (result.exit_code, len(left(kube, "/apis/batch/v1/jobs"))) == ((0, 0) if is_over else (1, 1)), result.output
    if not is_over:
        kube.delete(f"{jobs}/over")


def test_a_pod_of_a_gang_is_not_deleted_alone(delete: Any, kube: KubeClient, service: WaitingService) -> None:
    create(kube, "gang-0", "gang-1")
    service.jobs = [replace(GANG, pods=["default/gang-0", "default/gang-1"])]
    result = delete("gang-0", "--yes")
    assert (result.exit_code, "gang-0 is one of 2 pods of podgroup/lab/gang" in result.stderr) == (1, True)
    assert left(kube) == ["gang-0", "gang-1"]


@pytest.mark.parametrize("pods", [["default/gang-0", "default/gang-1"], ["default/gang-0"]])
def test_a_bound_pod_of_a_gang_is_not_deleted_alone_although_hived_wrote_a_spec_of_one(
    delete: Any, kube: KubeClient, service: WaitingService, pods: list[str]
) -> None:
    create(kube, "gang-0")
    told = {SCHEDULING_SPEC: "{virtualCluster: research, priority: 1, leafCellNumber: 1}", BIND_INFO: "{}"}
    kube.patch("/api/v1/namespaces/default/pods/gang-0", {"metadata": {"annotations": told}})
    service.jobs = [replace(GANG, pods=pods, counts=PodCounts(wanted=2))]
    result = delete("gang-0", "--yes")
    assert (result.exit_code, "gang-0 is one of 2 pods of podgroup/lab/gang" in result.stderr) == (1, True)
    assert left(kube) == ["gang-0"]


CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
BATCH_JOBS = "/apis/batch/v1/namespaces/default/jobs"


@pytest.fixture
def cron(kube: KubeClient) -> Iterator[dict[str, Any]]:
    """A CronJob whose time never comes, with two runs; it is their owner."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}
    spec = {"schedule": "0 0 30 2 *", "jobTemplate": {"spec": {"template": template}}}
    made = kube.create(CRON_JOBS, {"metadata": {"name": "cron"}, "spec": spec})
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "cron", "controller": True}
    owner["uid"] = made["metadata"]["uid"]
    for name in ("cron-1", "cron-2"):
        body = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": {"template": template}}
        kube.create(BATCH_JOBS, body)
    yield owner
    for path in (CRON_JOBS, BATCH_JOBS):
        for name in left(kube, path):
            kube.delete(f"{path}/{name}")


@pytest.mark.parametrize("name", ["cron", "cronjob/cron", "default/cron", "CronJob/default/cron"])
@pytest.mark.parametrize("state", ["Running", "Completed", ""])
def test_a_cron_job_goes_with_its_runs_whether_they_run_or_have_ended(
    delete: Any, kube: KubeClient, service: WaitingService, cron: dict[str, Any], name: str, state: JobState | str
) -> None:
    runs = ["Job/default/cron-1", "Job/default/cron-2"]
    row = replace(GANG, namespace="default", api_version="batch/v1", pods=[], made_by="CronJob/default/cron")
    service.jobs = [replace(row, name=run, state=state, aliases=[row.made_by]) for run in runs if state]
    result = delete(name, "--yes")
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "CronJob/default/cron, which goes with its 2 runs and pods",
            f"  {', '.join(runs)}",
            "CronJob/default/cron deleted",
        ],
    )
    assert left(kube, CRON_JOBS) == []


def test_a_run_of_a_cron_job_goes_alone_by_its_own_name(
    delete: Any, kube: KubeClient, service: WaitingService, cron: dict[str, Any]
) -> None:
    made_by = "CronJob/default/cron"
    row = replace(GANG, namespace="default", api_version="batch/v1", pods=[], made_by=made_by, aliases=[made_by])
    service.jobs = [replace(row, name="Job/default/cron-1", state="Running")]
    assert delete("cron-1", "--yes").exit_code == 0
    assert (left(kube, CRON_JOBS), left(kube, BATCH_JOBS)) == (["cron"], ["cron-2"])


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_an_object_without_pods_goes_by_its_name(delete: Any, kube: KubeClient, kind: str) -> None:
    path = f"/apis/apps/v1/namespaces/default/{kind.lower()}s"
    kube.create(path, {"metadata": {"name": "idle"}, "spec": {"replicas": 0}})
    result = delete("idle", "--yes")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, f"{kind}/default/idle deleted")


def test_a_name_that_is_part_of_several_has_to_be_given_in_full(delete: Any, service: WaitingService) -> None:
    service.jobs = [GANG, replace(GANG, name="podgroup/other/gang", namespace="other", pods=["other/gang-0"])]
    result = delete("gang", "--yes")
    expected = "gang is part of 2 names: podgroup/lab/gang, podgroup/other/gang; give one of them"
    assert (result.exit_code, result.stderr) == (1, f"Error: {expected}\n")


def test_a_namesake_of_a_job_in_a_queue_has_both_named_before_anything_goes(
    delete: Any, kube: KubeClient, service: WaitingService
) -> None:
    create(kube, "solo")
    service.jobs = [replace(SOLO, name="default/solo"), replace(SOLO, name="Job/default/solo", pods=[])]
    queued = QueuedJob(
        name="Job/default/solo",
        namespace="default",
        queue="a",
        vc="a",
        user="",
        priority=1,
        position=0,
        state="Running",
        since=0.0,
        reason="",
        gpus=1,
    )
    service.queued = {"solo": queued, "default/solo": queued}
    result = delete("solo", "--yes")
    assert (result.exit_code, result.stderr, left(kube)) == (
        1,
        "Error: solo is part of 2 names: Job/default/solo, default/solo; give one of them\n",
        ["solo"],
    )
    for command in ("hold", "release"):
        assert CliRunner().invoke(main, [command, "solo", "--server", service.url]).stderr == result.stderr
    assert delete("default/solo", "--yes").exit_code == 0
    assert left(kube) == []


def test_a_preempted_job_has_nothing_to_delete(delete: Any, service: WaitingService) -> None:
    service.jobs = [GONE]
    result = delete("gone", "-n", "lab")
    assert result.exit_code == 1
    assert "no job, gang, group or pod 'gone' in namespace lab waits or runs" in result.stderr


def test_an_unknown_name_has_its_nearest_ones(delete: Any) -> None:
    result = delete("sool", "--yes")
    assert (result.exit_code, "nearest: default/solo" in result.stderr) == (1, True)


def test_a_gang_that_is_gone_from_the_cluster_is_said_so(delete: Any) -> None:
    result = delete("podgroup/lab/gang", "--yes")
    assert (result.exit_code, result.stderr) == (1, "Error: podgroup/lab/gang has no pods any more\n")


def test_a_pod_that_was_made_again_meanwhile_stays(
    delete: Any, kube: KubeClient, job: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the question and the answer somebody deletes a pod, and creates another of its name."""

    def answer(*_: object) -> None:
        kube.delete_pod("default", "train-worker-1", grace_period_s=0)
        create(kube, "train-worker-1")

    monkeypatch.setattr("hived_cli.delete.ask", answer)
    result = delete("train")
    assert "pod/train-worker-1 was gone already" in result.stdout.splitlines()
    assert left(kube) == ["train-worker-1"]


def test_an_api_server_that_refuses_leaves_word_of_what_was_done(
    delete: Any, kube: KubeClient, job: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = KubeClient.delete

    def refuse(self: KubeClient, path: str, **options: Any) -> None:
        if path.endswith("train-worker-1"):
            raise KubeError(403, "Forbidden", "not yours")
        done(self, path, **options)

    monkeypatch.setattr(KubeClient, "delete", refuse)
    result = delete("train", "--yes")
    monkeypatch.undo()
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: pod/train-worker-1: not yours (403 Forbidden); 2 of 4 were deleted\n",
    )
    assert left(kube) == ["train-worker-1", "train-worker-2"]


def test_several_jobs_are_deleted_after_one_question_and_none_if_one_is_unknown(
    delete: Any, kube: KubeClient, job: None, service: WaitingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(kube, "solo", "other")
    service.jobs = [SOLO]
    refused = delete("train", "nobody", "solo", "--yes")
    assert (refused.exit_code, "no job, gang, group or pod 'nobody'" in refused.stderr) == (1, True)
    assert len(left(kube)) == 5
    monkeypatch.setattr("hived_cli.helpers.answers.can_ask", lambda: True)
    result = delete("train", "solo", input="y\n")
    assert (result.exit_code, result.stdout.count("[y/N]"), "Delete these 2? " in result.stdout) == (0, 1, True)
    assert left(kube) == ["other"]


def test_all_jobs_of_a_user_are_deleted_and_no_others(delete: Any, kube: KubeClient, service: WaitingService) -> None:
    create(kube, "solo", "mine")
    mine = replace(SOLO, name="default/mine", pods=["default/mine"], user="ann")
    service.jobs = [replace(SOLO, name="default/solo", user="bob"), mine]
    answer = json.loads(delete("--user", "ann", "--yes", "-o", "json").stdout)
    assert answer == {"pods": ["default/mine"], "jobs": [], "deleted": True}
    assert left(kube) == ["solo"]
    assert "no job that waits or runs is of these" in delete("--user", "eve", "--yes").stderr
    assert delete("mine", "--user", "ann").exit_code == 2
    assert delete("--yes").exit_code == 2
    assert delete("--me", "--user", "ann", "--yes").exit_code == 2  # of both, or of either?
