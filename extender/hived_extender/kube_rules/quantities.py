"""Amounts of resources as whole numbers, so that sums are quick and fit into 64 bits."""

from functools import lru_cache
from math import ceil

from hived_config.quantities import LONGEST_QUANTITY, exact

MOST = 2**50
"""More of a resource counts as this much: a sum for 8,192 pods fits into 64 bits."""

CPU = "cpu"
PODS = "pods"


def units(resource: str, quantity: str | int | float) -> int:
    """How much of a resource that is: thousandths of a CPU, else whole units (bytes, devices), rounded up.

    0 for anything that is no quantity, and for texts too long for one that the API server stores; at most MOST.
    """
    text = str(quantity)
    return _whole(text, 1000 if resource == CPU else 1) if len(text) <= LONGEST_QUANTITY else 0


@lru_cache(maxsize=4096)
def _whole(text: str, per_unit: int) -> int:
    return min(ceil((exact(text) or 0) * per_unit), MOST)
