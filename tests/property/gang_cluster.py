"""An API server in memory, two replicas that follow it, and nothing that happens by itself.

What the service would do by itself waits until somebody has it done, and time stands still until then. What the API
server tells of pods waits as well. So a run is the same every time.
"""

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from typing import Any

from hived_extender.jobs.kinds.description import ObjectRef
from hived_extender.jobs.wire import Node, Pod
from hived_extender.machine import acceptance, emptied, gang_notices, preemptions, retries
from hived_extender.machine.core import Core
from hived_extender.machine.effects import Announce, TimerKey, Write
from hived_extender.machine.machine import Machine
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.runner import Writes
from hived_extender.machine.service import Service
from hived_extender.machine.stimuli import TimeCame, TryWaiting
from tests.extender.machine.by_hand import ByHand
from tests.extender.machine.small_cluster import NODES, Json, cluster_spec, to_pod
from tests.extender.machine.small_gangs import RULES
from tests.property import machine_cluster


class Api(machine_cluster.Api):
    """Tells each of `listeners` of every change of a pod."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[deque[Pod | str]] = []
        self._lock = threading.Lock()

    def touch(self, pod: Json) -> None:
        """A new version, which those who watch hear of."""
        with self._lock:
            super().touch(pod)

    def tell(self, news: Pod | str) -> None:
        """All hear of it, each when it listens."""
        for listener in self.listeners:
            listener.append(news)


DEADLINES = (*acceptance.TIMERS, *emptied.TIMERS, *gang_notices.TIMERS)


class Silent(ByHand):
    """Tells people nothing: a condition changes the pod, and kube-scheduler would try it again for that alone."""

    def _submit(self, effect: Write, term: int) -> None:
        if not isinstance(effect, Announce):
            super()._submit(effect, term)


class Replica:
    """A service without threads, and the news of pods that it has not heard yet."""

    def __init__(self, api: Api, nodes: Iterable[Node], objects: Mapping[ObjectRef, Json]) -> None:
        self.news: deque[Pod | str] = deque()
        self.api = api
        self._objects = objects
        self.service = Service(
            cluster_spec(), api, preemption=PreemptionPolicy(), rules=RULES, objects=self, run=self._run
        )
        for node in nodes:
            self.service.node_seen(node)
        self.service.sync_pods([to_pod(deepcopy(pod)) for pod in api.pods.values()])
        api.listeners.append(self.news)
        self._leads = False

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        """An object that describes a gang."""
        return self._objects.get(ObjectRef(kind, namespace, name))

    @property
    def core(self) -> Core:
        """The core's, while this replica leads."""
        core = self.service.machine.cache.core
        assert core is not None, self.service.fault
        return core

    @property
    def is_busy(self) -> bool:
        """Whether it has something to write, or a victim to evict."""
        return bool(self.runner.jobs or self.timers([preemptions.TIMER]))

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
        """Carry out some of what it has to write."""
        for _ in range(min(count, len(self.runner.jobs))):
            self.runner._write(*self.runner.jobs.popleft())
        for key in self.timers([preemptions.TIMER])[:count]:
            self.fire(key)

    def sweep(self) -> None:
        """Try the pods that wait, if it would in a moment."""
        if retries.SWEEP in self.timers([retries.TIMER]):
            self.fire(retries.SWEEP)
        self._try_backlog()

    def nudge(self, uids: Iterable[str]) -> None:
        """Try these pods, if they wait."""
        self.service.machine._retries._backlog.update(dict.fromkeys(uids))
        self._try_backlog()

    def timers(self, parts: Collection[str] = DEADLINES) -> list[TimerKey]:
        """The pods that it would look at when time is up, the earliest first."""
        valid = self.service.machine._outbox.timers._valid
        return sorted((key for key in valid if key[0] in parts), key=lambda key: valid[key][::-1])

    def fire(self, key: TimerKey) -> None:
        """Time is up for one of these now."""
        self.service.machine._outbox.timers.set(key, self.runner.at)
        self.runner.handle(TimeCame())

    def _try_backlog(self) -> None:
        while self.service.machine.has_backlog:
            self.runner.handle(TryWaiting())

    def close(self) -> None:
        """Nobody tells it anything any more."""
        self.api.listeners = [each for each in self.api.listeners if each is not self.news]
        self._leads = False

    def _run(self, machine: Machine, writes: Writes) -> ByHand:
        self.runner = Silent(machine, writes)
        return self.runner


def healthy_nodes() -> dict[str, bool]:
    """All nodes of the cluster, and that they are healthy."""
    return dict.fromkeys(NODES, True)
