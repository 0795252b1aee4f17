"""An API server in memory, two replicas that follow it, and nothing that happens by itself.

What the service would do on threads of its own waits in queues here, until somebody has it done. What the API server
tells of pods waits as well. So a run is the same every time.
"""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any

from hived_extender.kube.client import KubeError
from hived_extender.pods.dialects.description import ObjectRef
from hived_extender.pods.wire import Node, Pod
from hived_extender.service.ledger import Ledger
from hived_extender.service.service import Service
from hived_extender.service.writes.evictor import PreemptionPolicy
from tests.extender.service.gang_world import RULES
from tests.extender.service.world import NODES, FakeKube, Json, cluster_spec, to_pod


class Api(FakeKube):
    """Tells `listeners` of every change of a pod, and lets nobody change a later pod of the same name."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[deque[Pod | str]] = []
        self._lock = threading.Lock()

    def touch(self, pod: Json) -> None:
        """A new version, which those who watch hear of."""
        with self._lock:
            super().touch(pod)
            self._tell(to_pod(deepcopy(pod)))

    def remove(self, name: str) -> None:
        """A pod is gone."""
        self._tell(self.pods.pop(name)["metadata"]["uid"])

    def patch(self, path: str, body: Mapping[str, Any], item_type: type[Any] = dict) -> Any:
        """Annotate the pod with this uid."""
        self._check(path.rsplit("/", 1)[1], body["metadata"]["uid"])
        return super().patch(path, body, item_type)

    def evict_pod(self, namespace: str, name: str, *, uid: str = "") -> None:
        """Let the pod with this uid begin to leave; one without a node is gone at once."""
        self._check(name, uid)
        pod = self.pods[name]
        if not pod["spec"]["nodeName"]:
            self.remove(name)
        elif "deletionTimestamp" not in pod["metadata"]:
            pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
            self.touch(pod)

    def _check(self, name: str, uid: str) -> None:
        if self._find(name)["metadata"]["uid"] != uid:
            raise KubeError(409, "Conflict", "the uid differs")

    def _tell(self, news: Pod | str) -> None:
        for listener in self.listeners:
            listener.append(news)


class Replica:
    """A service without threads, and the news of pods that it has not heard yet."""

    def __init__(self, api: Api, nodes: Iterable[Node], objects: Mapping[ObjectRef, Json]) -> None:
        self.news: deque[Pod | str] = deque()
        self.api = api
        self._objects = objects
        self.service = Service(cluster_spec(), api, preemption=PreemptionPolicy(), rules=RULES, objects=self)
        self.jobs = _quieten(self.service)
        for node in nodes:
            self.service.node_seen(node)
        self.service.sync_pods([to_pod(deepcopy(pod)) for pod in api.pods.values()])
        api.listeners.append(self.news)
        self._leads = False

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        """An object that describes a gang."""
        return self._objects.get(ObjectRef(kind, namespace, name))

    @property
    def ledger(self) -> Ledger:
        """The core's, while this replica leads."""
        ledger = self.service._facts.ledger
        assert ledger is not None, self.service.fault
        return ledger

    @property
    def is_busy(self) -> bool:
        """Whether it has something to write, or a victim to evict.

        The number of victims tells nothing: one may be spared while another is found.
        """
        return bool(self.jobs or self.service._evictor._due)

    def hear(self, count: int = 1_000_000) -> None:
        """Hear the next news."""
        for _ in range(min(count, len(self.news))):
            one = self.news.popleft()
            if isinstance(one, str):
                self.service.pod_gone(one)
            else:
                self.service.pod_seen(one)

    def lead(self) -> None:
        """Begin to lead: catch up, fence, answer."""
        self.hear()
        self.service.fence(set())
        self.hear()
        self._leads = True
        self.service.lead(lambda: self._leads)

    def follow(self) -> None:
        """Another leads; what was on its way to the API server comes too late."""
        self._leads = False
        self.service.follow("another leads")

    def work(self, count: int = 1_000_000) -> None:
        """Do some of what the service would do in the background."""
        for _ in range(min(count, len(self.jobs))):
            self.jobs.popleft()()
        evictor = self.service._evictor
        for _, _, victim in sorted(evictor._due[:])[:count]:
            evictor._due[:] = [one for one in evictor._due if one[2] is not victim]
            evictor._attempt(victim)

    def sweep(self) -> None:
        """Try the pods that wait, if the nudger would by now."""
        nudger = self.service._nudger
        if nudger._due < math.inf:
            nudger._due = math.inf
            nudger._try([uid for uid, refused in nudger._refusals.items() if refused <= nudger._last_change])

    def close(self) -> None:
        """Nobody tells it anything any more."""
        self.api.listeners = [each for each in self.api.listeners if each is not self.news]
        self._leads = False


class _Queue(ThreadPoolExecutor):
    """A pool of threads that starts none: its calls wait to be made."""

    def __init__(self, jobs: deque[Callable[[], None]]) -> None:
        super().__init__()
        self._jobs = jobs

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self._jobs.append(partial(fn, *args, **kwargs))
        return Future()


class _Hurry(threading.Event):
    """Nobody waits between two tries."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def _quieten(service: Service) -> deque[Callable[[], None]]:
    """Stop all threads of a new service; returns the queue that they leave."""
    for each in (service._nudger, service._evictor, service._waiting.deadlines, service._announcer, service._binder):
        each.close()
    jobs: deque[Callable[[], None]] = deque()
    service._binder._is_closing = _Hurry()
    service._binder._background = service._binder._wakes = _Queue(jobs)
    return jobs


def healthy_nodes() -> dict[str, bool]:
    """All nodes of the cluster, and that they are healthy."""
    return dict.fromkeys(NODES, True)
