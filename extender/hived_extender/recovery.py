"""From an empty state to the one before the restart: all nodes, then all bound pods, then "ready"."""

import logging
import threading
import time
from typing import Any

from hived_extender.kube import LIVE_PODS, NODES, PODS
from hived_extender.service import Service
from hived_extender.watch import Reflector, Resource, WatchApi
from hived_extender.wire import Node, Pod

log = logging.getLogger(__name__)


def recover(service: Service, kube: WatchApi, stop: threading.Event) -> list[threading.Thread]:
    """Replay what Kubernetes knows, mark the service ready, and keep following; returns the threads that do.

    A pod that cannot be replayed is logged and counted by the service; an API server that does not answer is waited for
    until `stop` is set.
    """
    started = time.monotonic()
    resources: list[Resource[Any]] = [_nodes(service), _pods(service)]
    reflectors = [Reflector(kube, resource, service.metrics, stop) for resource in resources]
    for reflector in reflectors:
        reflector.sync()
    if stop.is_set():
        return []
    service.mark_ready()
    log.info("recovered", extra={"fields": {"seconds": round(time.monotonic() - started, 3)}})
    return [reflector.start() for reflector in reflectors]


def _nodes(service: Service) -> Resource[Node]:
    return Resource(
        NODES, Node, service.sync_nodes, service.node_seen, lambda node: service.node_gone(node.metadata.name)
    )


def _pods(service: Service) -> Resource[Pod]:
    return Resource(
        PODS, Pod, service.sync_pods, service.pod_seen, lambda pod: service.pod_gone(pod.metadata.uid), LIVE_PODS
    )
