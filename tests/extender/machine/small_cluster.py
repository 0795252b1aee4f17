"""A small cluster and its surroundings for tests of the extender: pods, nodes, and an API server in memory.

Chain NODE has four nodes of four GPUs: n0..n3. VC a owns two of them, VC b one; one is nobody's. VC empty
owns nothing.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from hived.cells.state import State
from hived.values.specs import ClusterSpec
from hived_config.loader import load_text
from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.wire import ENABLE_LIMIT, BindArgs, FilterArgs, Node, Pod, PreemptArgs, decode_args
from hived_extender.kube.client import KubeError
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.service import Service
from hived_extender.machine.verbs import VerbSettings
from tests.extender.machine.by_hand import ByHand

CONFIG = """\
physicalCluster:
  cellTypes:
    PAIR: {childCellType: GPU, childCellNumber: 2}
    NODE: {childCellType: PAIR, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: NODE, childCellNumber: 4}
  physicalCells:
  - cellType: RACK
    cellChildren: [{cellAddress: n0}, {cellAddress: n1}, {cellAddress: n2}, {cellAddress: n3}]
virtualClusters:
  a:
    virtualCells: [{cellType: RACK.NODE, cellNumber: 2}]
  b:
    virtualCells: [{cellType: RACK.NODE, cellNumber: 1}]
  empty:
    virtualCells: []
"""

NODES = ("n0", "n1", "n2", "n3")

Json = dict[str, Any]


def cluster_spec() -> ClusterSpec:
    """The configuration above, read."""
    return load_text(CONFIG, "small.yaml", environ={}).cluster


def node_json(name: str, is_ready: bool = True, is_cordoned: bool = False) -> Json:
    """A node as the API server shows it."""
    return {
        "metadata": {"name": name, "uid": f"node-{name}"},
        "spec": {"unschedulable": True} if is_cordoned else {},
        "status": {"conditions": [{"type": "Ready", "status": "True" if is_ready else "False"}]},
    }


def to_node(body: Json) -> Node:
    """As the watch reads it."""
    return msgspec.convert(body, Node)


def tainted(name: str, key: str = "broken") -> Node:
    """A node that takes only pods which tolerate a taint."""
    body = node_json(name)
    body["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"}]
    return to_node(body)


def node(name: str, is_ready: bool = True, is_cordoned: bool = False) -> Node:
    """A node as the watch reads it."""
    return msgspec.convert(node_json(name, is_ready, is_cordoned), Node)


def spec_text(
    vc: str = "a", leaf_cells: int = 4, priority: int = 0, group: str = "", pods: int = 1, **more: Any
) -> str:
    """A scheduling-spec annotation; without a group's name the pod is a group of its own."""
    spec: Json = {"virtualCluster": vc, "priority": priority, "leafCellNumber": leaf_cells, **more}
    if group:
        members = [{"podNumber": pods, "leafCellNumber": leaf_cells}]
        spec["affinityGroup"] = {"name": group, "members": members}
    return json.dumps(spec)


def pod_json(
    name: str,
    spec: str | None = None,
    *,
    uid: str = "",
    node: str = "",
    phase: str = "Pending",
    annotations: Mapping[str, str] | None = None,
) -> Json:
    """A pod of ours as the API server shows it; its uid is `uid-NAME` unless given."""
    notes = dict(annotations or {})
    if spec is not None:
        notes[SCHEDULING_SPEC] = spec
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "annotations": notes},
        "spec": {"nodeName": node, "containers": [{"resources": {"limits": {ENABLE_LIMIT: "1"}}}]},
        "status": {"phase": phase},
    }


def to_pod(value: Json) -> Pod:
    """A pod as the watch reads it."""
    return msgspec.convert(value, Pod)


def filter_body(pod: Json, nodes: Any = NODES) -> bytes:
    """The body of a filter call."""
    return json.dumps({"Pod": pod, "Nodes": None, "NodeNames": nodes}).encode()


def filter_args(pod: Json, nodes: Any = NODES) -> FilterArgs:
    """The same, decoded."""
    return decode_args(filter_body(pod, nodes), FilterArgs)


def preempt_body(pod: Json, candidates: Any = NODES) -> bytes:
    """The body of a preempt call, no victims proposed."""
    victims = {node: {"Pods": [], "NumPDBViolations": 0} for node in candidates}
    return json.dumps({"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims}).encode()


def preempt_args(pod: Json, candidates: Any = NODES) -> PreemptArgs:
    """The same, decoded."""
    return decode_args(preempt_body(pod, candidates), PreemptArgs)


class FakeKube:
    """The API server as the service sees it: pods that can be bound, read, patched, evicted and deleted.

    `refusals` are raised by the next calls that write, one each. `done` is set after each of them. `on_bind` is called
    before a binding is looked at, as if it had been on its way until then.
    """

    def __init__(self) -> None:
        self.pods: dict[str, Json] = {}
        self.refusals: list[KubeError] = []
        self.bind_calls: list[tuple[str, str]] = []
        self.patches: list[tuple[str, Mapping[str, Any]]] = []
        self.leaving: list[tuple[str, str]] = []
        self.events: list[tuple[str, str]] = []
        self.messages: list[str] = []
        self.done = threading.Event()
        self.on_bind = lambda: None
        self._version = 1000

    def add(self, pod: Json) -> None:
        """Create a pod."""
        self.pods[pod["metadata"]["name"]] = pod
        self.touch(pod)

    def touch(self, pod: Json) -> None:
        """Give a pod a new version, as every change does."""
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)

    def bind_pod(
        self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str], *, version: str = ""
    ) -> None:
        """As the API server: atomic, only the pod with that uid and version, only once."""
        self.on_bind()
        self.bind_calls.append((name, node))
        with self._answering():
            pod = self._find(name)
            if pod["metadata"]["uid"] != uid:
                raise KubeError(409, "Conflict", "the uid differs")
            if version and pod["metadata"]["resourceVersion"] != version:
                raise KubeError(409, "Conflict", "the version differs")
            if pod["spec"]["nodeName"]:
                raise KubeError(409, "Conflict", f"pod {name} is already assigned to node {pod['spec']['nodeName']}")
            pod["spec"]["nodeName"] = node
            pod["metadata"]["annotations"].update(annotations)
            self.touch(pod)

    def get(self, path: str, item_type: type[Any]) -> Any:
        """One pod."""
        return msgspec.convert(self._find(path.rsplit("/", 1)[1]), item_type)

    def create(self, path: str, body: Mapping[str, Any]) -> Json:
        """Take an event."""
        self.events.append((body["involvedObject"]["name"], body["reason"]))
        self.messages.append(body["message"])
        return {"metadata": {"name": f"event-{len(self.events)}"}}

    def patch_lists(self, path: str, body: Mapping[str, Any]) -> None:
        """Take a condition, which gives the pod a new version."""
        pod = self._find(path.removesuffix("/status").rsplit("/", 1)[1])
        pod["status"]["conditions"] = body["status"]["conditions"]
        self.touch(pod)

    def patch(self, path: str, body: Mapping[str, Any], item_type: type[Any] = dict) -> Any:
        """Annotate a pod, or count an event up."""
        if "/events/" in path:
            return None
        with self._answering():
            pod = self._find(path.rsplit("/", 1)[1])
            self.patches.append((path, body))
            pod["metadata"]["annotations"].update(body["metadata"].get("annotations", {}))
            self.touch(pod)
            return msgspec.convert(pod, item_type)

    def evict_pod(self, namespace: str, name: str, *, uid: str = "") -> None:
        """Let a pod begin to leave."""
        with self._answering():
            self._find(name)
            self.leaving.append(("evicted", name))

    def delete_pod(self, namespace: str, name: str, *, uid: str = "") -> None:
        """Let a pod begin to leave, whatever protects it."""
        with self._answering():
            self._find(name)
            self.leaving.append(("deleted", name))

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            if self.refusals:
                raise self.refusals.pop(0)
            yield
        finally:
            self.done.set()

    def _find(self, name: str) -> Json:
        if name not in self.pods:
            raise KubeError(404, "NotFound", f'pods "{name}" not found')
        return self.pods[name]


class SmallCluster:
    """A service that leads, all nodes healthy, and the API server around it; kube-scheduler evicts its victims."""

    def __init__(self, *, is_leading: bool = True, bad_nodes: tuple[str, ...] = (), **options: Any) -> None:
        self.kube = FakeKube()
        verb_settings = options.pop("verb_settings", VerbSettings())
        preemption = options.pop("preemption", PreemptionPolicy(by_service=False))
        spec = options.pop("spec", None) or cluster_spec()
        options.setdefault("run", ByHand)
        self.service = Service(spec, self.kube, verb_settings=verb_settings, preemption=preemption, **options)
        self.service.sync_nodes([node(name, name not in bad_nodes) for name in NODES])
        self.has_lease = True
        if is_leading:
            self.lead()

    @property
    def by_hand(self) -> ByHand:
        """The runner of the service, by the test's clock."""
        assert isinstance(self.service.runner, ByHand)
        return self.service.runner

    def pass_time(self, seconds: float = 0.0) -> None:
        """Let time go by, with everything that is due on the way."""
        self.by_hand.pass_time(seconds)

    def until(self, is_so: Callable[[], object]) -> None:
        """Let time go by until it is so. Fails when nothing is going to happen any more."""
        self.by_hand.until(is_so)

    @property
    def state(self) -> State:
        """The core's own, of the present term."""
        assert self.service.machine.cache.core is not None
        return self.service.machine.cache.core.state

    def lead(self) -> None:
        """Let the service lead, for as long as `has_lease`."""
        self.service.fence(set())
        self.service.lead(lambda: self.has_lease)

    def create(self, name: str, spec: str | None = None, **more: Any) -> Json:
        """Create a pod and let the service see it."""
        pod = pod_json(name, spec if spec is not None else spec_text(), **more)
        self.kube.add(pod)
        self.service.pod_seen(to_pod(pod))
        return pod

    def filter(self, pod: Json, nodes: Any = NODES) -> Any:
        """Call filter; the result as kube-scheduler reads it, without what is null or empty."""
        return _short(self.service.filter_nodes(filter_args(pod, nodes)))

    def place(self, name: str, spec: str | None = None, **more: Any) -> tuple[Json, str]:
        """Create a pod, decide its node, bind it and let the service see that."""
        pod = self.create(name, spec, **more)
        result = self.filter(pod)
        node = result["NodeNames"][0]
        self.bind(pod, node)
        self.see(pod)
        return pod, node

    def bind(self, pod: Json, node: str) -> None:
        """Call bind."""
        meta = pod["metadata"]
        self.service.bind_pod(BindArgs(meta["name"], meta["namespace"], meta["uid"], node))

    def see(self, pod: Json) -> None:
        """Let the service see a pod as it is in the API server now."""
        self.service.pod_seen(to_pod(self.kube.pods[pod["metadata"]["name"]]))

    def delete(self, pod: Json) -> None:
        """Delete a pod and let the service see that."""
        del self.kube.pods[pod["metadata"]["name"]]
        self.service.pod_gone(pod["metadata"]["uid"])

    def snapshot(self) -> Any:
        """The whole state of the core, for comparison."""
        return self.service.reader.snapshot()

    def groups(self) -> dict[str, Json]:
        """Status of every group by name."""
        return {group["metadata"]["name"]: group["status"] for group in self.service.reader.affinity_groups()}

    def pod_counts(self) -> dict[str, int]:
        """How many pods are in each state, as /metrics shows it."""
        read = self.service.metrics.registry.get_sample_value
        states = ("Waiting", "Preempting", "Binding", "Bound")
        return {state: int(count) for state in states if (count := read("hived_pods", {"state": state}))}


def _short(result: Any) -> Any:
    return {key: value for key, value in msgspec.to_builtins(result).items() if value}


PATIENCE_S = 60.0
"""For everything that is sure to happen, however busy the machine is; nothing takes that long but a failure."""


def wait_until(is_so: Callable[[], object], within_s: float = PATIENCE_S) -> float:
    """Look until it is so; returns how many seconds that took. Fails when time is up."""
    began = time.monotonic()
    while not is_so():
        assert time.monotonic() - began < within_s
        time.sleep(0.005)
    return time.monotonic() - began
