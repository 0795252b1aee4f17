"""The cost of an operation in a cluster of four times the size, in work, not in time.

Nothing is allowed to grow with the cluster except what `PASSES` and `LINEAR` name. `work.py` says what is
counted, `count.py` and `service.py` have what is done.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pytest

from hived.cells.state import INITIAL_JOURNAL_LENGTH
from tests.places import ROOT

METERS = ("operations", "allocated")
SIZES = {"start": (128, 512), "pods": (1024, 4096), "service": (256, 512)}

LINEAR = {
    "start": ("new state", "all nodes healthy, one by one"),
    "service": (
        "list of all nodes", "list of all pods", "begin of a term", "list of all nodes, again",
        "list of all pods, again", "end of a term", "list of no pods",
    ),
}  # fmt: skip
"""Must grow no faster than the cluster."""

JOURNAL = {"allocated": 12 * INITIAL_JOURNAL_LENGTH}
"""A new state spends this at any size; if it counted, it would leave room for quadratic growth."""

NAMES: dict[str, float] = {"allocated": 18}
"""The request has the names of all nodes; a copy is compared with the lists before."""

PASSES: dict[str, dict[str, dict[str, float]]] = {
    "pods": {
        # moved back in the view past the full nodes
        "pod after a full node was freed": {"operations": 1},
        "pod after a node's health changed": {"operations": 2},
        # too many nodes changed for moving them one by one, so the view is sorted as a whole
        "pod after a gang was deleted": {"operations": 8},
        "pod after one that heeds suggested nodes": {"operations": 8},
        "opportunistic pod after a gang was deleted": {"operations": 18},
        # the same, and the mask is copied
        "pod that heeds suggested nodes": {"operations": 8, "allocated": 1},
        # counts free leaves of every rack in a few sweeps, here a rack for each sixteen nodes, and looks into a few
        "8 x 8 GPUs near together, required": {"allocated": 1},
        "8 x 8 GPUs near together, preferred": {"allocated": 2},
        "8 x 8 GPUs in one rack, which must wait": {"allocated": 2},
        # looks for somebody to preempt on every node of its VC, at every GPU
        "pod of a higher priority that must wait": {"operations": 15},
    },
    "service": {
        "filter of a pod that is Binding": NAMES,
        "filter while victims leave": NAMES,
        "filter after a preemption": NAMES,
        # adds up once what the pods on each node request of a resource, and keeps the sums
        "waiting pods tried on the core": {"operations": 2},
        # a mask of the nodes that pods leave, sums of their requests and an offer for the time after that
        "filter that preempts": {"operations": 4, "allocated": 380},
        # explains the wait once for each change, in sweeps over the leaves of a chain, here eight for a node
        "filter of a pod that must wait": {"allocated": 380},
        # reads each name, eight bytes in a few lines, looks it up and marks it in a mask
        "filter with another list of nodes": {"operations": 110, "allocated": 20},
        # copies the list of groups, and counts twice without the lock
        "metrics": {"operations": 4, "allocated": 30},
    },
}
"""Operations that may walk over nodes, and how much they may do for each node of the cluster."""

FLAT = {
    "pods": (
        "1-GPU pod", "2-GPU pod", "4-GPU pod", "8-GPU pod", "opportunistic pod", "deletion of a pod",
        "first pod of 8 x 8 GPUs", "later pod of 8 x 8 GPUs", "deletion of the last pod of 8 x 8 GPUs",
        "first pod of 128 x 8 GPUs", "later pod of 128 x 8 GPUs", "deletion of the last pod of 128 x 8 GPUs",
        "node bad", "node healthy", "leaves lost", "leaves healed", "replay of a bound pod",
        "pod of the lowest priority that must wait",
        "8 x 8 GPUs near together, beside another group",
        "preemption, Filtering", "preemption, Preempting", "preemption, binding",
    ),
    "service": (
        "new pod", "pod is bound as decided", "bound pod seen again", "pod that is bound already", "bound pod is gone",
        "waiting pod seen again", "waiting pod is gone", "Binding pod is gone",
        "filter that binds", "preempt", "victim is gone", "node seen again", "node turns bad",
        "node turns healthy", "health", "readiness", "one group",
    ),
}  # fmt: skip
"""Operations that may not grow at all."""

# What is left of chance: a bisection takes a step more, a dict is just being enlarged.
SLACK = 1.02
LINEAR_SLACK = 1.05  # each of many pods is such a bisection
SPARE = {"operations": 50, "allocated": 4096}

Counts = dict[str, dict[str, int]]  # by operation and meter


QUICK = "start"
"""The part that `make test` counts; each of the others takes half a minute."""


@cache
def counts(part: str) -> tuple[Counts, Counts]:
    """The counts of the smaller and of the larger cluster."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    small, large = (f"{part}:{size}" for size in SIZES[part])
    program = [sys.executable, "-m", "tests.growth.count", large, small]
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=590, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Counts] = json.loads(done.stdout)
    return found[small], found[large]


def long_unless_quick(part: str, *parameters: str) -> Any:
    return pytest.param(part, *parameters, marks=() if part == QUICK else pytest.mark.long)


def operations_of(table: Mapping[str, Iterable[str]]) -> list[Any]:
    """Parts and operations of a table."""
    return [long_unless_quick(part, operation) for part, operations in table.items() for operation in operations]


@pytest.mark.parametrize("meter", METERS)
@pytest.mark.parametrize(("part", "operation"), [*operations_of(FLAT), *operations_of(PASSES)])
def test_an_operation_costs_the_same_in_a_larger_cluster(part: str, operation: str, meter: str) -> None:
    before, after = (found[operation][meter] for found in counts(part))
    small, large = SIZES[part]
    per_node = PASSES[part].get(operation, {}).get(meter, 0)
    allowed = before * SLACK + SPARE[meter] + per_node * (large - small)
    assert after <= allowed, (
        f"{operation}: {meter} grew from {before:,} at {small:,} nodes to {after:,} at {large:,} nodes;"
        f" allowed are {allowed:,.0f}, {per_node} for each further node"
    )


@pytest.mark.parametrize("meter", METERS)
@pytest.mark.parametrize(("part", "operation"), operations_of(LINEAR))
def test_starting_costs_at_most_as_much_more_as_the_cluster_is_larger(part: str, operation: str, meter: str) -> None:
    fixed = JOURNAL.get(meter, 0) if operation in ("new state", "begin of a term") else 0
    before, after = (found[operation][meter] - fixed for found in counts(part))
    small, large = SIZES[part]
    allowed = before * large / small * LINEAR_SLACK + SPARE[meter]
    assert after <= allowed, (
        f"{operation}: {meter} grew from {before:,} at {small:,} nodes to {after:,} at {large:,} nodes;"
        f" allowed are {allowed:,.0f}, {large // small} times as much"
    )


@pytest.mark.parametrize("part", [long_unless_quick(part) for part in SIZES])
def test_everything_that_is_counted_is_compared(part: str) -> None:
    compared = {*FLAT.get(part, ()), *PASSES.get(part, ()), *LINEAR.get(part, ())}
    small, large = counts(part)
    assert small.keys() == large.keys() == compared


@pytest.mark.parametrize(("part", "operation"), operations_of(PASSES))
def test_an_operation_that_may_walk_over_the_nodes_does(part: str, operation: str) -> None:
    """Else it belongs to those that may not.

    One operation is enough for all that walk for one reason: a copy of the names does not show in calls that need
    more memory at another point.
    """
    reason = PASSES[part][operation]
    small, large = counts(part)
    alike = [each for each, its in PASSES[part].items() if its is reason]
    assert any(large[each][meter] > small[each][meter] * SLACK for each in alike for meter in reason)
