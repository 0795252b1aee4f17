"""A finite workload, drawn from a seed, and a controller that submits it as job controllers do.

Jobs are gangs and single pods of every priority, some opportunistic, some that may be preempted lazily. Most run for
seconds, a few stay until they are told to end. A job that loses a pod to a preemption is taken away and submitted anew.
"""

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.e2e.observer import Observer, Seen
from tests.e2e.pods import POD_LIST, pod

TICK_S = 0.1
TOP_PRIORITY = 10
STAYING = 0
"""The run time of a job that stays."""

CONFIGURATION = """\
physicalCluster:
  cellTypes:
    PAIR: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 4}
  physicalCells:
  - cellType: RACK
    cellChildren: [{cellAddress: a0}, {cellAddress: a1}, {cellAddress: a2}, {cellAddress: a3}]
  - cellType: RACK
    cellChildren: [{cellAddress: b0}, {cellAddress: b1}, {cellAddress: b2}, {cellAddress: b3}]
virtualClusters:
  alpha:
    virtualCells: [{cellType: RACK.NODE, cellNumber: 3}]
  beta:
    virtualCells: [{cellType: RACK.NODE, cellNumber: 2}]
  probe:
    virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]
"""
"""Eight nodes of four GPUs; two nodes are nobody's, for opportunistic work."""


@dataclass(slots=True)
class Job:
    """Some pods that run together. `attempt` counts its submissions, `start_s` is when it comes first."""

    name: str
    vc: str
    priority: int
    pod_count: int = 1
    gpu_count: int = 1
    run_s: int = 1
    start_s: float = 0.0
    is_lazy: bool = False
    attempt: int = 0
    is_done: bool = False
    created: set[str] = field(default_factory=set)

    @property
    def group(self) -> str:
        """The name of its present affinity group."""
        return f"{self.name}-{self.attempt}"

    def pod_names(self) -> list[str]:
        """The pods of its present attempt."""
        return [f"{self.group}-{number}" for number in range(self.pod_count)]

    def pod(self, name: str) -> dict[str, Any]:
        """One of them, to create."""
        members = [{"podNumber": self.pod_count, "leafCellNumber": self.gpu_count}]
        return pod(
            name,
            vc=self.vc,
            gpus=self.gpu_count,
            annotations={} if self.run_s == STAYING else {RUN_SECONDS: str(self.run_s)},
            fields={"terminationGracePeriodSeconds": 1},
            priority=self.priority,
            lazyPreemptionEnable=self.is_lazy,
            affinityGroup={"name": self.group, "members": members},
        )


def draw_jobs(chance: random.Random, job_count: int, over_s: float) -> list[Job]:
    """Jobs that come within so many seconds, more of them than there is room for at once."""
    jobs = []
    for number in range(job_count):
        vc = chance.choice(["alpha", "alpha", "beta"])
        priority = chance.choice([-1, -1, 0, 0, 5, TOP_PRIORITY])
        gang = chance.random() < 0.5
        jobs.append(
            Job(
                name=f"job{number}",
                vc=vc,
                priority=priority,
                pod_count=chance.randint(2, 3) if gang else 1,
                gpu_count=chance.choice([2, 4]) if gang and vc == "alpha" else chance.choice([1, 2]),
                run_s=STAYING if number % 6 == 0 else chance.randint(1, 4),
                start_s=number * over_s / job_count * chance.uniform(0.5, 1.0),
                is_lazy=priority == 0 and chance.random() < 0.5,
            )
        )
    return jobs


class JobController:
    """Submits jobs and follows them, from `start` to `stop`, and goes on when an API server that was away is back."""

    def __init__(self, kube: KubeClient, observer: Observer, jobs: list[Job]) -> None:
        self._kube = kube
        self._observer = observer
        self._jobs = list(jobs)
        self._lock = threading.Lock()
        self._leaving: set[str] = set()
        self._stop = threading.Event()
        self._began = 0.0
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)

    def start(self) -> None:
        """Begin to submit."""
        self._began = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Submit and follow nothing more."""
        self._stop.set()
        self._thread.join(timeout=30)

    def add(self, job: Job) -> Job:
        """One more job, to be submitted now."""
        job.start_s = time.monotonic() - self._began if self._began else 0.0
        with self._lock:
            self._jobs.append(job)
        return job

    def let_go(self) -> None:
        """Tell the jobs that stay to end; those that have to be submitted anew run for a second."""
        for job in self.jobs():
            if job.run_s == STAYING:
                job.run_s = 1

    def jobs(self) -> list[Job]:
        """All of them."""
        with self._lock:
            return list(self._jobs)

    def unfinished(self) -> list[str]:
        """The work that is still to be done, with the state of its pods, for a message."""
        seen = self._observer.named()
        return [
            f"{job.group} ({job.vc}, priority {job.priority}): "
            + ", ".join(_about(name, seen.get(name)) for name in job.pod_names())
            for job in self.jobs()
            if not job.is_done
        ]

    def has_arrived(self) -> bool:
        """Whether every job was submitted."""
        return all(job.created or job.is_done for job in self.jobs())

    def evicted_unduly(self) -> list[str]:
        """Pods that have gone before their end though nobody may preempt them, or nobody evicted them."""
        found = []
        for seen in self._observer.seen():
            if not seen.is_gone or seen.is_completed or seen.name in self._leaving:
                continue
            spec = json.loads(seen.pod["metadata"]["annotations"][SCHEDULING_SPEC])
            if not seen.was_evicted:
                found.append(f"{seen.name} has gone, and was not evicted")
            elif spec["priority"] >= TOP_PRIORITY:
                found.append(f"{seen.name} was evicted, of the highest priority in {spec['virtualCluster']}")
        return found

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            now_s = time.monotonic() - self._began
            for job in self.jobs():
                if not job.is_done and job.start_s <= now_s:
                    self._follow(job)

    def _follow(self, job: Job) -> None:
        names = job.pod_names()
        for name in names:
            if name not in job.created and self._try(lambda name=name: self._kube.create(POD_LIST, job.pod(name))):
                job.created.add(name)
        with self._observer.lock:
            pods = self._observer.named()
            seen = [pods[name] for name in names if name in pods]
            lost = [one for one in seen if (one.is_gone or one.is_leaving) and not one.is_completed]
            remaining = [one for one in seen if not (one.is_gone or one.is_completed)]
        for one in remaining:
            if job.run_s != STAYING and RUN_SECONDS not in one.pod["metadata"]["annotations"]:
                self._try(lambda name=one.name: self._kube.patch(pod_path("default", name), _END_NOW))
        if lost and not remaining and len(job.created) == len(seen):
            job.attempt += 1
            job.created = set()
        elif lost:
            for one in remaining:
                if not one.is_leaving and one.name not in self._leaving:
                    self._leaving.add(one.name)
                    self._try(lambda one=one: self._kube.delete_pod("default", one.name))
        elif len(seen) == job.pod_count and not remaining:
            job.is_done = True

    def _try(self, call: Callable[[], object]) -> bool:
        """Whether the call has had its effect, now or before; one without an answer is made again."""
        try:
            call()
        except KubeError as error:
            return error.status in (404, 409)
        return True


_END_NOW = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}


def _about(name: str, seen: Seen | None) -> str:
    if seen is None:
        return f"{name} never seen"
    status = "gone" if seen.is_gone else "leaving" if seen.is_leaving else seen.pod["status"].get("phase", "?")
    why = [
        f"{one['reason']}: {one['message']}"
        for one in seen.pod["status"].get("conditions") or ()
        if one["status"] == "False" and one.get("message")
    ]
    return f"{name} {status} on {seen.pod['spec'].get('nodeName') or 'no node'} {'; '.join(why)}"
