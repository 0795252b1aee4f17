"""Plain pod manifests: what the author left out of the scheduling spec is filled in, the rest stays as written.

A pod without a scheduling spec is read by the service, as if it had been applied: it may be in a gang of any dialect,
which a spec of ours would end. The submitter's wishes are annotations beside what it says.

Names of the virtual cluster, cells, group, pod, namespace and scheduler are kept letter by letter, where YAML might
read a number. Everything else means the same as to Kubernetes.
"""

import re
from collections.abc import Mapping

from hived.values.errors import UserError
from hived_extender.jobs.annotations import SCHEDULING_SPEC, pod_request
from hived_extender.jobs.asks import priority_class_name, vc_options
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_jobs.documents import Document, Section
from hived_jobs.scheduling_specs import written_spec
from hived_jobs.submission import (
    Job,
    Manifest,
    PlannedJob,
    PlannedPod,
    Submission,
    name_user,
    scheduling_annotation,
    virtual_cluster_of,
)

_GPU_RESOURCE = re.compile(r".+\..+/gpu")
NO_SCHEDULER = ("", "default-scheduler")


def plan_pod(document: Document, submission: Submission) -> PlannedJob:
    """The pod with its scheduling spec, if it has one, complete.

    `--vc`, `--priority` and `--gpu-type` win over the annotation; leafCellNumber, if missing, is the number of GPUs in
    the limits (any resource such as nvidia.com/gpu). The scheduler's name, the limit that makes the pod ours and the
    priority class are added where absent; of a pod without a spec, only the scheduler's name.

    Raises UserError, with file, line and place, if something needed is in none of these places, or the finished spec is
    not valid.
    """
    root = document.section()
    metadata, spec = root.section("metadata"), root.section("spec")
    annotations = metadata.section("annotations")
    name, namespace = metadata.text("name"), metadata.text("namespace", "")
    limits, scheduler = _limits(spec), spec.text("schedulerName", "")
    if SCHEDULING_SPEC not in annotations:
        metadata.section("labels")  # refused if it is no mapping
        job = Job(
            "Pod", name, namespace or submission.namespace, root, submission, virtual_cluster_of(submission),
            scheduler=scheduler,
        )  # fmt: skip
        return PlannedJob([PlannedPod(_as_written(document, job), submission.priority)])
    scheduling = _scheduling_spec(annotations, limits, spec, submission)
    annotation = scheduling_annotation(scheduling)
    try:
        request = pod_request("", name, namespace or "default", annotation)
    except UserError as error:
        raise annotations.refuse(SCHEDULING_SPEC, error.message) from error
    virtual_cluster, priority = request.spec.virtual_cluster, request.spec.priority
    if submission.scheduler_name or scheduler in NO_SCHEDULER:
        scheduler = submission.scheduler_for(virtual_cluster)

    manifest = document.value()
    assert isinstance(manifest, dict)
    _fill(manifest["metadata"], {"name": name, "namespace": namespace})
    manifest["metadata"]["annotations"] = (manifest["metadata"].get("annotations") or {}) | annotation
    name_user(manifest["metadata"], submission)
    _fill(manifest["spec"], {"schedulerName": scheduler})
    if "priorityClassName" not in spec and "priority" not in spec:
        manifest["spec"]["priorityClassName"] = priority_class_name(priority)
    if not any(ENABLE_LIMIT in limit for limit in limits):
        _enable(manifest["spec"]["containers"][0])
    return PlannedJob([PlannedPod(manifest, priority)])


def _as_written(document: Document, job: Job) -> Manifest:
    """The pod that has no scheduling spec, with what the submitter says."""
    manifest = document.value()
    assert isinstance(manifest, dict)
    metadata, spec = manifest["metadata"], manifest["spec"]
    metadata |= {"name": job.name, "namespace": job.namespace}
    metadata |= {key: metadata.get(key) or {} for key in ("labels", "annotations")}
    spec.pop("schedulerName", None)
    name_user(metadata, job.submission)
    job.ask(metadata, spec)
    return manifest


def _limits(spec: Section) -> list[Section]:
    """The resource limits of each container; there is at least one container."""
    containers = spec.sections("containers")
    if not containers:
        raise spec.refuse("containers", "missing; expected a list of at least one container")
    return [container.section("resources").section("limits") for container in containers]


def _scheduling_spec(
    annotations: Section, limits: list[Section], spec: Section, submission: Submission
) -> dict[str, object]:
    """The annotation's scheduling spec with what the submitter says, and what was missing."""
    scheduling = written_spec(annotations.document(SCHEDULING_SPEC))
    if submission.virtual_cluster is not None:
        scheduling["virtualCluster"] = submission.virtual_cluster
    if submission.priority is not None:
        scheduling["priority"] = submission.priority
    if submission.leaf_cell_type is not None:
        if scheduling.get("pinnedCellId"):
            raise annotations.refuse(SCHEDULING_SPEC, "pinnedCellId says which cell to use: leave --gpu-type out")
        scheduling["leafCellType"] = submission.leaf_cell_type
    if not scheduling.get("virtualCluster"):
        option = "--vc NAME" if submission.cluster is None else vc_options(submission.cluster.virtual_clusters)
        raise annotations.refuse("", f"it names no virtual cluster: add {option}, or write it into {SCHEDULING_SPEC}")
    if "leafCellNumber" not in scheduling:
        gpus = [limit.whole(name) for limit in limits for name in limit if _GPU_RESOURCE.fullmatch(name)]
        if not sum(gpus):
            message = "no leafCellNumber in the annotation, and no limit such as nvidia.com/gpu to take it from"
            raise spec.refuse("containers", message)
        scheduling["leafCellNumber"] = sum(gpus)
    return scheduling


def _fill(part: Manifest, texts: Mapping[str, str]) -> None:
    """Put texts into a part of a manifest, leaving out empty ones."""
    for key, text in texts.items():
        if text:
            part[key] = text
        else:
            part.pop(key, None)


def _enable(container: Manifest) -> None:
    """Add the limit that makes the pod ours."""
    resources = container["resources"] = container.get("resources") or {}
    resources["limits"] = (resources.get("limits") or {}) | {ENABLE_LIMIT: 1}
