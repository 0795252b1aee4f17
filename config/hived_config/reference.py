"""The tables of keys in the reference of the configuration, made from the schema.

On a page, a table stands between `<!-- keys: NAME -->` and `<!-- end of keys -->`, where NAME is `document` or one of
the schema's definitions; everything else on the page is left as it is. `python -m hived_config.reference PAGE` brings
the tables of a page up to date.
"""

import re
import sys
from pathlib import Path
from typing import Any

from hived.errors import UserError
from hived_config.json_schema import Schema
from hived_config.reader import INT32_MAX, INT64_MAX
from hived_config.schema import SCHEMA

TITLES = {
    "document": "The document",
    "physicalCluster": "physicalCluster",
    "cellType": "A cell type",
    "physicalCell": "A physical cell",
    "skuType": "A SKU type",
    "virtualCluster": "A virtual cluster",
    "namespace": "A namespace of a virtual cluster",
    "condition": "A condition on a label",
    "virtualCell": "A virtual cell",
    "pinnedCell": "A pinned cell",
}
"""The tables in the order of the reference, with their headings."""

_HEADERS = {"virtualCell": "Key of a virtual cell", "pinnedCell": "Key of a pinned cell"}
_MARKED = re.compile(r"(<!-- keys: (\w+) -->\n).*?(<!-- end of keys -->)", re.DOTALL)


def refresh(page: str) -> str:
    """The page with its tables as the schema has them. Raises UserError for a table that the schema does not know."""

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
    record = SCHEMA if name == "document" else SCHEMA["definitions"][name]
    lines = [f"| {_HEADERS.get(name, 'Key')} | Default | Values | Meaning |", "|---|---|---|---|"]
    for key, value in record["properties"].items():
        default = "required" if key in record["required"] else _default(value)
        lines.append(f"| `{key}` | {default} | {_values(value)} | {value['description']} |")
    return "\n".join(lines)


def _default(schema: Schema) -> str:
    if "x-default" in schema:
        return str(schema["x-default"])
    return f"`{_written(schema['default'])}`" if "default" in schema else "none"


def _written(value: Any) -> str:
    """A value as the configuration has it."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(schema: Schema) -> str:
    """The kind of values a key has, in a word or two."""
    if "anyOf" in schema and "default" in schema:
        return "word or whole number"
    if True in schema.get("enum", ()):
        return "`true` or `false`"
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"] if value is not None)
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", ["object"])
    if kinds[0] == "integer":
        maximum = schema["maximum"]
        limit = f"from {schema['minimum']} to {maximum}" if maximum not in (INT32_MAX, INT64_MAX) else ""
        return f"whole number, {limit or 'at least ' + str(schema['minimum'])}"
    if kinds[0] == "object":
        return "mapping by name" if "additionalProperties" in schema else "mapping"
    if "items" in schema:
        return "list"
    return "number" if kinds[0] == "number" else "text or number" if kinds == ["string", "number"] else "text"


def main(pages: list[str]) -> None:
    """Bring the tables of these pages up to date."""
    for page in map(Path, pages):
        page.write_text(refresh(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
