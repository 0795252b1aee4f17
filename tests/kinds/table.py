"""Kinds and shapes of jobs as people write them, and what hived shows of each: a table for every kind of cluster.

A row makes the objects of a job of a name. `played.py` goes through all of them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hived_extender.jobs.kinds.koordinator import PREFIX as KOORDINATOR
from hived_jobs.submission import SCHEDULER

GPU = "nvidia.com/gpu"
SIGS = "pod-group.scheduling.sigs.k8s.io"
"""The prefix of the coscheduling labels, and the label that names a PodGroup."""

NO_PODS = "Kubernetes suspends no pod"
SCALE = "Scale it to 0"
NO_FIELD = "no field that suspends"

WAYS = ("submit", "kubectl")
"""`hived submit`, and the Kubernetes API."""

Json = dict[str, Any]
Make = Callable[[str], list[Json]]


@dataclass(frozen=True)
class Row:
    """A kind or shape of job.

    Attributes
    ----------
    name : a part of the names of its objects and pods
    make : its objects, by their name
    job : how hived calls it, with {} for its name; with a * where the API server makes the name
    pods : how many it has in all, and `at_once` at a time, if that is another number
    state : in which it is soon after it was created
    ends : does it end by itself, once its pods end?
    stays : why it cannot be held; "" if it can
    made_pods : how many `hived submit` makes of it where the cluster lacks the kind, if that is another number
    is_gang : do pods that `hived submit` makes of it, where the cluster lacks the kind, start together?
    queues : does it wait in a queue, where there is one?
    warns : does `hived delete` warn, since it may come again?
    ways : in which it can be created
    """

    name: str
    make: Make
    job: str
    pods: int = 1
    at_once: int = 0
    state: str = "Running"
    ends: bool = True
    stays: str = ""
    made_pods: int = 0
    is_gang: bool = False
    queues: bool = True
    warns: bool = False
    ways: Sequence[str] = WAYS


# ---- parts of objects


def template(gpus: int = 1, container: str = "main", *, labels: Json | None = None, **spec: Any) -> Json:
    """A pod template of one container, which asks for GPUs, or else for some CPU."""
    limits = {GPU: gpus} if gpus else {"cpu": "100m"}
    each = {"name": container, "image": "none", "resources": {"limits": limits}}
    return {"metadata": {"labels": labels or {}}, "spec": {"schedulerName": SCHEDULER, "containers": [each], **spec}}


def of_kind(version: str, kind: str, spec: Json, **metadata: Any) -> Make:
    """An object of a kind with this spec."""
    return lambda name: [{"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}]


def pods(count: int = 2, gpus: int = 1, *, labels: Json | None = None, notes: Json | None = None, **spec: Any) -> Make:
    """Plain pods. {} in the values of labels and annotations, and of the spec's mappings, is their common name."""

    def make(name: str) -> list[Json]:
        given = template(gpus, restartPolicy="Never", **_named(spec, name))["spec"]
        metadata = {"labels": _named(labels or {}, name), "annotations": _named(notes or {}, name)}
        names = [name] if count == 1 else [f"{name}-{at}" for at in range(count)]
        return [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": each, **metadata}, "spec": given} for each in names
        ]

    return make


def _named(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _named(each, name) for key, each in value.items()}
    return value.replace("{}", name) if isinstance(value, str) else value


def both(*makes: Make) -> Make:
    """The objects of several."""
    return lambda name: [each for make in makes for each in make(name)]


def pod_group(version: str) -> Make:
    """A PodGroup of two pods, of the dialects that say it with `minMember`."""
    return of_kind(version, "PodGroup", {"minMember": 2})


def job_spec(count: int = 1, gpus: int = 1, **more: Any) -> Json:
    """The spec of a Job."""
    return {"parallelism": count, "completions": count, "template": template(gpus, restartPolicy="Never"), **more}


def job(count: int = 1, gpus: int = 1, **more: Any) -> Make:
    """A Job."""
    return of_kind("batch/v1", "Job", job_spec(count, gpus, **more))


def of_kubeflow(
    kind: str, key: str, container: str, roles: Mapping[str, int], version: str = "v1", **more: Any
) -> Make:
    """A job of Kubeflow, with so many replicas of each role."""
    made = {"restartPolicy": "Never", "template": template(1, container)}
    specs = {role: {"replicas": count, **made} for role, count in roles.items()}
    return of_kind(f"kubeflow.org/{version}", kind, {**more, key: specs})


def kept(version: str, kind: str) -> Make:
    """A controller that keeps two pods."""

    def make(name: str) -> list[Json]:
        labels = {"app": name}
        spec: Json = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template(labels=labels)}
        more = {"serviceName": name} if kind == "StatefulSet" else {}
        return of_kind(version, kind, spec | more)(name)

    return make


def of_volcano(count: int, least: int) -> Make:
    """A Job of Volcano."""
    task = {"name": "w", "replicas": count, "minAvailable": least, "template": template(restartPolicy="Never")}
    return of_kind(
        "batch.volcano.sh/v1alpha1", "Job", {"minAvailable": least, "schedulerName": SCHEDULER, "tasks": [task]}
    )


def run_of_cron_job(name: str) -> list[Json]:
    """A CronJob whose time never comes, and a run of it, as `kubectl create job --from` makes it."""
    spec = {"schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": job_spec()}}
    [cron] = of_kind("batch/v1", "CronJob", spec)(f"{name}-cron")
    owner = {"apiVersion": "batch/v1", "kind": "CronJob", "name": f"{name}-cron", "controller": True}
    return [cron, *of_kind("batch/v1", "Job", job_spec(), ownerReferences=[owner])(name)]


def of_spark(name: str) -> list[Json]:
    """A driver, and two executors, which it makes."""
    labels = {"sparkoperator.k8s.io/app-name": name, "spark-app-selector": f"spark-{name}"}
    owner = {"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "name": name, "uid": f"u-{name}"}
    found = []
    for role, owned in (("driver", owner), ("exec-1", None), ("exec-2", None)):
        driver = {"apiVersion": "v1", "kind": "Pod", "name": f"{name}-driver"}
        [each] = pods(1, int(owned is None), labels={**labels, "spark-role": role.partition("-")[0]})(f"{name}-{role}")
        each["metadata"]["ownerReferences"] = [{**(owned or driver), "controller": True}]
        found.append(each)
    return found


def of_openpai(name: str) -> list[Json]:
    """A job file of OpenPAI."""
    role = {"instances": 2, "dockerImage": "i", "resourcePerInstance": {"gpu": 1}, "commands": ["run"]}
    image = {"name": "i", "type": "dockerimage", "uri": "none"}
    said = {"protocolVersion": 2, "name": name, "type": "job", "defaults": {"virtualCluster": "default"}}
    return [{**said, "prerequisites": [image], "taskRoles": {"worker": role}}]


def as_list(name: str) -> list[Json]:
    """A List with a Job and a ConfigMap."""
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"rate": "1"}}
    return [{"apiVersion": "v1", "kind": "List", "items": [config, *job(2)(name)]}]


def with_made_name(name: str) -> list[Json]:
    """A Job whose name the API server makes."""
    [made] = job(2)(name)
    return [{**made, "metadata": {"generateName": f"{name}-"}}]


WORKERS = {"groupName": "gpu", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, "rayStartParams": {}}
RAY_CLUSTER = {
    "rayVersion": "2.52.0",
    "headGroupSpec": {"rayStartParams": {}, "template": template(0, "ray-head")},
    "workerGroupSpecs": [{**WORKERS, "template": template(1, "ray-worker")}],
}
TASK_GROUPS = '[{"name": "w", "minMember": 2}]'
OWN = """{"virtualCluster": "default", "priority": 0, "leafCellNumber": 1,
"affinityGroup": {"name": "{}", "members": [{"podNumber": 2, "leafCellNumber": 1}]}}"""
IN_GROUP = {"name": "w", "policy": {"gang": {"minCount": 2}}}
RUNTIME = "torch-distributed"
"""The name of Kubeflow's own runtime for PyTorch."""

GANG = "podgroup/default/{}"
A_JOB = "Job/default/{}"
SPEC = "hivedscheduler.microsoft.com/pod-scheduling-spec"


def gang(name: str, make: Make, count: int = 2, job: str = GANG, *, queues: bool = True) -> Row:
    """A row of plain pods."""
    return Row(name, make, job, count, stays=NO_PODS, queues=queues)


ROWS = (
    gang("single", pods(1), 1, "default/{}", queues=False),
    Row("cpupod", pods(1, 0), "default/{}", ends=False, stays=NO_PODS, queues=False),
    gang("labels", pods(labels={f"{SIGS}/name": "{}", f"{SIGS}/min-available": "2"})),
    gang("koordinator", pods(notes={f"{KOORDINATOR}name": "{}", f"{KOORDINATOR}min-available": "2"})),
    gang("koordmin", pods(3, notes={f"{KOORDINATOR}name": "{}", f"{KOORDINATOR}min-available": "2"}), 3),
    gang(
        "plugins", both(pod_group("scheduling.x-k8s.io/v1alpha1"), pods(labels={"scheduling.x-k8s.io/pod-group": "{}"}))
    ),
    gang("sigs", both(pod_group("scheduling.sigs.k8s.io/v1alpha1"), pods(labels={SIGS: "{}"}))),
    gang(
        "volcano", both(pod_group("scheduling.volcano.sh/v1beta1"), pods(notes={"scheduling.k8s.io/group-name": "{}"}))
    ),
    gang(
        "volcanomin",
        pods(notes={"scheduling.volcano.sh/group-name": "{}", "scheduling.volcano.sh/group-min-member": "2"}),
    ),
    gang(
        "native",
        both(
            of_kind("scheduling.k8s.io/v1alpha2", "PodGroup", {"schedulingPolicy": {"gang": {"minCount": 2}}}),
            pods(schedulingGroup={"podGroupName": "{}"}),
        ),
    ),
    gang(
        "workload",
        both(
            of_kind("scheduling.k8s.io/v1alpha1", "Workload", {"podGroups": [IN_GROUP]}),
            pods(workloadRef={"name": "{}", "podGroup": "w"}),
        ),
        job=f"{GANG}/w",
    ),
    gang(
        "yunikorn",
        pods(
            labels={"applicationId": "{}"},
            notes={"yunikorn.apache.org/task-group-name": "w", "yunikorn.apache.org/task-groups": TASK_GROUPS},
        ),
    ),
    gang(
        "kueuepods",
        pods(labels={"kueue.x-k8s.io/pod-group-name": "{}"}, notes={"kueue.x-k8s.io/pod-group-total-count": "2"}),
        queues=False,
    ),
    gang("kai", pods(labels={"kai.scheduler/queue": "default", f"{SIGS}/name": "{}", f"{SIGS}/min-available": "2"})),
    gang("own", pods(notes={SPEC: OWN}), job="default:{}", queues=False),
    Row("batch", job(), A_JOB),
    Row("parallel", job(2), A_JOB, 2),
    Row("array", job(3, completionMode="Indexed"), A_JOB, 3),
    Row("steps", job(4, parallelism=2), A_JOB, 4, 2),
    Row("suspended", job(2, suspend=True), A_JOB, 2, state="Held"),
    Row("cpujob", job(2, 0), A_JOB, 2, queues=False),
    Row("made", with_made_name, "Job/default/{}-*", 2),
    Row("list", as_list, A_JOB, 2),
    Row("run", run_of_cron_job, A_JOB, ways=("kubectl",)),
    Row("deployment", kept("apps/v1", "Deployment"), "Deployment/default/{}", 2, ends=False, stays=SCALE),
    Row("replicas", kept("apps/v1", "ReplicaSet"), "ReplicaSet/default/{}", 2, ends=False, stays=SCALE, queues=False),
    Row("stateful", kept("apps/v1", "StatefulSet"), "StatefulSet/default/{}", 2, ends=False, stays=SCALE, queues=False),
    Row(
        "leader",
        of_kind(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}},
        ),
        "LeaderWorkerSet/default/{}",
        2,
        ends=False,
        stays=SCALE,
        queues=False,
    ),
    Row(
        "jobset",
        of_kind(
            "jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"name": "w", "template": {"spec": job_spec(2)}}]}
        ),
        "JobSet/default/{}",
        2,
    ),
    Row(
        "jobsets",
        of_kind(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {
                "replicatedJobs": [
                    {"name": "d", "template": {"spec": job_spec(1, 0)}},
                    {"name": "w", "replicas": 2, "template": {"spec": job_spec(2)}},
                ]
            },
        ),
        "JobSet/default/{}",
        5,
    ),
    Row(
        "pytorch",
        of_kubeflow("PyTorchJob", "pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": 1}),
        "PyTorchJob/default/{}",
        2,
        is_gang=True,
    ),
    Row(
        "elastictorch",
        of_kubeflow(
            "PyTorchJob",
            "pytorchReplicaSpecs",
            "pytorch",
            {"Worker": 3},
            elasticPolicy={"minReplicas": 2, "maxReplicas": 3},
        ),
        "PyTorchJob/default/{}",
        3,
        is_gang=True,
    ),
    Row(
        "tensorflow",
        of_kubeflow("TFJob", "tfReplicaSpecs", "tensorflow", {"PS": 1, "Worker": 2}),
        "TFJob/default/{}",
        3,
        is_gang=True,
    ),
    Row(
        "mpi",
        of_kubeflow("MPIJob", "mpiReplicaSpecs", "mpi", {"Launcher": 1, "Worker": 2}),
        "MPIJob/default/{}",
        3,
        is_gang=True,
    ),
    Row(
        "mpi2",
        of_kubeflow("MPIJob", "mpiReplicaSpecs", "mpi", {"Launcher": 1, "Worker": 2}, "v2beta1"),
        "MPIJob/default/{}",
        3,
        is_gang=True,
    ),
    Row(
        "xgboost",
        of_kubeflow("XGBoostJob", "xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 1}),
        "XGBoostJob/default/{}",
        2,
        is_gang=True,
    ),
    Row(
        "paddle",
        of_kubeflow("PaddleJob", "paddleReplicaSpecs", "paddle", {"Worker": 2}),
        "PaddleJob/default/{}",
        2,
        is_gang=True,
    ),
    Row("jax", of_kubeflow("JAXJob", "jaxReplicaSpecs", "jax", {"Worker": 2}), "JAXJob/default/{}", 2, is_gang=True),
    Row(
        "train",
        of_kind(
            "trainer.kubeflow.org/v1alpha1",
            "TrainJob",
            {"runtimeRef": {"name": RUNTIME}, "trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {GPU: "1"}}}},
        ),
        "TrainJob/default/{}",
        2,
    ),
    Row(
        "rayjob",
        of_kind(
            "ray.io/v1",
            "RayJob",
            {"entrypoint": "python train.py", "shutdownAfterJobFinishes": True, "rayClusterSpec": RAY_CLUSTER},
        ),
        "RayJob/default/{}",
        4,
    ),
    Row("raycluster", of_kind("ray.io/v1", "RayCluster", RAY_CLUSTER), "RayCluster/default/{}", 3, ends=False),
    Row(
        "rayservice",
        of_kind("ray.io/v1", "RayService", {"serveConfigV2": "applications: []", "rayClusterConfig": RAY_CLUSTER}),
        "RayService/default/{}",
        3,
        ends=False,
        stays=NO_FIELD,
        queues=False,
    ),
    Row("vcjob", of_volcano(2, 2), A_JOB, 2, is_gang=True),
    Row("vcmin", of_volcano(3, 2), A_JOB, 3, is_gang=True),
    Row(
        "dlrover",
        of_kind(
            "elastic.iml.github.io/v1alpha1",
            "ElasticJob",
            {
                "distributionStrategy": "AllreduceStrategy",
                "replicaSpecs": {"worker": {"replicas": 2, "template": template(restartPolicy="Never")}},
            },
        ),
        "ElasticJob/default/{}",
        3,
        made_pods=2,
    ),
    Row("openpai", of_openpai, "default:me~{}/default", 2, queues=False, ways=("submit",)),
    Row(
        "spark", of_spark, "SparkApplication/default/{}", 3, stays=NO_FIELD, queues=False, warns=True, ways=("kubectl",)
    ),
)
