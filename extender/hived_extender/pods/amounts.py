"""Quantities of Kubernetes objects as numbers."""

import re
from functools import lru_cache

LONGEST_QUANTITY = 64
"""Characters; the API server stores at most 19 digits before the point, 9 after it, and a suffix."""

_QUANTITY = re.compile(r"\+?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?")
_SCALES = {suffix: 10.0 ** (3 * power) for power, suffix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), start=-3)} | {
    f"{prefix}i": 2.0 ** (10 * power) for power, prefix in enumerate("KMGTPE", start=1)
}


def amount(quantity: str | int | float) -> float:
    """The value of a Kubernetes quantity ("1", "500m", "2Ki", 1); 0 for anything else, and for very long texts."""
    text = str(quantity).strip()
    return _amount(text) if len(text) <= LONGEST_QUANTITY else 0.0


@lru_cache(maxsize=1024)
def _amount(text: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return 0.0
    suffix = match[3] or ""
    return float(match[1]) * _SCALES[suffix] if suffix in _SCALES else float(match[1] + suffix)


def is_positive(quantity: str | int | float) -> bool:
    """True if a Kubernetes quantity ("1", "500m", "2Ki", 1) is greater than zero; anything else is not."""
    return amount(quantity) > 0
