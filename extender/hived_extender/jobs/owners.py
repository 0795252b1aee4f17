"""Which job object a pod, or another job object, belongs to: by the owners and labels that each controller writes."""

from collections.abc import Iterable, Mapping

from hived.values.errors import UserError
from hived_extender.jobs.job import WORKLOAD, Document, Job, JobName
from hived_extender.jobs.kinds import marks
from hived_extender.jobs.kinds.kind import root_of
from hived_extender.jobs.wire import Owner

_GROUPS = {
    "JobSet": "jobset.x-k8s.io",
    "PyTorchJob": "kubeflow.org",
    "TFJob": "kubeflow.org",
    "MPIJob": "kubeflow.org",
    "TrainJob": "trainer.kubeflow.org",
    "RayJob": "ray.io",
    "RayCluster": "ray.io",
    "ElasticJob": "elastic.iml.github.io",
    "Deployment": "apps",
}
"""Kinds whose name alone says which they are. `Job` is Kubernetes' or Volcano's."""

_BATCH, _VOLCANO = ("batch", "Job"), ("batch.volcano.sh", "Job")
_MANAGERS = {*((group, kind) for kind, group in _GROUPS.items()), _BATCH, _VOLCANO, ("ray.io", "RayService")}
"""Kinds that suspend what they have made themselves. A RayService has no turn, and its clusters have none either."""


def job_of(labels: Mapping[str, str], owners: Iterable[Owner], namespace: str) -> JobName | None:
    """The job object that a pod belongs to, None if none of the table does.

    Labels name the job further out: of the Jobs of a JobSet, the launcher of an MPIJob, the cluster of a RayJob.
    Tenants may write them, so they count only where the owner has the kind and the name that the controller gives it.
    The job may be made by another one, as `managed_by` says of its object.
    """
    owner = next((each for each in owners if each.controller), None)
    if owner is None:
        return None
    if owner.kind == "Job":
        return _of_job(labels, owner, namespace)
    if owner.kind == "ReplicaSet":
        name = owner.name.removesuffix("-" + labels.get("pod-template-hash", ""))
        return None if name == owner.name else JobName("apps", "Deployment", namespace, name)
    if owner.kind == "RayCluster":
        return _of_ray_job(labels, owner, namespace) or JobName("ray.io", "RayCluster", namespace, owner.name)
    group = _GROUPS.get(owner.kind)
    return None if group is None else JobName(group, owner.kind, namespace, owner.name)


def names_another(job: Job) -> bool:
    """Do the labels of a Job's template say that its pods are of another job? Only that one's controller may say so."""
    name = job.ref.job_name
    if (name.group, name.kind) != _BATCH:
        return False
    owner = Owner(name.kind, name.name, job.ref.uid, True, job.ref.api_version)
    try:
        labels = [root_of(role.template).part("metadata").texts("labels") for role in job.roles]
    except UserError:
        return False  # it has no pods, and is refused where its needs are read
    return any(job_of(each, [owner], name.namespace) != name for each in labels)


def workload_of(annotations: Mapping[str, str], namespace: str) -> JobName | None:
    """Kueue's Workload that a pod belongs to, by the key of its cells, `Workload/NAMESPACE/NAME/UID`; None without one.

    Tenants may write it, so it means a Workload of the pod's own namespace, whatever the key says.
    """
    parts = annotations.get(marks.HOLD, "").split("/")
    is_key = len(parts) == 4 and parts[0] == WORKLOAD
    return JobName("kueue.x-k8s.io", WORKLOAD, namespace, parts[2]) if is_key else None


def managed_by(document: Document) -> JobName | None:
    """The job object whose controller made this one and suspends it: it has no turn of its own. None if there is none.

    Raises UserError if the owners cannot be read.
    """
    metadata = root_of(document).part("metadata")
    for owner in metadata.parts("ownerReferences"):
        group, kind = owner.text("apiVersion").rpartition("/")[0], owner.text("kind")
        if owner.flag("controller") and (group, kind) in _MANAGERS:
            return JobName(group, kind, metadata.text("namespace") or "default", owner.text("name"))
    return None


def _of_job(labels: Mapping[str, str], owner: Owner, namespace: str) -> JobName:
    is_labelled = not owner.api_version and labels.get("volcano.sh/job-name") == owner.name
    if owner.api_version.startswith("batch.volcano.sh/") or is_labelled:
        return JobName(*_VOLCANO, namespace, owner.name)
    job_set = labels.get("jobset.sigs.k8s.io/jobset-name", "")
    if job_set and owner.name.startswith(f"{job_set}-"):
        return JobName("jobset.x-k8s.io", "JobSet", namespace, job_set)
    mpi_job = labels.get("training.kubeflow.org/job-name", "")
    if mpi_job and owner.name == f"{mpi_job}-launcher":
        return JobName("kubeflow.org", "MPIJob", namespace, mpi_job)
    return _of_ray_job(labels, owner, namespace) or JobName(*_BATCH, namespace, owner.name)


def _of_ray_job(labels: Mapping[str, str], owner: Owner, namespace: str) -> JobName | None:
    name = labels.get("ray.io/originated-from-cr-name", "")
    is_made = labels.get("ray.io/originated-from-crd") == "RayJob" and owner.name.startswith(name)
    return JobName("ray.io", "RayJob", namespace, name) if name and is_made else None
