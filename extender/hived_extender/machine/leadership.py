"""From following to leading and back: the steps of an elected or deposed replica (rule 11.14).

A leader must know all that its predecessor did. So it changes a pod and waits until its own watch shows that, or lists
nodes and pods again without a watch (`watch.Reflector.relist`). Then it fences late writes (`service.Service.fence`),
builds its state and answers. A follower has everything else ready: compiled kernels, watched nodes and pods, parsed
annotations.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from hived_extender.jobs.podgroups import Objects
from hived_extender.jobs.wire import Node, Pod
from hived_extender.kube.client import NODES, PODS, KubeError
from hived_extender.kube.lease import Elector, LeaseApi, LeaseName
from hived_extender.kube.watch import Reflector, Resource, WatchApi, drained
from hived_extender.machine.devices.dra import DeviceObjects
from hived_extender.machine.service import Service
from hived_extender.machine.verbs import RECOVERING

log = logging.getLogger(__name__)

CHECK_INTERVAL_S = 0.05
RETRY_WAIT_S = 0.5
LISTING = "waiting for the API server to list nodes and pods"
WITHHELD = "waiting for the API server, which cannot show what is needed to lead"
ELECTING = "waiting to be elected"
STRICT_TRIES = 10
"""To fence every pod; then those that the API server refuses to change are left as they are."""

PING_S = 1.0
"""Until a change of our own that no watch tells is taken for a sign that the watch is not what it should be."""

PING_CHECK_S = 0.005
OBJECTS_S = 5.0
"""For PodGroups, Workloads and claims to be listed, before gangs are taken to lack theirs, and devices to be free."""

JOIN_S = 1.0


class Leadership:
    """Watches for a service and makes it lead when elected, from `start` to `stop`.

    Without a `lease` there is no other replica, and it leads at once. `on_failure` is called when a take-over breaks
    unexpectedly. `objects` and `devices` are followed as well. `catch_up` runs before a term, until True, to learn the
    rest of an earlier leader's work.
    """

    def __init__(
        self,
        service: Service,
        kube: WatchApi,
        lease_kube: LeaseApi,
        lease: LeaseName | None,
        on_failure: Callable[[], None],
        objects: Objects | None = None,
        catch_up: Callable[[], bool] = lambda: True,
        devices: DeviceObjects | None = None,
    ) -> None:
        self._service = service
        self._pods = Reflector(kube, _pods(service), service.metrics)
        self._reflectors: list[Reflector[Any]] = [Reflector(kube, _nodes(service), service.metrics), self._pods]
        self._on_failure = on_failure
        self._objects = objects
        self._devices = devices
        self._catch_up = catch_up
        self._is_stopping = False
        self._take_over_thread: threading.Thread | None = None
        self._elector: Elector | None = None
        if lease is not None:
            self._elector = Elector(lease_kube, lease, self._begin_term, service.follow, lambda: not service.fault)

    @property
    def is_alive(self) -> bool:
        """False if the election thread has ended by itself."""
        return self._elector is None or self._elector.is_alive

    @property
    def is_following(self) -> bool:
        """True while the watches of nodes and pods are open."""
        return all(each.is_following for each in self._reflectors)

    def relist_pods(self) -> None:
        """List all pods again soon."""
        self._pods.relist()

    def start(self) -> None:
        """Start watching and standing for election."""
        if self._objects is not None:
            self._objects.start(self._service.object_seen)
        if self._devices is not None:
            self._devices.start()
        if self._elector is not None:
            self._service.prepare(ELECTING, lambda: not self._is_stopping)
            self._elector.start()
        else:
            self._begin_term(lambda: not self._is_stopping)
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        """Stop leading and watching."""
        self._is_stopping = True
        if self._elector is not None:
            self._elector.stop()
        for reflector in self._reflectors:
            reflector.stop()
        if self._objects is not None:
            self._objects.stop()
        if self._devices is not None:
            self._devices.stop()

    def join(self) -> None:
        """Wait a moment for the threads to end; close the client before."""
        for reflector in self._reflectors:
            reflector.join(JOIN_S)
        if self._objects is not None:
            self._objects.join(JOIN_S)
        if self._devices is not None:
            self._devices.join(JOIN_S)
        if self._take_over_thread is not None:
            self._take_over_thread.join(JOIN_S)

    def _begin_term(self, holds: Callable[[], bool]) -> None:
        self._service.prepare(RECOVERING, holds)
        self._take_over_thread = threading.Thread(target=self._take_over, args=(holds,), name="take-over", daemon=True)
        self._take_over_thread.start()

    def _take_over(self, holds: Callable[[], bool]) -> None:
        began = time.monotonic()
        try:
            if not self._has_caught_up(holds):
                self._list_anew(holds)
            self._await_objects(holds)
            fenced: set[str] = set()
            tries = 1
            while holds() and not self._fence(fenced, is_lenient=tries > STRICT_TRIES):
                time.sleep(RETRY_WAIT_S)
                tries += 1
            while holds() and not self._catch_up():
                time.sleep(RETRY_WAIT_S)
            while holds() and not self._lead(holds):
                time.sleep(RETRY_WAIT_S)
        except Exception:
            if holds():  # else the client was closed under our hands, or nobody needs the outcome any more
                log.critical("taking over has failed", exc_info=True)
                self._on_failure()
            return
        if self._service.is_ready:
            log.info("took over", extra={"fields": {"seconds": round(time.monotonic() - began, 3)}})

    def _lead(self, holds: Callable[[], bool]) -> bool:
        """Begin the term; False to be called again, if the API server does not show all that is needed."""
        try:
            self._service.lead(holds)
        except KubeError as error:
            log.warning("taking over waits for the API server", extra={"fields": {"reason": str(error)}})
            self._service.prepare(WITHHELD, holds)
            return False
        return True

    def _has_caught_up(self, holds: Callable[[], bool]) -> bool:
        """Wait until the watches show our own change, and so everything before it.

        False if unknown: nothing is listed yet, a watch is broken, or there is no pod to change.
        """
        if not all(reflector.is_following for reflector in self._reflectors):
            return False
        version = self._service.ping()
        until = time.monotonic() + PING_S
        while version and holds() and time.monotonic() < until:
            if self._pods.has_reached(version):
                return True
            time.sleep(PING_CHECK_S)
        return False

    def _list_anew(self, holds: Callable[[], bool]) -> None:
        self._service.prepare(LISTING, holds)
        for listed in [reflector.relist() for reflector in self._reflectors]:
            while holds() and not listed.wait(CHECK_INTERVAL_S):
                pass
        self._service.prepare(RECOVERING, holds)

    def _await_objects(self, holds: Callable[[], bool]) -> None:
        """Wait a while for the listing of gang and device objects, which may be forbidden."""
        until = time.monotonic() + OBJECTS_S
        for each in (self._objects, self._devices):
            while each is not None and holds() and time.monotonic() < until:
                if each.wait_until_listed(CHECK_INTERVAL_S):
                    break

    def _fence(self, fenced: set[str], *, is_lenient: bool) -> bool:
        try:
            self._service.fence(fenced, is_lenient=is_lenient)
        except KubeError as error:
            log.warning("waiting pods cannot be fenced yet", extra={"fields": {"reason": str(error)}})
            return False
        return True


def _nodes(service: Service) -> Resource[Node]:
    return Resource(NODES, Node, lambda nodes: service.sync_nodes(drained(nodes)), service.node_seen, service.node_gone)


def _pods(service: Service) -> Resource[Pod]:
    # Ended pods too: some gangs count succeeded ones.
    return Resource(
        PODS,
        Pod,
        lambda pods: service.sync_pods(drained(pods)),
        service.pod_seen,
        lambda pod: service.pod_gone(pod.metadata.uid),
    )
