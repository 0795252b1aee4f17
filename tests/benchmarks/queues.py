"""What 50,000 jobs in a queue cost: `python -m tests.benchmarks.queues --jobs 50000`.

They wait for virtual cluster alpha of the embedded cluster of `end_to_end`, which is full. Printed are hived's memory
for them, its CPU for one more, for one that is deleted, and for those that start when a pod ends. Then what commands
take.
"""

import argparse
import time
from collections.abc import Callable

from tests.benchmarks.end_to_end import JOBS, PODS, WAITING, Embedded, queued_job
from tests.benchmarks.process import cpu_s, resident_mb
from tests.e2e.pods import pod_changes
from tests.places import ROOT

VC, REPEATS, PAUSE_S, QUIET_S = "alpha", 20, 0.25, 3.0
LONGEST_S = 600.0
COMMANDS = ("get queue", f"get queue {VC}", "get queue --jobs", "get queue --jobs -o json", "why queued-1")


class Queued(Embedded):
    """The embedded cluster, and jobs that wait in it."""

    def wait_quiet(self) -> None:
        """Wait until hived has nothing to do any more."""
        spent = QUIET_S
        while spent > QUIET_S / 20:
            before = cpu_s(self.pid)
            time.sleep(QUIET_S)
            spent = cpu_s(self.pid) - before

    def cpu_ms_of(self, act: Callable[[int], None]) -> float:
        """CPU of hived for each of some acts, beyond what it takes in so much time anyway."""
        before, began = cpu_s(self.pid), time.monotonic()
        for number in range(REPEATS):
            act(number)
            time.sleep(PAUSE_S)
        spent, seconds = cpu_s(self.pid) - before, time.monotonic() - began
        before = cpu_s(self.pid)
        time.sleep(QUIET_S)
        idle = (cpu_s(self.pid) - before) / QUIET_S
        return (spent - idle * seconds) * 1e3 / REPEATS

    def create_job(self, name: str) -> None:
        """One that waits for a GPU."""
        self.kube.create(JOBS, queued_job(name, VC))

    def end(self, number: int) -> None:
        """Delete a pod of 8 GPUs, and wait until a job runs."""
        changes = pod_changes(self.kube, self.kube.list_objects(PODS, dict).resource_version, LONGEST_S)
        self.kube.delete_pod("default", f"{VC}-{number}", grace_period_s=0)
        next(pod for pod in changes if pod["metadata"]["name"].startswith("queued-") and pod["spec"].get("nodeName"))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--times", type=int, default=1, help="so many times 1,024 nodes")
    options = parser.parse_args()
    count = options.jobs
    with Queued(ROOT, options.times) as cluster:
        for number in range(WAITING):  # their turn would come before that of the jobs
            cluster.kube.delete_pod("default", f"waiting-{number}", grace_period_s=0)
        cluster.wait_quiet()
        before = resident_mb(cluster.pid)
        for number in range(count):
            cluster.create_job(f"queued-{number}")
        cluster.wait_quiet()
        print(f"memory for {count} jobs: {resident_mb(cluster.pid) - before:.0f} MB")
        print(f"CPU for one more: {cluster.cpu_ms_of(lambda number: cluster.create_job(f'more-{number}')):.1f} ms")
        deleted = cluster.cpu_ms_of(lambda number: cluster.kube.delete(f"{JOBS}/more-{number}"))
        print(f"CPU for one that is deleted: {deleted:.1f} ms")
        print(f"CPU for one pod that ends, and 8 jobs that start: {cluster.cpu_ms_of(cluster.end):.1f} ms")
        for words in COMMANDS:
            ms, own, service = cluster.command("command", words.split()).values()
            print(f"hived {words}: {ms:.0f} ms, CPU {own:.0f} ms, of hived {service:.0f} ms", flush=True)


if __name__ == "__main__":
    main()
