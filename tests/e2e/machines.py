"""Machines of a control plane: creating their nodes, and taking one off the network.

kwok plays the kubelets, but one that is gone it cannot play. So this watches the nodes: one whose annotation
`embedded.hived/ready` is `unknown` loses the label by which kwok knows its nodes. From then on nothing on it starts,
ends or stops; only a `run-seconds` that had begun before runs out. Its conditions become Unknown at once, as
the node controller would write after its grace period. When the annotation goes, kwok takes the node back.
"""

import logging
import threading
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import NODES, KubeClient, KubeError
from hived_lab.embedded.nodes import READY, Machine

KUBELET = "embedded.hived/kubelet"
PRESENT, GONE = "present", "gone"
RETRY_S = 0.5

log = logging.getLogger(__name__)

Node = dict[str, Any]


def node_path(name: str) -> str:
    """The path of one node."""
    return f"{NODES}/{quote(name, safe='')}"


def node(machine: Machine) -> Node:
    """The node that a machine's kubelet would register."""
    labels = {
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        KUBELET: PRESENT,
    }
    # No real node offers the limit that makes a pod ours.
    capacity = {name: amount for name, amount in machine.capacity.items() if name != ENABLE_LIMIT}
    capacity["ephemeral-storage"] = "1Ti"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": machine.name, "labels": labels},
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def create_nodes(kube: KubeClient, machines: Iterable[Machine]) -> None:
    """Register machines; kwok makes them Ready. Raises KubeError."""
    for machine in machines:
        kube.create(NODES, node(machine))


def is_ready(found: Node) -> bool:
    """Whether a node's Ready condition is True and nothing taints it any more for not being so."""
    taints = {taint["key"] for taint in found.get("spec", {}).get("taints") or ()}
    conditions = found.get("status", {}).get("conditions") or ()
    return "node.kubernetes.io/not-ready" not in taints and any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


class NetworkFailures:
    """Watches the nodes, from `start` to `stop`, and plays what kwok cannot; waits for an API server that is away."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="network-failures", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End; the client given is closed."""
        self._stop.set()
        self._kube.close()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                listing = self._kube.list_objects(NODES, Node)
                for found in listing.items:
                    self._look(found)
                for event in self._kube.watch(NODES, Node, listing.resource_version):
                    if event.type in ("ADDED", "MODIFIED") and event.object is not None:
                        self._look(event.object)
            except KubeError as error:
                log.debug("watching nodes again: %s", error)
                self._stop.wait(RETRY_S)

    def _look(self, found: Node) -> None:
        metadata = found["metadata"]
        is_gone = (metadata.get("annotations") or {}).get(READY, "").lower() == "unknown"
        wanted = GONE if is_gone else PRESENT
        if (metadata.get("labels") or {}).get(KUBELET) == wanted:
            return
        try:
            self._kube.patch(node_path(metadata["name"]), {"metadata": {"labels": {KUBELET: wanted}}})
            if is_gone:
                conditions = [_unknown(one) for one in found.get("status", {}).get("conditions") or ()]
                self._kube.patch(f"{node_path(metadata['name'])}/status", {"status": {"conditions": conditions}})
        except KubeError as error:
            if not error.is_not_found:
                raise


def _unknown(condition: Node) -> Node:
    return {
        **condition,
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
    }
