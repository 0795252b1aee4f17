"""Where a failure happens: a cluster at work, proxies on both sides of our service, an observer, and what must hold."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml

from hived_extender.kube.client import KubeClient
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.e2e.cluster import RealCluster
from tests.e2e.failures.rebuild import Rebuilt, differences, leader_view
from tests.e2e.failures.workload import CONFIGURATION, TOP_PRIORITY, Job, JobController, draw_jobs
from tests.e2e.http_proxy import HttpProxy
from tests.e2e.observer import Observer, Seen, asks_for_cells
from tests.e2e.own_clock import own_clock
from tests.e2e.plane import ControlPlane
from tests.e2e.processes import Process
from tests.e2e.rights import grant_rights, service_kubeconfig
from tests.parts import MadeOfParts

T = TypeVar("T")

ELECTION = ("--leader-elect",)

QUIET_S = 3.0
"""Nothing has changed for so long: more than the two seconds in which a pod that could run is to be bound."""

BIND_BOUND_S = 120.0
"""A pod that can run is bound so long after the end of a failure at the latest, on a machine that does much else.

Most of it is for kube-scheduler, which looks for an API server that was away every 30 to 60 seconds in the end.
"""

WORK_BOUND_S = 240.0
"""Everything that can be done is done so long after a failure."""

COMPARISONS = 4
JOB_COUNT = 24
OVER_S = 8.0


@dataclass(slots=True)
class Measured:
    """A run's times, in seconds: from each failure until a replica led, and until a pod that could run was bound."""

    led_s: list[float] = field(default_factory=list)
    bound_s: list[float] = field(default_factory=list)


class WorkingCluster(MadeOfParts):
    """A cluster of eight nodes with a workload from a seed that comes within `over_s`, as a context manager.

    Its service has the rights that it is installed with, no more.

    Attributes
    ----------
    cluster : kube-scheduler and the replicas of our service
    api : stands between our service and the API server
    verbs : stands between kube-scheduler and our service
    observer, jobs : who watches, and who submits
    clock : how far the clock of our service is off, in seconds; only with `has_own_clock`
    chance : what is random here
    measured : for the table
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        chance: random.Random,
        *,
        replica_count: int = 2,
        over_s: float = OVER_S,
        has_own_clock: bool = False,
    ) -> None:
        self.plane = plane
        self.chance = chance
        self.measured = Measured()
        self.api = HttpProxy(lambda: plane.url, plane.authority)
        self.verbs = HttpProxy(lambda: self.cluster.url)
        self.observer = Observer(KubeClient.connect(kubeconfig=str(plane.admin_kubeconfig)), asks_for_cells)
        self.jobs = JobController(plane.kube, self.observer, draw_jobs(chance, JOB_COUNT, over_s))
        self._folder = folder
        self._replica_count = replica_count
        self.clock = folder / "clock"
        self._environment = own_clock(self.clock) if has_own_clock else {}
        self._probe_count = 0

    def _begin(self, stack: ExitStack) -> None:
        grant_rights(self.plane)
        for proxy in (self.api, self.verbs):
            proxy.start()
            stack.callback(proxy.stop)
        file = self._folder / "working.yaml"
        file.write_text(CONFIGURATION)
        account = service_kubeconfig(self.plane)
        self.cluster = RealCluster(
            self.plane,
            file,
            replica_count=self._replica_count,
            serve_options=ELECTION if self._replica_count > 1 else (),
            kubeconfig=redirected(account, self.api.url),
            environment=self._environment,
            extender_url=self.verbs.url,
        )
        stack.enter_context(self.cluster)
        self.observer.start()
        stack.callback(self.observer.stop)
        self.jobs.start()
        stack.callback(self.jobs.stop)

    # -- for failures ----------------------------------------------------------------------------

    def pause(self, least_s: float, most_s: float) -> None:
        """Let the work go on for a while, as chance has it."""
        time.sleep(self.chance.uniform(least_s, most_s))

    def probe(self) -> Job:
        """Submit a pod that can run at any time: it fills what is its VC's, of which nobody else has a claim."""
        self._probe_count += 1
        return self.jobs.add(Job(f"probe{self._probe_count}", "probe", TOP_PRIORITY, gpu_count=4))

    def await_leader(self, since: float, besides: Process | None = None) -> None:
        """Wait until a replica, another one than `besides`, leads, and note how long that was after `since`."""
        self.cluster.leader(besides)  # which, about to be frozen, may still answer what it was asked before
        self.measured.led_s.append(time.monotonic() - since)

    def await_bound(self, job: Job, since: float) -> None:
        """Wait until a probe is bound, and note how long that was after `since`; it is checked by `finish`."""
        name = job.pod_names()[0]
        seen = self.wait(lambda: self._bound(name), BIND_BOUND_S)
        self.measured.bound_s.append(max(0.0, seen.bound_at - since) if seen else BIND_BOUND_S)

    # -- what must hold --------------------------------------------------------------------------

    def await_quiet(self) -> bool:
        """Wait until the jobs that end have ended and nothing moves; False if that takes too long."""
        return bool(self.wait(self._is_quiet, WORK_BOUND_S))

    def await_done(self) -> bool:
        """Let the jobs that stay end too, and wait for all; False if that takes too long."""
        self.jobs.let_go()
        return bool(self.wait(lambda: all(job.is_done for job in self.jobs.jobs()), WORK_BOUND_S))

    def running(self) -> list[Seen]:
        """The pods that hold devices now."""
        return [one for one in self.observer.seen() if one.holds]

    def compare(self) -> tuple[list[str], list[str]]:
        """Where the leader's state differs from a rebuild, and which waiting pods could run by that.

        A difference counts if it is still there a while later: on a busy machine a kubelet may be late with its sign of
        life between the two looks.
        """
        for _ in range(COMPARISONS):
            rebuilt = Rebuilt(self.cluster.spec, self.plane.kube)
            try:
                found = differences(leader_view(self.cluster.url), rebuilt.view())
            except OSError as error:  # the connection led to a replica that had just ended
                found = [f"the leader does not answer: {error}"]
            could_run = rebuilt.close()
            if not found and not could_run:
                break
            time.sleep(QUIET_S)
        return found, could_run

    def _bound(self, name: str) -> Seen | None:
        return next((one for one in self.observer.seen() if one.name == name and one.bound_at), None)

    def _is_quiet(self) -> bool:
        with self.observer.lock:
            is_still = time.monotonic() - self.observer.changed_at > QUIET_S
            moving = any(
                (one.is_leaving and not one.is_gone)
                or (one.holds and RUN_SECONDS in one.pod["metadata"]["annotations"])
                for one in self.observer.pods.values()
            )
        return is_still and not moving and self.jobs.has_arrived()

    def wait(self, look: Callable[[], T], timeout_s: float) -> T:
        """The result of `look` as soon as that is something, or when time is up."""
        until = time.monotonic() + timeout_s
        while not (found := look()) and time.monotonic() < until:
            time.sleep(0.05)
        return found


def redirected(kubeconfig: Path, server: str) -> Path:
    """The same credentials for another address."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = server
    file = kubeconfig.with_suffix(".redirected")
    file.write_text(yaml.safe_dump(document))
    return file
