"""Jobs on an embedded cluster whose queues are on, as their owners see them."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from hived_extender.api.configuration import ConfigPushArgs
from hived_extender.api.inspection import ConfigClient, Inspector
from hived_extender.kube.client import KubeClient
from hived_extender.machine.stimuli import TurnAsked
from hived_lab.embedded.nodes import RUN_SECONDS
from hived_lab.start import Embedded, start_embedded
from tests.expecting import expect_soon
from tests.known import queues_rest

GPU = "nvidia.com/gpu"
PREFIX = "hivedscheduler.microsoft.com/"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PYTORCH_JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
PODS = "/api/v1/namespaces/default/pods"
QUEUES = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/kube-queue/queues"
UNITS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/queueunits"
TREES = "/apis/scheduling.sigs.k8s.io/v1beta1/namespaces/kube-system/elasticquotatrees"

CONFIG = """
rules: 2
queues: {enabled: true}
physicalCluster:
  cellTypes: {NODE: {childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}
  physicalCells:
  - {cellType: NODE, cellAddress: n1}
  - {cellType: NODE, cellAddress: n2}
virtualClusters:
  a:
    virtualCells: [{cellType: NODE, cellNumber: 1}]
    queue: {borrow: true}
  b:
    virtualCells: [{cellType: NODE, cellNumber: 1}]
"""

FOR_EVER = "100000"


def template(vc: str, gpus: int, priority: str, seconds: str) -> dict[str, Any]:
    """A pod that runs for so long."""
    annotations = {RUN_SECONDS: seconds, f"{PREFIX}virtual-cluster": vc, f"{PREFIX}priority": priority}
    container = {"name": "pytorch", "image": "x", "resources": {"limits": {GPU: gpus}}}
    spec = {"schedulerName": "hived", "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"annotations": annotations}, "spec": spec}


class Jobs:
    """The jobs of one embedded cluster."""

    def __init__(self, running: Embedded, kube: KubeClient) -> None:
        self.running, self.kube = running, kube
        self.inspector = Inspector(running.extender.url)

    def create(
        self, name: str, vc: str = "a", *, gpus: int = 8, pods: int = 1, priority: str = "10", seconds: str = FOR_EVER,
        suspend: bool = True, namespace: str = "default", backoff_limit: int = 6,
        limit_s: int | None = None, **more: Any,
    ) -> None:  # fmt: skip
        """A batch Job, held back from the start unless it says otherwise."""
        spec = {
            "activeDeadlineSeconds": limit_s,
            "suspend": suspend,
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": backoff_limit,
            "template": template(vc, gpus, priority, seconds),
        }
        path = JOBS.replace("default", namespace)
        self.kube.create(path, {"metadata": {"name": name, **more}, "spec": spec})

    def begin_queues_anew(self) -> None:
        """Have the queues read all jobs anew, as after a restart or a take-over."""
        queues, runner = self.running.extender.queues, self.running.extender.service.runner
        with runner.exclusive():
            before = queues.turns
            queues.begin_anew()
            runner.handle_within(TurnAsked())
        expect_soon(lambda: queues.turns is not before)

    def is_resumed(self, name: str) -> bool:
        """Is a job not suspended?"""
        return not self.kube.get(f"{JOBS}/{name}")["spec"]["suspend"]

    def nodes(self, name: str) -> list[str]:
        """The nodes of the pods of a job that run."""
        pods = self.kube.get(PODS)["items"]
        return sorted(
            pod["spec"]["nodeName"]
            for pod in pods
            if pod["metadata"]["name"].startswith(f"{name}-") and pod["status"].get("phase") == "Running"
        )

    def runs(self, *names: str) -> bool:
        """Do all of these run?"""
        return all(self.is_resumed(name) and self.nodes(name) for name in names)

    def waits(self, name: str) -> bool:
        """Is a job suspended, without pods?"""
        return not self.is_resumed(name) and not self.nodes(name)

    def delete(self, name: str) -> None:
        """Delete a job; its pods go with it."""
        self.kube.delete(f"{JOBS}/{name}")

    def phase(self, unit: str) -> str:
        """The phase of a QueueUnit, "" if there is none."""
        found = {one["metadata"]["name"]: one for one in self.kube.get(UNITS)["items"]}
        return str(found.get(unit, {}).get("status", {}).get("phase", ""))

    def state(self, name: str) -> str:
        """How hived shows a job, "" if it is in no queue."""
        found = self.inspector.queued_job(name)
        return "" if found is None else found.state

    def reason(self, name: str) -> str:
        """Why a job is where it is, "" if it is in no queue."""
        found = self.inspector.queued_job(name)
        return "" if found is None else found.reason

    def queued(self, path: str) -> list[str]:
        """The names of the units that wait in a queue, by its object."""
        for queue in self.kube.get(QUEUES)["items"]:
            if queue["metadata"]["annotations"][f"{PREFIX}quota"] == path:
                return [one["name"] for one in queue.get("status", {}).get("queueItemDetails", {}).get("active", [])]
        return []

    def push(self, config: str) -> None:
        """Have another configuration come into force, whatever becomes of running jobs."""
        client = ConfigClient(self.inspector)

        def is_in_force() -> bool:
            plan = client.plan(config, "the configuration")
            push = ConfigPushArgs(config, base_version=plan.base_version, agreed=plan.verdicts, allow_downgrade=True)
            return not client.push(push).is_conflict

        expect_soon(is_in_force)

    def rest(self) -> bool:
        """Have the queues looked at all that they know, see `known.queues_rest`?"""
        return queues_rest(self.running)

    def expect(self, *conditions: Callable[[], bool]) -> None:
        """Each becomes true soon, in this order."""
        for condition in conditions:
            expect_soon(condition)


@contextmanager
def jobs_on(folder: Path, config: str = CONFIG, *, has_webhook: bool = False) -> Iterator[Jobs]:
    """An embedded cluster of this configuration."""
    file = folder / "cluster.yaml"
    file.write_text(config)
    with (
        start_embedded(file, has_webhook=has_webhook) as running,
        closing(KubeClient.connect(kubeconfig=str(running.cluster.hived_kubeconfig))) as kube,
    ):
        yield Jobs(running, kube)
