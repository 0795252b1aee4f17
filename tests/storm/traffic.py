"""Traffic in a cluster while its configuration changes: pods come and end, nodes fail and come back.

Everything through the API server, from threads of its own; the embedded scheduler loop asks the service as
kube-scheduler does. How threads interleave is not repeatable, what they choose from is.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.kinds import coscheduling
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_lab.embedded.cluster import EmbeddedCluster
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.lab.embedded.helpers import fail_node, recover_node
from tests.property.choices import Choices, Seeded
from tests.storm.documents import Document, nodes, types, vcs

NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
POD_GROUPS = (
    f"/apis/{coscheduling.PODGROUPS.group}/{coscheduling.PODGROUPS.versions[0]}/namespaces/{NAMESPACE}/podgroups"
)
OWN = "hivedscheduler.microsoft.com/"

MOST_PODS = 45
PAUSE_S = 0.02
"""Between two things that one thread does."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """Pods that come and mostly end together; the PodGroup that describes them, if there is one."""

    name: str
    pods: tuple[Json, ...]
    pod_group: Json | None = None


def make_job(choices: Choices, name: str, document: Document) -> Job:
    """One pod, a gang in our own words, or one of scheduler-plugins' coscheduling; of a VC of the document, mostly."""
    vc = choices.pick([*sorted(vcs(document)), "a"])
    priority = choices.weighted({0: 4, -1: 5, 5: 2, 100: 2})
    kind = choices.weighted({"alone": 5, "own": 3, "coscheduling": 3})
    sizes = [choices.pick((1, 2, 4, 1)) for _ in range(1 if kind == "alone" else choices.integer(2, 3))]
    if kind == "coscheduling":
        notes = {f"{OWN}virtual-cluster": vc, f"{OWN}priority": str(priority)}
        pods = [_pod(f"{name}-{i}", notes, {"nvidia.com/gpu": str(size)}) for i, size in enumerate(sizes)]
        for pod in pods:
            pod["metadata"]["labels"] = {coscheduling.LABEL: name}
        group = {"metadata": {"name": name}, "spec": {"minMember": len(sizes)}}
        return Job(name, tuple(pods), group)
    wanted: Json = {"virtualCluster": vc, "priority": priority, "leafCellNumber": sizes[0]}
    if choices.chance(20):
        leaves = sorted({each["childCellType"] for each in types(document).values()} - types(document).keys())
        wanted["leafCellType"] = choices.pick(leaves)
    if kind == "own":
        members = [{"podNumber": len(sizes), "leafCellNumber": sizes[0]}]
        wanted["affinityGroup"] = {"name": f"{NAMESPACE}/{name}", "members": members}
        wanted["lazyPreemptionEnable"] = choices.chance(50)
    notes = {SCHEDULING_SPEC: json.dumps(wanted)}
    if choices.chance(20):
        notes[RUN_SECONDS] = str(choices.integer(1, 3))
    return Job(name, tuple(_pod(f"{name}-{i}", notes, {ENABLE_LIMIT: "1"}) for i in range(len(sizes))))


def _pod(name: str, annotations: dict[str, str], limits: dict[str, str]) -> Json:
    containers = [{"name": "main", "image": "none", "resources": {"limits": limits}}]
    spec = {"schedulerName": "hived", "containers": containers}
    return {"metadata": {"name": name, "annotations": dict(annotations)}, "spec": spec}


class Traffic:
    """Begins with `start`; `document` is what jobs are made for. `ended` has the uids of pods that it has ended."""

    def __init__(self, cluster: EmbeddedCluster, seed: int, document: Document) -> None:
        self.document = document
        self.ended: set[str] = set()
        self._cluster = cluster
        self._kube = KubeClient.connect(cluster.api_url)
        self._is_stopping = threading.Event()
        self._jobs: dict[str, Job] = {}
        self._bad: list[str] = []
        self._turns: list[threading.Lock] = []
        self._numbers = iter(range(1_000_000))
        self._threads = [
            self._worker(name, seed + number, act)
            for number, (name, act) in enumerate(
                (("comer", self._begin), ("other comer", self._begin), ("ender", self._end), ("breaker", self._break))
            )
        ]
        self.failures: list[str] = []

    def start(self) -> None:
        """From now on."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No more."""
        self._is_stopping.set()
        for thread in self._threads:
            thread.join()
        self._kube.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nobody does anything meanwhile; what was done may still have consequences."""
        with ExitStack() as stack:
            for turn in self._turns:
                stack.enter_context(turn)
            yield

    def pods(self) -> list[Json]:
        """All pods there are."""
        return self._kube.list_objects(PODS, dict).items

    def _worker(self, name: str, seed: int, act: Callable[[Choices], None]) -> threading.Thread:
        turn, choices = threading.Lock(), Choices(Seeded(seed))
        self._turns.append(turn)

        def work() -> None:
            while not self._is_stopping.wait(PAUSE_S):
                with turn:
                    try:
                        act(choices)
                    except Exception as error:  # reported with everything else that went wrong
                        self.failures.append(f"{name}: {type(error).__name__}: {error}")
                        return

        return threading.Thread(target=work, name=name, daemon=True)

    def _begin(self, choices: Choices) -> None:
        if sum(len(job.pods) for job in list(self._jobs.values())) >= MOST_PODS:
            return
        job = make_job(choices, f"job-{next(self._numbers)}", self.document)
        if job.pod_group is not None:
            self._kube.create(POD_GROUPS, job.pod_group)
        for pod in job.pods:
            self._kube.create(PODS, pod)
        self._jobs[job.name] = job

    def _end(self, choices: Choices) -> None:
        jobs = list(self._jobs.values())
        if not choices.chance(min(90, 2 * sum(len(job.pods) for job in jobs))) or not jobs:
            return
        job = choices.pick(jobs)
        if choices.chance(15):
            self._end_pod(choices.pick(job.pods))
            return
        for pod in job.pods:
            self._end_pod(pod)
        if job.pod_group is not None:
            self._kube.delete(f"{POD_GROUPS}/{job.name}")
        del self._jobs[job.name]

    def _end_pod(self, pod: Json) -> None:
        path = pod_path(NAMESPACE, pod["metadata"]["name"])
        with suppress(KubeError):
            uid = self._kube.get(path)["metadata"]["uid"]
            self.ended.add(uid)
            self._kube.delete(path, uid=uid)

    def _break(self, choices: Choices) -> None:
        """Few nodes are bad at a time."""
        time.sleep(5 * PAUSE_S)
        if self._bad and choices.chance(60):
            recover_node(self._cluster, self._bad.pop(0))
            return
        healthy = [found.cell["cellAddress"] for found in nodes(self.document)]
        node = choices.pick(healthy) if healthy else ""
        if node and node not in self._bad and len(self._bad) < 3:
            with suppress(KubeError):
                fail_node(self._cluster, node)
                self._bad.append(node)


def is_running(pod: Json) -> bool:
    """Does it have a node, and has not ended?"""
    return bool(pod["spec"].get("nodeName")) and not has_ended(pod)


def has_ended(pod: Json) -> bool:
    """Has it succeeded or failed?"""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
