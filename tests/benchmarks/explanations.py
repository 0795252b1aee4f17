"""Explanations of waits in a cluster whose VCs are full, and copies of its state: how long they take.

An explanation comes after the refusal that it explains, whose time is not in it. Each job asks anew: of earlier
questions only the cluster without anybody is kept, which the first one builds.
"""

import random
from collections.abc import Callable

import numpy as np

from hived.cells.copying import copy_state
from hived.cells.state import State
from hived.cells.topology import BoolArray
from hived.scheduler import handle
from hived.values.decisions import Wait
from hived.values.events import NodeHealthChanged, Offer, ScheduleRequested
from hived.why.explaining import explain_wait
from hived.why.relaxing import Emptied
from tests.benchmarks.figures import Figures
from tests.benchmarks.workload import KINDS, LOW_PRIORITY, JobKind, JobSource

ASKED = tuple(kind for kind in KINDS if kind.label in ("1x1", "1x8", "128x8"))
REPEATS = 60
COPIES = 30
BAD_PART, OFFERED_PART = 0.01, 0.5


class Explanations:
    """Questions to one full cluster, which is afterwards as it was."""

    def __init__(self, state: State, source: JobSource, seed: int, clock: Callable[[], int]) -> None:
        self.figures = Figures()
        self._state, self._source, self._clock = state, source, clock
        self._random, self._emptied = random.Random(seed), Emptied()

    def run(self) -> Figures:
        """Raises RuntimeError if a job does not wait."""
        nodes = self._state.topology.node_names
        self._ask(ASKED[0], "explain/first", None, 1)
        (first,) = self.figures.samples.pop("explain/first")
        self.figures.values["explain/first"] = first / 1e6
        offered = np.zeros(len(nodes), np.bool_)
        offered[self._random.sample(range(len(nodes)), int(OFFERED_PART * len(nodes)))] = True
        bad = self._random.sample(nodes, int(BAD_PART * len(nodes)))
        for kind in ASKED:
            self._ask(kind, f"explain/{kind.label}", None, REPEATS)
            self._ask(kind, f"explain/{kind.label}, offered", offered, REPEATS)
        self._set_health(bad, is_healthy=False)
        for kind in ASKED:
            self._ask(kind, f"explain/{kind.label}, offered, bad", offered, REPEATS)
        self._set_health(bad, is_healthy=True)
        self._copy()
        return self.figures

    def _ask(self, kind: JobKind, key: str, offered: BoolArray | None, count: int) -> None:
        """Jobs of one kind, of one VC after the other; `offered` nodes, the same for each pod."""
        samples = self.figures.samples.setdefault(key, [])
        for number in range(count):
            vc = self._state.topology.vc_names[number % len(self._state.topology.vc_names)]
            pod = self._source.make(kind, vc, LOW_PRIORITY).pods[0]
            offer = None if offered is None else _offer(offered, kind.pod_count)
            if not isinstance(handle(self._state, ScheduleRequested(pod, offer=offer)), Wait):
                raise RuntimeError(f"VC {vc} is full, but {kind.label} did not have to wait")
            started = self._clock()
            explain_wait(self._state, pod, offer, self._emptied)
            samples.append(self._clock() - started)

    def _set_health(self, nodes: list[str], *, is_healthy: bool) -> None:
        for node in nodes:
            handle(self._state, NodeHealthChanged(node, is_healthy))

    def _copy(self) -> None:
        """Copies in new memory, and in that of the copy before."""
        room = copy_state(self._state)
        for key, earlier in (("copy/new", None), ("copy/again", room)):
            samples = self.figures.samples.setdefault(key, [])
            for _ in range(COPIES):
                started = self._clock()
                copy_state(self._state, earlier)
                samples.append(self._clock() - started)


def _offer(offered: BoolArray, pods: int) -> Offer:
    """As the service makes it: one row of memory for all pods."""
    shape = (pods, len(offered))
    return Offer(np.broadcast_to(offered, shape), np.broadcast_to(np.zeros(len(offered), np.bool_), shape))
