"""Compares the leader with a new process that reads the nodes and pods that the API server has now."""

import json
import urllib.request
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from hived.life.status import iter_physical_cluster, iter_virtual_cluster
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_extender.api.paths import GROUPS_PATH, PHYSICAL_CLUSTER_PATH, VIRTUAL_CLUSTERS_PATH
from hived_extender.jobs.wire import WAITING_KEY, FilterArgs, Node, Pod
from hived_extender.kube.client import LIVE_PODS, NODES, PODS, KubeClient
from hived_extender.machine.preemptions import PreemptionPolicy
from hived_extender.machine.service import Service
from hived_extender.machine.verbs import VerbSettings
from tests.e2e.certificates import LOOPBACK
from tests.e2e.processes import free_port

Json = dict[str, Any]


class Rebuilt:
    """A service in this process, made from a list of nodes and pods as a restart is; it writes nothing.

    What it would write, events for instance, goes to an address where nobody listens.
    """

    def __init__(self, spec: ClusterSpec, kube: KubeClient) -> None:
        self._nodes = kube.list_objects(NODES, Node).items
        self._pods = kube.list_objects(PODS, Pod, field_selector=LIVE_PODS).items
        policy, verb_settings = PreemptionPolicy(by_service=False), VerbSettings(wake_delay_s=3600.0)
        self._nowhere = KubeClient.connect(f"http://{LOOPBACK}:{free_port()}")
        self.service = Service(spec, self._nowhere, verb_settings=verb_settings, preemption=policy)
        self.service.sync_nodes(self._nodes)
        self.service.sync_pods(self._pods)
        self.service.lead(lambda: True)

    def view(self) -> Json:
        """Its state as `canonical` has it."""
        reader = self.service.reader
        cells = reader.cells()
        virtual = {vc: list(iter_virtual_cluster(cells, vc)) for vc in cells.topology.vc_names}
        return canonical(list(reader.affinity_groups()), list(iter_physical_cluster(cells)), virtual)

    def close(self) -> list[str]:
        """End it; returns the waiting pods that could run, or make room for themselves, each with how.

        Asking changes the state, so this comes last.
        """
        nodes = msgspec.Raw(msgspec.json.encode([node.metadata.name for node in self._nodes]))
        could_run = []
        for pod in self._pods:
            if not pod.is_ours or pod.node or pod.metadata.deletion_timestamp:
                continue
            answer = self.service.filter_nodes(FilterArgs(pod, nodes))
            if answer.node_names:
                could_run.append(f"{pod.metadata.name} could run on {answer.node_names[0]}")
            elif answer.failed_nodes and WAITING_KEY not in answer.failed_nodes:
                could_run.append(f"{pod.metadata.name} could preempt: {answer.failed_nodes}")
        self.service.close()
        self._nowhere.close()
        return could_run


def leader_view(url: str) -> Json:
    """The leader's state by its inspection paths, as `canonical` has it."""
    virtual = _get(url + VIRTUAL_CLUSTERS_PATH.removesuffix("/"))
    groups = _get(url + GROUPS_PATH)["items"] or []
    return canonical(groups, _get(url + PHYSICAL_CLUSTER_PATH), virtual)


def canonical(groups: list[Json], physical: list[Json], virtual: dict[str, list[Json]]) -> Json:
    """All that the paths show, but for what depends on the order in which things happened."""
    return {
        "groups": {group["metadata"]["name"]: _group(group["status"]) for group in groups},
        "physical": [_physical(cell) for cell in physical],
        "virtual": {vc: _sorted(_virtual(cell) for cell in cells) for vc, cells in virtual.items()},
    }


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Where two views differ, in words."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted(ours.keys() | theirs.keys())
        return [text for key in keys for text in differences(ours.get(key), theirs.get(key), f"{path}/{key}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [text for number, pair in pairs for text in differences(*pair, f"{path}/{number}")]
    return [] if ours == theirs else [f"{path}: the leader has {ours}, a rebuild {theirs}"]


def _group(status: Json) -> Json:
    # Left out: virtualPlacement, for equal virtual cells are interchangeable, and a rebuild takes the first; for whom
    # and when a group was preempted lazily, which no annotation says, but not that it has lost its place.
    kept = {key: value for key, value in status.items() if key not in ("virtualPlacement", "lazyPreemptionStatus")}
    return kept | {"hasPlace": bool(status.get("virtualPlacement"))}


def _physical(cell: Json) -> Json:
    # Left out: virtualCell, which of equal virtual cells a physical one is bound to; and the vc of a leaf in
    # opportunistic use, which is forgotten when its node turns bad and healthy (as by the reference), while the VC that
    # it is lent to still lists it.
    lent = ("vc",) if cell["cellPriority"] == OPPORTUNISTIC_PRIORITY and "cellChildren" not in cell else ()
    kept = {key: value for key, value in cell.items() if key not in ("virtualCell", "cellChildren", *lent)}
    return kept | {
        "isBound": "virtualCell" in cell,
        "children": [_physical(one) for one in cell.get("cellChildren", ())],
    }


def _virtual(cell: Json) -> Json:
    # Left out: the cell's own address, and with it the order of its siblings; and the health of a leaf that is lent to
    # the VC, which stays what it was when the leaf was lent (as by the reference).
    lent = ("cellHealthiness",) if cell["cellAddress"].endswith("-opp") else ()
    hidden = ("cellAddress", "physicalCell", "cellChildren", *lent)
    kept = {key: value for key, value in cell.items() if key not in hidden}
    physical = cell.get("physicalCell", {}).get("cellAddress", "")
    return kept | {"physical": physical, "children": _sorted(_virtual(one) for one in cell.get("cellChildren", ()))}


def _sorted(cells: Iterable[Json]) -> list[Json]:
    return sorted(cells, key=lambda cell: json.dumps(cell, sort_keys=True))


def _get(url: str) -> Any:
    with urllib.request.urlopen(quote(url, safe=":/"), timeout=10) as answer:
        return msgspec.json.decode(answer.read())
