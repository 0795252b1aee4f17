"""Which job a pod belongs to, by the owners and labels that controllers write (rules 24.3, 24.4)."""

import msgspec
import pytest

from hived_extender.jobs.job import JobName
from hived_extender.jobs.kinds.marks import HOLD
from hived_extender.jobs.kinds.table import job_of_pod, workload_of
from hived_extender.jobs.wire import Owner
from tests.extender.jobs.kinds.documents import owner

BATCH, VOLCANO = "batch/v1", "batch.volcano.sh/v1alpha1"
KUBEFLOW, RAY = "kubeflow.org/v1", "ray.io/v1"
JOB_SET_LABELS = {
    "jobset.sigs.k8s.io/jobset-name": "set",
    "jobset.sigs.k8s.io/replicatedjob-name": "workers",
    "jobset.sigs.k8s.io/job-index": "0",
    "batch.kubernetes.io/job-name": "set-workers-0",
}
OF_RAY_JOB = {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "tune"}

CASES = [
    ({"batch.kubernetes.io/job-name": "train"}, (BATCH, "Job", "train"), ("batch", "Job", "train")),
    (JOB_SET_LABELS, (BATCH, "Job", "set-workers-0"), ("jobset.x-k8s.io", "JobSet", "set")),
    (
        {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/replica-type": "worker"},
        (KUBEFLOW, "PyTorchJob", "train"),
        ("kubeflow.org", "PyTorchJob", "train"),
    ),
    ({}, (KUBEFLOW, "TFJob", "train"), ("kubeflow.org", "TFJob", "train")),
    ({}, ("kubeflow.org/v2beta1", "MPIJob", "pi"), ("kubeflow.org", "MPIJob", "pi")),
    (
        {"training.kubeflow.org/job-name": "pi", "training.kubeflow.org/operator-name": "mpi-operator"},
        (BATCH, "Job", "pi-launcher"),
        ("kubeflow.org", "MPIJob", "pi"),
    ),
    ({"ray.io/cluster": "c", "ray.io/node-type": "worker"}, (RAY, "RayCluster", "c"), ("ray.io", "RayCluster", "c")),
    (OF_RAY_JOB, (RAY, "RayCluster", "tune-x7k2p"), ("ray.io", "RayJob", "tune")),
    (OF_RAY_JOB, (BATCH, "Job", "tune"), ("ray.io", "RayJob", "tune")),
    (
        {"volcano.sh/job-name": "train", "volcano.sh/task-spec": "worker"},
        (VOLCANO, "Job", "train"),
        ("batch.volcano.sh", "Job", "train"),
    ),
    (
        {"elasticjob.dlrover/name": "train", "elasticjob.dlrover/replica-type": "worker"},
        ("elastic.iml.github.io/v1alpha1", "ElasticJob", "train"),
        ("elastic.iml.github.io", "ElasticJob", "train"),
    ),
    (
        {"pod-template-hash": "6b7c", "app": "serve"},
        ("apps/v1", "ReplicaSet", "serve-6b7c"),
        ("apps", "Deployment", "serve"),
    ),
]


def reference(version: str, kind: str, name: str) -> Owner:
    """An owner as a watch tells of it."""
    return msgspec.convert(owner(version, kind, name), Owner)


@pytest.mark.parametrize(("labels", "made_by", "job"), CASES)
def test_a_pod_belongs_to_the_job_whose_controller_made_it(
    labels: dict[str, str], made_by: tuple[str, str, str], job: tuple[str, str, str]
) -> None:
    group, kind, name = job
    assert job_of_pod(labels, [reference(*made_by)], "team") == JobName(group, kind, "team", name)


def test_a_pod_of_a_job_of_volcano_is_known_by_its_label_where_the_owner_has_no_version() -> None:
    found = job_of_pod({"volcano.sh/job-name": "train"}, [Owner("Job", "train", "u", True)], "team")
    assert found == JobName("batch.volcano.sh", "Job", "team", "train")


@pytest.mark.parametrize(
    ("labels", "made_by"),
    [
        (JOB_SET_LABELS, ()),
        ({}, (BATCH, "CronJob", "nightly")),
        ({}, ("apps/v1", "StatefulSet", "db")),
        ({}, ("apps/v1", "ReplicaSet", "by-hand")),
    ],
)
def test_a_pod_of_no_job_of_the_table_belongs_to_none(labels: dict[str, str], made_by: tuple[str, ...]) -> None:
    assert job_of_pod(labels, [reference(*made_by)] if made_by else [], "team") is None


def test_an_owner_that_is_no_controller_does_not_count() -> None:
    assert job_of_pod({}, [Owner("Job", "train", "u", None, BATCH)], "team") is None


@pytest.mark.parametrize(
    "labels",
    [
        {"jobset.sigs.k8s.io/jobset-name": "other"},
        {"training.kubeflow.org/job-name": "other"},
        {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "other"},
        {"volcano.sh/job-name": "other"},
    ],
)
def test_a_label_that_names_somebody_elses_job_does_not_count(labels: dict[str, str]) -> None:
    assert job_of_pod(labels, [reference(BATCH, "Job", "mine")], "team") == JobName("batch", "Job", "team", "mine")


KEY = "Workload/ns/job-train/1234"


@pytest.mark.parametrize(
    ("annotations", "found"),
    [
        ({HOLD: KEY}, JobName("kueue.x-k8s.io", "Workload", "ns", "job-train")),
        ({HOLD: "Workload/other/job-train/1234"}, JobName("kueue.x-k8s.io", "Workload", "ns", "job-train")),
        ({HOLD: "job-train"}, None),
        ({}, None),
    ],
)
def test_a_key_names_a_workload_of_the_pods_own_namespace(annotations: dict[str, str], found: JobName | None) -> None:
    assert workload_of(annotations, "ns") == found
