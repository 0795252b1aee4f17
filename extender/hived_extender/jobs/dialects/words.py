"""Reading what users write: a place with keys and values, and a reader for each type of value.

A reader takes one value, text or whatever JSON has, and raises ValueError with what it would have expected.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.annotations import MAX_COUNT
from hived_extender.jobs.dialects.description import GangKey, MatchPolicy, Within, shown

LONGEST_WAIT_S = 1e9
MOST_GANGS = 64
"""That start together: each change of one looks at all of them."""

SHOWN_LENGTH = 100
"""Of a bad value in a message."""

_NAME = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]{0,251}[A-Za-z0-9])?")
_DURATION_PART = r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)"
"""There is one way to match a text, or a long row of digits takes the square of its length."""

_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

T = TypeVar("T")


class Words:
    """Keys and values of one place, such as a pod's labels. `place` stands before a key in messages: "label ".

    Raises UserError if `values` is there, but has no keys.
    """

    def __init__(self, place: str, values: object) -> None:
        if values is not None and not isinstance(values, Mapping):
            raise _refusal(place.rstrip(". "), values, "an object with keys and values")
        self._place = place
        self._values: Mapping[str, object] = values or {}

    def read(self, key: str, reader: Callable[[object], T]) -> T | None:
        """The value of a key, None if it is not there or empty. UserError if it is not what `reader` expects."""
        value = self._values.get(key)
        if value is None or value == "":
            return None
        try:
            return reader(value)
        except ValueError as expected:
            raise _refusal(f"{self._place}{key}", value, str(expected)) from None

    def part(self, key: str) -> "Words":
        """The keys and values below a key, none if it is not there."""
        return Words(f"{self._place}{key}.", self._values.get(key))

    def parts(self, key: str) -> "list[Words]":
        """The keys and values of each item of the list that a key has, none if it is not there."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, list):
            raise _refusal(f"{self._place}{key}", value, "a list")
        return [Words(f"{self._place}{key}[{index}].", each) for index, each in enumerate(value or [])]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def has(self, key: str) -> bool:
        """Is there anything to be read?"""
        return self._values.get(key) not in (None, "")


def agreed(readings: Mapping[str, T | None]) -> T | None:
    """The one value that all keys give which are there; UserError, naming the keys, if they give several."""
    found = {key: value for key, value in readings.items() if value is not None}
    first = next(iter(found.values()), None)
    if any(value != first for value in found.values()):
        said = " and ".join(f"{key} says {shown(value)}" for key, value in found.items())
        raise UserError(f"{said}: they mean the same thing; remove one of them or make them agree")
    return first


def whole(value: object) -> int:
    """0 or more, up to what annotations can have."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else _digits(value)
    if not 0 <= number <= MAX_COUNT:
        raise ValueError(f"a whole number from 0 to {MAX_COUNT}")
    return number


def count(value: object) -> int:
    """1 or more."""
    try:
        number = whole(value)
    except ValueError:
        number = 0
    if number == 0:
        raise ValueError(f"a whole number from 1 to {MAX_COUNT}")
    return number


def name(value: object) -> str:
    """Of a gang or whatever else Kubernetes could know by it."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("a name of letters, digits, '-', '_' and '.', at most 253 characters")
    return value


def level(value: object) -> str:
    """A cell type, a node label's key, or what else names a level."""
    if not isinstance(value, str) or len(value) > 317 or not value.isprintable():  # the longest key of a label
        raise ValueError("a cell type, or the key of a node label that stands for one")
    return value


def duration_s(value: object) -> float:
    """Seconds, from a duration as Go writes it."""
    seconds = 0.0
    if isinstance(value, str) and re.fullmatch(f"({_DURATION_PART})+", value):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_DURATION_PART, value))
    if not 0 < seconds <= LONGEST_WAIT_S:
        raise ValueError("a duration above zero, such as 600s, 10m or 1h30m")
    return seconds


def gangs(value: object) -> tuple[GangKey, ...]:
    """Gangs that belong together, each once, in order of their names."""
    expected = 'a JSON list of gangs with their namespaces, such as ["default/workers", "default/servers"]'
    found = set()
    names = json(value, list[str], expected)
    if len(names) > MOST_GANGS:
        raise ValueError(f"at most {MOST_GANGS} gangs that start together")
    for each in names:
        namespace, _, gang = each.partition("/")
        if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(gang)):
            raise ValueError(expected)
        found.add(GangKey(namespace, gang))
    return tuple(sorted(found))


def match_policy(value: object) -> MatchPolicy:
    """Which pods count."""
    return MatchPolicy(one_of(*(policy.value for policy in MatchPolicy))(value))


def one_of(*values: str) -> Callable[[object], str]:
    """A reader for one of these words."""

    def read(value: object) -> str:
        if value not in values:
            raise ValueError(f"{', '.join(values[:-1])} or {values[-1]}")
        return str(value)

    return read


def json(value: object, kind: type[T], expected: str) -> T:
    """The content of JSON text. Raises ValueError with `expected` if it is not of this type."""
    try:
        return msgspec.json.decode(value if isinstance(value, str) else b"", type=kind)
    except (ValueError, RecursionError):
        raise ValueError(expected) from None


def wish(words: Words, required: str, preferred: str) -> Within | None:
    """The topology wish of the two keys that require and prefer a level; what is required goes before."""
    if needed := words.read(required, level):
        return Within(needed, is_required=True)
    wanted = words.read(preferred, level)
    return None if wanted is None else Within(wanted, is_required=False)


def _digits(value: object) -> int:
    is_number = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_COUNT))
    return int(str(value)) if is_number else -1


def _refusal(what: str, value: object, expected: str) -> UserError:
    text = str(value)
    shown = text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}..."
    return UserError(f"{what} is {shown!r}: expected {expected}")
