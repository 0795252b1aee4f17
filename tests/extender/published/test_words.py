"""Labels, annotations and values of others that hived knows, against the texts of their sources."""

import pytest

from hived_extender.jobs.kinds import marks, volcano
from tests.extender.jobs.kinds.descriptions import VOCABULARY
from tests.extender.published.go_texts import texts

KOORDINATOR = ("published", "github.com/koordinator-sh/koordinator")
MODULES = {
    "coscheduling labels": KOORDINATOR,
    "Koordinator": KOORDINATOR,
    "PodGroup (scheduling.x-k8s.io)": ("controllers", "sigs.k8s.io/scheduler-plugins"),
    "PodGroup (scheduling.sigs.k8s.io)": KOORDINATOR,
    "Volcano": ("published", "volcano.sh/apis"),
    "Kueue": ("kueue", "sigs.k8s.io/kueue"),
    "KAI": ("published", "github.com/NVIDIA/KAI-scheduler"),
    "JobSet": ("controllers", "sigs.k8s.io/jobset"),
    "LeaderWorkerSet": ("controllers", "sigs.k8s.io/lws"),
}
"""By dialect: the folder with the pin, the module. Others have no module or no keys; see the README."""

ELSEWHERE = {
    "pod-group.scheduling.sigs.k8s.io/groups": "of ACK alone",
    "scheduling.volcano.sh/queue-allocation-gate": "in the scheduler, of which there is no module",
    "kueue.x-k8s.io/tas": "of earlier versions",
    "kueue.x-k8s.io/pod-group-role": "a proposal of the project",
    "kueue.x-k8s.io/pod-group-sets": "a proposal of the project",
    "kai.scheduler/segment-topology-required-placement": "of later versions",
    "kai.scheduler/segment-topology-preferred-placement": "of later versions",
    "kai.scheduler/segment-size": "of later versions",
    "kai.scheduler/pod-index-label": "of later versions",
    "kai.scheduler/batch-min-member": "of later versions",
    "kai.scheduler/preemption-delay": "of later versions",
    "kai.scheduler/ignore-workload-api": "of later versions",
    "batch.kubernetes.io/job-completion-index": "of Kubernetes",
}
"""Keys that are not in the sources, and where they were read."""

RAY = ("controllers", "github.com/ray-project/kuberay/ray-operator")
TRAINING = ("controllers", "github.com/kubeflow/training-operator")
VALUES = {
    ("v1.36", "k8s.io/api"): ("batch.kubernetes.io/job-completion-index", "Complete", "Failed", "Suspended"),
    MODULES["JobSet"]: (
        "Completed", "Failed", "Suspended", "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/replicatedjob-name",
    ),
    ("controllers", "github.com/kubeflow/trainer/v2"): ("Complete", "Failed", "Suspended"),
    TRAINING: ("Succeeded", "Failed", "Suspended", "training.kubeflow.org/job-name"),
    ("mpi-operator", "github.com/kubeflow/mpi-operator"): (
        "Succeeded", "Failed", "Suspended", "training.kubeflow.org/job-name", "-launcher",
    ),
    RAY: (
        "ray.io/originated-from-cr-name", "ray.io/originated-from-crd", "K8sJobMode", "Complete", "Failed",
        "SUCCEEDED", "Suspended", "suspended", "RayClusterSuspended", "RayJob", "RayService",
    ),
    MODULES["Volcano"]: (
        *volcano._ENDS, *filter(None, volcano._QUIET), "Aborting", volcano.ABORT, volcano.RESUME, "volcano.sh/job-name",
    ),
    KOORDINATOR: (marks.PREEMPTIBLE[1],),
    MODULES["Kueue"]: (marks.KUEUE_QUEUE, "kueue.x-k8s.io/managed"),
}  # fmt: skip
"""Words of job kinds and of owners, by module."""


@pytest.mark.parametrize("dialect", MODULES)
def test_every_key_of_a_dialect_is_in_its_sources(dialect: str) -> None:
    keys = {key.name for key in VOCABULARY[dialect] if not key.place.endswith("field")}
    assert keys - texts(*MODULES[dialect]) <= ELSEWHERE.keys()


@pytest.mark.parametrize(("folder", "module"), VALUES)
def test_every_value_is_in_the_sources(folder: str, module: str) -> None:
    assert set(VALUES[folder, module]) - texts(folder, module) == set()
