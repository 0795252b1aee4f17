"""A tenant who names devices in containers: each sees those of its pod's cells, or none.

Containers of every sort, in pods of every sort, with the words of several makers, in every way to get a variable.
`nodeName` and the annotation that binding writes are ways past the cells, too.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION, PREFIX
from hived_extender.jobs.device_words import NO_DEVICE
from hived_extender.kube.client import KubeError, pod_path
from tests.attacks.attack import Run
from tests.attacks.clusters import EVIL, GPU, VICTIM, Cluster, Deed, Hostile, Json, Made, pod

AMD = "amd.com/gpu"
WORDS = ("NVIDIA_VISIBLE_DEVICES", "AMD_VISIBLE_DEVICES", "HIVED_VISIBLE_DEVICES")
MINE = "example.com/mine"
CELLS = f"metadata.annotations['{LEAF_CELL_ISOLATION}']"
CONFIG_MAP: Made = (
    f"/api/v1/namespaces/{EVIL}/configmaps",
    {"metadata": {"name": "words"}, "data": dict.fromkeys(WORDS, "all")},
)
OTHERS = "asks for devices by another scheduler"
OTHERS_INIT = "does so in an init container"
OF_A_REAL_ONE = (OTHERS, OTHERS_INIT)
"""The embedded cluster has one scheduler, of every name."""

PLACES = ("containers", "initContainers", "sidecars")


def attack(cluster: Cluster, run: Run) -> None:
    """Each combination in turn; at a lower scale, the first ones."""
    cluster.create(cluster.tenant, *CONFIG_MAP)
    deeds = [deed for deed in _deeds() if cluster.is_real or deed.title not in OF_A_REAL_ONE]
    for deed in deeds[: run.count(len(deeds))]:
        cluster.carry_out(deed)


def _all(**value: Any) -> Json:
    return {"env": [{"name": word, **value} for word in WORDS]}


WAYS: Mapping[str, Json] = {
    "by a value": _all(value="all"),
    "by numbers": _all(value="0,1,2,3"),
    "by another variable": {"env": [{"name": "X", "value": "all"}, *_all(value="$(X)")["env"]]},
    "by an annotation of its own": _all(valueFrom={"fieldRef": {"fieldPath": f"metadata.annotations['{MINE}']"}}),
    "by a ConfigMap": _all(valueFrom={"configMapKeyRef": {"name": "words", "key": WORDS[0]}}),
    "by a whole ConfigMap": {"envFrom": [{"configMapRef": {"name": "words"}}]},
    "twice": {"env": [*_all(value=NO_DEVICE)["env"], *_all(value="all")["env"]]},
    "by its image": {},
}
PODS_OF_SORTS: Mapping[str, Mapping[str, Any]] = {
    "with devices": {"gpus": 1},
    "that only asks for cells": {"gpus": 0},
    "of a gang": {"gpus": 1, "notes": {"gang.scheduling.koordinator.sh/name": "g",
                                       "gang.scheduling.koordinator.sh/min-available": "1"}},
    "that is lent": {"gpus": 1, "priority": -1},
}  # fmt: skip


def _deeds() -> Iterator[Deed]:
    for sort, asked in PODS_OF_SORTS.items():
        for place in PLACES:
            for way, env in WAYS.items():
                made = _with_side("sees", place, env, asked)
                yield Deed(f"sees devices {way} in {place} of a pod {sort}", [made], _seen(made))
    for way, env in WAYS.items():
        path, body = pod("main", gpus=1)
        body["spec"]["containers"][0] |= env
        yield Deed(f"sees more devices {way} in a container that has some", [(path, body)], _seen((path, body)))
        path, body = _plain("no-cells", **env)
        yield Deed(f"sees devices {way} in a pod without cells", [(path, body)], _seen((path, body)))
        path, body = _plain("at-node", **env)
        body["spec"]["nodeName"] = "n0"
        yield Deed(f"does so on a node of its own choice, {way}", [(path, body)], _seen((path, body)))
        made = pod("debugged", gpus=1)
        yield Deed(f"sees devices {way} in an ephemeral container", [made], _seen(made), _debug(env))
    yield from _ways_past_cells()


def _ways_past_cells() -> Iterator[Deed]:
    at_node: Mapping[str, Any] = {"nodeName": "n0"}
    refused: Mapping[str, Made] = {
        "chooses its node": pod("preset", gpus=4, **at_node),
        "does so with hived's limit": pod("preset-own", gpus=0, **at_node),
        "does so without a word of hived": _plain("preset-plain", resources={"limits": {GPU: "4"}}, spec=dict(at_node)),
        OTHERS: _plain("other", resources={"limits": {GPU: "1"}}, spec={"schedulerName": "default-scheduler"}),
        OTHERS_INIT: _asking_elsewhere("initContainers"),
        "writes the devices of its cells": pod("written", gpus=1, notes={LEAF_CELL_ISOLATION: "0,1,2,3"}),
        "writes them in the old way": pod("old", gpus=1, notes={f"{PREFIX}pod-gpu-isolation": "0,1,2,3"}),
        "writes how many it asks for": _plain("counts", notes={f"{PREFIX}device-requests": "{}"}),
    }
    for title, made in refused.items():
        yield Deed(title, [made], _is_there)
    made = pod("later", gpus=1)
    note = {"metadata": {"annotations": {LEAF_CELL_ISOLATION: "0,1,2,3"}}}
    yield Deed("changes the devices of its cells later", [made], _has_changed, _patched("later", note))
    env = {"spec": {"containers": [{"name": "main", "env": [{"name": WORDS[0], "value": "all"}]}]}}
    yield Deed("changes a variable later", [made], _seen(made), _patched("later", env))
    both = pod("both", gpus=1)
    both[1]["spec"]["containers"][0]["resources"]["limits"][AMD] = "1"
    yield Deed("asks for devices of two makers", [both], _runs_with_plugin)


def _with_side(name: str, place: str, env: Json, asked: Mapping[str, Any]) -> Made:
    """A pod with a container beside its main one."""
    path, body = pod(name, metadata={}, **asked)
    body["metadata"]["annotations"][MINE] = "all"
    side = {"name": "side", "image": "nvidia/cuda", **env}
    if place == "containers":
        body["spec"]["containers"].append(side)
    else:
        body["spec"]["initContainers"] = [side | ({"restartPolicy": "Always"} if place == "sidecars" else {})]
    return path, body


def _plain(name: str, notes: Mapping[str, str] | None = None, spec: Json | None = None, **container: Any) -> Made:
    """A pod of the scheduler without a limit or an annotation of hived's, unless given."""
    path, body = pod(name, gpus=0)
    body["metadata"]["annotations"] = dict(notes or {})
    body["spec"]["containers"] = [{"name": "main", "image": "x", **container}]
    body["spec"] |= spec or {}
    return path, body


def _asking_elsewhere(place: str) -> Made:
    """By another scheduler, in a container that is not a main one."""
    path, body = _plain("init", spec={"schedulerName": "default-scheduler"})
    body["spec"][place] = [{"name": "init", "image": "x", "resources": {"limits": {GPU: "1"}}}]
    return path, body


def _seen(made: Made) -> Callable[[Cluster], str]:
    """Which container of the stored pod sees devices that are not those of the pod's cells."""
    name = made[1]["metadata"]["name"]

    def breach(cluster: Cluster) -> str:
        spec = cluster.admin.get(pod_path(EVIL, name))["spec"]
        for place in ("containers", "initContainers", "ephemeralContainers"):
            for container in spec.get(place) or ():
                known = {each["name"]: each for each in container.get("env") or ()}  # the last one counts
                has_cells = any(_path(each) == CELLS for each in known.values())
                for word in WORDS:
                    if not _is_safe(known.get(word), may_be_absent=has_cells and not container.get("envFrom")):
                        return f"{place} {container['name']}: {word} is {known.get(word)}"
        return ""

    return breach


def _path(variable: Json) -> str:
    return str(((variable.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath", ""))


def _is_safe(variable: Json | None, *, may_be_absent: bool) -> bool:
    """A container with devices of its cells is on a node of one maker: it may lack the words of others."""
    if variable is None:
        return may_be_absent
    return variable.get("value") == NO_DEVICE or _path(variable) == CELLS


def _is_there(cluster: Cluster) -> str:
    return "it was created" if cluster.pods() else ""


def _has_changed(cluster: Cluster) -> str:
    (found,) = cluster.pods()
    text = found["metadata"]["annotations"].get(LEAF_CELL_ISOLATION, "")
    return f"they are {text}" if "," in text else ""


def _runs_with_plugin(cluster: Cluster) -> str:
    try:
        cluster.await_so("it runs", lambda: bool(cluster.started()), 3.0)
    except TimeoutError:
        return ""
    limits = cluster.started()["both"]["spec"]["containers"][0]["resources"]["limits"]
    return f"it runs with {limits}" if {GPU, AMD} & limits.keys() else ""


def _debug(env: Json) -> Callable[[Cluster], None]:
    container = {"name": "debug", "image": "nvidia/cuda", **env}

    def act(cluster: Cluster) -> None:
        path = f"{pod_path(EVIL, 'debugged')}/ephemeralcontainers"
        cluster.tenant.patch_lists(path, {"spec": {"ephemeralContainers": [container]}})

    return act


def _patched(name: str, change: Json) -> Callable[[Cluster], None]:
    def act(cluster: Cluster) -> None:
        cluster.await_so("the pod, which is allowed, runs", lambda: name in cluster.started())
        try:
            cluster.tenant.patch_lists(pod_path(EVIL, name), change)
        except KubeError:
            return

    return act


def _two_makers(document: Json) -> None:
    """The attackers' virtual cluster has a node of another maker besides."""
    physical = document["physicalCluster"]
    physical["skuTypes"]["MI300"] = {"gpu": 1, "cpu": 1, "memory": "8Gi", "resource": AMD}
    physical["cellTypes"]["AMD-NODE"] = {"childCellType": "MI300", "childCellNumber": 4, "isNodeLevel": True}
    physical["physicalCells"].append({"cellType": "AMD-NODE", "cellAddress": "amd"})
    document["virtualClusters"][EVIL]["virtualCells"].append({"cellType": "AMD-NODE", "cellNumber": 1})


DEVICES = Hostile(attack, shares={VICTIM: 1, EVIL: 1}, edit=_two_makers)
