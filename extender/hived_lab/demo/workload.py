"""The jobs of an experiment: creates them from their files, in any way that a user could, and ends them."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from hived.errors import UserError
from hived.specs import ClusterSpec, PodRequest
from hived_config.rules import PRIORITY_WORDS
from hived_extender.kube.client import KubeClient, pod_path
from hived_extender.pods.annotations import BIND_INFO, SCHEDULING_SPEC, pod_request, read_spec
from hived_extender.service.gangs.names import qualified
from hived_jobs.controller import JobController
from hived_jobs.creation import collection_of, create_jobs, resume_job
from hived_jobs.kinds import plan_jobs
from hived_jobs.records import read_record, record_path
from hived_jobs.submission import Manifest, PlannedJob, PlannedPod
from hived_jobs.submission import Submission as Submitter
from hived_lab.demo.observer import DONE, EVICTED, RUNNING, Observer, PodHistory
from hived_lab.embedded.lifetimes import RUN_SECONDS

NAMESPACE = "default"
USER = "lab"


class Workload:
    """The jobs of an experiment on one cluster, as a context manager: it looks after jobs in their controllers' place.

    A job is called by its letter, one of its pods by that and its place in the job: `A0`.
    """

    def __init__(self, kube: KubeClient, observer: Observer, folder: Path) -> None:
        self._kube = kube
        self._observer = observer
        self._folder = folder
        self._jobs: dict[str, list[PlannedJob]] = {}
        self._recorded: set[tuple[str, str]] = set()
        self._controller: JobController | None = None

    def __enter__(self) -> "Workload":
        return self

    def __exit__(self, *_: object) -> None:
        if self._controller is not None:
            self._controller.stop()

    def plan(self, job: str, file: str, cluster: ClusterSpec) -> str:
        """Read a job file, and describe it. Raises UserError if `hived submit` would refuse it."""
        jobs, _ = plan_jobs(str(self._folder / file), self._submitter(cluster))
        self._jobs[job] = jobs
        return _describe(jobs)

    def submit(self, job: str) -> None:
        """Create the pods of a job that was planned, as often as asked."""
        jobs = self._jobs[job]
        for each in jobs:
            if each.document is not None:
                self._look_after(job, (each.namespace, each.name))
        self._follow(job, create_jobs(self._kube, self._submitter(), jobs).pods)

    def resume(self, job: str) -> None:
        """Create the pods of a job that is suspended."""
        for each in self._jobs[job]:
            resume_job(self._kube, read_record(self._kube, each.namespace, each.name))

    def create(self, job: str, file: str) -> int:
        """Create the objects of a file as they stand, and tell how many; the pods among them belong to `job`."""
        manifests = self._manifests(file)
        stored = [self._kube.create(collection_of(NAMESPACE, one), one) for one in manifests]
        for manifest, one in zip(manifests, stored, strict=True):
            if manifest["kind"] == "PodGroup":
                name = one["metadata"]["name"]
                self._observer.podgroups[name] = f"{collection_of(NAMESPACE, manifest)}/{name}"
        self._follow(job, [one for manifest, one in zip(manifests, stored, strict=True) if manifest["kind"] == "Pod"])
        return len(stored)

    def finish(self, name: str) -> None:
        """Let the running pods of a job, or one pod, end by themselves, successfully, now."""
        for pod in self._pods(name):
            if pod.state == RUNNING:
                body = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
                self._kube.patch(pod_path(pod.namespace, pod.name), body)

    def delete(self, name: str) -> None:
        """Delete a job with its pods, or one pod."""
        pods = self._pods(name)
        recorded = [key for key, job in self._observer.recorded.items() if job == name]
        for key in recorded:
            del self._observer.recorded[key]
            self._kube.delete(record_path(*key))  # its pods go with it
        for pod in pods if not recorded else ():
            if pod.state not in (DONE, EVICTED):
                self._kube.delete_pod(pod.namespace, pod.name, uid=pod.uid)
        self._observer.forget(pods)

    def _pods(self, name: str) -> list[PodHistory]:
        pods, number = self._observer.job_pods(name[:1]), name[1:]
        if not number:
            return pods
        if int(number) >= len(pods):
            raise UserError(f"there is no pod {name}: job {name[0]} has {len(pods)}, which count from {name[0]}0")
        return [pods[int(number)]]

    def _submitter(self, cluster: ClusterSpec | None = None) -> Submitter:
        return Submitter(user=USER, cluster=cluster, namespace=NAMESPACE)

    def _look_after(self, job: str, key: tuple[str, str]) -> None:
        self._recorded.add(key)
        self._observer.recorded[key] = job
        if self._controller is None:
            self._controller = JobController(self._kube, self._recorded)
            self._controller.start()

    def _follow(self, job: str, stored: list[Manifest]) -> None:
        for pod in stored:
            metadata = pod["metadata"]
            name, namespace, annotations = metadata["name"], metadata["namespace"], metadata.get("annotations") or {}
            group = _group_of(name, namespace, annotations)
            self._observer.follow(PodHistory(job, name, metadata["uid"], group, namespace=namespace))

    def _manifests(self, file: str) -> list[Manifest]:
        path = self._folder / file
        try:
            return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]
        except (OSError, yaml.YAMLError) as error:
            raise UserError(f"{path}: {error}") from error


def _group_of(name: str, namespace: str, annotations: Mapping[str, str]) -> str:
    """The service's name for the group of a pod."""
    written = read_spec(annotations[SCHEDULING_SPEC]).group.name if SCHEDULING_SPEC in annotations else ""
    if not written:
        return f"{namespace}/{name}"
    return written if BIND_INFO in annotations else qualified(namespace, written)  # HiveD has bound it


def _describe(jobs: list[PlannedJob]) -> str:
    """The request of a file, in a few words: `2 tasks of 1 GPU as a gang, VC vision, prod`, or `TFJob, 5 pods`."""
    pods = [pod for job in jobs for pod in job.pods]
    own = [_request(pod) for pod in pods]
    requests = [one.spec for one in own if one is not None]
    if not requests or len(requests) < len(pods):
        kinds = " and ".join(dict.fromkeys(job.kind for job in jobs if job.kind))
        return f"{kinds}, {len(pods)} pod{'s' * (len(pods) != 1)}"
    shapes = dict.fromkeys(f"{spec.leaf_cell_count} GPU" + "s" * (spec.leaf_cell_count > 1) for spec in requests)
    tasks = f"{len(pods)} tasks of" if len(pods) > 1 else "a task of"
    is_gang = len(pods) > 1 and len({spec.group.name for spec in requests}) == 1
    first = requests[0]
    words = {number: word for word, number in PRIORITY_WORDS.items()}
    parts = [
        f"{tasks} {' and '.join(shapes)}{' as a gang' if is_gang else ''}",
        f"VC {first.virtual_cluster}",
        words.get(first.priority, f"priority {first.priority}"),
        f"type {first.leaf_cell_type}" if first.leaf_cell_type else "",
        f"pinned to {first.pinned_cell_id}" if first.pinned_cell_id else "",
        "lazy preemption" if first.lazy_preemption else "",
    ]
    return ", ".join(part for part in parts if part)


def _request(pod: PlannedPod) -> PodRequest | None:
    """The request of a pod in HiveD's own annotation, None if it uses others."""
    annotations = pod.manifest["metadata"].get("annotations") or {}
    return pod_request("", pod.name, NAMESPACE, annotations) if SCHEDULING_SPEC in annotations else None
