"""Carries out experiments: does each step to a real cluster, looks until an expectation holds or its time is up."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from hived.errors import HivedError, UserError
from hived_config.loader import load_cluster
from hived_extender.client.inspection import Inspector
from hived_extender.kube.client import NODES, KubeClient
from hived_jobs.submission import Manifest
from hived_lab.demo.checks import failures, seen
from hived_lab.demo.experiment import Loaded, Step, Submission
from hived_lab.demo.observer import Moment, Observer
from hived_lab.demo.report import Check, Report, Result
from hived_lab.demo.workload import Workload
from hived_lab.embedded.nodes import READY

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
        """Change a node, as anybody may with kubectl annotate or cordon."""
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
