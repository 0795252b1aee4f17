"""Reads JSON that others wrote, such as objects, labels and annotations, and names the place of a mistake.

A function that reads one value, such as `count`, takes a text or whatever JSON has. It raises ValueError with what it
expected. `hived_config.reader` does the same for YAML with lines, where all mistakes of a file are collected.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.annotations import MAX_COUNT
from hived_extender.jobs.progress import sum_of_units

LONGEST_WAIT_S = 1e9
SHOWN_LENGTH = 100
"""Characters of a bad value in a message."""

_NAME = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]{0,251}[A-Za-z0-9])?")

T = TypeVar("T")


class Part:
    """Keys and values at one place of a document; an absent or null one has none.

    `place` stands before a key in messages: "label ", "Job default/train: ", "Job default/train: spec.".
    All methods raise UserError with the place, the value and the expectation.
    """

    def __init__(self, place: str, values: object) -> None:
        self.place = place
        if values is not None and not isinstance(values, Mapping):
            raise self.mistake("", values, "an object with keys and values")
        self._values: Mapping[str, Any] = values or {}

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) not in (None, "")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def read(self, key: str, reader: Callable[[object], T]) -> T | None:
        """The value at `key` as `reader` reads it; None if absent or empty."""
        value = self._values.get(key)
        if value is None or value == "":
            return None
        try:
            return reader(value)
        except ValueError as expected:
            raise self.mistake(key, value, str(expected)) from None

    def text(self, key: str) -> str:
        """The text at `key`, "" if absent."""
        return self._typed(key, str, "a text") or ""

    def flag(self, key: str) -> bool:
        """The truth at `key`, False if absent."""
        return self._typed(key, bool, "true or false") or False

    def whole(self, key: str, default: int) -> int:
        """The whole number at `key`, from 0 to 2**31 - 1; never a text."""
        found = self._typed(key, int, _EXPECTED_WHOLE)
        if found is None:
            return default
        if isinstance(found, bool) or not 0 <= found <= MAX_COUNT:
            raise self.mistake(key, found, _EXPECTED_WHOLE)
        return found

    def seconds(self, key: str) -> float | None:
        """The same in seconds, None if absent or 0."""
        return float(self.whole(key, 0)) or None

    def part(self, key: str) -> "Part":
        """The object at `key`."""
        return Part(f"{self.place}{_shortened(key)}.", self._values.get(key))

    def parts(self, key: str) -> list["Part"]:
        """The list of objects at `key`, none of them absent."""
        items = self._typed(key, list, "a list") or []
        return [self._given(f"{key}[{index}]", each) for index, each in enumerate(items)]

    def members(self, key: str) -> dict[str, "Part"]:
        """The objects by name at `key`, none of them absent."""
        part = self.part(key)
        return {name: part._given(name, value) for name, value in part._values.items()}

    def texts(self, key: str) -> dict[str, str]:
        """The texts by name at `key`."""
        part = self.part(key)
        return {name: part.text(name) for name in part._values}

    def plain(self, key: str) -> dict[str, Any]:
        """A copy of the object at `key` as it is."""
        return dict(self.part(key)._values)

    def mistake(self, key: str, found: object, expected: str) -> UserError:
        """The error of a value at this place."""
        place = f"{self.place}{_shortened(key)}" if key else self.place.rstrip(" .:")
        return UserError(f"{place} is {shown(found)}: expected {expected}")

    def _typed(self, key: str, kind: type[T], expected: str) -> T | None:
        value = self._values.get(key)
        if value is not None and not isinstance(value, kind):
            raise self.mistake(key, value, expected)
        return value

    def _given(self, key: str, value: object) -> "Part":
        if value is None:
            raise self.mistake(key, value, "an object with keys and values")
        return Part(f"{self.place}{_shortened(key)}.", value)


def shown(value: object) -> str:
    """A value as messages quote it, never longer than a line."""
    if value is None:
        return "absent"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) > 10**SHOWN_LENGTH:  # Python refuses to print some
        return "a number of many digits"
    return repr(_shortened(value)) if isinstance(value, str) else repr(value)


def _shortened(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}..."


_EXPECTED_WHOLE = f"a whole number from 0 to {MAX_COUNT}"


def whole(value: object) -> int:
    """A whole number, 0 or more, up to what annotations can have."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else _digits(value)
    if not 0 <= number <= MAX_COUNT:
        raise ValueError(_EXPECTED_WHOLE)
    return number


def count(value: object) -> int:
    """A whole number, 1 or more."""
    try:
        number = whole(value)
    except ValueError:
        number = 0
    if number == 0:
        raise ValueError(f"a whole number from 1 to {MAX_COUNT}")
    return number


def name(value: object) -> str:
    """The name of a gang, or of another object of Kubernetes."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ValueError("a name of letters, digits, '-', '_' and '.', at most 253 characters")
    return value


def duration_s(value: object) -> float:
    """Seconds, from a duration as Go writes it."""
    seconds = sum_of_units(value) if isinstance(value, str) else None
    if seconds is None or not 0 < seconds <= LONGEST_WAIT_S:
        raise ValueError("a duration above zero, such as 600s, 10m or 1h30m")
    return seconds


def one_of(*values: str) -> Callable[[object], str]:
    """A function that reads one of these words."""

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


def _digits(value: object) -> int:
    is_number = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_COUNT))
    return int(str(value)) if is_number else -1
