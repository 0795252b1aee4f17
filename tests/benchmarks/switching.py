"""How long requests wait while another configuration comes into force.

Filter calls run in a loop beside one change after another. The cluster is four fifths full, once of 8-GPU pods and
once of 1-GPU pods. Each change takes a rack from one virtual cluster and gives it to another, or takes that back.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter_ns, sleep

import msgspec

from hived.values.specs import PodRequest, Rules
from hived_config.loader import load_text
from hived_extender.http.server import settle_process, tune_process
from hived_extender.jobs.wire import FilterArgs, Pod, decode_args
from hived_extender.machine.service import Service
from hived_extender.machine.verbs import VerbSettings
from hived_extender.reconfiguration.change import Change, Disagreement
from tests.benchmarks.core import Measurement
from tests.benchmarks.load import (
    GPUS_PER_NODE,
    KINDS,
    LOW_PRIORITY,
    SMALLEST,
    VC_NAMES,
    Job,
    JobKind,
    config_text,
    with_rack_moved,
)
from tests.benchmarks.serve import healthy_node
from tests.benchmarks.table import Figures
from tests.benchmarks.web import names_text, pod_text
from tests.extender.machine.small_cluster import FakeKube

CHANGES = 6
PART = 0.78
"""Of all GPUs, in use."""

PAUSE_S = 0.002
"""Between calls."""

WAITING = 400
"""Pods that are asked about in turn; once bound, asking again is quick."""

NOBODY_BINDS = "forcePodBindThreshold: 1000000\n"
"""However often a pod is asked about: there is nobody here who could bind it."""

LOADS = {"8-GPU": next(kind for kind in KINDS if kind.label == "1x8"), "1-GPU": SMALLEST}


class SwitchMeasurement:
    """A service of so many nodes, filled twice."""

    def __init__(self, node_count: int, seed: int, progress: Callable[[str], None], rules: Rules = Rules.HIVED) -> None:
        self._node_count = node_count
        self._seed = seed
        self._progress = progress
        text = NOBODY_BINDS + config_text(node_count, rules)
        self._configurations = tuple(load_text(each, "bench.yaml") for each in (text, with_rack_moved(text)))
        self.figures = Figures()

    def run(self) -> Figures:
        """Raises RuntimeError if the load does not fit."""
        tune_process()
        for label, kind in LOADS.items():
            self._measure(label, kind)
        return self.figures

    def _measure(self, label: str, kind: JobKind) -> None:
        load = Measurement(self._node_count, self._seed, self._progress)
        load.start()
        self._progress(f"{int(PART * self._node_count * GPUS_PER_NODE) // kind.gpu_count} {label} pods")
        self._fill(load, kind)
        waiting = [pod for _ in range(WAITING) for pod in _job(load, SMALLEST).pods]
        service = self._service(load, waiting)
        self.figures.values[f"switch/{label} pods"] = len(load.driver.placed)
        settle_process()
        self._progress(f"{CHANGES} changes beside filter calls")
        try:
            with Caller.calling(service, waiting, load.driver.state.topology.node_names) as caller:
                for number in range(CHANGES):
                    self._change(service, label, caller, number % 2)
        finally:
            service.close()

    def _change(self, service: Service, label: str, caller: "Caller", number: int) -> None:
        """Carry a change out as a push does: what was planned must come about, or it is planned anew."""
        began = perf_counter_ns()
        seconds = None
        while seconds is None:
            change = Change(self._configurations[number], self._configurations[1 - number], None, 1)
            outcome = change.outcome(*change.catch_up_with(service))
            with suppress(Disagreement):
                seconds = change.switch(service, {one.name: one.verdict.value for one in outcome.affected}).seconds
        ended = perf_counter_ns()
        samples = self.figures.samples
        samples.setdefault(f"switch/{label} held", []).append(int(seconds * 1e9))
        samples.setdefault(f"switch/{label} change", []).append(ended - began)
        samples.setdefault(f"switch/{label} filter", []).append(caller.longest(began, ended))

    def _fill(self, load: Measurement, kind: JobKind) -> None:
        target = int(PART * self._node_count * GPUS_PER_NODE) // kind.gpu_count * kind.gpu_count
        while load.driver.gpus_used < target:
            if not load.driver.place(_job(load, kind), "load", may_preempt=False):
                raise RuntimeError(f"{load.driver.gpus_used} GPUs are in use, and a {kind.label} job does not fit")

    def _service(self, load: Measurement, waiting: Sequence[PodRequest]) -> Service:
        first = self._configurations[0]
        service = Service(first.cluster, FakeKube(), verb_settings=VerbSettings().set_by(first.settings))
        service.sync_nodes([healthy_node(name) for name in load.driver.state.topology.node_names])
        decode = msgspec.json.Decoder(Pod).decode
        service.sync_pods([decode(pod_text(pod, info)) for pod, info in load.driver.placed.values()])
        service.lead(lambda: True)
        for pod in waiting:
            service.pod_seen(decode(pod_text(pod)))
        return service


class Caller:
    """Asks where pods could run, one after the other, on a thread of its own; `calls` has begin and end of each."""

    def __init__(self, service: Service, waiting: Sequence[PodRequest], node_names: Sequence[str]) -> None:
        names = names_text(node_names)
        self.calls: list[tuple[int, int]] = []
        self._service = service
        self._bodies = [b'{"Pod":%s,"Nodes":null,"NodeNames":%s}' % (pod_text(pod).encode(), names) for pod in waiting]
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="caller")

    @classmethod
    @contextmanager
    def calling(cls, service: Service, waiting: Sequence[PodRequest], names: Sequence[str]) -> Iterator["Caller"]:
        """Until the end."""
        caller = cls(service, waiting, names)
        caller._thread.start()
        try:
            yield caller
        finally:
            caller._is_stopping.set()
            caller._thread.join()

    def longest(self, began: int, ended: int) -> int:
        """Nanoseconds of the longest call that overlaps this time. Raises RuntimeError if there is none."""
        while self._thread.is_alive() and (not self.calls or self.calls[-1][1] <= ended):  # one may be under way
            sleep(PAUSE_S)
        spent = [end - begin for begin, end in list(self.calls) if end > began and begin < ended]
        if not spent:
            raise RuntimeError("nothing was asked while the configuration changed")
        return max(spent)

    def _run(self) -> None:
        number = 0
        while not self._is_stopping.wait(PAUSE_S):
            body = self._bodies[number % len(self._bodies)]
            begin = perf_counter_ns()
            self._service.filter_nodes(decode_args(body, FilterArgs))
            self.calls.append((begin, perf_counter_ns()))
            number += 1


def _job(load: Measurement, kind: JobKind) -> Job:
    """One for the VC that has most room left."""
    rooms = {vc: load.quota[vc] - load.driver.gpus_by_vc[vc] for vc in VC_NAMES}
    return load.source.make(kind, max(rooms, key=rooms.__getitem__), LOW_PRIORITY)
