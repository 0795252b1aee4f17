"""Plain pod manifests: what the author left out of the scheduling spec is filled in, the rest stays as written."""

import copy
import re

import yaml

from hived.errors import UserError
from hived_extender.annotations import SCHEDULING_SPEC, pod_request
from hived_extender.jobs.documents import Document
from hived_extender.jobs.submission import (
    Manifest,
    PlannedPod,
    Submission,
    priority_class_name,
    scheduling_annotation,
)
from hived_extender.wire import ENABLE_LIMIT

_GPU_RESOURCE = re.compile(r".+\..+/gpu")
_NO_SCHEDULER = ("", "default-scheduler")


def matches(document: Document) -> bool:
    """Whether a document is a Pod."""
    section = document.section()
    return section.text("apiVersion", "") == "v1" and section.text("kind", "") == "Pod"


def plan_pods(document: Document, submission: Submission) -> list[PlannedPod]:
    """The pod with its scheduling spec complete.

    `--vc` and `--priority` win over the annotation; leafCellNumber, if missing, is the number of GPUs in the limits
    (any resource such as nvidia.com/gpu). The scheduler's name, the limit that makes the pod ours and the priority
    class are added where absent.

    Raises UserError if something needed is in none of these places, or the finished spec is not valid.
    """
    manifest = copy.deepcopy(document.value())
    assert isinstance(manifest, dict)
    metadata, containers = _parts(document, manifest)
    annotations = metadata.get("annotations") or {}
    spec = _written_spec(document, annotations)
    if submission.virtual_cluster is not None:
        spec["virtualCluster"] = submission.virtual_cluster
    if submission.priority is not None:
        spec["priority"] = submission.priority
    if not spec.get("virtualCluster"):
        raise _refuse(document, f"no virtual cluster: write it into the annotation {SCHEDULING_SPEC} or give --vc")
    if not spec.get("leafCellNumber") and not spec.get("gpuNumber"):
        spec["leafCellNumber"] = _gpu_count(document, containers)
    metadata["annotations"] = annotations | scheduling_annotation(spec)
    try:
        request = pod_request("", metadata["name"], metadata.get("namespace", "default"), metadata["annotations"])
    except UserError as error:
        raise _refuse(document, error.message) from error
    _complete(manifest["spec"], containers, request.spec.virtual_cluster, request.spec.priority, submission)
    return [PlannedPod(manifest, request.spec.priority)]


def _parts(document: Document, manifest: Manifest) -> tuple[Manifest, list[Manifest]]:
    """The metadata and the containers of a pod that is whole enough to work on."""
    metadata, spec = manifest.get("metadata"), manifest.get("spec")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise _refuse(document, "metadata.name: missing; expected a text")
    if not isinstance(metadata.get("annotations") or {}, dict):
        raise _refuse(document, "metadata.annotations: expected a mapping of names to texts")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers or not all(isinstance(one, dict) for one in containers):
        raise _refuse(document, "spec.containers: missing; expected a list of at least one container")
    return metadata, containers


def _written_spec(document: Document, annotations: Manifest) -> dict[str, object]:
    try:
        spec = yaml.safe_load(str(annotations.get(SCHEDULING_SPEC, "{}")))
    except yaml.YAMLError as error:
        raise _refuse(document, f"annotation {SCHEDULING_SPEC}: not valid YAML: {error}") from error
    if not isinstance(spec or {}, dict):
        raise _refuse(document, f"annotation {SCHEDULING_SPEC}: expected a mapping of names to values")
    return spec or {}


def _gpu_count(document: Document, containers: list[Manifest]) -> int:
    limits = [(container.get("resources") or {}).get("limits") or {} for container in containers]
    try:
        count = sum(int(value) for limit in limits for name, value in limit.items() if _GPU_RESOURCE.fullmatch(name))
    except ValueError as error:
        raise _refuse(document, f"a GPU limit is not a whole number: {error}") from error
    if not count:
        raise _refuse(
            document, "no leafCellNumber in the annotation, and no limit such as nvidia.com/gpu to take it from"
        )
    return count


def _complete(
    spec: Manifest, containers: list[Manifest], virtual_cluster: str, priority: int, submission: Submission
) -> None:
    if submission.scheduler_name or spec.get("schedulerName", "") in _NO_SCHEDULER:
        spec["schedulerName"] = submission.scheduler_for(virtual_cluster)
    if "priorityClassName" not in spec and "priority" not in spec:
        spec["priorityClassName"] = priority_class_name(priority)
    if not any(ENABLE_LIMIT in ((one.get("resources") or {}).get("limits") or {}) for one in containers):
        resources = containers[0]["resources"] = containers[0].get("resources") or {}
        resources["limits"] = (resources.get("limits") or {}) | {ENABLE_LIMIT: 1}


def _refuse(document: Document, message: str) -> UserError:
    return UserError(f"{document.file}:{document.root.start_mark.line + 1}: {message}")
