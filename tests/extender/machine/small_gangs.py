"""The small cluster with pods that ask in the words of other schedulers, and a kube-scheduler that takes turns.

VC a owns two nodes of four GPUs, and is that of namespace `ns`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hived.values.errors import UserError
from hived_config.access import AccessRules, NamespaceEntry, VirtualClusterAccess
from hived_config.rules import PodRules
from hived_extender.jobs.kinds.description import GangKey
from hived_extender.machine.gangs.plans import GangState, state_of
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.service import Service
from tests.extender.machine.by_hand import ByHand
from tests.extender.machine.small_cluster import NODES, Json, SmallCluster, node, to_pod

ACCESS = AccessRules(
    virtual_clusters={
        "a": VirtualClusterAccess((NamespaceEntry("ns"),)),
        "b": VirtualClusterAccess((NamespaceEntry("other"),)),
    }
)
RULES = PodRules(access=ACCESS, priority_classes={"high": 100, "low": -1})
KOORDINATOR = "gang.scheduling.koordinator.sh/"


def koordinator(gang: str, minimum: int, **more: Any) -> dict[str, str]:
    """Annotations of a gang; `match_policy="only-waiting"` becomes the key match-policy."""
    keys = {"name": gang, "min-available": minimum, **more}
    return {KOORDINATOR + key.replace("_", "-"): str(value) for key, value in keys.items()}


def gang_state(service: Service, key: GangKey) -> GangState | None:
    """The progress of a gang, None if it has no pods."""
    gangs = service.machine.cache.gangs
    gang = gangs.get(key)
    return None if gang is None else state_of(gang, gangs.plan(key))


class SmallGangCluster(SmallCluster):
    """Every pod is created with the next second as its time of creation. The service evicts."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("preemption", PreemptionPolicy())
        super().__init__(rules=RULES, **options)
        self.clock = 0
        self._held: list[tuple[Json, str]] = []

    def pod(
        self,
        name: str,
        gpus: int = 4,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Json:
        """Create a pod and let the service see it."""
        self.clock += 1
        limits = {"nvidia.com/gpu": gpus} if gpus else {"cpu": 1}
        pod: Json = {
            "metadata": {
                "name": name,
                "namespace": spec.pop("namespace", "ns"),
                "uid": spec.pop("uid", f"uid-{name}"),
                "creationTimestamp": f"2026-01-01T00:00:{self.clock:02d}Z",
                "annotations": dict(annotations or {}),
                "labels": dict(labels or {}),
            },
            "spec": {
                "nodeName": "",
                "schedulerName": "hived",
                "containers": [{"name": "main", "resources": {"limits": limits}}],
                **spec,
            },
            "status": {"phase": "Pending"},
        }
        self.kube.add(pod)
        self.see(pod)
        return pod

    def ask(self, name: str) -> str:
        """Have kube-scheduler ask about a pod, and bind it if it may; returns its node, or why it waits."""
        pod = self.kube.pods[name]
        try:
            result = self.filter(pod)
        except UserError as error:
            return error.message
        if "NodeNames" not in result:
            return self._in_full(next(iter(result["FailedNodes"].values())))
        node = str(result["NodeNames"][0])
        self._held.append((pod, node))
        for one, place in self._held[:]:
            if self.service.hold_of(one["metadata"]["uid"]) is not None:
                continue  # until all of its gang have been asked about
            with suppress(UserError):
                self.bind(one, place)
                self._held.remove((one, place))
                self.see(one)
        return node

    def _in_full(self, reason: str) -> str:
        """Of a gang that forms, kube-scheduler is told only that it does."""
        found = re.fullmatch(r"rejected by podgroup/(.+)/(.+): it is not complete .*", reason)
        state = gang_state(self.service, GangKey(found[1], found[2])) if found else None
        return state.obstacle if state is not None else reason

    def start(self, *names: str) -> None:
        """Have kube-scheduler accept all of these pods, and bind the last one alone."""
        nodes = [self.filter(self.kube.pods[name])["NodeNames"] for name in names]
        last = self.kube.pods[names[-1]]
        self.bind(last, nodes[-1][0])
        self.see(last)

    def decided(self) -> dict[str, str]:
        """The node that each pod was given, be it bound or not, by its name."""
        return {record.name: record.place.node for record in self.service.machine.cache.pods if record.place.node}

    def settle(self, turns: int = 3) -> dict[str, str]:
        """Have kube-scheduler ask about every pod without a node, in turn; returns all nodes by pod."""
        for _ in range(turns):
            for name, pod in sorted(self.kube.pods.items()):
                if not pod["spec"]["nodeName"]:
                    self.ask(name)
        return self.placed()

    def placed(self) -> dict[str, str]:
        """The node of each pod that has one."""
        return {name: pod["spec"]["nodeName"] for name, pod in self.kube.pods.items() if pod["spec"]["nodeName"]}

    def become(self, name: str, phase: str) -> None:
        """A pod reaches a phase."""
        self.kube.pods[name]["status"]["phase"] = phase
        self.kube.touch(self.kube.pods[name])
        self.see(self.kube.pods[name])

    def drop(self, name: str) -> None:
        """Delete a pod."""
        self.delete(self.kube.pods[name])

    def restarted(self) -> "SmallGangCluster":
        """Another service that begins to lead with what the API server has."""
        self.has_lease = False
        cluster = SmallGangCluster(is_leading=False)
        cluster.kube, cluster.clock = self.kube, self.clock
        cluster.service = type(self.service)(
            self.service.machine.terms._spec, self.kube, preemption=PreemptionPolicy(), rules=RULES, run=ByHand
        )
        cluster.by_hand.at = self.by_hand.at
        cluster.service.sync_nodes([node(name) for name in NODES])
        cluster.service.sync_pods([to_pod(pod) for pod in self.kube.pods.values()])
        cluster.lead()
        return cluster
