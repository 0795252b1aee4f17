"""Single fields of a row, read strictly, and lengths of time.

An unusable field raises `Unusable`: the row is lost, not the file.
"""

import math
import re
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from math import ceil
from zoneinfo import ZoneInfo

from hived.values.errors import UserError
from hived_simulator.traces.jobs import Pods

MAX_LEAVES = 1_000_000
"""Leaf cells that one job may ask for."""
MAX_SECONDS = 100 * 366 * 86_400.0
MAX_TIME = 2 * MAX_SECONDS
"""Seconds before and after 1970 that are a time."""
FIRST_DATE = 1e8
"""Seconds since 1970, in 1973: smaller times count from another moment."""
NOTHING = frozenset(("", "None", "none", "null", "nan", "NaN", "NaT", "N/A", "Unknown", "\\N"))
"""Texts in fields of tables that mean no value."""


class Unusable(Exception):
    """A row cannot be a job; `reason` is the same for all such rows, the rest is of this row."""

    def __init__(self, reason: str, field: str = "", found: object = "") -> None:
        super().__init__(reason)
        self.reason, self.field, self.found = reason, field, found


def number(text: str, field: str) -> float:
    """A finite number. Raises Unusable for anything else, an empty field too."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or "_" in text:
        raise Unusable(f"{field} is no number", field, text)
    return value


def duration(text: str, field: str = "duration") -> float:
    """Seconds. Raises Unusable if they are negative, or more than a hundred years; 0 is a job that never ran."""
    return positive_span(number(text, field), field)


def positive_span(seconds: float, field: str) -> float:
    """The same seconds. Raises Unusable unless they are above 0 and at most a hundred years."""
    if seconds <= 0:
        raise Unusable("never ran" if seconds == 0 else f"{field} is negative", field, seconds)
    if seconds > MAX_SECONDS:
        raise Unusable(f"{field} is over a hundred years", field, seconds)
    return seconds


def count(text: str, field: str) -> int:
    """A whole number, 0 or more, such as "8" or "8.0". Raises Unusable for anything else."""
    value = number(text, field)
    if value < 0 or value != int(value):
        raise Unusable(f"{field} is no whole number", field, text)
    return bounded(int(value), field)


def bounded(leaves: int, field: str) -> int:
    """The same number. Raises Unusable if no cluster has so many leaf cells."""
    if leaves > MAX_LEAVES:
        raise Unusable(f"{field} is over {MAX_LEAVES}", field, leaves)
    return leaves


def zone(name: str) -> tzinfo:
    """The time zone of this IANA name. Raises UserError if there is none."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise UserError(f"time zone {name!r}: is unknown here; expected a name such as Europe/Berlin or UTC") from None


def instant(text: str, field: str, where: tzinfo) -> float:
    """Seconds since 1970 of an ISO 8601 time, with a space or a T; one without a zone is of the zone `where`.

    The hour that is there twice when clocks are set back is taken as the first one. Raises Unusable if it is no time.
    """
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            found = found.replace(tzinfo=where)
        seconds = found.timestamp()
    except (ValueError, OverflowError, OSError):
        seconds = math.inf
    if abs(seconds) > MAX_TIME:
        raise Unusable(f"{field} is no time", field, text)
    return seconds


def moment(text: str, field: str, where: tzinfo) -> float:
    """A time as ISO 8601, or as a number: seconds since 1970 or any other moment, from 1e11 on milliseconds.

    Raises Unusable if it is neither.
    """
    if text[4:5] == "-" or not text[:1].isdecimal():
        return instant(text, field, where) if text[:1] != "-" else number(text, field)
    value = number(text, field)
    value = value / 1000 if value >= 1e11 else value
    if value > MAX_TIME:
        raise Unusable(f"{field} is no time", field, text)
    return value


def rounded_up(text: str, field: str, whole: float) -> int:
    """Return how many GPUs a demand of `text` is, where `whole` is one; a part of a GPU is a GPU. Raises Unusable."""
    value = number(text, field) / whole
    if value < 0:
        raise Unusable(f"{field} is negative", field, text)
    return bounded(ceil(min(value, MAX_LEAVES + 1)), field)


@lru_cache(maxsize=4096)
def packed(leaves: int, node_leaf_cells: int) -> tuple[Pods, ...]:
    """The pods of a gang of which only the number of GPUs is known: whole nodes, and the remainder as one pod."""
    whole, rest = divmod(leaves, node_leaf_cells)
    small = (Pods(1, rest),) if rest else ()
    return (*small, Pods(whole, node_leaf_cells)) if whole else small


@lru_cache(maxsize=4096)
def spread(leaves: int, nodes: int) -> tuple[Pods, ...]:
    """The pods of a gang with so many GPUs on so many nodes, as evenly as whole GPUs go; no pod without a GPU."""
    nodes = max(1, min(nodes, leaves))
    size, larger = divmod(leaves, nodes)
    small = (Pods(nodes - larger, size),) if size else ()
    return (*small, Pods(larger, size + 1)) if larger else small


_PART = re.compile(r"(?:(\d{1,7})x)?(\d{1,7})")
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_LENGTH = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?|\.[0-9]{1,6})([smhdw]?)", re.ASCII)


def to_text(pods: tuple[Pods, ...]) -> str:
    """The shape as text."""
    return "+".join(f"{each.count}x{each.leaf_count}" if each.count > 1 else str(each.leaf_count) for each in pods)


def from_text(text: str) -> tuple[Pods, ...]:
    """The shape that a text stands for, ascending by leaf cells. Raises Unusable if it is none."""
    sizes: dict[int, int] = {}
    for part in text.split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None or not int(match[2]) or match[1] == "0":
            raise Unusable("pods are no shape such as 2x8+4", "pods", text)
        sizes[int(match[2])] = sizes.get(int(match[2]), 0) + int(match[1] or 1)
    bounded(sum(size * count for size, count in sizes.items()), "pods")
    return tuple(Pods(sizes[size], size) for size in sorted(sizes))


def parse_duration(text: str, where: str) -> float:
    """Seconds of a length of time as people write it: 90s, 30m, 2h, 1.5d. UserError names `where` the text stands."""
    match = _LENGTH.fullmatch(text)
    if match is None:
        raise UserError(f"{where}: {text!r} is no length of time; expected a number with s, m, h, d or w, as in 1.5d")
    return float(match[1]) * _UNITS_S[match[2]]
