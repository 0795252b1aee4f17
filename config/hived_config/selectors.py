"""Requirements on labels, as selectors of Kubernetes have them, and as the option `-l` of kubectl writes them.

A selector is a tuple of requirements, of which all have to hold. The empty one is met by everything, None by nothing.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hived.values.errors import UserError

IN, NOT_IN, EXISTS, DOES_NOT_EXIST = "In", "NotIn", "Exists", "DoesNotExist"
"""Comparisons of a label. Nodes alone have two more, `Gt` and `Lt`."""

_INT64 = re.compile(r"[+-]?[0-9]{1,19}")

_PREFIX = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?"
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = rf"(?P<key>{_PREFIX}{_WORD})"
_SET_TERM = re.compile(rf"{_KEY}\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY_TERM = re.compile(rf"{_KEY}\s*(?P<sign>==|=|!=)\s*(?P<value>(?:{_WORD})?)")
_ORDER_TERM = re.compile(rf"{_KEY}\s*(?P<sign>[<>])\s*(?P<value>-?\d{{1,18}})")
_EXISTS_TERM = re.compile(rf"(?P<not>!?)\s*{_KEY}")
_VALUE = re.compile(rf"(?:{_WORD})?")
_TERM = re.compile(r"(?:[^,()]|\([^()]*\)?|\))*+")
"""Up to a comma that is in no parentheses. It looks at each character once."""

LONGEST = 4096
"""Characters of a selector."""

_OPERATORS = {"=": IN, "==": IN, "!=": NOT_IN, ">": "Gt", "<": "Lt"}


class Requirement(NamedTuple):
    """A requirement on one label; `values` are empty for Exists and DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, value: str | None) -> bool:
        """Does it hold for a label's value, None if there is no such label? Never for an unknown operator."""
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def as_json(self) -> dict[str, Any]:
        """As `matchExpressions` has it."""
        values = {"values": list(self.values)} if self.values else {}
        return {"key": self.key, "operator": self.operator, **values}

    @property
    def text(self) -> str:
        """As people read it: `zone=a`, `zone in (a, b)`, `zone exists`."""
        listed = ", ".join(self.values)
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={listed}"
            case "In" | "NotIn":
                return f"{self.key} {'in' if self.operator == IN else 'not in'} ({listed})"
            case "Exists" | "DoesNotExist":
                return f"{self.key} {'exists' if self.operator == EXISTS else 'does not exist'}"
        return f"{self.key} {self.operator} {listed}"

    def _compares(self, value: str | None) -> bool:
        bound = _int64(self.values[0]) if len(self.values) == 1 else None
        number = _int64(value)
        if bound is None or number is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


Selector = tuple[Requirement, ...]


def matches(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Do labels meet all requirements of a selector?"""
    return selector is not None and all(each.holds(labels.get(each.key)) for each in selector)


def read_selector(text: str) -> Selector:
    """The selector that a text means, `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>3`; the empty one of none.

    Raises UserError for a text that kubectl refuses.
    """
    if len(text) > LONGEST:
        raise UserError(f"selector of {len(text):,} characters: at most {LONGEST:,} are read")
    return tuple(_requirement(term.strip(), text) for term in _terms(text)) if text.strip() else ()


def _terms(text: str) -> Iterator[str]:
    at = 0
    while at <= len(text):
        found = _TERM.match(text, at)
        assert found is not None, "it matches nothing, too"
        yield found[0]
        at = found.end() + 1  # behind the comma


def _requirement(term: str, text: str) -> Requirement:
    if match := _SET_TERM.fullmatch(term):
        values = tuple(value.strip() for value in match["values"].split(","))
        if all(map(_VALUE.fullmatch, values)):
            return Requirement(match["key"], IN if match["verb"] == "in" else NOT_IN, values)
    elif match := _EQUALITY_TERM.fullmatch(term) or _ORDER_TERM.fullmatch(term):
        return Requirement(match["key"], _OPERATORS[match["sign"]], (match["value"],))
    elif match := _EXISTS_TERM.fullmatch(term):
        return Requirement(match["key"], DOES_NOT_EXIST if match["not"] else EXISTS)
    where = f"{term[:80]!r} of {text[:80]!r}" if term != text.strip() else repr(text[:80])
    raise UserError(
        f"selector {where} cannot be read; expected app=train, tier!=test, zone in (a, b), zone notin (a, b), gpu or "
        "!gpu, with commas between"
    )


def _int64(text: str | None) -> int | None:
    if text is None or not _INT64.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
