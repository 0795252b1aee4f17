"""CPU of the service for a pod of the mixed load, from its creation until it runs, without a control plane.

    python -m tests.benchmarks.mixed_pods --nodes 1000 --pods 1500 --gangs 171

The load is that of `tests.e2e.throughput`: gangs of three dialects and pods by themselves, all there before the first
filter call. The service is the real one, run by hand: bodies are read and written as on the wire, but no socket, thread
or API server has a part in it. So the figures are the machine's own, and do not depend on who else uses the cores.
"""

import argparse
import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, cast

import msgspec

from hived.values.specs import ClusterSpec
from hived_config.loader import load_text
from hived_extender.http import routes
from hived_extender.http.answers import Question
from hived_extender.http.routing import Backend, Handler
from hived_extender.http.server import settle_process, tune_process
from hived_extender.jobs.wire import Node, Pod
from hived_extender.kube import logs
from hived_extender.kube.client import KubeClient
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.service import Service
from hived_extender.warm import compile_kernels
from tests.e2e.load import Json, mixed
from tests.extender.machine.by_hand import ByHand
from tests.extender.machine.small_cluster import FakeKube

VC, GPUS = "mixed", 8
AFTERWARDS_S = 60.0


class MixedPods:
    """One service with a backlog. `cpu_s` has the CPU by step, `writes` the calls to the API server by kind."""

    def __init__(self, node_count: int, jobs: list[list[Json]]) -> None:
        self.names = [f"n{number}" for number in range(node_count)]
        self.kube = FakeKube()
        self.cpu_s: Counter[str] = Counter()
        self._held: list[tuple[Json, bytes]] = []
        self._not_ours = 0.0  # of the step: CPU of what the API server would do
        self._decoder = msgspec.json.Decoder(Pod)
        self.service = Service(
            _spec(self.names), cast(KubeClient, self.kube), run=ByHand, preemption=PreemptionPolicy()
        )
        self._backend = Backend(self.service)
        self.service.sync_nodes([msgspec.convert(_node(name), Node) for name in self.names])
        self.service.lead(lambda: True)
        self.pods = [_created(pod, number) for job in jobs for number, pod in enumerate(job)]

    @property
    def writes(self) -> dict[str, int]:
        """Calls to the API server."""
        conditions = sum("conditions" in pod["status"] for pod in self.kube.pods.values())
        return {"bindings": len(self.kube.bind_calls), "events": len(self.kube.events), "conditions": conditions,
                "patches": len(self.kube.patches)}  # fmt: skip

    def run(self, pods_per_s: float, created_per_s: float) -> None:
        """Create all pods, so many a second; then kube-scheduler asks about so many a second, until all are bound."""
        for pod in self.pods:
            self._timed("time", lambda: self._by_hand.pass_time(1 / created_per_s))
            self.kube.add(pod)
            self._timed("created", lambda pod=pod: self._see(pod))
        waiting = list(self.pods)
        while waiting:
            asked, waiting = waiting, []
            for pod in asked:
                self._timed("time", lambda: self._by_hand.pass_time(1 / pods_per_s))
                if not self._ask(pod):
                    waiting.append(pod)
        self._timed("time", lambda: self._by_hand.pass_time(AFTERWARDS_S))

    @property
    def _by_hand(self) -> ByHand:
        return cast(ByHand, self.service.runner)

    def _ask(self, pod: Json) -> bool:
        """Ask about a pod as kube-scheduler does, and bind it. False if it has to wait."""
        body = msgspec.json.encode({"Pod": pod, "Nodes": None, "NodeNames": self.names})
        answer = json.loads(self._timed("filter", lambda: self._call(routes.filter_call, body)))
        if not answer.get("NodeNames"):
            return False
        meta = pod["metadata"]
        [node] = answer["NodeNames"]
        arguments = {"PodName": meta["name"], "PodNamespace": meta["namespace"], "PodUID": meta["uid"], "Node": node}
        body = msgspec.json.encode(arguments)
        if self.service.hold_of(meta["uid"]) is None:
            self._bind(pod, body)
        else:
            self._held.append((pod, body))
        for held in list(self._held):
            if self.service.hold_of(held[0]["metadata"]["uid"]) is None:
                self._held.remove(held)
                self._bind(*held)
        return True

    def _bind(self, pod: Json, body: bytes) -> None:
        self._timed("bind", lambda: self._call(routes.bind_call, body))
        self._timed("bound", lambda: self._see(pod))
        pod["status"] |= {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
        self.kube.touch(pod)
        self._timed("running", lambda: self._see(pod))

    def _see(self, pod: Json) -> None:
        self.service.pod_seen(self._decoder.decode(self._encoded(pod)))

    def _encoded(self, pod: Json) -> bytes:
        began = time.thread_time()
        text = msgspec.json.encode(pod)
        self._not_ours += time.thread_time() - began
        return text

    def _call(self, handler: Handler, body: bytes) -> bytes:
        reply = routes.answer(handler, self._backend, Question(body))
        return reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)

    def _timed(self, step: str, call: Any) -> Any:
        self._not_ours, began = 0.0, time.thread_time()
        try:
            return call()
        finally:
            self.cpu_s[step] += time.thread_time() - began - self._not_ours


def _spec(names: list[str]) -> ClusterSpec:
    document = {
        "physicalCluster": {
            "skuTypes": {"GPU": {"gpu": 1, "cpu": 1, "memory": "8Gi"}},
            "cellTypes": {"NODE": {"childCellType": "GPU", "childCellNumber": GPUS, "isNodeLevel": True}},
            "physicalCells": [{"cellType": "NODE", "cellAddress": name} for name in names],
        },
        "virtualClusters": {VC: {"virtualCells": [{"cellType": "NODE", "cellNumber": len(names)}]}},
    }
    return load_text(json.dumps(document), "mixed.yaml", environ={}).cluster


def _node(name: str) -> Json:
    capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "capacity": capacity,
            "allocatable": capacity,
        },
    }


def _created(pod: Json, number: int) -> Json:
    """As the API server would have it."""
    meta = pod["metadata"] | {"namespace": "default", "uid": f"uid-{pod['metadata']['name']}"}
    meta["creationTimestamp"] = f"2026-01-01T00:00:{number % 60:02d}Z"
    return {"metadata": meta, "spec": pod["spec"] | {"nodeName": ""}, "status": {"phase": "Pending"}}


def main() -> None:
    """Print CPU for a pod by step, and writes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1500)
    parser.add_argument("--gangs", type=int, default=171)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=30.0, help="pods that kube-scheduler asks about in a second")
    parser.add_argument("--created", type=float, default=40.0, help="pods that are created in a second, before that")
    options = parser.parse_args()
    tune_process()
    compile_kernels()
    with Path(os.devnull).open("w") as nowhere:
        logs.configure("text", "INFO", nowhere)
        it = MixedPods(options.nodes, mixed(options.pods, options.gangs, VC, options.seed))
        settle_process()
        it.run(options.rate, options.created)
    print(
        f"{options.nodes} nodes, {options.pods} pods in {options.gangs} gangs, {options.rate:g} pods/s; CPU a pod, us:"
    )
    for step, seconds in [*it.cpu_s.items(), ("all", it.cpu_s.total())]:
        print(f"  {step:<8} {1e6 * seconds / options.pods:7.0f}")
    print("writes a pod: " + ", ".join(f"{kind} {count / options.pods:.2f}" for kind, count in it.writes.items()))


if __name__ == "__main__":
    main()
