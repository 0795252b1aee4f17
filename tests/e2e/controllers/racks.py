"""The cluster of controllers' jobs: three racks of two nodes, two of them a virtual cluster's, and an observer."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hived_extender.api.paths import GROUPS_PATH, VIRTUAL_CLUSTERS_PATH
from hived_extender.kube.client import NODES, KubeClient, KubeError, pod_path
from hived_lab.embedded.nodes import EXIT_CODE, READY, RUN_SECONDS
from tests.e2e.cluster import RealCluster
from tests.e2e.observer import Observer, Seen, is_in_default
from tests.e2e.plane import ControlPlane

GPU = "nvidia.com/gpu"
RACK = "example.com/rack"
VC = "research"
SCHEDULER = "hived"
NODE_GPUS = 4

COMES_S = 300.0
"""Whatever is to come has come by then, on a machine that does much else: controllers try again after seconds."""

TOGETHER_S = 10.0
"""All pods of a gang have their nodes so long after the first one at the latest."""

STAYS_S = 3.0
"""After so long, with all pods looked at, nothing more is going to happen."""

FORCED_NAMES = ("volcano", "scheduler-plugins")
"""KubeRay writes this into pods as schedulerName, whatever their template says."""

CONFIGURATION = {
    "schedulerNames": [SCHEDULER, *FORCED_NAMES],
    "topologyLevels": {RACK: "RACK", "volcano-tier-1": "RACK"},
    "physicalCluster": {
        "skuTypes": {"GPU": {"gpu": 1, "cpu": 8, "memory": "32Gi", "resource": GPU}},
        "cellTypes": {
            "NODE": {"childCellType": "GPU", "childCellNumber": NODE_GPUS, "isNodeLevel": True},
            "RACK": {"childCellType": "NODE", "childCellNumber": 2},
        },
        "physicalCells": [
            {"cellType": "RACK", "cellChildren": [{"cellAddress": f"{rack}{node}"} for node in (1, 2)]}
            for rack in "abc"
        ],
    },
    "virtualClusters": {
        VC: {"namespaces": ["default"], "virtualCells": [{"cellType": "RACK", "cellNumber": 2}]},
        "other": {"virtualCells": [{"cellType": "RACK", "cellNumber": 1}]},
    },
}

Json = dict[str, Any]


class Racks:
    """A cluster with controllers at work; pods of the namespace default are the virtual cluster's.

    Attributes
    ----------
    cluster : kube-scheduler and our service
    observer : which has seen every pod of the namespace
    """

    def __init__(self, plane: ControlPlane, cluster: RealCluster) -> None:
        self.plane = plane
        self.cluster = cluster
        self.observer = Observer(KubeClient.connect(kubeconfig=str(plane.admin_kubeconfig)), is_in_default)

    # -- what people and controllers do ----------------------------------------------------------

    def create(self, *documents: Json) -> None:
        """Create objects of any kind."""
        self.plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(documents))

    def patch(self, kind: str, name: str, body: Json) -> None:
        """Merge into an object of any kind."""
        self.plane.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(body))

    def delete(self, kind: str, name: str) -> None:
        """Delete an object of any kind, and wait until it is gone."""
        self.plane.kubectl("delete", kind, name, f"--timeout={COMES_S:.0f}s")

    def block(self, *names: str, gpus: int = NODE_GPUS) -> None:
        """Single pods that take GPUs of the virtual cluster away, and have their nodes."""
        self.create(*(pod(name, gpus=gpus) for name in names))
        self.until(lambda: all(self.bound(name) for name in names), f"{names} to be bound")

    def unblock(self, *names: str) -> None:
        """Delete them."""
        for name in names:
            self.plane.kube.delete_pod("default", name, grace_period_s=0)

    def fail(self, name: str, code: int = 1) -> None:
        """Let the container of a running pod end with an exit code."""
        self.until(lambda: any(one.is_running for one in self.pods(name)), f"{name} to run")
        annotations = {RUN_SECONDS: "0", EXIT_CODE: str(code)}
        self.plane.kube.patch(pod_path("default", name), {"metadata": {"annotations": annotations}})

    def set_ready(self, node: str, is_ready: bool) -> None:
        """Let a node say that it is ready, or not."""
        said = None if is_ready else "false"
        self.plane.kube.patch(f"{NODES}/{node}", {"metadata": {"annotations": {READY: said}}})

    # -- what is to be seen ----------------------------------------------------------------------

    def pods(self, prefix: str) -> list[Seen]:
        """The pods whose names begin so, but for those that are gone or leave, by name."""
        found = [one for one in self.observer.present() if one.name.startswith(prefix) and not one.is_leaving]
        return sorted(found, key=lambda one: one.name)

    def bound(self, prefix: str) -> list[Seen]:
        """The pods among them that have a node."""
        return [one for one in self.pods(prefix) if one.node]

    def racks_of(self, prefix: str) -> set[str]:
        """Where they are."""
        return {one.node[0] for one in self.bound(prefix)}

    def until(self, is_so: Callable[[], object], what: str, within_s: float = COMES_S) -> None:
        """Wait for something. Raises AssertionError that says what became of all pods."""
        deadline = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline, f"waited {within_s:.0f} s for {what}\n{self.report()}"
            time.sleep(0.05)

    def await_created(self, prefix: str, count: int) -> list[Seen]:
        """Wait until there are so many pods, and no more."""
        self.until(lambda: len(self.pods(prefix)) == count, f"{count} pods {prefix}*")
        return self.pods(prefix)

    def await_whole(self, prefix: str, count: int) -> list[Seen]:
        """Wait until so many pods have nodes; they got them together, when all of them were there."""
        self.until(lambda: len(self.bound(prefix)) == count == len(self.pods(prefix)), f"{count} bound pods {prefix}*")
        gang = self.bound(prefix)
        first, last = min(one.bound_at for one in gang), max(one.bound_at for one in gang)
        assert last - first < TOGETHER_S, self.report()
        assert self.faults() == []
        return gang

    def bound_while_waiting(self, prefix: str, count: int) -> list[Seen]:
        """Wait until so many pods are there and were told that they wait, and longer; the pods that have nodes then."""
        self.await_created(prefix, count)
        self.until(lambda: all(one.was_refused for one in self.pods(prefix)), f"{prefix}* to be told that they wait")
        time.sleep(STAYS_S)
        return self.bound(prefix)

    def faults(self) -> list[str]:
        """Wait until the pods hold exactly the devices that are in use; each violation so far, in words."""
        self.until(lambda: self.given() == self.used(), "the pods to hold what is used of the virtual cluster")
        return self.observer.violations

    def report(self) -> str:
        """Everything that there is, for people."""
        return f"{self.observer.report()}\nused: {sorted(self.used())}\nviolations: {self.observer.violations}"

    def given(self) -> set[str]:
        """Addresses of the devices that running pods were given."""
        return {f"{node}/{device}" for one in self.observer.present() for node, device in one.devices if one.holds}

    def used(self) -> set[str]:
        """Addresses of the devices of the virtual cluster that are in use, as our service has it."""
        used = [leaf["physicalCell"]["cellAddress"] for leaf in self._leaves() if leaf["cellState"] == "Used"]
        return {"/".join(address.split("/")[-2:]) for address in used}  # the rack's number comes first

    def groups(self) -> list[Json]:
        """All affinity groups, as our service has them."""
        found: list[Json] = self._get(GROUPS_PATH)["items"] or []
        return found

    def _leaves(self) -> Iterator[Json]:
        below = list(self._get(f"{VIRTUAL_CLUSTERS_PATH}{VC}"))
        while below:
            cell = below.pop()
            below += cell.get("cellChildren", ())
            if cell["cellType"] == "GPU":
                yield cell

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self.cluster.url + path, timeout=10) as answer:
            return msgspec.json.decode(answer.read())

    # -- the end ---------------------------------------------------------------------------------

    def clean(self, kinds: tuple[str, ...]) -> None:
        """Delete all objects of these kinds and all pods; then every cell has to be free."""
        for kind in kinds:
            self.plane.kubectl("delete", kind, "--all", f"--timeout={COMES_S:.0f}s")
        for one in self.observer.present():
            if one.is_single:
                self._delete_pod(one.name)
        self.until(lambda: not self.observer.present(), "all pods to be gone")
        self.until(lambda: not self.used(), "all cells to be free")
        self.until(lambda: not self.groups(), "all groups to be gone")
        assert self.observer.violations == []

    def _delete_pod(self, name: str) -> None:
        try:
            self.plane.kube.delete_pod("default", name, grace_period_s=0)
        except KubeError as error:
            if not error.is_not_found:
                raise


@contextmanager
def running_racks(plane: ControlPlane, folder: Path, *, replicas: int = 1, **settings: Any) -> Iterator[Racks]:
    """A cluster whose nodes know their racks, with so many replicas of our service.

    `settings` are further keys of its configuration.
    """
    file = folder / "hivedscheduler.yaml"
    file.write_text(yaml.safe_dump(CONFIGURATION | settings))
    election = ("--leader-elect",) if replicas > 1 else ()
    with RealCluster(plane, file, replica_count=replicas, serve_options=election, other_names=FORCED_NAMES) as cluster:
        racks = Racks(plane, cluster)
        for node in [f"{rack}{number}" for rack in "abc" for number in (1, 2)]:
            plane.kube.patch(f"{NODES}/{node}", {"metadata": {"labels": {RACK: node[0]}}})
        racks.observer.start()
        try:
            yield racks
        finally:
            racks.observer.stop()


def container(name: str = "main", gpus: int = NODE_GPUS) -> Json:
    """A container of a pod template, as people write it."""
    return {"name": name, "image": "none", "resources": {"limits": {GPU: str(gpus)}}}


def template(gpus: int = NODE_GPUS, *, name: str = "main", **metadata: Any) -> Json:
    """A pod template for our scheduler."""
    return {"metadata": metadata, "spec": {"schedulerName": SCHEDULER, "containers": [container(name, gpus)]}}


def pod(name: str, gpus: int = NODE_GPUS, *, spec: Json | None = None, **metadata: Any) -> Json:
    """A pod that somebody makes for our scheduler; `spec` has further fields."""
    made = template(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": made["spec"] | (spec or {}),
    }
