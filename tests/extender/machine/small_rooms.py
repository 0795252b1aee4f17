"""The small cluster with a kube-scheduler that heeds all of Kubernetes' rules, and nodes with little besides GPUs."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from hived_config.loader import load_text
from hived_extender.jobs.wire import Node
from hived_extender.kube_rules.demands import DemandsReader
from hived_extender.kube_rules.nodes import RuledNode
from hived_extender.kube_rules.residents import Residents, refusals
from hived_extender.machine.preemptions import PreemptionPolicy
from tests.extender.machine.small_cluster import Json, SmallCluster, pod_json, spec_text, to_pod

CONFIG = """\
rules: {rules}
physicalCluster:
  skuTypes: {{{skus}}}
  cellTypes:
    NODE: {{childCellType: GPU, childCellNumber: {gpus}, isNodeLevel: true}}
  physicalCells: [{cells}]
virtualClusters:
  a: {{{sparing}virtualCells: [{{cellType: NODE, cellNumber: {own}}}]}}
  b: {{virtualCells: [{{cellType: NODE, cellNumber: {others}}}]}}
"""

ZONE = "topology.kubernetes.io/zone"

ROOM = {"cpu": "8", "memory": "32Gi", "ephemeral-storage": "100Gi", "pods": "20", "example.com/fpga": "2"}


class SmallRooms(SmallCluster):
    """`count` nodes n0, n1, ... of `gpus` GPUs; VC a owns all of them but those of `others`, which VC b owns.

    `room` is what each node has besides, `labels` are those of nodes by name. Pods may be evicted in
    the namespaces of `tenants`.
    """

    def __init__(
        self,
        count: int = 2,
        *,
        gpus: int = 4,
        others: int = 0,
        rules: str = "2",
        skus: str = "",
        room: Mapping[str, str] = ROOM,
        labels: Mapping[str, Mapping[str, str]] | None = None,
        tenants: frozenset[str] | None = None,
    ) -> None:
        self.volume_zones: dict[str, str] = {}
        self.names = tuple(f"n{number}" for number in range(count))
        cells = ", ".join(f"{{cellType: NODE, cellAddress: {name}}}" for name in self.names)
        self.text = CONFIG.format(
            rules=rules,
            sparing="sparing: true, " if rules == "2" else "",
            skus=skus,
            gpus=gpus,
            cells=cells,
            own=count - others,
            others=others,
        )
        super().__init__(
            is_leading=False,
            spec=load_text(self.text, "rooms.yaml", environ={}).cluster,
            preemption=PreemptionPolicy(tenants=tenants),
        )
        self.nodes = {
            name: msgspec.convert(
                {
                    "metadata": {
                        "name": name, "uid": f"node-{name}",
                        "labels": {"kubernetes.io/hostname": name, **(labels or {}).get(name, {})},
                    },
                    "spec": {},
                    "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": dict(room)},
                },
                Node,
            )
            for name in self.names
        }  # fmt: skip
        self.service.sync_nodes(list(self.nodes.values()))
        self.lead()

    def pod(
        self,
        name: str,
        gpus: int = 1,
        *,
        vc: str = "a",
        priority: int = 0,
        needs: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        node: str = "",
        is_foreign: bool = False,
        rank: int | None = None,
        group: str = "",
        pods: int = 1,
        members: Sequence[tuple[int, int]] = (),
        volume_zone: str = "",
        ignores: bool = False,
        uid: str = "",
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Json:
        """Create a pod with requests besides GPUs and let the service see it; `rank` is its Kubernetes priority.

        One that `is_foreign` is another scheduler's, and has its node already. `members` are (pods, GPUs of each) of a
        group with several sizes. One with a `volume_zone` has a claim, whose volume only nodes of this zone can have.
        """
        more: dict[str, Any] = {"ignoreK8sSuggestedNodes": True} if ignores else {}
        if members:
            sizes = [{"podNumber": count, "leafCellNumber": size} for count, size in members]
            more["affinityGroup"], group = {"name": group, "members": sizes}, ""
        if volume_zone:
            self.volume_zones[name] = volume_zone
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        asked = spec_text(vc=vc, leaf_cells=gpus, priority=priority, group=group, pods=pods, **more)
        text = None if is_foreign else asked
        pod = pod_json(name, text, node=node, uid=uid, annotations=annotations)
        if is_foreign:
            pod["spec"]["containers"] = [{"resources": {}}]
        pod["metadata"]["labels"] = dict(labels or {})
        pod["spec"]["containers"][0]["resources"]["requests"] = dict(needs or {})
        pod["spec"]["containers"][0] |= {"ports": spec.pop("ports")} if "ports" in spec else {}
        pod["spec"] |= spec if rank is None else {**spec, "priority": rank}
        self.kube.add(pod)
        self.see(pod)
        return pod

    def offered(self, pod: Json) -> list[str]:
        """The nodes that kube-scheduler's own filters leave a pod."""
        reader, residents = DemandsReader(), Residents()
        for other in self.kube.pods.values():
            if other["spec"]["nodeName"]:
                residents.put(other["metadata"]["uid"], other["spec"]["nodeName"], reader.read_pod(to_pod(other)))
        nodes = {name: RuledNode.of(node) for name, node in self.nodes.items()}
        refused = refusals(reader.read_pod(to_pod(pod)), nodes, residents, {})
        return [name for name in self.names if name not in refused and self.has_volume(pod["metadata"]["name"], name)]

    def has_volume(self, pod: str, node: str) -> bool:
        """Can a node have the volume that a pod claims, if it does?"""
        zone = self.volume_zones.get(pod)
        return zone is None or (self.nodes[node].metadata.labels or {}).get(ZONE) == zone

    def run(self, pod: Json) -> str:
        """Have kube-scheduler ask about a pod, if its own filters leave it a node, and bind it; its node, or ""."""
        nodes = self.offered(pod)
        found = self.filter(pod, nodes).get("NodeNames", ()) if nodes else ()
        for node in found:
            self.bind(pod, node)
            self.see(pod)
        return str(found[0]) if found else ""

    def start_on(self, node: str, name: str, gpus: int = 1, **more: Any) -> Json:
        """Create a pod that runs on a node at once."""
        pod = self.pod(name, gpus, **more)
        assert self.filter(pod, [node]).get("NodeNames") == [node], name
        self.bind(pod, node)
        self.see(pod)
        return pod

    def start(self, name: str, gpus: int = 1, **more: Any) -> Json:
        """Create a pod that runs at once."""
        pod = self.pod(name, gpus, **more)
        assert self.run(pod), name
        return pod

    def settle(self, turns: int = 4) -> set[str]:
        """Let time pass, and kube-scheduler ask about all that wait; returns the names of the pods that left."""
        left: set[str] = set()
        for _ in range(turns):
            self.pass_time(3)
            for _, name in list(self.kube.leaving):
                if name in self.kube.pods:
                    left.add(name)
                    self.delete(self.kube.pods[name])
            self.kube.leaving.clear()
            for pod in list(self.kube.pods.values()):
                if not pod["spec"]["nodeName"]:
                    self.run(pod)
        return left

    def running(self) -> dict[str, str]:
        """The node of each pod that has one."""
        return {name: pod["spec"]["nodeName"] for name, pod in self.kube.pods.items() if pod["spec"]["nodeName"]}
