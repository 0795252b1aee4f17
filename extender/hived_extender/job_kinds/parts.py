"""Reading JSON of somebody else: a mapping that knows its place, so that a mistake is said with place and finding."""

from collections.abc import Mapping
from typing import Any

from hived.values.errors import UserError
from hived_extender.pods.annotations import MAX_COUNT

_SHOWN = 40
"""Characters of a value that a message repeats."""


class Part:
    """A mapping at `place`, such as "Job default/train: spec"; one that is absent or null reads as empty.

    A place with a colon at its end is that of the whole object.

    All of its methods raise UserError with the place, the finding and the expectation.
    """

    def __init__(self, value: object, place: str) -> None:
        self.place = place
        if value is not None and not isinstance(value, dict):
            raise self.mistake("", value, "an object")
        self._values: Mapping[str, Any] = value or {}

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def text(self, key: str) -> str:
        """The text at `key`, "" if absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, str):
            raise self.mistake(key, value, "a text")
        return value or ""

    def flag(self, key: str) -> bool:
        """The truth at `key`, False if absent."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.mistake(key, value, "true or false")
        return bool(value)

    def whole(self, key: str, default: int) -> int:
        """The whole number at `key`, from 0 to 2**31 - 1."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
            raise self.mistake(key, value, f"a whole number from 0 to {MAX_COUNT}")
        return value

    def seconds(self, key: str) -> float | None:
        """The same in seconds, None if absent or 0."""
        return float(self.whole(key, 0)) or None

    def part(self, key: str) -> "Part":
        """The mapping at `key`."""
        return Part(self._values.get(key), self._at(key))

    def parts(self, key: str) -> list["Part"]:
        """The list of mappings at `key`, none of them absent."""
        value = self._values.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.mistake(key, value, "a list")
        return [self._given(each, f"{self._at(key)}[{index}]") for index, each in enumerate(value)]

    def members(self, key: str) -> dict[str, "Part"]:
        """The mapping of names to mappings at `key`, none of them absent."""
        part = self.part(key)
        return {name: part._given(value, part._at(name)) for name, value in part._values.items()}

    def texts(self, key: str) -> dict[str, str]:
        """The mapping of names to texts at `key`."""
        part = self.part(key)
        return {name: part.text(name) for name in part._values}

    def plain(self, key: str) -> dict[str, Any]:
        """The mapping at `key` as it is."""
        return dict(self.part(key)._values)

    def mistake(self, key: str, found: object, expected: str) -> UserError:
        """The error that names this place."""
        return UserError(f"{self._at(key)}: found {_shown(found)}, expected {expected}")

    def _given(self, value: object, place: str) -> "Part":
        if not isinstance(value, dict):
            raise UserError(f"{place}: found {_shown(value)}, expected an object")
        return Part(value, place)

    def _at(self, key: str) -> str:
        link = " " if self.place.endswith(":") else "."
        return f"{self.place}{link}{_shortened(key)}" if key else self.place.removesuffix(":")


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) > 10**_SHOWN:  # Python refuses to print some
        return "a number of many digits"
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
