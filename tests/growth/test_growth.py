"""What an operation costs in a cluster of four times the size, in work, not in time.

Nothing is allowed to grow with the cluster except what `PASSES` and `LINEAR` name. See `hived.work` for what is counted
and `count.py` for what is done.
"""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hived.state import INITIAL_JOURNAL_LENGTH

ROOT = Path(__file__).parent.parent.parent
METERS = ("operations", "elements", "allocated")
SIZES = {"start": (128, 512), "pods": (1024, 4096)}

LINEAR = ("new state", "all nodes healthy, one by one")
"""Must grow no faster than the cluster."""

JOURNAL = {"elements": 2 * INITIAL_JOURNAL_LENGTH, "allocated": 12 * INITIAL_JOURNAL_LENGTH}
"""What a new state spends at any size, and what would leave room for quadratic growth if it counted."""

PASSES: dict[str, dict[str, float]] = {
    # moved back in the view past the full nodes
    "pod after a full node was freed": {"operations": 1},
    "pod after a node's health changed": {"operations": 2},
    # too many nodes changed for moving them one by one, so the view is sorted as a whole
    "pod after a gang was deleted": {"operations": 8},
    "pod after one that heeds suggested nodes": {"operations": 8},
    "opportunistic pod after a gang was deleted": {"operations": 18},
    # the same, and the mask is copied and looked at
    "pod that heeds suggested nodes": {"operations": 8, "elements": 2, "allocated": 1},
    # looks for somebody to preempt on every node of its VC, at every GPU
    "pod of a higher priority that must wait": {"operations": 15},
}
"""Operations that may walk over the nodes of a view, and how much they may do for each node of the cluster."""

FLAT = (
    "1-GPU pod", "2-GPU pod", "4-GPU pod", "8-GPU pod", "opportunistic pod", "deletion of a pod",
    "first pod of 8 x 8 GPUs", "later pod of 8 x 8 GPUs", "deletion of the last pod of 8 x 8 GPUs",
    "first pod of 128 x 8 GPUs", "later pod of 128 x 8 GPUs", "deletion of the last pod of 128 x 8 GPUs",
    "node bad", "node healthy", "replay of a bound pod", "pod of the lowest priority that must wait",
    "preemption, Filtering", "preemption, Preempting", "preemption, binding",
)  # fmt: skip
"""Operations that may not grow at all."""

# What is left of chance: a bisection takes a step more, a dict is just being enlarged.
SLACK = 1.02
SPARE = {"operations": 50, "elements": 50, "allocated": 4096}

Counts = dict[str, dict[str, int]]  # by operation and meter


def count(part: str, node_count: int) -> Counts:
    """The counts of one size, in a process of its own."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-m", "tests.growth.count", part, "--nodes", str(node_count)]
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def counts() -> dict[str, tuple[Counts, Counts]]:
    """For each part the counts of the smaller and of the larger cluster."""
    runs = [(part, size) for part, sizes in reversed(SIZES.items()) for size in reversed(sizes)]
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(runs, pool.map(lambda run: count(*run), runs), strict=True))
    return {part: (found[part, small], found[part, large]) for part, (small, large) in SIZES.items()}


@pytest.mark.parametrize("meter", METERS)
@pytest.mark.parametrize("operation", [*FLAT, *PASSES])
def test_an_operation_costs_the_same_in_a_larger_cluster(
    counts: dict[str, tuple[Counts, Counts]], operation: str, meter: str
) -> None:
    before, after = (part[operation][meter] for part in counts["pods"])
    small, large = SIZES["pods"]
    per_node = PASSES.get(operation, {}).get(meter, 0)
    allowed = before * SLACK + SPARE[meter] + per_node * (large - small)
    assert after <= allowed, (
        f"{operation}: {meter} grew from {before:,} at {small:,} nodes to {after:,} at {large:,} nodes;"
        f" allowed are {allowed:,.0f}, {per_node} for each further node"
    )


@pytest.mark.parametrize("meter", METERS)
@pytest.mark.parametrize("operation", LINEAR)
def test_starting_costs_at_most_as_much_more_as_the_cluster_is_larger(
    counts: dict[str, tuple[Counts, Counts]], operation: str, meter: str
) -> None:
    fixed = JOURNAL.get(meter, 0) if operation == "new state" else 0
    before, after = (part[operation][meter] - fixed for part in counts["start"])
    small, large = SIZES["start"]
    allowed = before * large / small * SLACK + SPARE[meter]
    assert after <= allowed, (
        f"{operation}: {meter} grew from {before:,} at {small:,} nodes to {after:,} at {large:,} nodes;"
        f" allowed are {allowed:,.0f}, {large // small} times as much"
    )


def test_everything_that_is_counted_is_compared(counts: dict[str, tuple[Counts, Counts]]) -> None:
    assert counts["pods"][0].keys() == counts["pods"][1].keys() == {*FLAT, *PASSES}
    assert counts["start"][0].keys() == counts["start"][1].keys() == set(LINEAR)


@pytest.mark.parametrize("operation", PASSES)
def test_an_operation_that_may_walk_over_the_nodes_does(
    counts: dict[str, tuple[Counts, Counts]], operation: str
) -> None:
    """Else it belongs to those that may not."""
    before, after = (part[operation]["operations"] for part in counts["pods"])
    assert after > before * SLACK + SPARE["operations"]
