"""Disturbances of the cluster, drawn with a seed: jobs come, nodes are tainted, lose devices, and are used by others.

Everything that is done is undone after some seconds. Which things happen, to whom and in which order follows from the
seed; when they happen is up to the machine. An API server that is away gets the same call again until it answers.
"""

import heapq
import itertools
import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from hived_config.skus import GPU_RESOURCE
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.e2e.machines import node_path
from tests.e2e.mixed import objects
from tests.e2e.mixed.objects import Job, Json
from tests.e2e.pods import POD_LIST

TICK_S = 0.05
RETRY_S = 0.5
GAP_S = 1.6
"""Between two things that happen, on average."""

GPUS = 8
DONE = (404, 409)
"""Has been done already, by a call whose answer was lost."""

Action = Callable[[], object]

log = logging.getLogger(__name__)


class Workload:
    """Lets things happen to `nodes` from `start` to `finish`; `vcs` are the virtual clusters that submit jobs.

    `errors` are calls that the API server refused for good.
    """

    def __init__(self, kube: KubeClient, seed: int, nodes: Sequence[str], vcs: Sequence[str]) -> None:
        self.errors: list[str] = []
        self._kube = kube
        self._chance = random.Random(seed)
        self._nodes = nodes
        self._vcs = vcs
        self._numbers = itertools.count()
        self._order = itertools.count()
        self._due: list[tuple[float, int, Action]] = []
        self._is_over = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="workload", daemon=True)
        self._draws = _mixed(
            {
                self._single: 10, self._gang: 5, self._apart: 3, self._with_volume: 2,
                self._taint: 3, self._lose_devices: 3, self._foreign: 3, self._preset: 1, self._daemon: 1,
            }
        )  # fmt: skip

    def start(self) -> None:
        """Begin."""
        self._kube.create(objects.CLASSES, objects.storage_class())
        self._thread.start()

    def finish(self, timeout_s: float) -> bool:
        """Let nothing new happen, and wait until everything is undone; false if that takes longer."""
        self._is_over.set()
        self._thread.join(timeout=timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Take away what controllers would keep alive for the next test."""
        self._stop.set()
        self._thread.join(timeout=30)
        for path in (objects.DAEMON_SETS, objects.CLAIMS, objects.VOLUMES):
            with suppress(KubeError):
                self._kube.delete(path)
        with suppress(KubeError):
            self._kube.delete(f"{objects.CLASSES}/{objects.STORAGE}")

    # -- when ------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._after(0.0, self._next)
        while self._due and not self._stop.wait(TICK_S):
            while self._due and self._due[0][0] <= time.monotonic():
                self._do(heapq.heappop(self._due)[2])

    def _do(self, action: Action) -> None:
        try:
            action()
        except KubeError as error:
            if error.is_invalid:
                self.errors.append(str(error))
            elif error.status not in DONE:
                log.debug("again later: %s", error)
                self._after(RETRY_S, action)

    def _after(self, seconds: float, action: Action) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), action))

    def _next(self) -> None:
        if not self._is_over.is_set():
            self._after(self._chance.expovariate(1 / GAP_S), self._next)
            self._draws[self._chance.randrange(len(self._draws))]()

    def _create(self, path: str, body: Json) -> None:
        self._after(0.0, lambda: self._kube.create(path, body))

    def _delete_after(self, seconds: float, path: str) -> None:
        self._after(seconds, lambda: self._kube.delete(path))

    def _seconds(self) -> int:
        return self._chance.randint(4, 16)

    def _name(self, kind: str) -> str:
        return f"{kind}-{next(self._numbers)}"

    # -- jobs ------------------------------------------------------------------------------------

    def _job(self, kind: str, gpus: Sequence[int], pod_counts: Sequence[int], **fields: bool) -> Job:
        chance = self._chance
        job = Job(
            self._name(kind),
            vc=chance.choice(self._vcs),
            priority=chance.choice([-1, -1, 0, 0, 5]),
            gpus=chance.choice(gpus),
            run_s=self._seconds(),
            pod_count=chance.choice(pod_counts),
            is_hiveds=chance.random() < 0.3,
            is_tolerant=chance.random() < 0.2,
            **fields,
        )
        for pod in job.pods():
            self._create(POD_LIST, pod)
        if chance.random() < 0.1:
            for pod in job.pods():
                self._delete_after(job.run_s / 2, pod_path("default", pod["metadata"]["name"]))
        return job

    def _single(self) -> None:
        self._job("single", [1, 2, 4, 8], [1])

    def _gang(self) -> None:
        self._job("gang", [2, 4, 8], [2, 3])

    def _apart(self) -> None:
        self._job("apart", [1, 2, 4], [2, 3], is_apart=True)

    def _with_volume(self) -> None:
        """The volume comes after the pod."""
        job = self._job("volume", [1, 2], [1], has_volume=True)
        self._create(objects.CLAIMS, objects.claim(job.name))
        late_s = self._chance.uniform(0.5, 5.0)
        disk = objects.volume(job.name, self._chance.choice(self._nodes))
        self._after(late_s, lambda: self._kube.create(objects.VOLUMES, disk))

    # -- nodes -----------------------------------------------------------------------------------

    def _taint(self) -> None:
        name, effect = self._chance.choice(self._nodes), self._chance.choice(["NoSchedule", "NoSchedule", "NoExecute"])
        self._after(0.0, lambda: self._set_taint(name, effect))
        self._after(self._seconds(), lambda: self._set_taint(name, ""))

    def _set_taint(self, name: str, effect: str) -> None:
        """Add our taint beside those of others, or take it away; a change meanwhile makes this begin anew."""
        while True:
            node = self._kube.get(node_path(name))
            taints = [one for one in node["spec"].get("taints") or () if one["key"] != objects.MAINTENANCE]
            if effect:
                taints.append({"key": objects.MAINTENANCE, "effect": effect})
            node["spec"]["taints"] = taints
            try:
                self._kube.replace(node_path(name), node)
                return
            except KubeError as error:
                if not error.is_conflict:
                    raise

    def _lose_devices(self) -> None:
        name, left = self._chance.choice(self._nodes), self._chance.choice([0, 2, 4, 6, 7])
        self._after(0.0, lambda: self._set_devices(name, left))
        self._after(self._seconds(), lambda: self._set_devices(name, GPUS))

    def _set_devices(self, name: str, count: int) -> None:
        self._kube.patch(f"{node_path(name)}/status", {"status": {"allocatable": {GPU_RESOURCE: str(count)}}})

    # -- others ----------------------------------------------------------------------------------

    def _foreign(self, **spec: Any) -> None:
        name, gpus = self._name("foreign"), self._chance.choice([1, 2, 4])
        notes = {RUN_SECONDS: str(self._seconds())}
        self._create(POD_LIST, objects.gpu_pod(name, gpus, "default-scheduler", notes, **spec))
        self._delete_after(30.0, pod_path("default", name))

    def _preset(self) -> None:
        self._foreign(nodeName=self._chance.choice(self._nodes))

    def _daemon(self) -> None:
        name = self._name("daemon")
        nodes = self._chance.sample(list(self._nodes), 2)
        self._create(objects.DAEMON_SETS, objects.daemon_set(name, nodes, 1))
        self._delete_after(self._seconds(), f"{objects.DAEMON_SETS}/{name}")


def _mixed(weights: dict[Action, int]) -> list[Action]:
    def each() -> Iterator[Action]:
        for action, weight in weights.items():
            yield from [action] * weight

    return list(each())
