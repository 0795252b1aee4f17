"""The texts in a module's Go sources: labels and annotations are constants there, some of them joined of several."""

import re
from functools import cache

from tests.extender.published.schemas import module

_CONSTANT = re.compile(
    r'(?m)^\s*(?:const |var )?(\w+)(?: [\w.]+)?\s*=\s*((?:[\w.]+|"[^"\n]*")(?:\s*\+\s*(?:[\w.]+|"[^"\n]*"))*)\s*(?://.*)?$'
)
_TEXT = re.compile(r'"([^"\n]*)"')


@cache
def texts(folder: str, path: str) -> frozenset[str]:
    """All of them. Constants count by their names alone, whatever package they are of."""
    found: set[str] = set()
    constants: dict[str, set[str]] = {}
    for file in sorted(module(folder, path).rglob("*.go")):
        if file.name.endswith("_test.go"):
            continue
        text = file.read_text(errors="replace")
        found |= set(_TEXT.findall(text))
        for name, value in _CONSTANT.findall(text):
            constants.setdefault(name, set()).add(value)
    for values in constants.values():
        for value in values:
            found |= _joined(value, constants, 0)
    return frozenset(found)


def _joined(value: str, constants: dict[str, set[str]], depth: int) -> set[str]:
    """What an expression may be, whose constants may have several values in several packages."""
    made = {""}
    for part in re.findall(r'"[^"\n]*"|[\w.]+', value):
        if part.startswith('"'):
            here = {part[1:-1]}
        elif depth < 4:
            named = constants.get(part.rpartition(".")[2], set())
            here = set[str]().union(*(_joined(each, constants, depth + 1) for each in named))
        else:
            here = set()
        made = {before + each for before in made for each in here}
    return made
