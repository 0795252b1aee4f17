"""From following to leading and back: the steps of a replica that is elected, or deposed.

To lead it must know all that the leader before it did. So it changes a pod and waits until its own watch tells of that.
Where no watch is open, it lists nodes and pods anew (`watch.Reflector.relist`). Then it fences off writes of that
leader that may still be under way (`service.Service.fence`), and only then builds its state and answers. A follower has
everything else ready: compiled kernels, nodes and pods as its watches told them, annotations already read.
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
    """Watches on behalf of a service and makes it lead when it may, from `start` to `stop`.

    Without a `lease` there is no other replica, and it leads from the beginning. `on_failure` is called when a
    take-over breaks for a reason that nobody foresaw. `objects` and `devices` are followed as well. `catch_up` is
    called before a term begins, to learn what else an earlier leader has left behind, until it returns True.
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
        """False if standing for election has ended by itself."""
        return self._elector is None or self._elector.is_alive

    def relist_pods(self) -> None:
        """Have all pods told anew, soon."""
        self._pods.relist()

    def start(self) -> None:
        """Begin to follow, and to stand for election."""
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
        """Lead no more, follow no more."""
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
        """Wait a moment for the threads to end; the client should have been closed before."""
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
        """Begin the term; False to be called again, if the API server does not show what is needed for it."""
        try:
            self._service.lead(holds)
        except KubeError as error:
            log.warning("taking over waits for the API server", extra={"fields": {"reason": str(error)}})
            self._service.prepare(WITHHELD, holds)
            return False
        return True

    def _has_caught_up(self, holds: Callable[[], bool]) -> bool:
        """Wait until the watches have told everything up to now, which a change that we make ourselves shows.

        False if that cannot be known: nothing has been listed yet, a watch is broken, or no pod is there to be changed.
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
        """Have nodes and pods listed as they are now, however long that takes."""
        self._service.prepare(LISTING, holds)
        for listed in [reflector.relist() for reflector in self._reflectors]:
            while holds() and not listed.wait(CHECK_INTERVAL_S):
                pass
        self._service.prepare(RECOVERING, holds)

    def _await_objects(self, holds: Callable[[], bool]) -> None:
        """Wait until the objects that describe gangs and devices are known, a while: their list may be withheld."""
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
    # Also those that are over: some gangs count their pods that succeeded.
    return Resource(
        PODS,
        Pod,
        lambda pods: service.sync_pods(drained(pods)),
        service.pod_seen,
        lambda pod: service.pod_gone(pod.metadata.uid),
    )
