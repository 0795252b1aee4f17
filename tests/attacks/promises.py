"""Tenants of the embedded cluster who go for what others are promised, by pods of their own namespace alone.

Devices by variables and by `nodeName`, a grace period of decades, and a gang of pods that are never created.
"""

import time
from contextlib import closing
from typing import Any

from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_lab.embedded.lifetimes import RUN_SECONDS, STOP_SECONDS
from hived_lab.start import Embedded, start_embedded
from tests.attacks.attack import Outcome, Run

PREFIX = "hivedscheduler.microsoft.com/"
GPU = "nvidia.com/gpu"
PODS = "/api/v1/namespaces/default/pods"
DECADES_S = 315_360_000
LENT_S = 2
SOON_S = 60.0
WORDS = ("NVIDIA_VISIBLE_DEVICES", "HIVED_VISIBLE_DEVICES")

CONFIG = f"""\
lentGraceSeconds: {LENT_S}
physicalCluster:
  cellTypes: {{NODE: {{childCellType: GPU, childCellNumber: 8, isNodeLevel: true}}}}
  physicalCells: [{{cellType: NODE, cellAddress: n0}}, {{cellType: NODE, cellAddress: n1}}]
virtualClusters:
  a: {{virtualCells: [{{cellType: NODE, cellNumber: 2}}]}}
"""


def run(run: Run) -> Outcome:
    """Each in turn, on one cluster."""
    outcome, file = Outcome(), run.folder / "cluster.yaml"
    file.write_text(CONFIG)
    with (
        start_embedded(file, has_webhook=True) as running,
        closing(KubeClient.connect(kubeconfig=str(running.cluster.hived_kubeconfig))) as kube,
    ):
        tenants = _Tenants(running, kube, outcome)
        tenants.see_devices()
        tenants.take_a_node()
        tenants.declare_ghosts()
        tenants.never_leave()
    return outcome


def _pod(name: str, gpus: int, priority: int, **spec: Any) -> dict[str, Any]:
    notes = {f"{PREFIX}virtual-cluster": "a", f"{PREFIX}priority": str(priority), RUN_SECONDS: "100000"}
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: gpus}} if gpus else {}}
    more = {"schedulerName": "hived", "containers": [container], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": more}


class _Tenants:
    def __init__(self, running: Embedded, kube: KubeClient, outcome: Outcome) -> None:
        self._running, self._kube, self._outcome = running, kube, outcome

    def see_devices(self) -> None:
        """Containers without devices name all of them."""
        for place in ("containers", "initContainers"):
            sidecar = {"name": "side", "image": "x", "env": [{"name": word, "value": "all"} for word in WORDS]}
            body = _pod(f"sees-{place.lower()}", 1, 0)
            body["spec"][place] = [*body["spec"].get(place, ()), sidecar]
            self._outcome.tried += 1
            stored = self._kube.create(PODS, body)
            side = next(each for each in stored["spec"][place] if each["name"] == "side")
            seen = {each["name"]: each.get("value") for each in side["env"]}
            if all(seen.get(word) == "void" for word in WORDS):
                self._outcome.refused += 1
            else:
                self._outcome.let_in.append(f"a container of {place} without devices sees {seen}")
            self._delete(body)

    def take_a_node(self) -> None:
        """A pod that chooses its node itself takes devices that are another's."""
        self._outcome.tried += 1
        try:
            self._kube.create(PODS, _pod("preset", 8, 0, nodeName="n0"))
        except KubeError:
            self._outcome.refused += 1
            return
        self._outcome.let_in.append("a pod with a nodeName of its own took 8 devices")

    def declare_ghosts(self) -> None:
        """One pod takes both nodes for a gang of two."""
        text = '{"virtualCluster": "a", "priority": -1, "leafCellNumber": 8, "affinityGroup": {"name": "ghosts", '
        text += '"members": [{"podNumber": 2, "leafCellNumber": 8}]}}'
        ghost = _pod("ghost", 8, -1)
        ghost["metadata"]["annotations"] = {f"{PREFIX}pod-scheduling-spec": text, RUN_SECONDS: "100000"}
        self._outcome.tried += 1
        self._kube.create(PODS, ghost)
        honest = [_pod(f"honest-{number}", 8, -1) for number in range(2)]
        for body in honest:
            self._kube.create(PODS, body)
        if all(self._starts(body) for body in honest):
            self._outcome.refused += 1
        else:
            self._outcome.let_in.append("a pod holds cells for pods that do not exist")
        for body in (ghost, *honest):
            self._delete(body)

    def never_leave(self) -> None:
        """An opportunistic pod that ignores SIGTERM asks for ten years, and its cells are promised."""
        lazy = [_pod(f"lazy-{number}", 8, -1, terminationGracePeriodSeconds=DECADES_S) for number in range(2)]
        for body in lazy:
            body["metadata"]["annotations"][STOP_SECONDS] = str(DECADES_S)
            self._kube.create(PODS, body)
        if not all(self._starts(body) for body in lazy):
            self._outcome.fault("the attacker's own pods, which are allowed, have not started")
            return
        self._outcome.tried += 1
        owner = _pod("owner", 8, 0)
        self._kube.create(PODS, owner)
        if self._starts(owner):
            self._outcome.refused += 1
        else:
            self._outcome.let_in.append("a grace period of decades keeps the cells of a guarantee")

    def _starts(self, body: dict[str, Any]) -> bool:
        until = time.monotonic() + SOON_S
        while time.monotonic() < until:
            if self._kube.get(pod_path("default", body["metadata"]["name"]))["spec"].get("nodeName"):
                return True
            time.sleep(0.05)
        return False

    def _delete(self, body: dict[str, Any]) -> None:
        self._kube.delete(pod_path("default", body["metadata"]["name"]), grace_period_s=0)
