"""A small embedded cluster on which a test creates objects and looks at its pods, as a person does with kubectl."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import yaml

from hived_extender.api.inspection import Inspector
from hived_extender.api.waiting import Certificate
from hived_extender.kube.client import KubeClient
from hived_jobs.creation import collection_of
from hived_lab.embedded.nodes import RUN_SECONDS
from hived_lab.start import Embedded, start_embedded
from tests.expecting import expect_soon
from tests.known import patch_node

PREFIX = "hivedscheduler.microsoft.com/"
GPU = "nvidia.com/gpu"
FOR_EVER = "100000"
QUEUES = "queues: {enabled: true}"

PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}


def pod(
    name: str,
    gpus: int = 1,
    *,
    vc: str = "default",
    priority: int = 1,
    requests: Mapping[str, object] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod of one container that runs for ever; `requests` are resources beside its GPUs, `spec` more of its spec."""
    notes = {f"{PREFIX}virtual-cluster": vc, f"{PREFIX}priority": str(priority), RUN_SECONDS: FOR_EVER}
    limits = {**({GPU: gpus} if gpus else {}), **(requests or {})}
    container = {"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {**notes, **(annotations or {})}, "labels": dict(labels or {})},
        "spec": {"schedulerName": "hived", "containers": [container], **spec},
    }


def nodes_config(
    gpus: int, count: int = 1, *, cpu: int = 8, memory: str = "32Gi", more: str = "", other_vc: str = ""
) -> str:
    """A configuration of nodes n1, n2, ..., which the default virtual cluster has.

    CPU and memory are those of a GPU; `more` is a line of settings, `other_vc` one of another virtual cluster.
    """
    nodes = ", ".join(f"{{cellType: NODE, cellAddress: n{number + 1}}}" for number in range(count))
    return f"""
rules: 2
{more}
physicalCluster:
  skuTypes: {{GPU: {{gpu: 1, cpu: {cpu}, memory: {memory}}}}}
  cellTypes: {{NODE: {{childCellType: GPU, childCellNumber: {gpus}, isNodeLevel: true}}}}
  physicalCells: [{nodes}]
virtualClusters:
  default: {{namespaces: [default], virtualCells: [{{cellType: NODE, cellNumber: {count}}}]}}
  {other_vc}
"""


class Played:
    """One embedded cluster."""

    def __init__(self, running: Embedded, kube: KubeClient) -> None:
        self.running, self.kube = running, kube
        self.inspector = Inspector(running.extender.url)

    def create(self, *objects: dict[str, Any] | str) -> None:
        """Create objects, or all of a YAML text, in this order."""
        for each in objects:
            for one in yaml.safe_load_all(each) if isinstance(each, str) else (each,):
                self.kube.create(collection_of("default", one), one)

    def pods(self, namespace: str = "default") -> dict[str, dict[str, Any]]:
        """All pods of a namespace by name."""
        return {one["metadata"]["name"]: one for one in self.kube.get(PATHS["Pod"].format(namespace))["items"]}

    def running_pods(self, namespace: str = "default") -> dict[str, str]:
        """The node of each pod that runs and is not leaving."""
        return {
            name: one["spec"]["nodeName"]
            for name, one in self.pods(namespace).items()
            if one.get("status", {}).get("phase") == "Running" and "deletionTimestamp" not in one["metadata"]
        }

    def uids(self) -> set[str]:
        """The uids of all pods."""
        return {one["metadata"]["uid"] for one in self.pods().values()}

    def expect_running(self, *names: str) -> None:
        """All of these pods run soon."""
        expect_soon(lambda: set(names) <= set(self.running_pods()))

    def why(self, name: str) -> Certificate:
        """Why a pod of the default namespace waits, and what would help; as it is known to `hived why` soon."""
        return expect_soon(lambda: (found := self.inspector.why(f"default/{name}")) and found.certificate, every_s=0.1)

    def helps(self, name: str) -> list[str]:
        """The changes that would let a pod start, as `hived why --if` takes them."""
        return [one.change for one in self.why(name).unblock]

    def patch_node(self, name: str, changes: Mapping[str, Any], part: str = "") -> None:
        """Change a node, see `known.patch_node`."""
        patch_node(self.running, self.kube, name, changes, part)

    def delete(self, name: str, namespace: str = "default") -> None:
        """Delete a pod, at once."""
        self.kube.delete(f"{PATHS['Pod'].format(namespace)}/{name}")


@contextmanager
def played_on(folder: Path, config: str, *, has_webhook: bool = False) -> Iterator[Played]:
    """An embedded cluster of this configuration."""
    file = folder / "cluster.yaml"
    file.write_text(config)
    with (
        start_embedded(file, has_webhook=has_webhook) as running,
        closing(KubeClient.connect(kubeconfig=str(running.cluster.hived_kubeconfig))) as kube,
    ):
        yield Played(running, kube)
