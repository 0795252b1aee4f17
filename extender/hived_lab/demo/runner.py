"""Carries out experiments: does each step to a real cluster, looks until an expectation holds or its time is up."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlsplit

import yaml

from hived.values.errors import HivedError, UserError
from hived.values.specs import ClusterSpec, PodRequest
from hived_config.access import PRIORITY_WORDS
from hived_config.loader import load_cluster
from hived_config.words import counted
from hived_extender.api.inspection import Inspector
from hived_extender.groundwork import LOOPBACK
from hived_extender.jobs.annotations import SCHEDULING_SPEC, pod_request
from hived_extender.kube.client import NODES, KubeClient, pod_path
from hived_extender.running import start_extender
from hived_jobs.configuration import publish
from hived_jobs.controller import JobController
from hived_jobs.creation import collection_of, create_jobs, resume_job
from hived_jobs.kinds import plan_jobs
from hived_jobs.records import read_record, record_path
from hived_jobs.submission import Manifest, PlannedJob, PlannedPod
from hived_jobs.submission import Submission as Submitter
from hived_lab.demo.experiment import Loaded, Step, Submission
from hived_lab.demo.observer import DONE, EVICTED, RUNNING, Moment, Observer, PodHistory, failures, group_of, seen
from hived_lab.demo.report import Check, Report, Result
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.embedded.nodes import READY, RUN_SECONDS
from hived_lab.start import PROMPT

NAMESPACE = "default"
USER = "lab"


def _describe(jobs: list[PlannedJob]) -> str:
    """The request of a file, in a few words: `2 tasks of 1 GPU as a gang, VC vision, prod`, or `TFJob, 5 pods`."""
    pods = [pod for job in jobs for pod in job.pods]
    own = [_request(pod) for pod in pods]
    requests = [one.spec for one in own if one is not None]
    if not requests or len(requests) < len(pods):
        kinds = " and ".join(dict.fromkeys(job.kind for job in jobs if job.kind))
        return f"{kinds}, {counted(len(pods), 'pod')}"
    shapes = dict.fromkeys(counted(spec.leaf_cell_count, "GPU") for spec in requests)
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


@dataclass(slots=True)
class LabCluster:
    """An embedded cluster with an extender; `kubeconfig` is a file with which kubectl reaches its API server."""

    kube: KubeClient
    kubeconfig: Path
    connect: Callable[[], KubeClient]  # with the rights of hived
    extender: ExitStack
    url: str = ""
    listen: str = f"{LOOPBACK}:0"

    def restart_service(self, configuration: Path) -> None:
        """Stop the extender and start it with another configuration at the same address; pods and nodes stay."""
        self.extender.close()
        publish(self.kube, configuration)
        # A client of its own: an extender that stops closes what it was given.
        extender = self.extender.enter_context(
            start_extender(
                configuration,
                self.connect(),
                listen=self.listen,
                serves_every_name=True,
                pace=PROMPT,
                compiles_kernels=False,  # a lab has a few nodes, where plain kernels are quick
            )
        )
        self.url = extender.url
        self.listen = urlsplit(extender.url).netloc
        if not extender.wait_ready(READY_TIMEOUT_S):
            raise UserError(f"the extender was not ready after {READY_TIMEOUT_S:.0f} s: {extender.service.fault}")


@contextmanager
def start_lab(configuration: Path) -> Iterator[LabCluster]:
    """A cluster as a context manager: ready when entered, gone at the end. Its client has hived's rights.

    Experiments need these: they make pods that HiveD has bound.
    """
    with (
        EmbeddedCluster(load_cluster(configuration)) as cluster,
        closing(cluster.connect(as_hived=True)) as kube,
        ExitStack() as extender,
    ):
        lab = LabCluster(kube, cluster.kubeconfig, partial(cluster.connect, as_hived=True), extender)
        lab.restart_service(configuration)
        cluster.start_scheduler(lab.url)
        yield lab


LOOK_INTERVAL_S = 0.1


class Cluster(Protocol):
    """The parts of a running embedded cluster that an experiment needs."""

    @property
    def kube(self) -> KubeClient:
        """A client of its API server."""

    @property
    def url(self) -> str:
        """The URL of its extender."""

    def restart_service(self, configuration: Path) -> None:
        """Stop the extender and start it with another configuration; pods and nodes stay."""


C = TypeVar("C", bound=Cluster)


def run_all(
    experiments: Sequence[Loaded],
    report: Report,
    start: Callable[[Path], AbstractContextManager[C]],
    stay: Callable[[C], object] | None,
    began_s: float,
) -> list[Result]:
    """Run experiments one after the other, each on a cluster of its own, and sum up from `began_s` on.

    `stay` is called with the last experiment's cluster after the summary, while that is still up.
    """
    results: list[Result] = []
    report.legend()
    for number, loaded in enumerate(experiments, start=1):
        report.begin(loaded, number, len(experiments))
        asked = time.monotonic()
        with start(loaded.folder / loaded.experiment.configuration) as cluster:
            results.append(run_experiment(loaded, report, cluster, asked))
            if number == len(experiments):
                report.summary(results, time.monotonic() - began_s)
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
    run = _Run(
        loaded, report, cluster, patience, observer, load_cluster(loaded.folder / loaded.experiment.configuration)
    )
    with JobController(cluster.kube, observer.recorded):
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


_NODE_CHANGES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "fail": (": it is gone from the network", {"metadata": {"annotations": {READY: "unknown"}}}),
    "recover": ("", {"metadata": {"annotations": {READY: None}}}),
    "cordon": (": it shall take no new work", {"spec": {"unschedulable": True}}),
    "uncordon": ("", {"spec": {"unschedulable": None}}),
}
"""By step: what is said of its node, and the change to it."""


@dataclass(slots=True)
class _Run:
    """One experiment under way.

    A job is called by its letter, one of its pods by that and its place in the job: `A0`.
    """

    loaded: Loaded
    report: Report
    cluster: Cluster
    patience: float
    observer: Observer
    spec: ClusterSpec
    checks: list[Check] = field(default_factory=list)
    jobs: dict[str, list[PlannedJob]] = field(default_factory=dict)
    deleted_nodes: dict[str, Manifest] = field(default_factory=dict)

    def look(self) -> Moment:
        """Look at the cluster and draw what changed."""
        moment = self.observer.look()
        self.report.moment(moment, self.observer)
        return moment

    def do(self, step: Step) -> None:
        """Carry out one step. Raises UserError or KubeError if the cluster will not have it."""
        kube, act = self.cluster.kube, self.report.act
        for name, (text, change) in _NODE_CHANGES.items():
            if node := getattr(step, name):
                act(name, f"node {node}{text}")
                kube.patch(_node_path(node), change)
        if step.submit:
            self._submit(step.submit)
        elif step.adopt:
            act("adopt", f"{step.adopt.job}: {step.adopt.file}, pods that run already")
            self._create(step.adopt.job, step.adopt.file)
        elif step.create:
            job = f"{step.create.job}: " if step.create.job else ""
            act("create", f"{job}the objects in {step.create.file}")
            self._create(step.create.job, step.create.file)
        elif step.resubmit:
            act("submit", f"{step.resubmit} again, as a job controller would")
            self._create_jobs(step.resubmit)
        elif step.resume:
            act("resume", step.resume)
            for one in self.jobs[step.resume]:
                resume_job(kube, read_record(kube, one.namespace, one.name))
        elif step.finish:
            which = "the running tasks of " * (len(step.finish) == 1)
            act("finish", f"{which}{step.finish}: {'their' if which else 'its'} work is done")
            for pod in self._pods(step.finish):
                if pod.state == RUNNING:
                    body = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
                    kube.patch(pod_path(pod.namespace, pod.name), body)
        elif step.delete:
            act("delete", f"{'the pods of ' * (len(step.delete) == 1)}{step.delete}")
            self._delete(step.delete)
        elif step.delete_node:
            act("delete", f"node {step.delete_node}")
            found = kube.get(_node_path(step.delete_node))
            self.deleted_nodes[step.delete_node] = {
                "metadata": {"name": step.delete_node, "labels": found["metadata"].get("labels", {})},
                "status": {key: found["status"][key] for key in ("capacity", "allocatable")},
            }
            kube.delete(_node_path(step.delete_node))
        elif step.return_node:
            act("return", f"node {step.return_node}: its kubelet registers it again")
            kube.create(NODES, self.deleted_nodes.pop(step.return_node))
        elif step.reconfigure:
            act("restart", f"the scheduler with {step.reconfigure}")
            self.spec = load_cluster(self.loaded.folder / step.reconfigure)
            self.cluster.restart_service(self.loaded.folder / step.reconfigure)
        elif step.expect is not None:
            self._expect(step)

    def _submit(self, submission: Submission) -> None:
        """Create the pods of a job file, unless `hived submit` refuses it, which is compared with what is expected."""
        refused, described, answer = submission.refused, "", ""
        try:
            planned, _ = plan_jobs(str(self.loaded.folder / submission.file), self._submitter(self.spec))
            self.jobs[submission.job], described = planned, f", {_describe(planned)}"
        except UserError as error:
            if not refused:
                raise
            answer = error.message
        self.report.act("submit", f"{submission.job}: {submission.file}{described}")
        if not refused:
            self._create_jobs(submission.job)
            return
        expect = f"{submission.job} is refused at submission"
        self.report.expect(expect)
        if answer:
            self.report.act("answer", answer.removeprefix(f"{self.loaded.folder}/"))
        found: tuple[str, ...] = ()
        if refused not in answer:
            found = (f"{'' if answer else 'it was accepted, '}expected {refused!r} in the answer",)
        self._conclude(Check(expect, found, 0.0, seen=answer))

    def _create_jobs(self, job: str) -> None:
        """Create the pods of a job that was planned, as often as asked."""
        planned = self.jobs[job]
        self.observer.recorded |= {(one.namespace, one.name): job for one in planned if one.document is not None}
        self._follow(job, create_jobs(self.cluster.kube, self._submitter(), planned).pods)

    def _create(self, job: str, file: str) -> None:
        """Create the objects of a file as they stand; the pods among them belong to `job`."""
        path = self.loaded.folder / file
        try:
            manifests = [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one]
        except (OSError, yaml.YAMLError) as error:
            raise UserError(f"{path}: {error}") from error
        stored = [self.cluster.kube.create(collection_of(NAMESPACE, one), one) for one in manifests]
        for manifest, one in zip(manifests, stored, strict=True):
            if manifest["kind"] == "PodGroup":
                name = one["metadata"]["name"]
                self.observer.podgroups[name] = f"{collection_of(NAMESPACE, manifest)}/{name}"
        self._follow(job, [one for manifest, one in zip(manifests, stored, strict=True) if manifest["kind"] == "Pod"])

    def _delete(self, name: str) -> None:
        """Delete a job with its pods, or one pod."""
        pods = self._pods(name)
        recorded = [key for key, job in self.observer.recorded.items() if job == name]
        for key in recorded:
            del self.observer.recorded[key]
            self.cluster.kube.delete(record_path(*key))  # its pods go with it
        for pod in pods if not recorded else ():
            if pod.state not in (DONE, EVICTED):
                self.cluster.kube.delete_pod(pod.namespace, pod.name, uid=pod.uid)
        self.observer.forget(pods)

    def _pods(self, name: str) -> list[PodHistory]:
        pods, number = self.observer.job_pods(name[:1]), name[1:]
        if not number:
            return pods
        if int(number) >= len(pods):
            raise UserError(f"there is no pod {name}: job {name[0]} has {len(pods)}, which count from {name[0]}0")
        return [pods[int(number)]]

    def _submitter(self, cluster: ClusterSpec | None = None) -> Submitter:
        return Submitter(user=USER, cluster=cluster, namespace=NAMESPACE)

    def _follow(self, job: str, stored: list[Manifest]) -> None:
        for pod in stored:
            metadata = pod["metadata"]
            name, namespace, annotations = metadata["name"], metadata["namespace"], metadata.get("annotations") or {}
            group = group_of(name, namespace, annotations)
            self.observer.follow(PodHistory(job, name, metadata["uid"], group, namespace=namespace))

    def _expect(self, step: Step) -> None:
        """Look until the expectation holds and has held for its time, or until it is too late."""
        self.report.expect(step.expect or "", step.because)
        began = time.monotonic()
        came_true: float | None = None
        while True:
            found = failures(step, self.observer, self.look())
            now = time.monotonic()
            seconds = now - began
            if not found:
                came_true = came_true or now
                if now - came_true >= step.hold_s:
                    seconds = came_true - began
                    break
            elif came_true is not None:
                found = [f"{text}, after {now - came_true:.1f} s in which all was as expected" for text in found]
                break
            elif seconds > step.within_s * self.patience:
                break
            time.sleep(LOOK_INTERVAL_S)
        hold_s = 0.0 if found else step.hold_s
        self._conclude(Check(step.expect or "", tuple(found), seconds, hold_s, seen(step, self.observer)))

    def _conclude(self, check: Check) -> None:
        self.checks.append(check)
        self.report.verdict(check)


def _node_path(node: str) -> str:
    return f"{NODES}/{quote(node, safe='')}"
