"""Carries out experiments: does each step to a real cluster, looks until an expectation holds or its time is up."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlsplit

import yaml

from hived.values.errors import HivedError, UserError
from hived.values.specs import ClusterSpec, PodRequest
from hived_config.access import PRIORITY_WORDS
from hived_config.loader import load_cluster
from hived_extender.api.inspection import Inspector
from hived_extender.groundwork import LOOPBACK
from hived_extender.jobs.annotations import BIND_INFO, SCHEDULING_SPEC, pod_request, read_spec
from hived_extender.kube.client import NODES, KubeClient, pod_path
from hived_extender.machine.gangs.gang import qualified
from hived_extender.running import start_extender
from hived_jobs.configuration import publish
from hived_jobs.controller import JobController
from hived_jobs.creation import collection_of, create_jobs, resume_job
from hived_jobs.kinds import plan_jobs
from hived_jobs.records import read_record, record_path
from hived_jobs.submission import Manifest, PlannedJob, PlannedPod
from hived_jobs.submission import Submission as Submitter
from hived_lab.demo.experiment import Loaded, Step, Submission
from hived_lab.demo.observer import DONE, EVICTED, RUNNING, Moment, Observer, PodHistory, failures, seen
from hived_lab.demo.report import Check, Report, Result
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.embedded.nodes import READY, RUN_SECONDS
from hived_lab.start import PROMPT

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
        """Create the objects of a file as they stand, and return their number; the pods among them belong to `job`."""
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


READY_TIMEOUT_S = 30.0


class LabCluster:
    """A cluster as a context manager: ready when entered, gone at the end."""

    def __init__(self, configuration: Path) -> None:
        self._configuration = configuration
        self._cluster = EmbeddedCluster(load_cluster(configuration))
        self._cluster_stack = ExitStack()
        self._extender_stack = ExitStack()
        self._listen = f"{LOOPBACK}:0"

    def __enter__(self) -> "LabCluster":
        with ExitStack() as stack:
            self._cluster.start()
            stack.callback(self._cluster.stop)
            # With hived's rights: experiments make pods that HiveD has bound.
            self.kube = KubeClient.connect(kubeconfig=str(self._cluster.hived_kubeconfig))
            stack.callback(self.kube.close)
            stack.callback(self._extender_stack.close)
            self._start_extender(self._configuration)
            self._cluster.start_scheduler(self.url)
            self._cluster_stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster_stack.close()

    @property
    def kubeconfig(self) -> Path:
        """A file with which kubectl reaches its API server."""
        return self._cluster.kubeconfig

    def restart_service(self, configuration: Path) -> None:
        """Stop the extender and start it with another configuration at the same address; pods and nodes stay."""
        self._extender_stack.close()
        self._start_extender(configuration)

    def _start_extender(self, configuration: Path) -> None:
        publish(self.kube, configuration)
        # Clients of its own: an extender that stops closes what it was given.
        client = KubeClient.connect(kubeconfig=str(self._cluster.hived_kubeconfig))
        extender = self._extender_stack.enter_context(
            start_extender(
                configuration,
                client,
                listen=self._listen,
                serves_every_name=True,
                pace=PROMPT,
                compiles_kernels=False,  # a lab has a few nodes, where plain kernels are quick
            )
        )
        self.url = extender.url
        self._listen = urlsplit(extender.url).netloc
        if not extender.wait_ready(READY_TIMEOUT_S):
            raise UserError(f"the extender was not ready after {READY_TIMEOUT_S:.0f} s: {extender.service.fault}")


LOOK_INTERVAL_S = 0.1


class Cluster(Protocol):
    """The parts of a running embedded cluster that an experiment needs."""

    @property
    def kube(self) -> KubeClient:
        """A client of its API server."""

    @property
    def url(self) -> str:
        """Where its extender answers."""

    def restart_service(self, configuration: Path) -> None:
        """Stop the extender and start it with another configuration; pods and nodes stay."""


C = TypeVar("C", bound=Cluster)


def run_all(
    experiments: Sequence[Loaded],
    report: Report,
    start: Callable[[Path], AbstractContextManager[C]],
    stay: Callable[[C], object] | None = None,
) -> list[Result]:
    """Run experiments one after the other, each on a cluster of its own, and sum up.

    `stay` is called with the last experiment's cluster after the summary, while that is still up.
    """
    began = time.monotonic()
    results: list[Result] = []
    report.legend()
    for number, loaded in enumerate(experiments, start=1):
        report.begin(loaded, number, len(experiments))
        asked = time.monotonic()
        with start(loaded.folder / loaded.experiment.configuration) as cluster:
            results.append(run_experiment(loaded, report, cluster, asked))
            if number == len(experiments):
                report.summary(results, time.monotonic() - began)
                if stay:
                    stay(cluster)
    return results


def run_experiment(loaded: Loaded, report: Report, cluster: Cluster, began: float, *, patience: float = 1.0) -> Result:
    """Run one experiment on a fresh cluster that was asked for at `began`; its pods are left as they are at the end.

    Expectations have `patience` times as long to come true as they say, for clusters that are slower than the embedded
    one. The first that fails ends the experiment: what follows would build on sand.
    """
    error = ""
    observer = Observer(cluster.kube, Inspector(cluster.url))
    with Workload(cluster.kube, observer, loaded.folder) as workload:
        run = _Run(loaded, report, cluster, patience, observer, workload)
        try:
            run.look()
            for step in loaded.experiment.steps:
                run.do(step)
                if run.checks and run.checks[-1].found:
                    break
        except HivedError as problem:
            error = str(problem)
            report.error(error)
    seconds = time.monotonic() - began
    return Result(loaded.name, loaded.experiment.title, tuple(run.checks), error, seconds)


class _Run:
    """One experiment under way."""

    def __init__(
        self, loaded: Loaded, report: Report, cluster: Cluster, patience: float, observer: Observer, workload: Workload
    ) -> None:
        self.checks: list[Check] = []
        self._folder = loaded.folder
        self._report = report
        self._cluster = cluster
        self._patience = patience
        self._spec = load_cluster(loaded.folder / loaded.experiment.configuration)
        self._observer = observer
        self._workload = workload
        self._deleted_nodes: dict[str, Manifest] = {}

    def look(self) -> Moment:
        """Look at the cluster and draw what changed."""
        moment = self._observer.look()
        self._report.moment(moment, self._observer)
        return moment

    def do(self, step: Step) -> None:
        """Carry out one step. Raises UserError or KubeError if the cluster will not have it."""
        if step.submit:
            self._submit(step.submit)
        elif step.adopt:
            self._report.act("adopt", f"{step.adopt.job}: {step.adopt.file}, pods that run already")
            self._workload.create(step.adopt.job, step.adopt.file)
        elif step.create:
            job = f"{step.create.job}: " if step.create.job else ""
            self._report.act("create", f"{job}the objects in {step.create.file}")
            self._workload.create(step.create.job, step.create.file)
        elif step.resubmit:
            self._report.act("submit", f"{step.resubmit} again, as a job controller would")
            self._workload.submit(step.resubmit)
        elif step.resume:
            self._report.act("resume", step.resume)
            self._workload.resume(step.resume)
        elif step.finish:
            which = "the running tasks of " * (len(step.finish) == 1)
            self._report.act("finish", f"{which}{step.finish}: {'their' if which else 'its'} work is done")
            self._workload.finish(step.finish)
        elif step.delete:
            which = "the pods of " * (len(step.delete) == 1)
            self._report.act("delete", f"{which}{step.delete}")
            self._workload.delete(step.delete)
        elif step.fail:
            self._report.act("fail", f"node {step.fail}: it is gone from the network")
            self._patch_node(step.fail, {"metadata": {"annotations": {READY: "unknown"}}})
        elif step.recover:
            self._report.act("recover", f"node {step.recover}")
            self._patch_node(step.recover, {"metadata": {"annotations": {READY: None}}})
        elif step.cordon:
            self._report.act("cordon", f"node {step.cordon}: it shall take no new work")
            self._patch_node(step.cordon, {"spec": {"unschedulable": True}})
        elif step.uncordon:
            self._report.act("uncordon", f"node {step.uncordon}")
            self._patch_node(step.uncordon, {"spec": {"unschedulable": None}})
        elif step.delete_node:
            self._report.act("delete", f"node {step.delete_node}")
            self._delete_node(step.delete_node)
        elif step.return_node:
            self._report.act("return", f"node {step.return_node}: its kubelet registers it again")
            self._cluster.kube.create(NODES, self._deleted_nodes.pop(step.return_node))
        elif step.reconfigure:
            self._report.act("restart", f"the scheduler with {step.reconfigure}")
            self._spec = load_cluster(self._folder / step.reconfigure)
            self._cluster.restart_service(self._folder / step.reconfigure)
        else:
            self.checks.append(self._expect(step))

    def _submit(self, submission: Submission) -> None:
        try:
            described = self._workload.plan(submission.job, submission.file, self._spec)
        except UserError as error:
            if not submission.refused:
                raise
            self._report.act("submit", f"{submission.job}: {submission.file}")
            self._judge_refusal(submission, error.message)
            return
        self._report.act("submit", f"{submission.job}: {submission.file}, {described}")
        if submission.refused:
            self._judge_refusal(submission, "")
            return
        self._workload.submit(submission.job)

    def _judge_refusal(self, submission: Submission, message: str) -> None:
        """Check that a file was refused with the expected words; an empty message says that it was accepted."""
        expect = f"{submission.job} is refused at submission"
        self._report.expect(expect)
        if message:
            self._report.act("answer", message.removeprefix(f"{self._folder}/"))
        found: tuple[str, ...] = ()
        if submission.refused not in message:
            prefix = "" if message else "it was accepted, "
            found = (f"{prefix}expected {submission.refused!r} in the answer",)
        self.checks.append(Check(expect, found, 0.0, seen=message))
        self._report.verdict(self.checks[-1])

    def _patch_node(self, node: str, change: Mapping[str, Any]) -> None:
        self._cluster.kube.patch(_node_path(node), change)

    def _delete_node(self, node: str) -> None:
        """Delete a node and keep what its kubelet would register it with."""
        found = self._cluster.kube.get(_node_path(node))
        self._deleted_nodes[node] = {
            "metadata": {"name": node, "labels": found["metadata"].get("labels", {})},
            "status": {key: found["status"][key] for key in ("capacity", "allocatable")},
        }
        self._cluster.kube.delete(_node_path(node))

    def _expect(self, step: Step) -> Check:
        """Look until the expectation holds and has held for its time, or until it is too late."""
        self._report.expect(step.expect or "", step.because)
        began = time.monotonic()
        came_true: float | None = None
        while True:
            found = failures(step, self._observer, self.look())
            now = time.monotonic()
            if not found:
                came_true = came_true or now
                if now - came_true >= step.hold_s:
                    return self._conclude(step, (), came_true - began)
            elif came_true is not None:
                found = [f"{text}, after {now - came_true:.1f} s in which all was as expected" for text in found]
                return self._conclude(step, tuple(found), now - began)
            elif now - began > step.within_s * self._patience:
                return self._conclude(step, tuple(found), now - began)
            time.sleep(LOOK_INTERVAL_S)

    def _conclude(self, step: Step, found: tuple[str, ...], seconds: float) -> Check:
        check = Check(step.expect or "", found, seconds, 0.0 if found else step.hold_s, seen(step, self._observer))
        self._report.verdict(check)
        return check


def _node_path(node: str) -> str:
    return f"{NODES}/{quote(node, safe='')}"
