"""Holders of cells, as a restart is told of them."""

from collections.abc import Mapping
from typing import NamedTuple

from hived.groups import without_place
from hived.specs import BindInfo, PodRequest
from hived.state import State
from hived_extender.service.state_inputs import Placed
from hived_simulator.saves import Saves
from hived_simulator.tasks import Task


class Holding(NamedTuple):
    """The pods of a task that has or reserves cells, and their places: () while it only reserves."""

    task: Task
    pods: tuple[PodRequest, ...]
    infos: tuple[BindInfo, ...] = ()


def has_place(state: State, group: str) -> bool:
    """Has a group cells of its virtual cluster, and not only hardware?"""
    found = state.groups.get(group)
    return found is not None and found.virtual is not None


def placed_pods(holdings: Mapping[str, Holding], state: State, saves: Saves) -> dict[str, Placed]:
    """Every pod that holds cells by its uid, with what its annotations say. Cost O(pods)."""
    placed = {}
    for group, holding in holdings.items():
        if not holding.infos:
            continue
        members = holding.infos[0].members
        if not has_place(state, group):
            members = without_place(members)
        for pod, info in zip(holding.pods, holding.infos, strict=True):
            told = BindInfo(info.node, info.leaf_cell_indices, info.cell_chain, members)
            placed[pod.uid] = Placed(pod, told, saves.times(group))
    return placed
