"""Go types as schemas, in the words of a CustomResourceDefinition: what `json` makes of them."""

import re
from functools import cache

from tests.e2e.tools import DEFAULT, sources
from tests.extender.published.schemas import OPEN, Json, module

_QUANTITY = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_META = "k8s.io/apimachinery/pkg/apis/meta/v1"
_AS_THEY_ARE: dict[str, Json] = {
    f"{_META}.Time": {"type": "string", "format": "date-time"},
    f"{_META}.MicroTime": {"type": "string", "format": "date-time"},
    f"{_META}.Duration": {"type": "string"},
    f"{_META}.FieldsV1": OPEN,
    "k8s.io/apimachinery/pkg/api/resource.Quantity": _QUANTITY,
    "k8s.io/apimachinery/pkg/util/intstr.IntOrString": _QUANTITY,
    "k8s.io/apimachinery/pkg/runtime.RawExtension": OPEN,
    "string": {"type": "string"},
    "error": {"type": "string"},
    "[]byte": {"type": "string"},
    "bool": {"type": "boolean"},
    "interface{}": OPEN,
    "any": OPEN,
    **{each: {"type": "integer"} for each in ("int", "int32", "int64", "uint", "uint8", "uint32", "uint64")},
    **{each: {"type": "number"} for each in ("float32", "float64")},
}
"""Types that write themselves, and those of Go."""

_TYPE = re.compile(r"(?m)^type (\w+) (?:= )?(struct \{\n(?:.*\n)*?\}|[^\n{]+(?:\{\})?)$")
_FIELD = re.compile(r"^\s+(?:(\w+)\s+)?([^\s`]+)\s*(?:`(.*)`)?$")
_IMPORT = re.compile(r'(?m)^\s*(?:import )?(?:(\w+) )?"([\w./-]+)"$')


def schema(folder: str, package: str, name: str) -> Json:
    """The schema of a type. `folder` pins the module of its package. Others that it uses are pinned there too, or are
    of Kubernetes as the end-to-end tests run it.

    Skips the test if a module has not been fetched. Recursion ends in a schema that takes anything.
    """
    return _schema(folder, package, name, ())


def _schema(folder: str, package: str, name: str, above: tuple[str, ...]) -> Json:
    full = f"{package}.{name}"
    if full in above:
        return OPEN
    if full in _AS_THEY_ARE:
        return _AS_THEY_ARE[full]
    text, imports = _types(folder, package)[name]
    if not text.startswith("struct"):
        return _expression(folder, package, text, imports, (*above, full))
    properties: Json = {}
    for line in text.splitlines()[1:-1]:
        field = _FIELD.match(line)
        if field is None:
            assert not line.strip(), f"{full} has a field that this reader does not know: {line}"
            continue
        own, kind, tags = field.groups()
        tag = re.search(r'json:"([^",]*)', tags or "")
        called = tag[1] if tag else ""
        if called == "-" or (own and not own[0].isupper()):
            continue
        value = _expression(folder, package, kind, imports, (*above, full))
        if own or called:
            properties[called or own] = value
        else:
            properties |= value["properties"]  # it is embedded
    return {"type": "object", "properties": properties}


def _expression(folder: str, package: str, kind: str, imports: dict[str, str], above: tuple[str, ...]) -> Json:
    if kind in _AS_THEY_ARE:
        return _AS_THEY_ARE[kind]
    if kind.startswith("*"):
        return _expression(folder, package, kind[1:], imports, above)
    if kind.startswith("[]"):
        return {"type": "array", "items": _expression(folder, package, kind[2:], imports, above)}
    if kind.startswith("map["):
        values = _expression(folder, package, kind.partition("]")[2], imports, above)
        return {"type": "object", "additionalProperties": values}
    alias, dot, name = kind.rpartition(".")
    return _schema(folder, imports[alias] if dot else package, name, above)


@cache
def _types(folder: str, package: str) -> dict[str, tuple[str, dict[str, str]]]:
    """The text of every type of a package, and what its file imports."""
    pins = ((pin, path) for pin in (folder, DEFAULT) for path in sources.READ[pin])
    pin, path = next((pin, path) for pin, path in pins if f"{package}/".startswith(f"{path}/"))
    types = {}
    for file in sorted((module(pin, path) / package.removeprefix(path).strip("/")).glob("*.go")):
        if file.name.startswith("zz_") or file.name.endswith("_test.go"):
            continue
        text = re.sub(r"(?s)/\*.*?\*/", "", file.read_text())
        text = re.sub(r"(?m)\n?^\s*//.*$|\s//.*$", "", text)
        imports = {alias or path.rpartition("/")[2]: path for alias, path in _IMPORT.findall(text)}
        types |= {name: (body, imports) for name, body in _TYPE.findall(text)}
    return types
