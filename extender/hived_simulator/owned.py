"""The part of a configuration's hardware that is there: a private cluster has no more than its owner's."""

from collections.abc import Mapping
from dataclasses import dataclass

from hived.events import LeavesLost, NodeHealthChanged
from hived.scheduler import handle
from hived.state import State


@dataclass(frozen=True, slots=True)
class Owned:
    """The part of a cluster's hardware that is there: nodes, and of some of them the devices that are not.

    `lacking` has device indices by node and leaf cell type, `leaf_count` is that of all the rest.
    """

    nodes: frozenset[str]
    lacking: Mapping[tuple[str, str], tuple[int, ...]]
    leaf_count: int


def is_there(node: str, owned: Owned | None) -> bool:
    """Is this node there? All are, without `owned`."""
    return owned is None or node in owned.nodes


def make_healthy(state: State, owned: Owned | None) -> None:
    """Tell a fresh state of all hardware that is there."""
    for node in state.topology.node_names:
        if is_there(node, owned):
            handle(state, NodeHealthChanged(node, True))
    tell_lacking(state, owned)


def tell_lacking(state: State, owned: Owned | None) -> None:
    """Tell a state of the devices that are not there, on nodes that are."""
    if owned is not None:
        for (node, leaf_type), devices in owned.lacking.items():
            handle(state, LeavesLost(node, leaf_type, len(devices), devices))
