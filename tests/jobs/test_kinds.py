"""Job files of other controllers: the pods that these would create, objects beside them, policies for their ends."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hived.values.errors import UserError
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.asks import PRIORITY, VIRTUAL_CLUSTER
from hived_extender.jobs.kinds import table
from hived_extender.jobs.kinds.koordinator import PREFIX as GANG
from hived_extender.jobs.wire import Pod
from hived_jobs.creation import collection_of
from hived_jobs.documents import stored_document
from hived_jobs.kinds import KINDS, PLANNERS, as_stored, has_all, plan_document, plan_jobs
from hived_jobs.policies import Action, Event, Phase, Policy, Reaction, Rules, TaskPod, decide, outcome
from tests.job_files import (
    ALL,
    DEPLOYMENT,
    ELASTIC,
    JAX,
    JOB_SET,
    MPI,
    PADDLE,
    PLAIN,
    PYTORCH,
    TENSORFLOW,
    VOLCANO,
    XGBOOST,
    plan_file,
)
from tests.places import ROOT


@pytest.fixture
def plan(write, submission):
    def _plan(text: str, **wishes):
        [job], warnings = plan_jobs(write(text), replace(submission, **wishes))
        return job, warnings

    return _plan


def env_of(pod, container=0):
    env = pod.manifest["spec"]["containers"][container].get("env", [])
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in env}


def gang_of(pod):
    annotations = pod.manifest["metadata"]["annotations"]
    return {key.removeprefix(GANG): value for key, value in annotations.items() if key.startswith(GANG)}


def label(pod, key):
    return pod.manifest["metadata"]["labels"][key]


def names(job):
    return [pod.name for pod in job.pods]


@pytest.mark.parametrize("kind", ALL)
def test_every_pod_keeps_its_template_and_names_its_job_task_and_scheduler(kind, plan):
    job, _ = plan(ALL[kind])
    assert job.pods
    for pod in job.pods:
        metadata, spec = pod.manifest["metadata"], pod.manifest["spec"]
        assert (metadata["labels"]["team"], label(pod, "hivedscheduler.microsoft.com/job")) == ("x", job.name)
        assert spec["containers"][-1]["resources"] == {"limits": {"nvidia.com/gpu": 2}}
        assert spec["schedulerName"] in ("hived", "hivedscheduler-ds-research")
        assert pod.priority is None


@pytest.mark.parametrize("kind", ALL)
def test_virtual_cluster_and_priority_of_the_command_line_win(kind, plan):
    job, _ = plan(ALL[kind], virtual_cluster="product", priority=7, scheduler_name="mine")
    for pod in job.pods:
        annotations, spec = pod.manifest["metadata"]["annotations"], pod.manifest["spec"]
        assert annotations[VIRTUAL_CLUSTER] == "product"
        assert annotations[PRIORITY] == "7"
        assert (spec["priorityClassName"], spec["schedulerName"]) == ("hived-priority-7", "mine")


def test_a_scheduling_spec_in_a_template_stands_whatever_the_command_line_says(plan):
    text = PLAIN.replace('note: "1"', f"{SCHEDULING_SPEC}: '{{virtualCluster: research, leafCellNumber: 2}}'")
    assert plan(text)[1] == []
    job, [warning] = plan(text, virtual_cluster="product", priority=7)
    assert "spec: --vc, --priority and --gpu-type do not change pods with the annotation" in warning
    for pod in job.pods:
        assert pod.manifest["metadata"]["annotations"].keys().isdisjoint((VIRTUAL_CLUSTER, PRIORITY))
        assert "priorityClassName" not in pod.manifest["spec"]


@pytest.mark.parametrize("kind", ALL)
def test_a_document_that_is_kept_becomes_the_same_pods_again(kind, plan, submission):
    job, _ = plan(ALL[kind])
    again, _ = plan(json.dumps(job.document))
    assert [pod.manifest for pod in again.pods] == [pod.manifest for pod in job.pods]
    assert again.rules == job.rules


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("PyTorchJob", ("default/train", 3, None)),
        ("TFJob", ("lab/tf", 3, None)),
        ("MPIJob v2", ("default/pi", 3, None)),
        ("MPIJob v1", ("default/pi", 3, None)),
        ("Volcano Job", ("default/vc", 3, {"ps": 1, "worker": 2})),
        ("ElasticJob", ("default/dl", 2, None)),
    ],
)
def test_the_scheduler_understands_which_gang_the_pods_are_in(kind, expected, plan):
    for pod in plan(ALL[kind])[0].pods:
        said = table.describe(msgspec.convert(pod.manifest, Pod), Objects())
        assert said is not None
        assert (str(said.gang), said.minimum, said.task_minimums) == expected
        assert said.task == (pod.role if kind != "ElasticJob" else None)


class Objects:
    """There are none."""

    def get(self, kind: str, namespace: str, name: str, /) -> None:
        """Nothing."""


def test_a_pytorch_job_has_ranks_and_a_master_that_all_can_find(plan):
    job, warnings = plan(PYTORCH)
    assert warnings == []
    assert names(job) == ["train-master-0", "train-worker-0", "train-worker-1"]
    assert [env_of(pod)["RANK"] for pod in job.pods] == ["0", "1", "2"]
    env = env_of(job.pods[2])
    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["WORLD_SIZE"]) == ("train-master-0", "23456", "3")
    assert (env["PET_NNODES"], env["PET_NODE_RANK"]) == ("3", "2")
    assert label(job.pods[1], "training.kubeflow.org/replica-index") == "0"
    [service] = job.objects
    assert (service["metadata"]["name"], service["spec"]["clusterIP"]) == ("train-master-0", "None")
    assert service["spec"]["selector"].items() <= job.pods[0].manifest["metadata"]["labels"].items()
    assert {tuple(sorted(gang_of(pod).items())) for pod in job.pods} == {
        (("min-available", "3"), ("name", "train"), ("total-number", "3"))
    }


def test_an_elastic_pytorch_job_tells_torchrun_its_range(plan):
    elastic = "spec:\n  nprocPerNode: '2'\n  elasticPolicy: {minReplicas: 1, maxReplicas: 3, rdzvPort: 9}\n"
    env = env_of(plan(PYTORCH.replace("spec:\n", elastic, 1))[0].pods[1])
    assert (env["PET_NNODES"], env["PET_RDZV_ENDPOINT"]) == ("1:3", "train-master-0:9")
    assert (env["PET_NPROC_PER_NODE"], "PET_NODE_RANK" in env) == ("2", False)


def test_a_tensorflow_job_tells_each_pod_its_place(plan):
    job, warnings = plan(TENSORFLOW)
    assert warnings == []
    assert names(job) == ["tf-ps-0", *(f"tf-worker-{index}" for index in range(4))]
    config = json.loads(env_of(job.pods[2])["TF_CONFIG"])
    assert config["task"] == {"type": "worker", "index": 1}
    assert config["cluster"]["ps"] == ["tf-ps-0.lab.svc:2222"]
    assert [service["metadata"]["name"] for service in job.objects] == names(job)
    assert gang_of(job.pods[0]) == {"name": "tf", "min-available": "3", "total-number": "5"}
    spec = job.pods[0].manifest["spec"]
    assert (spec["priorityClassName"], spec["schedulerName"]) == ("high", "hivedscheduler-ds-research")
    assert job.pods[0].manifest["metadata"]["namespace"] == "lab"
    assert [pod.manifest["spec"]["restartPolicy"] for pod in job.pods] == ["Never"] * 5
    assert [str(policy) for policy in job.rules.policies] == [
        "exit code 128-255 of worker -> RestartPod",
        "TaskCompleted of worker -> CompleteJob",
    ]


def test_the_workers_of_an_xgboost_job_find_its_master_and_each_other(plan):
    job, warnings = plan(XGBOOST)
    assert warnings == []
    assert names(job) == ["boost-master-0", "boost-worker-0", "boost-worker-1"]
    assert [env_of(pod)["RANK"] for pod in job.pods] == ["0", "1", "2"]
    env = env_of(job.pods[2])
    assert (env["MASTER_ADDR"], env["MASTER_PORT"], env["WORLD_SIZE"]) == ("boost-master-0", "9999", "3")
    assert (env["WORKER_ADDRS"], env["WORKER_PORT"]) == ("boost-worker-0,boost-worker-1", "9999")
    assert [service["metadata"]["name"] for service in job.objects] == names(job)
    assert gang_of(job.pods[0]) == {"name": "boost", "min-available": "3", "total-number": "3"}


def test_an_xgboost_job_without_a_master_is_refused(write, submission):
    workers = XGBOOST.partition("    Worker:")[0].replace("Master:", "Worker:")
    with pytest.raises(UserError, match="xgbReplicaSpecs: found no Master"):
        plan_file(write(workers), submission)


def test_the_first_worker_of_a_paddle_job_is_where_all_meet(plan):
    job, warnings = plan(PADDLE)
    assert warnings == []
    first, second = (env_of(pod) for pod in job.pods)
    assert (first["PADDLE_MASTER"], second["PADDLE_MASTER"]) == ("$(POD_IP_DUMMY):36543", "paddle-worker-0:36543")
    assert (second["PADDLE_JOB_ID"], second["PADDLE_NNODES"], "PADDLE_TRAINER_NUM" in second) == ("paddle", "2", False)


def test_a_paddle_job_with_a_master_has_servers_and_trainers(plan):
    job, _ = plan(PADDLE.replace("    Worker:", "    Master:") + PADDLE.partition("paddleReplicaSpecs:\n")[2])
    assert names(job) == ["paddle-master-0", "paddle-master-1", "paddle-worker-0", "paddle-worker-1"]
    parts = [{key for key in env_of(pod) if key.endswith("R_NUM")} for pod in job.pods]
    assert parts == [{"PADDLE_SERVER_NUM"}] * 2 + [{"PADDLE_TRAINER_NUM"}] * 2
    assert env_of(job.pods[3])["PADDLE_MASTER"] == "paddle-master-0:36543"


def test_a_jax_job_numbers_its_processes(plan):
    job, warnings = plan(JAX)
    assert warnings == []
    assert [env_of(pod)["PROCESS_ID"] for pod in job.pods] == ["0", "1"]
    env = env_of(job.pods[1])
    assert (env["COORDINATOR_ADDRESS"], env["COORDINATOR_PORT"], env["NUM_PROCESSES"]) == ("jax-worker-0", "6666", "2")


def test_an_mpi_job_lists_its_workers_and_has_a_key(plan):
    job, warnings = plan(MPI)
    assert warnings == []
    assert names(job) == ["pi-launcher", "pi-worker-0", "pi-worker-1"]
    by_kind = {one["kind"]: one for one in job.objects}
    hosts = "pi-worker-0.pi.default.svc slots=2\npi-worker-1.pi.default.svc slots=2\n"
    assert by_kind["ConfigMap"]["data"] == {"hostfile": hosts}
    assert set(by_kind["Secret"]["data"]) == {"ssh-privatekey", "ssh-publickey"}
    worker = job.pods[1].manifest["spec"]
    assert (worker["hostname"], worker["subdomain"]) == ("pi-worker-0", "pi")
    assert worker["containers"][0]["command"] == ["/usr/sbin/sshd", "-De"]
    assert env_of(job.pods[0])["OMPI_MCA_orte_default_hostfile"] == "/etc/mpi/hostfile"


def test_an_mpi_job_of_the_first_version_starts_its_processes_with_kubectl(plan):
    job, _ = plan(MPI.replace("v2beta1", "v1"))
    kinds = [one["kind"] for one in job.objects]
    assert kinds == ["ConfigMap", "ServiceAccount", "Role", "RoleBinding"]
    assert job.objects[0]["data"]["hostfile"] == "pi-worker-0 slots=2\npi-worker-1 slots=2\n"
    assert job.objects[2]["rules"][1]["resourceNames"] == ["pi-worker-0", "pi-worker-1"]
    assert job.pods[0].manifest["spec"]["serviceAccountName"] == "pi-launcher"
    assert job.pods[1].manifest["spec"]["containers"][0]["command"] == ["sleep", "365d"]


def test_a_volcano_job_has_its_tasks_plugins_and_policies(plan):
    job, warnings = plan(VOLCANO)
    assert names(job) == ["vc-ps-0", "vc-worker-0", "vc-worker-1", "vc-worker-2"]
    env = env_of(job.pods[2])
    assert env["VC_TASK_INDEX"] == "1"
    assert env["VC_WORKER_HOSTS"] == {"configMapKeyRef": {"name": "vc-svc", "key": "VC_WORKER_HOSTS"}}
    assert json.loads(env["TF_CONFIG"])["cluster"]["ps"] == ["vc-ps-0.vc:3333"]
    service, config = job.objects
    assert (service["metadata"]["name"], config["data"]["VC_WORKER_NUM"]) == ("vc", "3")
    assert gang_of(job.pods[0]) == {"name": "vc", "min-available": "3", "total-number": "4"}
    annotations = job.pods[0].manifest["metadata"]["annotations"]
    assert json.loads(annotations["hivedscheduler.microsoft.com/task-minimums"]) == {"ps": 1, "worker": 2}
    assert job.pods[0].manifest["spec"]["priorityClassName"] == "high"
    assert [str(policy) for policy in job.rules.policies] == [
        "TaskCompleted of worker -> CompleteJob",
        "exit code 3 of worker -> RestartTask",
        "PodEvicted -> RestartJob",
    ]
    assert job.rules.max_retries == 3
    assert len(warnings) == 1
    assert "schedulerName: volcano would not be hived" in warnings[0]


def test_tasks_of_a_smaller_minimum_of_the_job_have_none(plan):
    """As Volcano has it."""
    job, _ = plan(VOLCANO.replace("minAvailable: 3", "minAvailable: 2"))
    assert "hivedscheduler.microsoft.com/task-minimums" not in job.pods[0].manifest["metadata"]["annotations"]


def test_a_topology_wish_of_volcano_names_its_tier(plan):
    wish = "networkTopology: {mode: soft, highestTierAllowed: 2}"
    job, _ = plan(VOLCANO.replace("queue: research", wish))
    annotations = job.pods[0].manifest["metadata"]["annotations"]
    assert annotations["kueue.x-k8s.io/podset-preferred-topology"] == "volcano-tier-2"


def test_an_elastic_job_keeps_the_gang_of_its_template_and_may_be_suspended(plan):
    job, warnings = plan(ELASTIC)
    assert warnings == []
    assert job.is_suspended
    assert names(job) == [f"dl-edljob-worker-{index}" for index in range(4)]
    assert gang_of(job.pods[0]) == {"name": "dl", "min-available": "2"}
    env = env_of(job.pods[3])
    assert (env["MODE"], env["NODE_NUM"], env["NODE_RANK"], env["WORLD_SIZE"]) == ("fast", "4", "3", "4")
    assert not plan(ELASTIC.replace("suspend: true", "suspend: false"))[0].is_suspended


def test_a_plain_job_runs_as_many_pods_at_a_time_as_it_says(plan):
    job, warnings = plan(PLAIN)
    assert warnings == []
    assert (names(job), job.width) == (["batch-0", "batch-1", "batch-2"], 2)
    assert [pod.name for pod in job.first_pods()] == ["batch-0", "batch-1"]
    assert env_of(job.pods[2])["JOB_COMPLETION_INDEX"] == "2"
    assert (job.rules.max_retries, gang_of(job.pods[0])) == (6, {})


def test_a_job_set_has_the_pods_of_all_its_jobs(plan):
    job, warnings = plan(JOB_SET)
    assert warnings == []
    workers = [f"set-workers-{at}-{index}" for at in range(2) for index in range(2)]
    assert names(job) == ["set-driver-0-0", *workers]
    assert label(job.pods[3], "jobset.sigs.k8s.io/job-index") == "1"
    assert label(job.pods[3], "batch.kubernetes.io/job-completion-index") == "0"
    assert (job.pods[1].manifest["spec"]["subdomain"], job.objects[0]["metadata"]["name"]) == ("set", "set")
    assert [str(policy) for policy in job.rules.policies] == [
        "PodFailed -> RestartJob",
        "TaskCompleted of driver -> CompleteJob",
    ]


def test_a_deployment_is_its_replicas(plan):
    job, warnings = plan(DEPLOYMENT)
    assert (names(job), warnings) == (["web-0", "web-1"], [])


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_of_a_deployment_that_ends_is_replaced_though_the_others_run(phase, plan):
    job, _ = plan(DEPLOYMENT)
    seen = {"web-0": TaskPod("web-0", "u0", "Running"), "web-1": TaskPod("web-1", "u1", phase)}
    reaction = decide(job.rules, {pod.name: pod.role for pod in job.pods}, seen)
    assert reaction is not None
    assert (reaction.action, reaction.names) == (Action.RESTART_POD, ("web-1",))


def test_a_template_that_names_its_gang_keeps_its_own_words(plan):
    words = 'pod-group.scheduling.sigs.k8s.io/name: g, pod-group.scheduling.sigs.k8s.io/min-available: "5"'
    job, _ = plan(TENSORFLOW.replace("team: x", f"team: x, {words}").replace("minAvailable: 3, ", ""))
    assert label(job.pods[0], "pod-group.scheduling.sigs.k8s.io/min-available") == "5"
    assert gang_of(job.pods[0]) == {}


def test_a_queue_that_is_no_virtual_cluster_is_a_warning(plan):
    job, warnings = plan(TENSORFLOW.replace("queue: research", "queue: gold"))
    assert "spec.runPolicy.schedulingPolicy.queue: not honoured: queue gold is no virtual cluster" in warnings[0]
    assert job.pods[0].manifest["spec"]["schedulerName"] == "hived"


@pytest.mark.parametrize(("number", "port"), [("7777", "7777"), ("", "23456"), ("0", "23456")])
def test_the_port_of_a_pytorch_job_is_its_own_or_the_usual_one(number, port, plan):
    ports = f"\n{' ' * 12}ports: [{{name: pytorchjob-port, containerPort: {number}}}]"
    job, _ = plan(PYTORCH.replace("name: pytorch\n", f"name: pytorch{ports}\n", 1))
    assert {env_of(pod)["MASTER_PORT"] for pod in job.pods} == {port}


@pytest.mark.parametrize(
    ("kind", "old", "new", "message"),
    [
        ("PyTorchJob", "    Worker:", "    Boss:", "pytorchReplicaSpecs.Boss: no such replica type; expected Master"),
        ("PyTorchJob", "    Worker:", "    master:", "pytorchReplicaSpecs.master: Master is there already"),
        ("PyTorchJob", "OnFailure", "Sometimes", "8: spec.pytorchReplicaSpecs.Master.restartPolicy: found 'Sometimes'"),
        ("PyTorchJob", "containers:", "container:", "Master.template: expected a pod template"),
        ("PyTorchJob", "name: train", "name: Train_1", "metadata.name: found 'Train_1', expected at most 63 small"),
        ("TFJob", "minAvailable: 3", "minAvailable: 6", "minAvailable: found 6, but the job has 5 pods and would"),
        ("TFJob", "cleanPodPolicy: Running", "cleanPodPolicy: Some", "found 'Some', expected None, Running, All"),
        ("Volcano Job", "RestartJob", "RestartPartition", "policies[0].action: RestartPartition is not acted on; exp"),
        ("Volcano Job", "RestartJob", "Restart", "policies[0].action: found 'Restart', expected RestartJob"),
        ("Volcano Job", "PodEvicted", "PodPending", "policies[0].event: PodPending is not acted on; expected *, PodF"),
        ("Volcano Job", "exitCode: 3", "exitCode: 0", "policies[1].exitCode: found '0', expected a whole number"),
        ("Volcano Job", "minAvailable: 2", "minAvailable: 4", "tasks[1].minAvailable: found 4, but the task has 3"),
        ("MPIJob v2", "slotsPerWorker", "mpiImplementation: Other\n  slotsPerWorker", "found 'Other', expected"),
        ("Job", "Indexed", "Random", "completionMode: found 'Random', expected Indexed or NonIndexed"),
        ("JobSet", "replicas: 2", "replicas: 80000", "[1].replicas: 80,000 jobs of 2 pods are more than 150,000 pods"),
        ("JobSet", "[driver]", "[boss]", "targetReplicatedJobs: no replicatedJob is named boss"),
    ],
)
def test_a_mistake_is_answered_with_its_place(kind, old, new, message, write, submission):
    with pytest.raises(UserError) as caught:
        plan_file(write(ALL[kind].replace(old, new)), submission)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("kind", "old", "new", "message"),
    [
        ("TFJob", "cleanPodPolicy: Running", "ttlSecondsAfterFinished: 9", "runPolicy.ttlSecondsAfterFinished: not"),
        ("Volcano Job", "queue: research", "ttlSecondsAfterFinished: 9", "spec.ttlSecondsAfterFinished: not honoured"),
        ("Volcano Job", "plugins: {env", "plugins: {ray: [], env", "spec.plugins.ray: not honoured: expected env, svc"),
        ("ElasticJob", "suspend: true", "optimizeMode: cluster", "spec.optimizeMode: not honoured"),
        ("Job", "parallelism", "activeDeadlineSeconds: 5\n  parallelism", "spec.activeDeadlineSeconds: not honoured"),
        ("Job", "parallelism: 2", "paralelism: 2", "spec.paralelism: unknown key, ignored; did you mean parallelism?"),
    ],
)
def test_what_is_not_honoured_is_a_warning_with_its_place(kind, old, new, message, plan):
    assert any(message in warning for warning in plan(ALL[kind].replace(old, new, 1))[1])


def test_a_virtual_cluster_that_does_not_exist_is_refused(plan):
    with pytest.raises(UserError, match="virtual cluster gold does not exist; the configuration has batch, product"):
        plan(PYTORCH, virtual_cluster="gold")


PAGE = (ROOT / "docs" / "jobs.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("version", "kind"), PLANNERS)
def test_every_kind_is_documented(version, kind):
    assert f"{kind} ({version.split('/')[0]}" in PAGE or kind == "Pod"


@pytest.mark.parametrize("word", [*Event, *(each for each in Action if each is not Action.CLEAN_UP), *Phase])
def test_every_event_action_and_phase_is_documented(word):
    assert f"`{word.value}`" in PAGE


ODD = [
    "null",
    '""',
    '"x"',
    "7",
    "-1",
    "1.5",
    "true",
    "[]",
    '["x"]',
    "[null]",
    "[[]]",
    "{}",
    '{"x":1}',
    '{"name":null}',
    '[{"x":1}]',
]


def places(value: object, path: tuple = ()) -> Iterator[tuple]:
    """The paths of everything inside a document."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ALL)
@given(data=st.data())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_stands_in_a_file_is_planned_or_refused(kind, data, submission):
    document = yaml.safe_load(ALL[kind])
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(places(document))))
        part = document
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = json.loads(data.draw(st.sampled_from(ODD)))
    plan = None
    with suppress(UserError):
        plan = plan_document(stored_document(json.dumps(document), "job.yaml"), submission)
    assert plan is None or msgspec.json.encode([pod.manifest for pod in plan.pods])


@pytest.mark.parametrize(("kind", "version"), [(kind, version) for version, kinds in KINDS.items() for kind in kinds])
def test_each_kind_is_kept_as_it_is_and_has_a_place_in_its_namespace(kind, version, write, submission):
    [job], _ = plan_jobs(write(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: '010'}}\n"), submission)
    [manifest] = job.objects
    assert (job.pods, manifest["metadata"]) == ((), {"name": "010", "namespace": "default"})
    assert "/namespaces/default/" in collection_of("", manifest)


def test_a_priority_class_is_in_no_namespace() -> None:
    manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
    assert collection_of("lab", manifest) == "/apis/scheduling.k8s.io/v1/priorityclasses"


def test_a_namespace_that_is_written_stays(write, submission):
    [job], _ = plan_jobs(write("{apiVersion: v1, kind: Secret, metadata: {name: s, namespace: lab}}"), submission)
    assert job.objects[0]["metadata"]["namespace"] == "lab"


@pytest.mark.parametrize("kind", sorted({kind for kinds in KINDS.values() for kind in kinds}))
def test_each_kind_is_documented(kind):
    section = (ROOT / "docs/jobs.md").read_text().partition("## Other objects in a job file")[2].partition("\n## ")[0]
    assert re.search(rf"\b{kind}\b", section)


@pytest.mark.parametrize(
    ("stored", "wanted", "is_so"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": {"x": 1, "y": 2}}, {"a": {"x": 1}, "b": None}, True),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}, True),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": 1}, {"a": {"x": 1}}, False),
        ({"a": {}}, {"a": []}, False),
    ],
)
def test_a_stored_object_may_have_more_but_not_less_or_another(stored, wanted, is_so):
    assert has_all(stored, wanted) is is_so


def test_a_secret_is_compared_as_it_is_stored():
    secret = {"kind": "Secret", "stringData": {"user": "me"}, "data": {"key": "eA=="}}
    assert as_stored(secret) == {"kind": "Secret", "data": {"key": "eA==", "user": "bWU="}}


TASKS = {"ps-0": "ps", "worker-0": "worker", "worker-1": "worker"}


def pods(**changes: TaskPod | None) -> dict[str, TaskPod]:
    """All pods running, but for the changes (`worker_0` stands for worker-0)."""
    seen = {name: TaskPod(name, f"uid-{name}", "Running") for name in TASKS}
    for key, pod in changes.items():
        name = key.replace("_", "-")
        if pod is None:
            del seen[name]
        else:
            seen[name] = pod
    return seen


def failed(name: str, exit_code: int = 1) -> TaskPod:
    return TaskPod(name, f"uid-{name}", "Failed", exit_code)


def succeeded(name: str) -> TaskPod:
    return TaskPod(name, f"uid-{name}", "Succeeded")


LEAVING = TaskPod("worker-0", "uid", "Running", is_leaving=True)
DONE = {"worker_0": succeeded("worker-0"), "worker_1": succeeded("worker-1")}
WHOLE, WORKERS = tuple(TASKS), ("worker-0", "worker-1")


@pytest.mark.parametrize(
    ("policies", "seen", "expected"),
    [
        ([], pods(), None),
        ([Policy(Action.RESTART_JOB, (Event.POD_EVICTED,))], pods(), None),
        ([Policy(Action.RESTART_JOB, (Event.POD_EVICTED,))], pods(worker_0=None), (Action.RESTART_JOB, WHOLE)),
        ([Policy(Action.RESTART_JOB, (Event.POD_EVICTED,))], pods(worker_0=LEAVING), (Action.RESTART_JOB, WHOLE)),
        ([Policy(Action.RESTART_TASK, (Event.POD_EVICTED,))], pods(worker_1=None), (Action.RESTART_TASK, WORKERS)),
        ([Policy(Action.RESTART_JOB, (Event.POD_EVICTED,), "ps")], pods(worker_0=LEAVING), None),
        ([Policy(Action.RESTART_POD, (Event.ANY,))], pods(ps_0=failed("ps-0")), (Action.RESTART_POD, ("ps-0",))),
        ([Policy(Action.ABORT_JOB, (Event.TASK_FAILED,))], pods(ps_0=failed("ps-0")), (Action.ABORT_JOB, WHOLE)),
        ([Policy(Action.ABORT_JOB, exit_codes=(3, 3))], pods(ps_0=failed("ps-0", 4)), None),
        ([Policy(Action.ABORT_JOB, exit_codes=(3, 9))], pods(ps_0=failed("ps-0", 4)), (Action.ABORT_JOB, WHOLE)),
        ([Policy(Action.COMPLETE_JOB, (Event.TASK_COMPLETED,), "worker")], pods(**DONE), (Action.COMPLETE_JOB, WHOLE)),
        ([Policy(Action.COMPLETE_JOB, (Event.TASK_COMPLETED,), "ps")], pods(**DONE), None),
        ([Policy(Action.COMPLETE_JOB, (Event.TASK_COMPLETED,), "worker")], pods(worker_0=succeeded("worker-0")), None),
        (
            [Policy(Action.ABORT_JOB, (Event.POD_FAILED,)), Policy(Action.RESTART_TASK, (Event.POD_FAILED,), "ps")],
            pods(ps_0=failed("ps-0")),
            (Action.RESTART_TASK, ("ps-0",)),
        ),
    ],
)
def test_the_first_policy_that_fits_counts_those_of_a_task_first(policies, seen, expected):
    reaction = decide(Rules(tuple(policies)), TASKS, seen)
    assert (reaction and (reaction.action, reaction.names)) == expected
    assert reaction is None or reaction.policy in policies


TWO_FAIL = Policy(Action.FAIL_JOB, (Event.POD_FAILED,), "worker", at_least=2)
TRY_TWICE = Policy(Action.RESTART_POD, (Event.POD_FAILED,), "worker", most=2, is_free=True)
ONE_IS_ENOUGH = Policy(Action.COMPLETE_JOB, (Event.POD_SUCCEEDED,), "worker")
BOTH_FAILED = {"worker_0": failed("worker-0"), "worker_1": failed("worker-1")}


@pytest.mark.parametrize(
    ("policies", "seen", "retries", "expected"),
    [
        ([TWO_FAIL], pods(worker_0=failed("worker-0")), {}, None),
        ([TWO_FAIL], pods(ps_0=failed("ps-0"), worker_0=failed("worker-0")), {}, None),
        ([TWO_FAIL], pods(**BOTH_FAILED), {}, (Action.FAIL_JOB, WHOLE)),
        ([TRY_TWICE, TWO_FAIL], pods(**BOTH_FAILED), {"worker-0": 1}, (Action.RESTART_POD, ("worker-0",))),
        ([TRY_TWICE, TWO_FAIL], pods(**BOTH_FAILED), {"worker-0": 2}, (Action.RESTART_POD, ("worker-1",))),
        ([TRY_TWICE, TWO_FAIL], pods(**BOTH_FAILED), {"worker-0": 2, "worker-1": 2}, (Action.FAIL_JOB, WHOLE)),
        ([ONE_IS_ENOUGH], pods(worker_1=succeeded("worker-1")), {}, (Action.COMPLETE_JOB, WHOLE)),
        ([ONE_IS_ENOUGH], pods(ps_0=succeeded("ps-0")), {}, None),
        ([Policy(Action.ABORT_JOB, (Event.ANY,))], pods(worker_1=succeeded("worker-1")), {}, None),
    ],
)
def test_a_policy_may_need_several_events_and_may_be_for_a_pod_so_often(policies, seen, retries, expected):
    reaction = decide(Rules(tuple(policies)), TASKS, seen, retries)
    assert (reaction and (reaction.action, reaction.names)) == expected


def test_pods_that_are_gone_are_made_again_though_no_policy_says_so():
    seen = pods(ps_0=None, worker_1=None)
    assert decide(Rules(), TASKS, seen) == Reaction(Action.RESTART_POD, ("ps-0", "worker-1"))


def test_a_reason_names_what_happened():
    rules = Rules((Policy(Action.ABORT_JOB, (Event.POD_FAILED,)),))
    reaction = decide(rules, TASKS, pods(ps_0=failed("ps-0", 9)))
    assert reaction is not None
    assert reaction.reason == "PodFailed: ps-0 has failed with exit code 9"


@pytest.mark.parametrize(
    ("seen", "phase"),
    [
        (pods(**DONE), None),
        (pods(**DONE, ps_0=None), None),
        (pods(**DONE, ps_0=succeeded("ps-0")), Phase.COMPLETED),
        (pods(**DONE, ps_0=failed("ps-0")), Phase.FAILED),
    ],
)
def test_a_job_has_ended_when_all_its_pods_have(seen, phase):
    assert outcome(Rules(), TASKS, seen) is phase


def test_where_policies_alone_say_that_a_job_has_failed_it_ends_well_else():
    assert outcome(Rules(ends_well=True), TASKS, pods(**DONE, ps_0=failed("ps-0"))) is Phase.COMPLETED
