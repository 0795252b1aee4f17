"""Numbers as people read them, and round numbers for axes."""

from math import ceil, floor, log10

MINUTE_S, HOUR_S, DAY_S = 60.0, 3600.0, 86400.0
NONE = "-"


def short(value: float) -> str:
    """A number with three digits that matter, and all digits before the point: 0, 0.12, 3.4, 439, 21,736."""
    if value == 0:
        return "0"
    size = abs(value)
    digits = 0 if size >= 100 else max(0, 2 - floor(log10(size))) if size >= 0.001 else 6
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text in ("-0", "") else text


def percent(part: float) -> str:
    """A share as percent."""
    return f"{short(round(100 * part, 1))} %"


def span(seconds: float) -> str:
    """A length of time with its unit: 30 s, 5 min, 2 h, 3.5 d."""
    for unit, size in (("d", DAY_S), ("h", HOUR_S), ("min", MINUTE_S)):
        if abs(seconds) >= size:
            return f"{short(round(seconds / size, 1))} {unit}"
    return f"{short(round(seconds, 1))} s"


def steps(highest: float, count: int = 5) -> list[float]:
    """Round numbers from 0 on, about `count` of them; the last one is `highest` or more."""
    if highest <= 0:
        return [0.0, 1.0]
    raw = highest / count
    base = 10.0 ** floor(log10(raw))
    step = next(base * factor for factor in (1, 2, 2.5, 5, 10) if base * factor >= raw * (1 - 1e-9))
    return [step * number for number in range(ceil(highest / step - 1e-9) + 1)]


def without(never: int) -> str:
    """How many jobs a mean leaves out, as words behind it; "" if none."""
    return f" without {short(never)} that never start" if never else ""
