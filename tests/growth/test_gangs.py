"""The cost of gangs of four times as many pods, and beside four times as many virtual clusters, in work, not in time.

`gangs.py` has what is done.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.growth.test_growth import SLACK, SPARE, Counts
from tests.places import ROOT

SMALL, LARGE = 16, 64

FLAT = (
    "pod beside other virtual clusters",
    "pod beside other virtual clusters, one of them with a bad node",
    "deletion beside other virtual clusters",
    "deletion beside other virtual clusters, one of them with a bad node",
    "pod later",
    "pod later, offered",
    "replay, later",
    "preempting gang, later, Filtering",
    "preempting gang, later, Preempting",
    "preempting gang, later, after a victim left",
    "deletion of a victim",
)
"""May not grow at all."""

LINEAR = (
    "pod first",
    "pod first, offered",
    "replay, first two",
    "preempting gang, first",
    "preempting gang, reserving",
    "preempting gang, cancelled",
    "gang before lazy groups",
    "gang before lazy groups, allocated",
    "two racks, half of each rack suggested",
    "two racks, the second half of the racks suggested",
)
"""May grow no faster than the gang, or the number of virtual clusters."""


@pytest.fixture(scope="module")
def counts() -> tuple[Counts, Counts]:
    """The counts of small gangs and of large ones."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, "-m", "tests.growth.gangs", str(SMALL), str(LARGE)]
    done = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Counts] = json.loads(done.stdout)
    return found[str(SMALL)], found[str(LARGE)]


@pytest.mark.parametrize("operation", FLAT)
def test_an_operation_costs_the_same_for_a_larger_gang(counts: tuple[Counts, Counts], operation: str) -> None:
    before, after = (found[operation]["operations"] for found in counts)
    assert after <= before * SLACK + SPARE["operations"]


@pytest.mark.parametrize("operation", LINEAR)
def test_an_operation_costs_at_most_as_much_more_as_the_gang_is_larger(
    counts: tuple[Counts, Counts], operation: str
) -> None:
    before, after = (found[operation]["operations"] for found in counts)
    assert after <= before * LARGE / SMALL * SLACK + SPARE["operations"]


def test_everything_that_is_counted_is_compared(counts: tuple[Counts, Counts]) -> None:
    assert counts[0].keys() == counts[1].keys() == {*FLAT, *LINEAR}
