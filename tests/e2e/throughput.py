"""How many pods a second come through kube-scheduler and our service, on a real control plane.

    python -m tests.e2e.throughput --nodes 100 --pods 500

All pods exist before kube-scheduler starts, so that creating them does not count. The time runs from the first binding
to the last, as the pods' own conditions tell.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

from hived_extender.kube import PODS, KubeClient
from hived_extender.wire import Pod
from tests.e2e.cluster import RealCluster
from tests.e2e.plane import ControlPlane
from tests.e2e.pods import configuration, create, pod
from tests.e2e.tools import VERSIONS, find

LONGEST_S = 600.0


def measure(plane: ControlPlane, node_count: int, pod_count: int) -> float:
    """Pods bound per second."""
    with tempfile.TemporaryDirectory() as folder, RealCluster(plane, configuration(Path(folder), {"a": node_count})):
        assert plane.scheduler is not None
        plane.scheduler.stop()
        create(plane.kube, [pod(f"p-{number}") for number in range(pod_count)])
        plane.scheduler.start()
        return rate(wait_bound(plane.kube, pod_count))


def wait_bound(kube: KubeClient, pod_count: int) -> list[float]:
    """Wait until that many pods are bound; the moments at which each was seen to be, in order."""
    deadline = time.monotonic() + LONGEST_S
    seen: dict[str, float] = {}
    version = "0"
    while len(seen) < pod_count:
        # The API server ends the watch of a client that is slower than it.
        for event in kube.watch(PODS, Pod, version):
            version = event.resource_version
            if event.object is not None and event.object.node:
                seen.setdefault(event.object.metadata.uid, time.monotonic())
            if len(seen) >= pod_count:
                break
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(seen)} of {pod_count} pods were bound after {LONGEST_S:.0f} s")
    return sorted(seen.values())


def rate(moments: list[float]) -> float:
    """Events per second between the first and the last."""
    return (len(moments) - 1) / (moments[-1] - moments[0])


def main() -> None:
    """Print the figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--version", choices=VERSIONS, default=VERSIONS[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=500)
    options = parser.parse_args()
    with ControlPlane(find(options.version), f"throughput-{os.getpid()}") as plane:
        found = measure(plane, options.nodes, options.pods)
    print(f"{options.version}: {options.nodes} nodes, {options.pods} pods: {found:.0f} pods/s")


if __name__ == "__main__":
    main()
