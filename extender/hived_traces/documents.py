"""JSON files as a row of objects: one list, an object with a list in it, several such documents, or a line for each."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from hived.errors import UserError
from hived_traces.draft import Draft, shown
from hived_traces.fields import Unusable
from hived_traces.sources import Source

Value = TypeVar("Value")


def objects(source: Source, draft: Draft, keys: Iterable[str] = ()) -> Iterator[msgspec.Raw]:
    """The objects of all documents in a source; of an object with one of `keys`, those in the list below it.

    Counts objects in `draft.line`. Raises UserError if the text is no JSON.
    """
    draft.unit, draft.line = "entry", 0
    for document in _documents(source):
        for each in _within(document, tuple(keys), source.name):
            draft.line += 1
            yield each


def typed(rows: Iterable[msgspec.Raw], draft: Draft, kind: type[Value]) -> Iterator[Value]:
    """The objects as values of a type; those that are none are counted as left out."""
    decoder = msgspec.json.Decoder(kind)
    for row in rows:
        try:
            value = decoder.decode(row)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            draft.leave_out(Unusable("not as the format has it", "entry", str(error)))
            continue
        yield value


def _documents(source: Source) -> Iterator[msgspec.Raw]:
    """One document that is the whole text, else one in each line."""
    data = source.whole()
    try:
        yield msgspec.json.decode(data, type=msgspec.Raw)
        return
    except (msgspec.MsgspecError, RecursionError) as error:
        problem = str(error)
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line, type=msgspec.Raw)
        except (msgspec.MsgspecError, RecursionError) as error:
            told = problem if number == 1 else str(error)
            raise UserError(
                f"{source.name}:{number}: expected JSON, one document or one in each line: {told}; found "
                f"{shown(line[:40].decode(errors='replace'))}"
            ) from None


def _within(document: msgspec.Raw, keys: tuple[str, ...], name: str) -> Iterable[msgspec.Raw]:
    start = bytes(document).lstrip()[:1]
    if start == b"[":
        return _list(document, name)
    if start != b"{":
        raise UserError(f"{name}: expected JSON objects, found {shown(bytes(document)[:40].decode(errors='replace'))}")
    found: Any = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    for key in keys:
        if key in found and bytes(found[key]).lstrip()[:1] == b"[":
            return _list(found[key], name)
    return [document]


def _list(document: msgspec.Raw, name: str) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(document, type=list[msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UserError(f"{name}: expected a list of JSON objects: {error}") from None
