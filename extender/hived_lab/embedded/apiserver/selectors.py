"""Label and field selectors: text to a predicate.

Grammar as in Kubernetes: labels `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>3`; fields `path=value,path!=value`, with
backslash before a comma, an equals sign or a backslash in a value.
"""

import re
from collections.abc import Callable, Mapping

from hived_lab.embedded.apiserver.statuses import ApiError, bad_request

Predicate = Callable[[Mapping[str, str]], bool]

_QUALIFIED = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_SET_TERM = re.compile(rf"(?P<key>{_QUALIFIED})\s+(?P<verb>in|notin)\s*\((?P<values>[^()]*)\)")
_EQUALITY_TERM = re.compile(rf"(?P<key>{_QUALIFIED})\s*(?P<sign>==|=|!=)\s*(?P<value>(?:{_VALUE})?)")
_ORDER_TERM = re.compile(rf"(?P<key>{_QUALIFIED})\s*(?P<sign>[<>])\s*(?P<value>-?\d{{1,18}})")
_EXISTS_TERM = re.compile(rf"(?P<not>!?)\s*(?P<key>{_QUALIFIED})")
_FIELD_TERM = re.compile(r"(?P<path>[A-Za-z0-9_./-]+)(?P<sign>==|=|!=)(?P<value>(?:[^\\,=]|\\[\\,=])*)")
_TERM_COMMA = re.compile(r",(?![^(]*\))")
_FIELD_COMMA = re.compile(r"(?<!\\)(?:\\\\)*,")


def parse_labels(text: str) -> Predicate | None:
    """Return what `text` demands of a label map, None if nothing; ApiError (400) if it cannot be parsed."""
    if not text.strip():
        return None
    terms = [_label_term(term.strip(), text) for term in _TERM_COMMA.split(text)]
    return lambda labels: all(term(labels) for term in terms)


def parse_fields(text: str, allowed: frozenset[str]) -> Predicate | None:
    """Return what `text` demands of a map of field paths, None if nothing.

    Raises ApiError (400) if it cannot be parsed or names a field outside `allowed`.
    """
    if not text.strip():
        return None
    terms = [_field_term(term.strip(), text, allowed) for term in _split_fields(text)]
    return lambda fields: all(term(fields) for term in terms)


def _label_term(term: str, text: str) -> Predicate:
    if match := _SET_TERM.fullmatch(term):
        key, values = match["key"], frozenset(value.strip() for value in match["values"].split(","))
        if match["verb"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUALITY_TERM.fullmatch(term):
        key, value = match["key"], match["value"]
        if match["sign"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _ORDER_TERM.fullmatch(term):
        return _order_term(match["key"], match["sign"], int(match["value"]))
    if match := _EXISTS_TERM.fullmatch(term):
        key, is_wanted = match["key"], not match["not"]
        return lambda labels: (key in labels) == is_wanted
    raise _unparsable("label", text)


def _order_term(key: str, sign: str, bound: int) -> Predicate:
    def holds(labels: Mapping[str, str]) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?\d{1,18}", value, re.ASCII):
            return False
        return int(value) > bound if sign == ">" else int(value) < bound

    return holds


def _split_fields(text: str) -> list[str]:
    terms, start = [], 0
    for comma in _FIELD_COMMA.finditer(text):
        terms.append(text[start : comma.end() - 1])
        start = comma.end()
    return [*terms, text[start:]]


def _field_term(term: str, text: str, allowed: frozenset[str]) -> Predicate:
    match = _FIELD_TERM.fullmatch(term)
    if match is None:
        raise _unparsable("field", text)
    path, value = match["path"], re.sub(r"\\(.)", r"\1", match["value"])
    if path not in allowed:
        raise bad_request(f"field label not supported: {path}")
    if match["sign"] == "!=":
        return lambda fields: fields.get(path, "") != value
    return lambda fields: fields.get(path, "") == value


def _unparsable(what: str, text: str) -> ApiError:
    return bad_request(f"unable to parse {what} selector {text!r}")
