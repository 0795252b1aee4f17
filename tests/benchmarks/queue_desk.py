"""A look of the queues' desk and the answer to `hived get queue` with 50,000 jobs, by hand:

    python -m tests.benchmarks.queue_desk --nodes 1024 --jobs 50000

Prints CPU of a look without news, of one after an arrival, of one after the deletion of a job that waits, of the answer
about all queues, and of that about all jobs. Nothing is written.
"""

import statistics
import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

from hived_config.rules import Queueing
from hived_extender.http.dumps import item_list
from hived_extender.jobs.job import Job, JobName, JobRef, JobState
from hived_extender.jobs.needs import Need
from hived_extender.jobs.proofs import Prover
from hived_extender.jobs.wire import encode
from hived_extender.kube.client import KubeClient
from hived_extender.kube.events import EventRecorder
from hived_extender.machine.writes.writer import COMPONENT
from hived_extender.queues.announcing import JobEvents
from hived_extender.queues.answering import QueueAnswers
from hived_extender.queues.desk import QueueDesk
from hived_extender.queues.publishing import Publisher
from hived_extender.queues.turns import Shared, Turns
from hived_extender.queues.watched import QueueObjects, Seen
from tests.benchmarks.queued_jobs import cluster, measure_each, service, timed, unit
from tests.extender.machine.small_cluster import FakeKube


class Desk:
    """Turns of a service by hand."""

    def __init__(self, node_count: int) -> None:
        kube = cast(KubeClient, FakeKube())
        self.service = service(cluster(node_count))
        self.publisher = Publisher(kube, time.monotonic)
        events = JobEvents(EventRecorder(kube, COMPONENT), lambda _: [])
        core = self.service.machine.cache.core
        assert core is not None
        shared = Shared(Prover(), self.publisher, time.time, events)
        self.queueing = Queueing(is_enabled=True)
        self.turns = Turns(self.service, core, self.queueing, None, shared)
        self.lock = threading.Lock()
        self._objects = QueueObjects()

    def come(self, number: int) -> None:
        """A job is created."""
        name, spec = f"job-{number:06}", unit(number).spec
        ref = JobRef("batch/v1", "Job", "default", name, f"uid-{number:06}")
        job = Job(ref, "1", float(number), {}, {}, (), JobState.HELD)
        self.turns.job_seen(ref.job_name, Seen(job, Need(spec, {}, "ann")))

    def go(self, number: int) -> None:
        """A job is deleted."""
        self.turns.job_seen(JobName("batch", "Job", "default", f"job-{number:06}"), None)

    def look(self) -> None:
        """As `QueueDesk.look`, with no calls on jobs."""
        self.turns.follow_pods()
        self._objects.read(self.publisher.queue_items())
        self.turns.told_objects(self._objects)
        self.turns.take_turn()
        self.turns.record()


cpu_ms = partial(timed, clock=time.thread_time)
"""CPU of this thread."""


def measure(node_count: int, job_count: int) -> None:
    """One line of results."""
    desk = Desk(node_count)
    coming = cpu_ms(lambda: [desk.come(number) for number in range(job_count)])
    desk.look()
    while desk.turns.queues.is_cut:
        desk.look()
    quiet = [cpu_ms(desk.look) for _ in range(20)]
    arrivals = []
    for number in range(job_count, job_count + 20):
        desk.come(number)
        arrivals.append(cpu_ms(desk.look))
    deletions = []
    for number in range(job_count, job_count + 20):
        desk.go(number)
        deletions.append(cpu_ms(desk.look))
    answers = QueueAnswers(cast(QueueDesk, SimpleNamespace(lock=desk.lock, turns=desk.turns, queueing=desk.queueing)))
    found: list[Any] = []
    asked = [cpu_ms(lambda: found.append(answers.jobs())) for _ in range(3)]
    counted = [cpu_ms(answers.queues) for _ in range(3)]
    text = cpu_ms(lambda: item_list(encode(job) for job in found[0]))
    print(
        f"{node_count} nodes, {job_count} jobs: coming {coming / job_count:.2f} ms each,"
        f" a quiet look {statistics.median(quiet):.1f} ms, after an arrival {statistics.median(arrivals):.1f} ms,"
        f" after a deletion {statistics.median(deletions):.1f} ms, all queues {statistics.median(counted):.0f} ms,"
        f" all {len(found[0])} jobs described {statistics.median(asked):.0f} ms, as text {text:.0f} ms",
        flush=True,
    )


if __name__ == "__main__":
    measure_each(measure, 1024)
