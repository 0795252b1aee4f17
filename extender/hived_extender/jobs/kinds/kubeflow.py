"""Kubeflow's jobs of the training-operator (kubeflow.org/v1, and v2beta1 of MPIJob): `spec.runPolicy.suspend`."""

from collections.abc import Mapping
from functools import partial

from hived_extender.jobs.job import Document, Job, PodTally
from hived_extender.jobs.kinds.kind import Kind, Source, Switch, job_of, kind_with, left_of, role_of, root_of, state_of
from hived_extender.jobs.wire import Owner

REPLICA_SPECS = {
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "JAXJob": "jaxReplicaSpecs",
}
"""The field of the roles by kind."""

_ELASTIC = (REPLICA_SPECS["PyTorchJob"], REPLICA_SPECS["PaddleJob"])
"""Of kinds with an `elasticPolicy`."""


def _read(key: str, switch: Switch, document: Document) -> Job:
    root = root_of(document)
    spec = root.part("spec")
    policy = spec.part("runPolicy")
    scheduling = policy.part("schedulingPolicy")
    statuses = root.part("status").members("replicaStatuses")
    done = {name: each.whole("succeeded", 0) for name, each in statuses.items()}
    wanted = {name: each.whole("replicas", 1) for name, each in spec.members(key).items()}
    counts, failed = left_of(wanted, done), sum(each.whole("failed", 0) for each in statuses.values())
    roles = [role_of(each, name.lower(), counts[name]) for name, each in spec.members(key).items()]
    active = sum(each.whole("active", 0) for each in statuses.values())
    elastic = spec.part("elasticPolicy").whole("minReplicas", 0) if key in _ELASTIC else 0
    return job_of(
        root,
        roles,
        state_of(root, switch, active, "Succeeded"),
        priority_class=scheduling.text("priorityClass"),
        limit_s=policy.seconds("activeDeadlineSeconds"),
        min_count=scheduling.whole("minAvailable", elastic) or None,
        queue=scheduling.text("queue"),
        tally=PodTally(sum(wanted.values()), sum(done.values()), failed),
    )


def _launched_by(labels: Mapping[str, str], owner: Owner) -> str:
    """The MPIJob that launched a Job."""
    mpi_job = labels.get("training.kubeflow.org/job-name", "")
    return mpi_job if mpi_job and owner.name == f"{mpi_job}-launcher" else ""


def _kind(kind: str, *versions: str) -> Kind:
    owners = {"Job": _launched_by} if kind == "MPIJob" else {}
    switch = Switch(kind.lower() + "s", ("spec", "runPolicy", "suspend"))
    return kind_with(switch, "kubeflow.org", kind, versions, partial(_read, REPLICA_SPECS[kind]), owners)


MPI_JOB = _kind("MPIJob", "v2beta1", "v1")
PYTORCH_JOB, TF_JOB, *_OTHERS = (_kind(each, "v1") for each in REPLICA_SPECS if each != MPI_JOB.kind)
SOURCE = Source(jobs=(PYTORCH_JOB, TF_JOB, MPI_JOB, *_OTHERS))
