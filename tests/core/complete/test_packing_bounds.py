"""A proof that pods have no place is right, and finds most groups that have none (rule 19.8)."""

from random import Random

import numpy as np
import pytest

from hived.cells.state import State
from hived.complete.capacity import IDLE, Capacity
from hived.complete.pod_classes import find_pod_classes, may_pack
from hived.values.events import Offer
from hived.values.specs import MemberSpec
from tests.core.builders import healthy_state, pod, quota, rack_cluster, run

GPUS = 8


def filled(used: list[int]) -> State:
    """Nodes n0, n1, ... of one VC, of which so many GPUs are used."""
    nodes = len(used)
    state = healthy_state(rack_cluster(quota("A", {"RACK.NODE": nodes}), racks=1, nodes=nodes, gpus=GPUS))
    for number, count in sorted(enumerate(used), key=lambda pair: -pair[1]):  # so that each gets a node of its own
        if count:
            run(state, pod(f"user-{number}", members=((1, count),)))
    return state


def is_possible(state: State, sizes: list[int]) -> bool:
    """What `may_pack` says of pods of these sizes, with an offer of all nodes."""
    nodes, view = len(state.topology.node_names), state.topology.vc_views[0, 0]
    members = tuple(MemberSpec(sizes.count(size), size) for size in sorted(set(sizes)))
    offer = Offer(np.ones((len(sizes), nodes), np.bool_), np.zeros((len(sizes), nodes), np.bool_))
    classes = find_pod_classes(members, offer)
    capacity = Capacity(state, view, 0)
    capacity.take_up_to(IDLE)
    return may_pack(capacity, classes, np.ones((len(classes), len(capacity.cell)), np.bool_))


def do_fit(sizes: list[int], free: list[int]) -> bool:
    """The slow obvious version: every way to place them, larger ones first."""
    if not sizes:
        return True
    first, *others = sizes
    return any(
        room >= first and do_fit(others, [*free[:place], room - first, *free[place + 1 :]])
        for place, room in enumerate(free)
    )


def test_pods_that_fit_are_never_said_not_to_fit_and_few_others_to_fit() -> None:
    source, missed, total = Random(1), 0, 0
    for _ in range(24):
        used = [source.choice((0, 5, 6, 7)) for _ in range(4)]
        state = filled(used)
        free = [GPUS - count for count in used]
        for _ in range(24):
            sizes = sorted((source.randint(1, GPUS) for _ in range(source.randint(2, 6))), reverse=True)
            says = is_possible(state, sizes)
            fits = do_fit(sizes, free)
            assert says or not fits, (free, sizes)
            total += not fits
            missed += says and not fits
    assert total > 100
    assert missed * 20 < total


@pytest.mark.parametrize("is_second_offered", [True, False])
def test_nodes_that_a_pod_may_not_use_do_not_count_for_it(is_second_offered: bool) -> None:
    """Each of two pods of 5 GPUs needs a node; a third pod may use both nodes in any case."""
    state = filled([0, 0])
    nodes = np.array([[True, True], [True, False], [True, is_second_offered]])
    classes = find_pod_classes((MemberSpec(1, 3), MemberSpec(2, 5)), Offer(nodes, np.zeros((3, 2), np.bool_)))
    capacity = Capacity(state, state.topology.vc_views[0, 0], 0)
    capacity.take_up_to(IDLE)
    allowed = np.array([nodes[alike.slots[0]] for alike in classes])
    assert may_pack(capacity, classes, allowed) == is_second_offered
