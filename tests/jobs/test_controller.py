"""The job controller against the embedded API server: policies are carried out, whoever is stopped in between."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from hived.values.errors import UserError
from hived_extender.kube.client import PODS, KubeClient, KubeError, pod_path
from hived_jobs import creation
from hived_jobs.controller import JobController
from hived_jobs.creation import create_jobs, resume_job
from hived_jobs.kinds import plan_jobs
from hived_jobs.policies import Phase
from hived_jobs.records import JobState, read_record
from hived_jobs.submission import Submission
from hived_lab.embedded.apiserver.server import ApiServer
from tests.expecting import expect_soon

pytestmark = pytest.mark.sample(8)

DEADLINE_S = 60.0
KEY = ("default", "vc")
VOLCANO = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: vc}
spec:
  maxRetry: 2
  policies:
  - {event: PodEvicted, action: RestartJob}
  - {event: PodFailed, action: AbortJob}
  tasks:
  - name: ps
    replicas: 1
    template: {spec: {containers: [{name: main, image: example/train}]}}
  - name: worker
    replicas: 2
    policies: [{event: TaskCompleted, action: CompleteJob}]
    template: {spec: {containers: [{name: main, image: example/train}]}}
"""
PLAIN = """\
apiVersion: batch/v1
kind: Job
metadata: {name: vc}
spec:
  completions: 3
  parallelism: 2
  backoffLimit: 1
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: example/train}]}}
"""
NAMES = ["vc-ps-0", "vc-worker-0", "vc-worker-1"]


@pytest.fixture
def kube() -> Iterator[KubeClient]:
    server = ApiServer()
    server.start()
    client = KubeClient.connect(server.url)
    yield client
    client.close()
    server.stop()


@pytest.fixture
def submit(kube, write):
    def _submit(text: str) -> None:
        submission = Submission(user="me")
        jobs, _ = plan_jobs(write(text), submission)
        create_jobs(kube, submission, jobs)

    return _submit


@pytest.fixture
def controller(kube) -> Iterator[JobController]:
    with JobController(kube) as running:
        yield running


def uids(kube) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kube.list_objects(PODS, dict).items}


def wait_ended(controller: JobController) -> Phase | None:
    """Wait for the end of a job that was created after the controller had begun."""
    expect_soon(lambda: controller._cache.record(KEY) is not None)
    return controller.wait_ended(KEY, DEADLINE_S)


def end_pod(kube, name: str, exit_code: int = 0) -> None:
    ended = {"name": "main", "state": {"terminated": {"exitCode": exit_code}}}
    status = {"phase": "Failed" if exit_code else "Succeeded", "containerStatuses": [ended]}
    kube.patch(f"{pod_path('default', name)}/status", {"status": status})


def state(kube) -> JobState:
    return read_record(kube, *KEY).state


def is_idle(controller: JobController, kube) -> bool:
    """Whether a controller has seen the job and its pods as they are, and has nothing to do."""
    cache = controller._cache
    record = cache.record(KEY)
    if record is None or record.state != state(kube):
        return False
    seen = {name: pod.uid for name, pod in cache.pods(record).items()}
    return seen == uids(kube) and not cache._due and bool(cache._changed._waiters)


def has_been_replaced(kube, before: dict[str, str]) -> bool:
    now = uids(kube)
    return now.keys() == before.keys() and not set(now.values()) & set(before.values())


OPENPAI = """\
protocolVersion: 2
name: vc
type: job
EXTRA
prerequisites: [{name: torch, type: dockerimage, uri: example/torch}]
taskRoles:
  worker:
    instances: 2
    taskRetryCount: 1
    completion: {minFailedInstances: FAILED}
    dockerImage: torch
    resourcePerInstance: {gpu: 1}
    commands: [run]
defaults: {virtualCluster: research}
extras: {gangAllocation: GANG}
"""
OPENPAI_PODS = ["vc-worker-0", "vc-worker-1"]


@pytest.fixture
def submit_openpai(kube, write, submission):
    def _submit(gang: bool, failed: int = 1, extra: str = "") -> None:
        text = OPENPAI.replace("GANG", str(gang).lower()).replace("FAILED", str(failed)).replace("EXTRA", extra)
        jobs, _ = plan_jobs(write(text), submission)
        create_jobs(kube, submission, jobs)

    return _submit


def fail_soon(kube, name: str) -> None:
    """Fail a pod once it is there, and has not failed."""
    path = pod_path("default", name)

    def is_pending() -> bool:
        with suppress(KubeError):
            return str(kube.get(path)["status"]["phase"]) == "Pending"
        return False

    expect_soon(is_pending)
    end_pod(kube, name, 1)


def test_an_openpai_job_starts_again_as_often_as_it_says(kube, submit_openpai, controller):
    submit_openpai(True, extra="jobRetryCount: 1")
    before = uids(kube)
    fail_soon(kube, "vc-worker-1")
    expect_soon(lambda: has_been_replaced(kube, before))
    fail_soon(kube, "vc-worker-1")
    assert wait_ended(controller) is Phase.FAILED
    assert state(kube).reason.endswith("and its pods have been started again 1 time already")
    expect_soon(lambda: list(uids(kube)) == ["vc-worker-1"])


def test_an_openpai_job_that_loses_a_pod_of_its_gang_starts_again_for_nothing(kube, submit_openpai, controller):
    submit_openpai(True)
    for _ in range(2):
        before = uids(kube)
        kube.delete_pod("default", "vc-worker-0", grace_period_s=0)
        expect_soon(lambda before=before: has_been_replaced(kube, before))
        expect_soon(lambda: state(kube).phase is Phase.PENDING)
    assert state(kube).retries == 0


def test_an_instance_without_a_gang_starts_again_alone_as_often_as_it_says(kube, submit_openpai, controller):
    submit_openpai(False, failed=2)
    other = uids(kube)["vc-worker-1"]
    for _ in range(2):
        fail_soon(kube, "vc-worker-0")
    expect_soon(lambda: state(kube).pod_retries == {"vc-worker-0": 1})
    assert uids(kube)["vc-worker-1"] == other
    for _ in range(2):
        fail_soon(kube, "vc-worker-1")
    assert wait_ended(controller) is Phase.FAILED
    assert state(kube).retries == 0


def test_an_openpai_job_with_failures_that_do_not_matter_is_complete(kube, submit_openpai, controller):
    submit_openpai(True, failed=2)
    end_pod(kube, "vc-worker-0", 1)
    end_pod(kube, "vc-worker-1")
    assert wait_ended(controller) is Phase.COMPLETED


def test_an_evicted_pod_restarts_the_whole_job(kube, submit, controller):
    submit(VOLCANO)
    before = uids(kube)
    kube.delete_pod("default", "vc-worker-1")
    expect_soon(lambda: has_been_replaced(kube, before) and state(kube).phase is Phase.PENDING)
    assert (state(kube).retries, state(kube).reason) == (1, "PodEvicted: vc-worker-1 is gone")


def test_a_job_runs_from_the_first_start_of_a_pod_until_none_has_started(kube, submit, controller):
    submit(VOLCANO)
    expect_soon(lambda: is_idle(controller, kube))
    assert state(kube) == JobState(Phase.PENDING)
    kube.patch(f"{pod_path('default', 'vc-worker-0')}/status", {"status": {"phase": "Running"}})
    expect_soon(lambda: state(kube) == JobState(Phase.RUNNING))
    kube.delete_pod("default", "vc-worker-1", grace_period_s=0)
    expect_soon(lambda: state(kube).retries == 1 and state(kube).phase is Phase.PENDING)


def test_a_job_is_not_restarted_more_often_than_it_says(kube, submit, controller):
    submit(VOLCANO)
    for _ in range(2):
        before = uids(kube)
        kube.delete_pod("default", "vc-ps-0")
        expect_soon(lambda before=before: has_been_replaced(kube, before) and state(kube).phase is Phase.PENDING)
    kube.delete_pod("default", "vc-ps-0")
    assert wait_ended(controller) is Phase.FAILED
    expect_soon(lambda: uids(kube) == {})
    assert state(kube).reason.endswith("vc-ps-0 is gone, and its pods have been started again 2 times already")


def test_a_completed_task_completes_the_job_and_frees_the_others(kube, submit, controller):
    submit(VOLCANO)
    end_pod(kube, "vc-worker-0")
    end_pod(kube, "vc-worker-1")
    assert wait_ended(controller) is Phase.COMPLETED
    expect_soon(lambda: list(uids(kube)) == ["vc-worker-0", "vc-worker-1"])


def test_an_aborted_job_can_be_resumed(kube, submit, controller):
    submit(VOLCANO)
    end_pod(kube, "vc-worker-0", exit_code=9)
    assert wait_ended(controller) is Phase.ABORTED
    expect_soon(lambda: list(uids(kube)) == ["vc-worker-0"])
    failed = uids(kube)
    resume_job(kube, read_record(kube, *KEY))
    expect_soon(lambda: len(controller._cache.pods(read_record(kube, *KEY))) == len(NAMES))
    assert sorted(uids(kube)) == NAMES
    assert uids(kube)["vc-worker-0"] != failed["vc-worker-0"]
    assert state(kube).phase is Phase.PENDING


def test_pods_that_have_succeeded_stay_when_an_aborted_job_is_resumed(kube, submit, controller):
    submit(VOLCANO)
    end_pod(kube, "vc-worker-1")
    end_pod(kube, "vc-worker-0", exit_code=9)
    assert wait_ended(controller) is Phase.ABORTED
    before = uids(kube)
    resume_job(kube, read_record(kube, *KEY))
    assert sorted(uids(kube)) == NAMES
    assert uids(kube)["vc-worker-1"] == before["vc-worker-1"]
    assert uids(kube)["vc-worker-0"] != before["vc-worker-0"]


def test_a_job_whose_old_pods_do_not_go_stays_aborted(kube, submit, monkeypatch):
    monkeypatch.setattr(creation, "LEAVING_S", 0.0)
    submit(VOLCANO)
    read_record(kube, *KEY).write(kube, JobState(Phase.ABORTED, "an accident"))
    before = uids(kube)
    with pytest.raises(UserError, match="vc-ps-0 is still being deleted; resume job vc when it is gone"):
        resume_job(kube, read_record(kube, *KEY))
    assert state(kube) == JobState(Phase.ABORTED, "an accident")
    assert uids(kube) == before


def test_a_job_whose_record_is_deleted_loses_its_pods(kube, submit, controller):
    submit(VOLCANO)
    expect_soon(lambda: len(controller._cache._records) == 1)
    kube.delete("/api/v1/namespaces/default/configmaps/hived-job-vc")
    expect_soon(lambda: uids(kube) == {})
    assert controller.wait_ended(KEY, DEADLINE_S) is None
    expect_soon(lambda: controller._cache._pods == {})


def test_pods_of_others_with_the_same_label_are_left_alone(kube, submit, controller):
    label = {"hivedscheduler.microsoft.com/job": "vc"}
    spec = {"containers": [{"name": "main", "image": "example/train"}]}
    stranger = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger", "labels": label}, "spec": spec}
    kube.create("/api/v1/namespaces/default/pods", stranger)
    submit(VOLCANO)
    end_pod(kube, "stranger", exit_code=1)
    kube.delete_pod("default", "vc-ps-0")
    expect_soon(lambda: state(kube).retries == 1 and state(kube).phase is Phase.PENDING)
    kube.delete("/api/v1/namespaces/default/configmaps/hived-job-vc")
    expect_soon(lambda: list(uids(kube)) == ["stranger"])


def test_a_restart_that_was_interrupted_is_gone_on_with(kube, submit):
    submit(VOLCANO)
    before = uids(kube)
    record = read_record(kube, *KEY)
    record.write(kube, JobState(Phase.RESTARTING, "somebody began", 1, dict(before)))
    kube.delete_pod("default", "vc-ps-0")
    with JobController(kube):
        expect_soon(lambda: has_been_replaced(kube, before) and state(kube).phase is Phase.PENDING)
    assert state(kube).retries == 1


def test_nothing_is_done_before_all_pods_are_known(kube, submit, monkeypatch):
    submit(VOLCANO)
    before = uids(kube)
    read_record(kube, *KEY).write(kube, JobState(Phase.RESTARTING, "somebody began", 1, dict(before)))
    may_list, list_objects = threading.Event(), kube.list_objects

    def list_late(path, *arguments, **options):
        assert not path.endswith("/pods") or may_list.wait(DEADLINE_S)
        return list_objects(path, *arguments, **options)

    monkeypatch.setattr(kube, "list_objects", list_late)
    with JobController(kube) as controller:
        cache = controller._cache
        expect_soon(lambda: KEY in cache._due)  # the worker leaves the job waiting
        may_list.set()
        monkeypatch.undo()
        expect_soon(lambda: has_been_replaced(kube, before) and state(kube).phase is Phase.PENDING)
    assert state(kube).retries == 1


def test_two_controllers_restart_a_job_once(kube, submit, controller):
    with JobController(kube) as other:
        submit(VOLCANO)
        before = uids(kube)
        kube.delete_pod("default", "vc-ps-0")
        expect_soon(lambda: has_been_replaced(kube, before) and state(kube).phase is Phase.PENDING)
        expect_soon(lambda: is_idle(controller, kube) and is_idle(other, kube))
        assert (state(kube).retries, state(kube).phase) == (1, Phase.PENDING)


def test_a_plain_job_goes_on_as_its_pods_succeed(kube, submit, controller):
    submit(PLAIN)
    assert sorted(uids(kube)) == ["vc-0", "vc-1"]
    end_pod(kube, "vc-1")
    expect_soon(lambda: "vc-2" in uids(kube))
    end_pod(kube, "vc-0")
    end_pod(kube, "vc-2")
    assert wait_ended(controller) is Phase.COMPLETED


def test_a_plain_job_replaces_failed_pods_as_often_as_it_says(kube, submit, controller):
    submit(PLAIN)
    before = uids(kube)["vc-0"]
    end_pod(kube, "vc-0", exit_code=1)
    expect_soon(lambda: uids(kube).get("vc-0", before) != before and state(kube).phase is Phase.PENDING)
    end_pod(kube, "vc-1", exit_code=1)
    assert wait_ended(controller) is Phase.FAILED


@pytest.mark.parametrize(
    "data", [{"job.json": "{"}, {"job.json": "{}"}, {"state.json": "[]"}, {"submission.json": None}]
)
def test_a_record_that_somebody_has_spoilt_does_not_keep_others_from_care(kube, submit, controller, data):
    submit(VOLCANO.replace("name: vc", "name: other"))
    kube.patch("/api/v1/namespaces/default/configmaps/hived-job-other", {"data": data})
    kube.delete_pod("default", "other-ps-0")
    submit(VOLCANO)
    kube.delete_pod("default", "vc-ps-0")
    expect_soon(lambda: state(kube).retries == 1 and state(kube).phase is Phase.PENDING)


def test_a_job_that_was_not_asked_for_is_left_alone(kube, submit):
    submit(VOLCANO)
    with JobController(kube, only=[("default", "other")]) as controller:
        kube.delete_pod("default", "vc-ps-0")
        expect_soon(lambda: is_idle(controller, kube))
    assert sorted(uids(kube)) == NAMES[1:]
    assert state(kube) == JobState(Phase.PENDING)


@pytest.mark.sample(1)
@pytest.mark.parametrize("action", ["RestartJob", "RestartTask", "RestartPod"])
def test_controllers_that_come_and_go_leave_a_job_whole(kube, submit, action):
    """Pods are deleted and fail at any moment, also while a controller restarts what another one began to."""
    text = (
        VOLCANO.replace("RestartJob", action).replace("AbortJob", "RestartPod").replace("maxRetry: 2", "maxRetry: 999")
    )
    submit(text)
    chance = random.Random(action)
    controllers = [JobController(kube), JobController(kube)]
    for each in controllers:
        each.start()
    for _ in range(30):
        name = chance.choice(NAMES)
        with suppress(KubeError):  # it is gone at the moment
            if chance.random() < 0.5:
                kube.delete_pod("default", name)
            else:
                end_pod(kube, name, exit_code=1)
        if chance.random() < 0.2:
            controllers.pop(0).stop()
            controllers.append(JobController(kube))
            controllers[-1].start()
        time.sleep(chance.random() * 0.04)
    whole = dict.fromkeys(NAMES, "Pending")
    try:
        expect_soon(lambda: phases(kube) == whole and state(kube).phase is Phase.PENDING)
    finally:
        for each in controllers:
            each.stop()
    assert state(kube).retries > 0


def phases(kube) -> dict[str, str]:
    pods = kube.list_objects(PODS, dict).items
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in pods}
