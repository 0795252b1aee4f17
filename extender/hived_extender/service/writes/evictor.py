"""Making victims leave: through the Eviction API, and if that is refused for too long and the policy says so, without
it.

The service evicts by itself, rather than through kube-scheduler's preempt verb, because only that completes always:
kube-scheduler considers only nodes with pods of lower *Kubernetes* priority, one node at a time, and knows nothing of
lazily preempted groups, whose Kubernetes priority stays what it was.

A victim is looked at again before every attempt: a preemption that is cancelled spares those not evicted yet. A pod
that is terminating is left to its kubelet; its cells are given away only when it is gone.
"""

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from hived_config.settings import Budgets
from hived_extender.kube.client import KubeError
from hived_extender.kube.logs import tell_failure
from hived_extender.kube.metrics import Metrics
from hived_extender.service.pods import PodRecord

log = logging.getLogger(__name__)

THREADS = 8
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 10.0
BUDGET_REFUSALS = (429, 500)
"""A budget that has no disruption left; several budgets for one pod, which the Eviction API cannot decide between."""


@dataclass(frozen=True, slots=True)
class PreemptionPolicy:
    """Who evicts victims, and how.

    With `by_service` the service does, else kube-scheduler, as the preempt verb tells it. `grace_s` is how long a
    refused eviction is tried before the pod is deleted, where budgets may be overridden.
    """

    by_service: bool = True
    budgets: Budgets = Budgets.OVERRIDE
    grace_s: float = 30.0


class EvictionApi(Protocol):
    """What is asked of the API server; `kube.KubeClient` is one. Both raise KubeError."""

    def evict_pod(self, namespace: str, name: str, *, uid: str = "") -> None:
        """Delete a pod unless a disruption budget forbids it (429)."""

    def delete_pod(self, namespace: str, name: str, *, uid: str = "") -> None:
        """Delete a pod."""


class Evictor:
    """Thread-safe. A victim that was asked to leave is not asked again until it is gone or spared.

    `is_victim` tells whether a pod still has to leave, false on a replica that does not lead. `on_blocked` is told of a
    preemptor whose victim cannot be evicted at the moment, and why. Neither is called with a lock held.
    """

    def __init__(
        self,
        kube: EvictionApi,
        policy: PreemptionPolicy,
        metrics: Metrics,
        is_victim: Callable[[str], bool],
        on_blocked: Callable[[PodRecord, str], None],
    ) -> None:
        self._kube = kube
        self.policy = policy
        self._metrics = metrics
        self._is_victim = is_victim
        self._on_blocked = on_blocked
        self._changed = threading.Condition()
        self._asked: set[str] = set()
        self._due: list[tuple[float, int, _Victim]] = []
        self._numbers = itertools.count()
        self._is_closed = False
        self._pool = ThreadPoolExecutor(THREADS, "evict")
        self._thread = threading.Thread(target=self._run, name="evictor", daemon=True)
        self._thread.start()

    def evict(self, records: Iterable[PodRecord], preemptor: PodRecord) -> list[PodRecord]:
        """Ask these pods to leave, in the background; returns those that have not been asked before."""
        now = time.monotonic()
        with self._changed:
            new = [record for record in records if record.uid not in self._asked]
            for record in new:
                self._asked.add(record.uid)
                self._push(now, _Victim(record, preemptor))
        return new

    def gone(self, uid: str) -> None:
        """A pod has left."""
        with self._changed:
            self._asked.discard(uid)

    def close(self) -> None:
        """Wait for calls under way; start no more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _push(self, when: float, victim: "_Victim") -> None:
        heapq.heappush(self._due, (when, next(self._numbers), victim))
        self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._is_closed:
                wait_s = self._due[0][0] - time.monotonic() if self._due else None
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                else:
                    self._pool.submit(self._attempt, heapq.heappop(self._due)[2]).add_done_callback(tell_failure)

    def _attempt(self, victim: "_Victim") -> None:
        record = victim.record
        if not self._is_victim(record.uid):
            self.gone(record.uid)
            if self._is_victim(record.uid):  # again, and whoever wanted it to leave found it asked already
                self.evict([record], victim.preemptor)
            return
        waited_s = time.monotonic() - victim.refused_at
        by_force = self.policy.budgets is Budgets.OVERRIDE and waited_s >= self.policy.grace_s
        call = self._kube.delete_pod if by_force else self._kube.evict_pod
        try:
            call(record.namespace, record.name, uid=record.uid)
        except KubeError as error:
            # Where the uid is another pod's by now, ours is gone: a watch will tell, and it is no victim any more.
            if not error.is_not_found:
                self._try_again(victim, error)
            return
        how = "deleted" if by_force else "evicted"
        self._metrics.evictions.labels(how).inc()
        log.info("victim asked to leave", extra={"fields": {"pod": record.key, "how": how}})

    def _try_again(self, victim: "_Victim", error: KubeError) -> None:
        if error.status in BUDGET_REFUSALS:
            victim.refused_at = min(victim.refused_at, time.monotonic())
        self._metrics.evictions.labels("refused").inc()
        fields = {"pod": victim.record.key, "reason": str(error), "wait_s": victim.wait_s}
        log.warning("victim not evicted", extra={"fields": fields})
        self._on_blocked(victim.preemptor, f"{victim.record.key} cannot be evicted: {error}")
        with self._changed:
            self._push(time.monotonic() + victim.wait_s, victim)
        victim.wait_s = min(2 * victim.wait_s, LONGEST_WAIT_S)


@dataclass(slots=True, eq=False)
class _Victim:
    """A pod that has to leave, for whom, since when that is refused, and how long to wait after the next refusal."""

    record: PodRecord
    preemptor: PodRecord
    refused_at: float = math.inf
    wait_s: float = FIRST_WAIT_S
