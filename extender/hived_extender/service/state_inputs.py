"""The inputs of a state: all that has to be there again after a restart or under another configuration."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from hived.cells.state import GroupState, State
from hived.life.groups import bind_info_of_slot
from hived.values.specs import NO_TIMES, BindInfo, PodRequest, WorkTimes
from hived_extender.service.devices.table import NodeDevices, Selector


class Placed(NamedTuple):
    """A pod that runs, or is being bound, where `info` says."""

    request: PodRequest
    info: BindInfo
    times: WorkTimes = NO_TIMES


class Reserved(NamedTuple):
    """Pods of one group, for which the cells that `info` names are reserved."""

    pods: tuple[PodRequest, ...]
    info: BindInfo


class StateInputs(msgspec.Struct, frozen=True):
    """Healthy nodes, whether configured or not; pods that hold cells, by uid; reservations, by group; what is known of
    the devices of nodes, by name, and of DeviceClasses.
    """

    healthy_nodes: frozenset[str] = frozenset()
    placed: Mapping[str, Placed] = msgspec.field(default_factory=dict)
    reserved: Mapping[str, Reserved] = msgspec.field(default_factory=dict)
    devices: Mapping[str, NodeDevices] = msgspec.field(default_factory=dict)
    device_classes: Mapping[str, Selector] = msgspec.field(default_factory=dict)


def reservations(state: State) -> dict[str, Reserved]:
    """The reservations of a state, by group."""
    return {
        group.name: Reserved(tuple(group.preempting_pods.values()), bind_info_of_slot(state, group, 0))
        for group in state.groups.values()
        if group.state is GroupState.PREEMPTING
    }


def in_replay_order(placed: Iterable[Placed]) -> list[Placed]:
    """By falling priority, so that a group which was preempted lazily finds its cells taken again; of a group, first a
    pod that says that the group has lost its place.
    """
    return sorted(placed, key=_replay_key)


def _replay_key(placed: Placed) -> tuple[int, bool, str, str]:
    request, info, _ = placed
    has_place = all(info.members[0][0].preassigned_cell_types)
    return -request.spec.priority, has_place, request.namespace, request.name
