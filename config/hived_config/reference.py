"""Describes the configuration's keys for people and editors: tables of the reference, and the JSON schema (draft 7).

On a page, a table stands between `<!-- keys: NAME -->` and `<!-- end of keys -->`, where NAME is `document` or a
mapping inside it; everything else on the page is left as it is. `python -m hived_config.reference PAGE` updates the
tables of a page.

The schema checks keys and kinds of values one by one; the loader checks that cells exist, fit and are given once. Every
file that the loader accepts is valid here, too: names may look like numbers (`cellAddress: 4`), and a key without a
value counts as left out. Beside the words of JSON schema, `x-default` is a default that is a rule, not a value.
"""

import re
import sys
from pathlib import Path
from typing import Any

from hived.values.errors import UserError
from hived_config.loader import DOCUMENT, RECORDS
from hived_config.reader import Key, Schema

SCHEMA: Schema = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "HiveD scheduler configuration",
    **DOCUMENT.definition(),
    "definitions": {record.name: record.definition() for record in RECORDS},
}


TITLES = {
    "document": "The document",
    "certify": "certify",
    "queues": "queues",
    "physicalCluster": "physicalCluster",
    "cellType": "A cell type",
    "physicalCell": "A physical cell",
    "skuType": "A SKU type",
    "virtualCluster": "A virtual cluster",
    "defrag": "defrag of a virtual cluster",
    "queue": "queue of a virtual cluster",
    "namespace": "A namespace of a virtual cluster",
    "condition": "A condition on a label",
    "virtualCell": "A virtual cell",
    "pinnedCell": "A pinned cell",
}
"""The tables in the order of the reference, with their headings."""

_HEADERS = {"virtualCell": "Key of a virtual cell", "pinnedCell": "Key of a pinned cell"}
_RECORDS = {record.name: record for record in (DOCUMENT, *RECORDS)}
_MARKED = re.compile(r"(<!-- keys: (\w+) -->\n).*?(<!-- end of keys -->)", re.DOTALL)


def refresh(page: str) -> str:
    """Update the tables of a page from the records. Raises UserError for a table without a record."""

    def marked(match: re.Match[str]) -> str:
        return f"{match[1]}{table(match[2])}\n{match[3]}"

    return _MARKED.sub(marked, page)


def as_markdown() -> str:
    """Every table under its heading."""
    return "\n".join(f"## {title}\n\n{table(name)}\n" for name, title in TITLES.items()).rstrip()


def table(name: str) -> str:
    """The keys of one kind of mapping as a Markdown table, without the last line's end."""
    if name not in TITLES:
        raise UserError(f"no kind of mapping is called {name}; expected one of {', '.join(TITLES)}")
    lines = [f"| {_HEADERS.get(name, 'Key')} | Default | Values | Meaning |", "|---|---|---|---|"]
    for key in _RECORDS[name].keys.values():
        lines.append(f"| `{key.name}` | {_default(key)} | {key.kind.words} | {key.description} |")
    return "\n".join(lines)


def _default(key: Key) -> str:
    if key.is_required or key.rule:
        return key.rule or "required"
    return "none" if key.default is None else f"`{_written(key.kind.written(key.default))}`"


def _written(value: Any) -> str:
    """A value as the configuration has it."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def main(pages: list[str]) -> None:
    """Update the tables of these pages."""
    for page in map(Path, pages):
        page.write_text(refresh(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
