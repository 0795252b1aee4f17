"""Kills every process of the cluster, one after the other in an order of chance, and starts each again."""

import random
import threading
import time
from collections.abc import Callable, Iterator

from tests.e2e.cluster import RealCluster
from tests.e2e.mixed.waits import Pause
from tests.e2e.processes import Process

RECOVERY_S = 30.0
"""So long after a process is back, waits do not count: kube-scheduler comes back to an API server by and by."""

FOREVER = float("inf")

Break = Callable[[RealCluster, random.Random], None]


def _killed(find: Callable[[RealCluster], Process]) -> Break:
    def happen(cluster: RealCluster, chance: random.Random) -> None:
        process = find(cluster)
        process.kill()
        time.sleep(chance.uniform(0.0, 3.0))
        process.start(ready_s=None if process in cluster.services else 180.0)
        cluster.leader()

    return happen


def _follower(cluster: RealCluster) -> Process:
    leader = cluster.leader()
    return next(one for one in cluster.services if one is not leader)


def _frozen(cluster: RealCluster, chance: random.Random) -> None:
    leader = cluster.leader()
    cluster.await_followers()
    leader.freeze()
    try:
        cluster.leader(leader)
        time.sleep(chance.uniform(0.0, 3.0))
    finally:
        leader.thaw()


def _compacted(cluster: RealCluster, chance: random.Random) -> None:
    """Watches that were not up to date are told 410."""
    cluster.plane.compact()
    _killed(lambda one: one.plane.apiserver)(cluster, chance)


BREAKS: dict[str, Break] = {
    "leader killed": _killed(lambda cluster: cluster.leader()),
    "kube-scheduler killed": _killed(lambda cluster: cluster.plane.schedulers["kube-scheduler"]),
    "follower killed": _killed(_follower),
    "leader frozen": _frozen,
    "API server killed": _killed(lambda cluster: cluster.plane.apiserver),
    "etcd killed": _killed(lambda cluster: cluster.plane.etcd),
    "etcd compacted": _compacted,
    "default-scheduler killed": _killed(lambda cluster: cluster.plane.schedulers["default-scheduler"]),
    "controller manager killed": _killed(lambda cluster: cluster.plane.controller_manager),
    "kwok killed": _killed(lambda cluster: cluster.plane.kwok),
}


class Breaker:
    """Breaks things from `start` to `stop`, with `gap_s` seconds from one that is over to the next.

    Parameters
    ----------
    most : so many in all; no limit by default

    Attributes
    ----------
    done : what was broken, in order
    errors : what went wrong with the breaking itself
    """

    def __init__(self, cluster: RealCluster, seed: int, gap_s: float, most: float = FOREVER) -> None:
        self.done: list[str] = []
        self.errors: list[str] = []
        self._cluster = cluster
        self._chance = random.Random(f"breaks {seed}")
        self._gap_s = gap_s
        self._most = most
        self._pauses: list[Pause] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="breaker", daemon=True)

    def start(self) -> None:
        """Begin, with a gap."""
        self._thread.start()

    def stop(self) -> None:
        """Let what is broken come back, and break nothing more."""
        self._stop.set()
        self._thread.join()

    def pauses(self) -> list[Pause]:
        """When something was broken or had just come back."""
        return list(self._pauses)

    def _run(self) -> None:
        for name in self._order():
            if len(self.done) >= self._most or self._stop.wait(self._gap_s):
                return
            began = time.monotonic()
            try:
                BREAKS[name](self._cluster, self._chance)
            except Exception as error:
                self.errors.append(f"{name}: {error}")
                return
            finally:
                self._pauses.append((began, time.monotonic() + RECOVERY_S))
                self.done.append(name)

    def _order(self) -> Iterator[str]:
        while True:
            yield from self._chance.sample(list(BREAKS), len(BREAKS))
