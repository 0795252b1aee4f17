"""Rules that hold of the pods in the API server and of the service's state, whatever was pushed."""

from collections.abc import Container, Iterable, Mapping, Set
from typing import Any

from hived.cells.state import State
from hived.scheduler import check_invariants
from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION
from hived_extender.jobs.device_words import NO_DEVICE
from tests.storm.switch_recorder import groups_of, leaves
from tests.storm.traffic import is_running

Json = dict[str, Any]
Place = tuple[str, tuple[int, ...]]
"""A node and devices there."""


class Broken(AssertionError):
    """A rule does not hold."""


def places(pods: Iterable[Json]) -> dict[str, Place]:
    """Where each running pod is, by uid. Raises Broken if a device is two pods'."""
    users: dict[tuple[str, int], str] = {}
    found: dict[str, Place] = {}
    for pod in pods:
        if not is_running(pod):
            continue
        name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
        devices = devices_of(pod)
        found[pod["metadata"]["uid"]] = node, devices
        for device in devices:
            other = users.setdefault((node, device), name)
            if other != name:
                raise Broken(f"device {device} of {node} is given to {other} and to {name}")
    return found


def devices_of(pod: Json) -> tuple[int, ...]:
    """The leaves that are written onto a pod; none of a pod whose cells are no devices, on a node with some."""
    text = pod["metadata"].get("annotations", {}).get(LEAF_CELL_ISOLATION, "").removeprefix(NO_DEVICE)
    return tuple(int(device) for device in text.split(",") if device)


def check_untouched(before: Mapping[str, Place], pods: Iterable[Json], explained: Container[str]) -> int:
    """Pods that ran go on where they are, unless it is `explained` why they are gone; returns how many do."""
    now = {pod["metadata"]["uid"]: pod for pod in pods}
    for uid, place in before.items():
        pod = now.get(uid)
        if pod is None:
            if uid not in explained:
                raise Broken(f"pod {uid} ran on {place}, and is gone")
        elif (pod["spec"].get("nodeName"), devices_of(pod)) != place:
            raise Broken(f"pod {pod['metadata']['name']} ran on {place}, and is on {pod['spec'].get('nodeName')} now")
    return len(before.keys() & now.keys())


def check_state(state: State) -> None:
    """Raises InvariantError."""
    check_invariants(state)


def check_accounted(state: State, pods: Iterable[Json]) -> None:
    """Every running pod of ours holds what is configured of its devices, and nothing is held that no pod is on."""
    arrays, names = state.arrays, state.topology.node_names
    configured = {
        (names[arrays.node[leaf]], int(arrays.device[leaf]))
        for leaf in range(state.topology.physical_count)
        if arrays.level[leaf] == 1
    }
    running = {
        (pod["spec"]["nodeName"], device): pod["metadata"]["name"]
        for pod in pods
        if is_running(pod)
        for device in devices_of(pod)
    }
    held: Set[tuple[str, int]] = {
        leaf for group in groups_of(state).values() if group["state"] != "Preempting" for leaf in leaves(group)
    }
    for leaf in sorted((running.keys() & configured) - held):
        raise Broken(f"{running[leaf]} runs on device {leaf[1]} of {leaf[0]}, which the state takes to be free")
