"""Variants of one object -> one Helm template that renders each of them.

A variant is known by its flags, such as {"tls"}. Where all variants agree, their text stands in the template; where
they differ, it has an `if` over the flags. Places that a user's values decide are nodes of this module.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

Flags = frozenset[str]
Variants = Mapping[Flags, Any]

_PLAIN = re.compile(r"[A-Za-z/$(][\w./()$:=-]*(?<!:)")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}
_IDENTITIES = ("name", "mountPath", "key", "port", "containerPort", "filterVerb")
"""By which key, the first that they have, elements of lists are the same one in another variant."""


class _Absent:
    """Stands for what a variant does not have."""


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar: the value of an expression, within a text if need be."""

    expression: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        return f"{self.before}{{{{ {self.expression} }}}}{self.after}"


@dataclass(frozen=True, slots=True)
class Block:
    """A mapping or list: the value of an expression; without its key if that is empty."""

    expression: str


@dataclass(frozen=True, slots=True)
class Text:
    """A text of several lines: the value of an expression."""

    expression: str


@dataclass(frozen=True, slots=True)
class More:
    """A key of a mapping, or an element of a list, that stands for all those of an expression."""

    expression: str


@dataclass(frozen=True, slots=True)
class Template:
    """A text of one line with expressions in it, whatever characters their values have."""

    text: str


@dataclass(slots=True)
class Each:
    """An element of a list for each value of an expression, which the variable holds meanwhile."""

    variable: str
    expression: str
    element: Any


@dataclass(frozen=True, slots=True)
class When:
    """One of two nodes, by a condition; ABSENT is none."""

    condition: str
    then: Any
    otherwise: Any = ABSENT


def superpose(variants: Variants, conditions: Mapping[str, str]) -> Any:
    """The node that is each of these variants under its flags.

    Parameters
    ----------
    variants : by flags; all combinations that can be, ABSENT where there is nothing
    conditions : the expression of each flag; one that decides whether there is anything is outermost, then the first
    """
    values = list(variants.values())
    if all(each == values[0] for each in values):
        return values[0]
    if all(isinstance(each, dict) for each in values):
        keys = _in_order([list(each) for each in values])
        return {
            key: superpose({flags: each.get(key, ABSENT) for flags, each in variants.items()}, conditions)
            for key in keys
        }
    if all(isinstance(each, list) for each in values):
        named = {flags: {_identity(element): element for element in each} for flags, each in variants.items()}
        keys = _in_order([list(each) for each in named.values()])
        return [superpose({flags: each.get(key, ABSENT) for flags, each in named.items()}, conditions) for key in keys]
    splits: list[tuple[bool, int, str, dict[Flags, Any], dict[Flags, Any]]] = []
    for flag, condition in conditions.items():
        having = {flags: each for flags, each in variants.items() if flag in flags}
        lacking = {flags: each for flags, each in variants.items() if flag not in flags}
        pairs = [(each, lacking[flags - {flag}]) for flags, each in having.items() if flags - {flag} in lacking]
        if any(one != other for one, other in pairs):
            decides = all(each is ABSENT for each in lacking.values())
            splits.append((not decides, len(splits), condition, having, lacking))
    if splits:
        _, _, condition, having, lacking = min(splits, key=lambda split: split[:2])
        return When(condition, superpose(having, conditions), superpose(lacking, conditions))
    raise ValueError(f"no flag tells these apart: {values}")


def _identity(element: Any) -> str:
    if isinstance(element, dict):
        key = next((key for key in _IDENTITIES if key in element), "")
        return f"{key} {element[key]}" if key else json.dumps(element, sort_keys=True, default=str)
    return str(element)


def _in_order(lists: list[list[Any]]) -> list[Any]:
    """All elements, each once; one that is new in a list comes after the one that it follows there."""
    merged: list[Any] = []
    for each in lists:
        at = 0
        for element in each:
            if element in merged:
                at = merged.index(element) + 1
            else:
                merged.insert(at, element)
                at += 1
    return merged


def replaced(node: Any, change: Callable[[str], Any]) -> Any:
    """A copy in which each text has gone through `change`."""
    if isinstance(node, dict):
        return {key: replaced(value, change) for key, value in node.items()}
    if isinstance(node, list):
        return [replaced(value, change) for value in node]
    if isinstance(node, When):
        return When(node.condition, replaced(node.then, change), replaced(node.otherwise, change))
    return change(node) if isinstance(node, str) else node


def render(node: Any) -> str:
    """The text of a template, without a line end after the last line."""
    return "\n".join(_lines(node, 0))


def _lines(node: Any, indent: int) -> Iterator[str]:
    """The lines of a mapping or list; neighbours under the same condition share it."""
    pairs = list(node.items()) if isinstance(node, dict) else [(None, value) for value in node]
    for condition, group in groupby(pairs, lambda pair: _only_when(pair[1])):
        if condition:
            yield f"{{{{- if {condition} }}}}"
        for key, value in group:
            shown = value.then if condition else value
            yield from _entry(key, shown, indent) if isinstance(node, dict) else _element(shown, indent)
        if condition:
            yield "{{- end }}"


def _only_when(value: Any) -> str:
    """The condition of something that is only there under one."""
    return value.condition if isinstance(value, When) and value.otherwise is ABSENT else ""


def _branches(node: When, lines: Callable[[Any], Iterator[str]]) -> Iterator[str]:
    if node.then is ABSENT:
        yield f"{{{{- if not {node.condition} }}}}"
        yield from lines(node.otherwise)
    else:
        yield f"{{{{- if {node.condition} }}}}"
        yield from lines(node.then)
        if node.otherwise is not ABSENT:
            yield "{{- else }}"
            yield from lines(node.otherwise)
    yield "{{- end }}"


def _more(expression: str, indent: int) -> Iterator[str]:
    yield f"{{{{- with {expression} }}}}"
    yield f"{{{{- toYaml . | nindent {indent} }}}}"
    yield "{{- end }}"


def _entry(key: Any, value: Any, indent: int) -> Iterator[str]:
    space = " " * indent
    match value:
        case _ if isinstance(key, More):
            yield from _more(key.expression, indent)
        case When():
            yield from _branches(value, lambda branch: _entry(key, branch, indent))
        case Block():
            yield f"{{{{- with {value.expression} }}}}"
            yield f"{space}{_scalar(key)}:"
            yield f"{{{{- toYaml . | nindent {indent + 2} }}}}"
            yield "{{- end }}"
        case Text():
            yield f"{space}{_scalar(key)}: |"
            yield f'{{{{ {value.expression} | trimSuffix "\\n" | indent {indent + 2} }}}}'
        case Template():
            yield f"{space}{_scalar(key)}: >-"
            yield " " * (indent + 2) + value.text
        case dict() | list() if value:
            yield f"{space}{_scalar(key)}:"
            yield from _lines(value, indent if isinstance(value, list) else indent + 2)
        case str() if "\n" in value:
            yield f"{space}{_scalar(key)}: |{'' if value.endswith(chr(10)) else '-'}"
            yield from (" " * (indent + 2) + line if line else "" for line in _plain(value).rstrip("\n").split("\n"))
        case _:
            yield f"{space}{_scalar(key)}: {_scalar(value)}"


def _element(value: Any, indent: int) -> Iterator[str]:
    space = " " * indent
    match value:
        case More():
            yield from _more(value.expression, indent)
        case When():
            yield from _branches(value, lambda branch: _element(branch, indent))
        case Each():
            yield f"{{{{- range {value.variable} := {value.expression} }}}}"
            yield from _element(value.element, indent)
            yield "{{- end }}"
        case dict() if value:
            # The dash needs a line that is always there, so the first key without a condition goes to the front.
            first = next(key for key, each in value.items() if not isinstance(each, (When, Block)))
            lines = list(_lines({first: value[first], **value}, indent + 2))
            yield f"{space}- {lines[0].lstrip()}"
            yield from lines[1:]
        case list() if value:
            raise ValueError("a list in a list")
        case _:
            yield f"{space}- {_scalar(value)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        text = _plain(value)
        return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else json.dumps(text, ensure_ascii=False)
    if isinstance(value, Scalar):
        return f'"{value}"' if value.before or value.after else str(value)
    return json.dumps(value)


def _plain(text: str) -> str:
    if "{{" in text:
        raise ValueError(f"this text means something to Helm: {text}")
    return text
