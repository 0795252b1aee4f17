"""Kubernetes' quantities as whole numbers, so that sums and comparisons are exact."""

import re
from fractions import Fraction
from functools import lru_cache
from math import ceil

from hived_extender.pods.amounts import LONGEST_QUANTITY, amount

MOST = 2**50
"""More of a resource counts as this much: a sum for 8,192 pods fits into 64 bits."""

CPU = "cpu"
PODS = "pods"

_SUFFIX = re.compile(r"([KMGTPE]i|[numkMGTPE])$")
_EXACT = {
    suffix: Fraction(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), start=-3)
} | {f"{prefix}i": Fraction(1024) ** power for power, prefix in enumerate("KMGTPE", start=1)}


def units(resource: str, quantity: str | int | float) -> int:
    """How much of a resource that is: thousandths of a CPU, else whole units (bytes, devices), rounded up.

    0 for anything that is no quantity, and for texts too long for one that the API server stores; at most MOST.
    """
    text = str(quantity).strip()
    return _whole(text, 1000 if resource == CPU else 1) if len(text) <= LONGEST_QUANTITY else 0


@lru_cache(maxsize=4096)
def _whole(text: str, per_unit: int) -> int:
    value = amount(text) * per_unit
    if value <= 0:
        return 0
    if value >= MOST:
        return MOST
    suffix = _SUFFIX.search(text)
    number, scale = (text[: suffix.start()], suffix[1]) if suffix else (text, "")
    return ceil(Fraction(number) * _EXACT[scale] * per_unit)
