"""Kubernetes' quantities, such as "1500m", "4Gi", "1e3" and 2, as numbers.

All of hived reads them here. They are exact, so that sums and comparisons are. Anybody may write one, so reading takes
microseconds, whatever the text.
"""

import re
from fractions import Fraction
from functools import lru_cache

LONGEST_QUANTITY = 64
"""Characters; the API server stores at most 19 digits before the point, 9 after it, and a suffix."""

LARGEST = Fraction(2**63 - 1)
"""More counts as this much, as in Kubernetes."""

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?", re.ASCII)
_SCALES = {suffix: Fraction(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), start=-3)}
_SCALES |= {f"{prefix}i": Fraction(1024) ** power for power, prefix in enumerate("KMGTPE", start=1)}


def is_quantity(given: object) -> bool:
    """Does Kubernetes take this for a quantity? It may be negative."""
    return not isinstance(given, str) or _QUANTITY.fullmatch(given) is not None


def exact(given: object) -> Fraction | None:
    """The value of a quantity; None for a negative one, for anything else, and for very long texts."""
    text = str(given).strip() if isinstance(given, str | int | float) else ""
    return _exact(text) if len(text) <= LONGEST_QUANTITY else None


def quantity(given: object) -> float | None:
    """The value of a quantity, None as `exact`."""
    value = exact(given)
    return None if value is None else float(value)


def amount(given: object) -> float:
    """The value of a quantity, 0 where there is none."""
    return float(exact(given) or 0)


def is_positive(given: object) -> bool:
    """True if a quantity is greater than zero; anything else is not."""
    return bool(exact(given))


@lru_cache(maxsize=4096)
def _exact(text: str) -> Fraction | None:
    match = _QUANTITY.fullmatch(text)
    if match is None or text.startswith("-"):
        return None
    number, suffix = match[1], match[2] or ""
    scale = _SCALES.get(suffix)
    if scale is None:  # an exponent, which may have sixty digits
        number, scale = number + suffix, Fraction(1)
    near = float(number) * float(scale)
    if near >= LARGEST:
        return LARGEST
    return Fraction(number) * scale if near else Fraction(0)
