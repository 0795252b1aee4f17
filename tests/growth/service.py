"""Counts the work of the service around the core: what it is told and asked, through the functions behind its paths.

The service is the real one, as in the benchmark; log lines are written and thrown away. It is run by hand: nothing is
written to an API server, and nothing happens beside what is counted.

Every size is in the same situation. For each node of the cluster there are 7/8 of a bound pod, a quarter of a pod that
waits, and 1/16 that is Binding. gamma is full, three eighths of alpha are in use, and most of alpha's groups may be
preempted lazily.
"""

import os
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import msgspec

import hived_extender
from hived.cells.state import State
from hived.scheduler import check_invariants, new_state
from hived.values.specs import BindInfo, PodRequest, VirtualCellSpec, VirtualClusterSpec
from hived_extender.http import routes
from hived_extender.http.answers import Question
from hived_extender.http.routing import Backend, Handler
from hived_extender.jobs import node_names
from hived_extender.jobs.wire import Node, NodeMetadata, NodeStatus, Pod, StatusCondition
from hived_extender.kube import logs
from hived_extender.kube.client import KubeClient
from hived_extender.machine.retries import SLICE
from hived_extender.machine.service import Service
from tests.benchmarks.core import Driver, add_all_nodes
from tests.benchmarks.load import HIGH_PRIORITY, LOW_PRIORITY, NODES_PER_RACK, Job, JobKind, JobSource, cluster_spec
from tests.benchmarks.serve import NOWHERE, healthy_node
from tests.benchmarks.web import names_text, pod_text
from tests.extender.machine.by_hand import ByHand
from tests.growth.work import Meter

GANG, NODE, GPU = JobKind(8, 8, 0), JobKind(1, 8, 0), JobKind(1, 1, 0)
ROOMY, FULL = "alpha", "gamma"
SHARES = {ROOMY: 2, "beta": 4, FULL: 4}
"""Of how many racks each VC gets one."""

PRIORITY = LOW_PRIORITY + 1
"""Of the load; pods of a lower one can preempt nobody."""

_pods = msgspec.json.Decoder(Pod)


class ServiceCount(Meter):
    """A service with one cluster, and what its operations took."""

    def __init__(self, node_count: int) -> None:
        super().__init__(hived_extender)
        self.node_count = node_count
        self.source = JobSource(seed=1)
        racks = node_count // NODES_PER_RACK
        self.spec = replace(cluster_spec(node_count), virtual_clusters={
            vc: VirtualClusterSpec(vc, (VirtualCellSpec("POOL.RACK", racks // share),)) for vc, share in SHARES.items()
        })  # fmt: skip

    def service(self) -> None:
        """From nodes and pods that are listed to the end of a term."""
        with Path(os.devnull).open("w") as nowhere:
            logs.configure("json", "INFO", nowhere)
            # Lists are read by the kernel, as in a service whose kernels are quick.
            with patch.object(node_names, "is_plain", lambda _: False):
                self.begin()
                self.binding()
                self.waiting()
                self.bound_pods()
                self.nodes()
                self.preemption()
                self.looking()
                check_invariants(self.state)
                self.end()

    @property
    def state(self) -> State:
        """The core's."""
        if self.it.machine.cache.core is None:
            raise RuntimeError("the service does not lead")
        return self.it.machine.cache.core.state

    # the situation

    def begin(self) -> None:
        """List what there is, begin a term; then pods come that wait, and pods that get a node."""
        bound = self.load()
        self.it = Service(self.spec, KubeClient.connect(NOWHERE), run=ByHand)
        with self.counting("list of all nodes"):
            self.it.sync_nodes(map(healthy_node, self.names))
        with self.counting("list of all pods"):
            self.it.sync_pods(bound)
        with self.counting("begin of a term"):
            self.it.lead(lambda: True)
        self.queued = [self.new(GPU, FULL, LOW_PRIORITY) for _ in range(self.node_count // 4)]
        for pod in self.queued:
            self.ask(pod)
        for _ in range(self.node_count // 16):
            self.ask(self.new(GPU))

    def load(self) -> list[Pod]:
        """Pods that are bound already."""
        self.driver = Driver(new_state(self.spec), lambda: 0)
        add_all_nodes(self.driver.state)
        for kind, vc, count in ((GPU, ROOMY, 1 / 2), (GANG, ROOMY, 1 / 64), (NODE, FULL, 1 / 4)):
            for _ in range(int(count * self.node_count)):
                self.driver.place(lazy(self.job(kind, vc)) if kind is GPU else self.job(kind, vc), "")
        self.names = list(self.driver.state.topology.node_names)
        self.list = names_text(self.names)
        return [seen(pod, info) for pod, info in self.driver.placed.values()]

    def job(self, kind: JobKind, vc: str, priority: int = PRIORITY) -> Job:
        """A new job."""
        return self.source.make(kind, vc, priority)

    def new(self, kind: JobKind, vc: str = ROOMY, priority: int = PRIORITY) -> PodRequest:
        """The only pod of a new job, which the service is told of."""
        pod = self.job(kind, vc, priority).pods[0]
        self.it.pod_seen(seen(pod))
        return pod

    def ask(self, pod: PodRequest) -> bytes:
        """A filter call, uncounted."""
        return call(self.it, routes.filter_call, filter_body(pod, self.list))

    # operations

    def tell(self, name: str, pod: Pod) -> None:
        """A pod is seen."""
        with self.counting(name):
            self.it.pod_seen(pod)

    def gone(self, name: str, pod: PodRequest) -> None:
        """A pod is gone."""
        with self.counting(name):
            self.it.pod_gone(pod.uid)

    def filter(self, name: str, pod: PodRequest, names: bytes, outcome: bytes) -> None:
        """A filter call, and a word that must be in the answer."""
        body = filter_body(pod, names)
        with self.counting(name):
            reply = call(self.it, routes.filter_call, body)
        if outcome not in reply:
            raise RuntimeError(f"{name}: {reply.decode()}")

    def binding(self) -> None:
        """A pod from its creation until it is bound, seen again and gone; and one that comes with a list of its own."""
        for _ in range(2):
            pod = self.job(GPU, ROOMY).pods[0]
            self.tell("new pod", seen(pod))
            self.filter("filter that binds", pod, self.list, b"gpu-node-")
            self.filter("filter of a pod that is Binding", pod, self.list, b"gpu-node-")
            bound = seen(pod, self.bind_info(pod))
            self.tell("pod is bound as decided", bound)
            self.tell("bound pod seen again", bound)
            self.gone("bound pod is gone", pod)
            turned = names_text(self.names[1:] + self.names[:1])
            other = self.new(GPU)
            self.filter("filter with another list of nodes", other, turned, b"gpu-node-")
            self.gone("Binding pod is gone", other)

    def bind_info(self, pod: PodRequest) -> BindInfo:
        """Where the service has placed a pod."""
        record = self.it._pods.get(pod.uid)
        if record is None or record.place.info is None:
            raise RuntimeError(f"{pod.name} has no place")
        return record.place.info

    def waiting(self) -> None:
        """Pods that must wait, tried again and gone."""
        pod = self.new(GPU, FULL, LOW_PRIORITY)
        self.filter("filter of a pod that must wait", pod, self.list, b"hivedscheduler")
        self.filter("filter of a pod that must wait", pod, self.list, b"hivedscheduler")
        self.tell("waiting pod seen again", seen(pod))
        with self.counting("waiting pods tried on the core"):
            self.it.machine._waiting.try_these([pod.uid for pod in self.queued[:SLICE]])
        self.gone("waiting pod is gone", pod)

    def bound_pods(self) -> None:
        """A bound pod that goes, and comes back as one that this process did not place."""
        pod, info = next(iter(self.driver.placed.values()))
        self.gone("bound pod is gone", pod)
        self.tell("pod that is bound already", seen(replace(pod, uid="another", name="another"), info))

    def nodes(self) -> None:
        """A node in use that is seen again, fails and comes back."""
        name = next(iter(self.driver.placed.values()))[1].node
        for label, node in (
            ("node seen again", healthy_node(name)),
            ("node turns bad", bad_node(name)),
            ("node turns healthy", healthy_node(name)),
        ):
            with self.counting(label):
                self.it.node_seen(node)

    def preemption(self) -> None:
        """A pod for whom others have to leave."""
        pod = self.new(NODE, FULL, HIGH_PRIORITY)
        self.filter("filter that preempts", pod, self.list, b"pods to preempt")
        self.filter("filter while victims leave", pod, self.list, b"pods to preempt")
        candidates = {
            "Pod": msgspec.Raw(pod_text(pod).encode()),
            "NodeNameToMetaVictims": {self.names[0]: {"Pods": []}},
        }
        with self.counting("preempt"):
            call(self.it, routes.preempt_call, msgspec.json.encode(candidates))
        for uid in tuple(self.it.machine.preemptions._victims):
            self.gone("victim is gone", self.driver.placed[uid][0])
        self.filter("filter after a preemption", pod, self.list, b"gpu-node-")

    def looking(self) -> None:
        """Questions of people who only look."""
        group = next(iter(self.state.groups))
        for name, handler in (
            ("health", routes.health), ("readiness", routes.readiness), ("metrics", routes.metrics_text),
            ("one group", routes.affinity_group),
        ):  # fmt: skip
            with self.counting(name):
                call(self.it, handler, b"", group)

    def end(self) -> None:
        """Everything is listed again, the term ends."""
        nodes = [healthy_node(name) for name in self.names]
        with self.counting("list of all nodes, again"):
            self.it.sync_nodes(nodes)
        known = [(record.request, record.place.info) for record in self.it._pods]
        pods = [seen(request, info) for request, info in known if request is not None]
        with self.counting("list of all pods, again"):
            self.it.sync_pods(pods)
        with self.counting("end of a term"):
            self.it.follow("the term is over")
        with self.counting("list of no pods"):
            self.it.sync_pods([])


def lazy(job: Job) -> Job:
    """The same job, which may be preempted lazily."""
    return replace(job, pods=tuple(replace(pod, spec=replace(pod.spec, lazy_preemption=True)) for pod in job.pods))


def seen(pod: PodRequest, bind_info: BindInfo | None = None) -> Pod:
    """A pod as a watch tells of it."""
    return _pods.decode(pod_text(pod, bind_info))


def filter_body(pod: PodRequest, names: bytes) -> bytes:
    """The body that kube-scheduler sends."""
    return b'{"Pod":%s,"Nodes":null,"NodeNames":%s}' % (pod_text(pod).encode(), names)


def call(service: Service, handler: Handler, body: bytes, name: str = "") -> bytes:
    """The answer of a path. Raises RuntimeError if that is an error."""
    reply = routes.answer(handler, Backend(service), Question(body, name))
    text = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
    if reply.status != 200 or (b'"Error"' in text and b'"Error":""' not in text):
        raise RuntimeError(f"{handler}: {text.decode()}")
    return text


def bad_node(name: str) -> Node:
    """A node that is not Ready."""
    return Node(NodeMetadata(name), status=NodeStatus([StatusCondition("Ready", "False")]))
