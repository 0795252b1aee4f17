"""Job objects as their controllers write them, with statuses and labels."""

from typing import Any

Json = dict[str, Any]

UID = "0f8b2c34-6f0a-4c1e-9d52-0c7a1b2d3e4f"
CREATED = "2026-11-23T15:04:05Z"
CREATED_S = 1795446245.0


def template(gpus: int = 1, scheduler: str = "hived", **metadata: Any) -> Json:
    """A pod template with one container of so many GPUs."""
    limits = {"cpu": "4", "memory": "16Gi"} | ({"nvidia.com/gpu": gpus} if gpus else {})
    container = {"name": "main", "image": "train", "resources": {"limits": limits}}
    return {"metadata": metadata, "spec": {"schedulerName": scheduler, "containers": [container]}}


def job_object(version: str, kind: str, spec: Json, status: Json | None = None, **metadata: Any) -> Json:
    """An object as the API server stores it."""
    stored = {"name": "train", "namespace": "team", "uid": UID, "resourceVersion": "42", "creationTimestamp": CREATED}
    document = {"apiVersion": version, "kind": kind, "metadata": stored | metadata, "spec": spec}
    return document if status is None else document | {"status": status}


def condition(kind: str, status: str = "True") -> Json:
    """One of a status."""
    return {"type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": CREATED}


def owner(version: str, kind: str, name: str = "train") -> Json:
    """A reference to the object that made another one."""
    return {
        "apiVersion": version, "kind": kind, "name": name, "uid": UID, "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip


def job_spec(parallelism: int = 4, gpus: int = 1, **fields: Any) -> Json:
    """A JobSpec of Kubernetes."""
    return {"parallelism": parallelism, "completions": parallelism, "template": template(gpus)} | fields


BATCH = ("batch/v1", "Job", job_spec())
JOB_SET = (
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    {
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
        "replicatedJobs": [
            {"name": "driver", "replicas": 1, "template": {"spec": job_spec(1, gpus=0)}},
            {"name": "workers", "replicas": 2, "template": {"spec": job_spec(4)}},
        ],
    },
)
PYTORCH = (
    "kubeflow.org/v1",
    "PyTorchJob",
    {
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template(8)},
            "Worker": {"replicas": 3, "restartPolicy": "OnFailure", "template": template(8)},
        },
        "runPolicy": {"cleanPodPolicy": "None", "schedulingPolicy": {"queue": "research", "priorityClass": "urgent"}},
    },
)
TENSORFLOW = (
    "kubeflow.org/v1",
    "TFJob",
    {"tfReplicaSpecs": {"PS": {"replicas": 2, "template": template(0)}, "Worker": {"template": template(2)}}},
)
XGBOOST = (
    "kubeflow.org/v1",
    "XGBoostJob",
    {"xgbReplicaSpecs": {"Master": {"template": template(1)}, "Worker": {"replicas": 2, "template": template(1)}}},
)
PADDLE = ("kubeflow.org/v1", "PaddleJob", {"paddleReplicaSpecs": {"Worker": {"replicas": 2, "template": template(4)}}})
JAX = ("kubeflow.org/v1", "JAXJob", {"jaxReplicaSpecs": {"Worker": {"replicas": 2, "template": template(8)}}})
_MPI = {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": template(0)},
                            "Worker": {"replicas": 4, "template": template(4)}},
        "runPolicy": {"activeDeadlineSeconds": 3600}}  # fmt: skip
MPI_1 = ("kubeflow.org/v1", "MPIJob", _MPI)
MPI_2 = ("kubeflow.org/v2beta1", "MPIJob", {"slotsPerWorker": 4, "sshAuthMountPath": "/root/.ssh", **_MPI})
TRAIN = (
    "trainer.kubeflow.org/v1alpha1",
    "TrainJob",
    {
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch"},
        "trainer": {"numNodes": 4},
    },
)
_CLUSTER = {
    "rayVersion": "2.41.0",
    "headGroupSpec": {"rayStartParams": {}, "template": template(0)},
    "workerGroupSpecs": [
        {"groupName": "small", "replicas": 2, "minReplicas": 1, "maxReplicas": 5, "template": template(1)},
        {
            "groupName": "slices",
            "replicas": 2,
            "minReplicas": 2,
            "maxReplicas": 2,
            "numOfHosts": 4,
            "template": template(4),
        },
    ],
}
RAY_CLUSTER = ("ray.io/v1", "RayCluster", _CLUSTER)
RAY_JOB = (
    "ray.io/v1",
    "RayJob",
    {
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "submissionMode": "K8sJobMode",
        "submitterPodTemplate": template(0),
        "activeDeadlineSeconds": 7200,
        "rayClusterSpec": _CLUSTER,
    },
)
VOLCANO = (
    "batch.volcano.sh/v1alpha1",
    "Job",
    {
        "schedulerName": "hived",
        "minAvailable": 5,
        "queue": "default",
        "priorityClassName": "urgent",
        "tasks": [
            {"name": "ps", "replicas": 2, "template": template(0, "")},
            {"name": "worker", "replicas": 3, "template": template(2, "")},
        ],
    },
)
ELASTIC = (
    "elastic.iml.github.io/v1alpha1",
    "ElasticJob",
    {
        "distributionStrategy": "AllreduceStrategy",
        "replicaSpecs": {"worker": {"replicas": 4, "restartCount": 3, "template": template(1)}},
    },
)
DEPLOYMENT = (
    "apps/v1",
    "Deployment",
    {"replicas": 2, "selector": {"matchLabels": {"app": "serve"}}, "template": template(1, labels={"app": "serve"})},
)
ALL = {
    "batch": BATCH,
    "jobset": JOB_SET,
    "pytorch": PYTORCH,
    "tensorflow": TENSORFLOW,
    "xgboost": XGBOOST,
    "paddle": PADDLE,
    "jax": JAX,
    "mpi-v1": MPI_1,
    "mpi-v2beta1": MPI_2,
    "trainjob": TRAIN,
    "rayjob": RAY_JOB,
    "raycluster": RAY_CLUSTER,
    "volcano": VOLCANO,
    "elasticjob": ELASTIC,
    "deployment": DEPLOYMENT,
}
"""An object of each kind, as (apiVersion, kind, spec)."""

SUSPENDED = {
    "batch": ("suspend",),
    "jobset": ("suspend",),
    "pytorch": ("runPolicy", "suspend"),
    "tensorflow": ("runPolicy", "suspend"),
    "xgboost": ("runPolicy", "suspend"),
    "paddle": ("runPolicy", "suspend"),
    "jax": ("runPolicy", "suspend"),
    "mpi-v1": ("runPolicy", "suspend"),
    "mpi-v2beta1": ("runPolicy", "suspend"),
    "trainjob": ("suspend",),
    "rayjob": ("suspend",),
    "raycluster": ("suspend",),
    "elasticjob": ("suspend",),
}
"""Where the truth is below `spec` that suspends an object, of the kinds that have one."""


def with_suspend(name: str, value: bool = True) -> tuple[str, str, Json]:
    """The object of a kind with that truth."""
    version, kind, spec = ALL[name]
    *outer, key = SUSPENDED[name]
    changed: Json = {key: value}
    for each in reversed(outer):
        changed = {each: {**spec.get(each, {}), **changed}}
    return version, kind, {**spec, **changed}
