"""Kubernetes' quantities, such as "1500m", "4Gi", "1e3" and 2, as numbers.

All of hived reads them here. They are exact, so that sums and comparisons are. Users write them, so reading takes
microseconds, whatever the text.
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from math import ceil

LONGEST_QUANTITY = 64
"""Characters; the API server stores at most 19 digits before the point, 9 after it, and a suffix."""

LARGEST = Fraction(2**63 - 1)
"""More counts as this much, as in Kubernetes."""

QUANTITY = r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))([eE][+-]?[0-9]+|[KMGTPE]i|[numkMGTPE])?"
_QUANTITY = re.compile(QUANTITY)
_SCALES = {suffix: Fraction(1000) ** power for power, suffix in enumerate(("n", "u", "m", "", "k", *"MGTPE"), start=-3)}
_DECIMALS = tuple(_SCALES)
_THOUSAND, _BINARY, _NANOS = 1000, 1024, 10**9
_SCALES |= {f"{prefix}i": Fraction(1024) ** power for power, prefix in enumerate("KMGTPE", start=1)}


def is_quantity(given: object) -> bool:
    """True if Kubernetes accepts this as a quantity, which may be negative."""
    return not isinstance(given, str) or _QUANTITY.fullmatch(given) is not None


def exact(given: object) -> Fraction | None:
    """The value of a quantity; None for a negative one, for anything else, and for very long texts."""
    text = str(given).strip() if isinstance(given, str | int | float) else ""
    return _exact(text) if len(text) <= LONGEST_QUANTITY else None


def signed(given: object) -> Fraction | None:
    """The value of a quantity that may be negative; None for anything else, and for very long texts."""
    text = str(given).strip()
    if not text.startswith("-"):
        return exact(given)
    size = exact(text[1:]) if text[1:2] != "+" else None
    return None if size is None else -size


def canonical(given: object) -> str:
    """A quantity as Kubernetes writes it back: 0.5 is 500m, 1024Mi is 1Gi, 1000 is 1k. Other texts stay."""
    text, value = str(given).strip(), signed(given)
    match = _QUANTITY.fullmatch(text)
    if value is None or match is None:
        return str(given)
    suffix, sign = match[2] or "", "-" if value < 0 else ""
    if suffix.endswith("i") and abs(value) >= _BINARY:
        return sign + _scaled(ceil(abs(value)), _BINARY, ("", *(f"{prefix}i" for prefix in "KMGTPE")))
    powers: Iterable[str] = _DECIMALS
    if suffix[:1] in ("e", "E") and suffix not in _SCALES:
        powers = (f"e{3 * power}" if power else "" for power in range(-3, 7))
    return sign + _scaled(ceil(abs(value) * _NANOS), _THOUSAND, powers)


def _scaled(count: int, base: int, suffixes: Iterable[str]) -> str:
    """A count of units of the first suffix, in whole units of the largest one."""
    first, *larger = suffixes
    for suffix in larger:
        if not count or count % base:
            break
        first, count = suffix, count // base
    return f"{count}{first}" if count else "0"


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
