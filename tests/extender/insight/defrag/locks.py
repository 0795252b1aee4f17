"""How long planning and moving hold the service's lock: `python -m tests.extender.insight.defrag.locks --nodes 16384`.

The cluster is that of `large.py`, with all its pods in a service. A plan is made, carried out and followed: its pods
leave, and come back. Times are CPU of the thread that holds the lock, in milliseconds.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from hived.values.specs import PodRequest
from hived_config.rules import Moving, PodRules
from hived_extender.api.defrag import DefragArgs, DefragPlan
from hived_extender.insight.defrag.desk import DefragDesk
from hived_extender.insight.defrag.execution import Copy, copy_of
from hived_extender.insight.defrag.planner import Task, plan
from hived_extender.insight.defrag.puzzle import read_wants
from hived_extender.jobs.wire import FilterArgs, Pod, decode_args
from hived_extender.machine.machine import Machine
from hived_extender.machine.runner import Runner
from hived_extender.machine.service import Service
from tests.benchmarks.serve import healthy_node
from tests.benchmarks.web import names_text, pod_text
from tests.extender.insight.defrag.large import large_state
from tests.extender.insight.defrag.random_states import Fragmented
from tests.extender.machine.small_cluster import FakeKube

ROUNDS = 200
MOVABLE = frozenset({"a"})


class Timed(Runner):
    """Notes how long the lock was held each time, under the name of what goes on; `held` is in seconds."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.phase = ""
        self.held: dict[str, list[float]] = {}
        self._began = 0.0

    def take(self, wait_s: float | None) -> Machine:
        """As the runner."""
        machine = super().take(wait_s)
        self._began = time.thread_time()
        return machine

    def give_back(self, error: BaseException | None) -> None:
        """As the runner."""
        self.held.setdefault(self.phase, []).append(time.thread_time() - self._began)
        super().give_back(error)

    @contextmanager
    def look(self, *, wait_s: float | None = None) -> Iterator[Machine]:
        """As the runner."""
        with super().look(wait_s=wait_s) as machine:
            began = time.thread_time()
            yield machine
            self.held.setdefault(self.phase, []).append(time.thread_time() - began)


class Measured:
    """A service with the pods of a state; `node_names` are offered to all."""

    def __init__(self, found: Fragmented) -> None:
        self.copy: Copy = copy_of(found.cluster, found.inputs)
        self.kube = FakeKube()
        self.service = Service(
            found.cluster,
            self.kube,  # type: ignore[arg-type]  # it has all that the service calls
            run=Timed,
            rules=PodRules(moving=Moving(MOVABLE)),
        )
        self.desk = DefragDesk(self.service, lambda: "")
        names = self.copy.state.topology.node_names
        self.names = names_text(names)
        self.service.sync_nodes([healthy_node(name) for name in names])
        decode = msgspec.json.Decoder(Pod).decode
        pods = [
            (pod, pod_text(pod, info))
            for group in self.copy.running.values()
            for pod, info in zip(group.requests, group.infos, strict=True)
        ]
        self.kube.pods = {pod.name: {} for pod, _ in pods}
        self.service.sync_pods([decode(text) for _, text in pods])
        self.service.lead(lambda: True)

    @property
    def timed(self) -> Timed:
        """The runner."""
        assert isinstance(self.service.runner, Timed)
        return self.service.runner

    def run(self, cluster: Any, want: str) -> DefragPlan:
        """Make a plan, carry it out and follow it."""
        self.timed.phase = "inputs"
        inputs = self.desk.inputs()
        found = plan(Task(cluster, inputs, "a", read_wants((want,)), movable=MOVABLE))
        self.timed.phase = "looking whether anything has changed"
        for _ in range(10):
            self.desk._version()
        self.timed.phase = "apply"
        self.desk.apply(DefragArgs(plan=found), "somebody")
        for _ in range(ROUNDS):
            if self.desk.report().state == "moving":
                self._follow(found)
        return found

    def _follow(self, found: DefragPlan) -> None:
        """The pods of the moves under way leave and come back."""
        report = self.desk.report()
        for move, order in zip(report.moves, found.moves, strict=True):
            requests = self.copy.running[order.group].requests
            if move.state == "leaving":
                self.timed.phase = "a pod has left"
                for pod in requests:
                    self.service.pod_gone(pod.uid)
            elif move.state == "returning":
                for number, pod in enumerate(requests):
                    self._come_back(pod, number)
        self.timed.phase = "report"

    def _come_back(self, pod: PodRequest, number: int) -> None:
        again = PodRequest(f"{pod.uid}-again", f"{pod.name}-again", pod.namespace, pod.spec)
        text = pod_text(again)
        self.kube.pods[again.name] = {}
        self.timed.phase = "a new pod is seen"
        self.service.pod_seen(msgspec.json.decode(text, type=Pod))
        self.timed.phase = "a new pod gets its cells" if number == 0 else "a mate gets its cells"
        body = b'{"Pod":%s,"Nodes":null,"NodeNames":%s}' % (text.encode(), self.names)
        self.service.filter_nodes(decode_args(body, FilterArgs))


def main() -> None:
    """Print a line of Markdown for each phase."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--want", default="16xNODE")
    given = parser.parse_args()
    found = large_state(given.nodes)
    measured = Measured(found)
    made = measured.run(found.cluster, given.want)
    report = measured.desk.report()
    print(f"{given.nodes} nodes, {given.want}: {len(made.moves)} moves, {report.state} {report.reason}")
    print("| | times | median ms | longest ms |\n|---|---:|---:|---:|")
    for phase, held in measured.timed.held.items():
        if phase:
            middle = sorted(held)[len(held) // 2]
            print(f"| {phase} | {len(held)} | {1000 * middle:.2f} | {1000 * max(held):.2f} |")
    measured.service.close()


if __name__ == "__main__":
    main()
