"""From an empty state to the one before the restart: all nodes, then all bound pods, then "ready"."""

import logging
import threading
import time
from typing import Any

from hived_extender.service import Service
from hived_extender.watch import Reflector, WatchApi, node_resource, pod_resource

log = logging.getLogger(__name__)


def recover(service: Service, kube: WatchApi, stop: threading.Event) -> list[threading.Thread]:
    """Replay what Kubernetes knows, mark the service ready, and keep following; returns the threads that do.

    A pod that cannot be replayed is logged and counted by the service; an API server that does not answer is waited for
    until `stop` is set.
    """
    started = time.monotonic()
    resources: list[Any] = [node_resource(service), pod_resource(service)]
    reflectors = [Reflector(kube, resource, service.metrics, stop) for resource in resources]
    for reflector in reflectors:
        reflector.sync()
    if stop.is_set():
        return []
    service.mark_ready()
    log.info("recovered", extra={"fields": {"seconds": round(time.monotonic() - started, 3)}})
    return [reflector.start() for reflector in reflectors]
