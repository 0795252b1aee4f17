"""A run: the cluster, all that happens to it, and what the observer finds afterwards."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from hived_extender.kube.client import KubeClient
from tests.e2e.cluster import RealCluster
from tests.e2e.mixed.breaking import FOREVER, Breaker
from tests.e2e.mixed.checks import happened, violations
from tests.e2e.mixed.observer import Observer, forced_bindings
from tests.e2e.mixed.waits import waits
from tests.e2e.mixed.workload import GPUS, Workload
from tests.e2e.plane import ControlPlane

SHARES = {"alpha": 5, "beta": 3}
RACKS = [[f"{rack}{number}" for number in range(4)] for rack in "abc"]
ELECTION = ("--leader-elect",)
DEFAULT_SCHEDULER = "default-scheduler"
END_S = 300.0
"""Everything that was submitted has got nodes so long after the last of it, at the latest."""


@dataclass
class Outcome:
    """The findings of a run. `left` are pods of ours that wait although nothing is in their way any more."""

    violations: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    forced: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def mistakes(self) -> list[str]:
        """All that must not be."""
        return [*self.violations, *self.waits, *self.forced, *self.left, *self.errors]


def run(
    plane: ControlPlane, folder: Path, seed: int, lasts_s: float, break_gap_s: float, most_breaks: float = FOREVER
) -> Outcome:
    """Let everything happen for so long, undo it, wait until no job waits any more, and judge."""
    file = folder / "mixed.yaml"
    file.write_text(_configuration())
    with ExitStack() as stack:
        cluster = stack.enter_context(RealCluster(plane, file, replica_count=2, serve_options=ELECTION))
        stack.callback(_start_default_scheduler(plane))
        observer = Observer(lambda: KubeClient.connect(kubeconfig=str(plane.admin_kubeconfig)))
        observer.start()
        stack.callback(observer.stop)
        workload = Workload(plane.kube, seed, [name for rack in RACKS for name in rack], list(SHARES))
        workload.start()
        stack.callback(workload.close)
        breaker = Breaker(cluster, seed, break_gap_s, most_breaks)
        breaker.start()
        stack.callback(breaker.stop)
        time.sleep(lasts_s)
        breaker.stop()
        outcome = Outcome(broken=breaker.done, errors=list(breaker.errors))
        if not workload.finish(END_S):
            outcome.errors.append("the workload could not undo all that it had done")
        outcome.errors += workload.errors
        outcome.left = _left(observer)
        outcome.forced = forced_bindings(plane.kube)
    notes = observer.notes()
    outcome.violations = violations(notes, SHARES)
    outcome.waits = waits(notes, SHARES, breaker.pauses())
    outcome.counts = happened(notes)
    return outcome


def _configuration() -> str:
    """Three racks of four nodes of eight GPUs; four nodes are nobody's, for opportunistic work."""
    document = {
        "physicalCluster": {
            "cellTypes": {
                "NODE": {"childCellType": "GPU", "childCellNumber": GPUS, "isNodeLevel": True},
                "RACK": {"childCellType": "NODE", "childCellNumber": 4},
            },
            "physicalCells": [
                {"cellType": "RACK", "cellChildren": [{"cellAddress": name} for name in rack]} for rack in RACKS
            ],
        },
        "virtualClusters": {
            vc: {"virtualCells": [{"cellType": "RACK.NODE", "cellNumber": count}]} for vc, count in SHARES.items()
        },
    }
    return yaml.safe_dump(document)


def _start_default_scheduler(plane: ControlPlane) -> Callable[[], None]:
    """A kube-scheduler that knows nothing of ours; returns how to stop it."""
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": DEFAULT_SCHEDULER}],
    }
    account = plane.kubeconfig("system:kube-scheduler")
    return plane.start_scheduler(yaml.safe_dump(document), account, name=DEFAULT_SCHEDULER).stop


def _left(observer: Observer) -> list[str]:
    """Wait until all pods of ours have got nodes; those that have none when time is up."""
    until = time.monotonic() + END_S
    while remaining := [pod for pod in observer.pods() if pod.is_ours and pod.is_waiting]:
        if time.monotonic() > until:
            return [f"{pod.name} ({pod.devices} devices, {pod.vc}) was left waiting" for pod in remaining]
        time.sleep(0.5)
    return []
