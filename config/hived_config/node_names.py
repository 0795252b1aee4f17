"""Checks the names of nodes in a configuration: names that no Kubernetes node can have, and generated names.

A cell at node level is bad until a node of its name joins. So a misspelt name, or the running index that stands for a
name, quietly costs its virtual cluster a node for ever. A working file may have such names, so they are warnings here;
a plan or a push refuses new ones.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from hived_config.reader import closest

PLACEHOLDER = "placeholder-"
"""The beginning of the names of nodes that do not exist yet."""

MAX_NAME = 253
VALID_NAME = "a name that a Kubernetes node can have (at most 253 of a-z, 0-9, '-' and '.')"
WRITTEN_NAMES = "a cellAddress for each, the name of its Kubernetes node"
MOST_CANDIDATES = 200
"""Names that one name is compared with at length."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_ODD = re.compile(r"[^a-z0-9.]+", re.ASCII)
_NUMBER = re.compile(r"[0-9]+", re.ASCII)


class GeneratedNames(msgspec.Struct, frozen=True):
    """Nodes without written names: they are called `start` to `stop` - 1. `line` is the first one's."""

    start: int
    stop: int
    line: int

    def __str__(self) -> str:
        """As people write it: `108 to 143`, or `3`."""
        return f"{self.start} to {self.stop - 1}" if self.stop - self.start > 1 else f"{self.start}"

    @property
    def found(self) -> str:
        """As a warning says it."""
        count = self.stop - self.start
        nodes = f"{count} nodes without names" if count > 1 else "a node without a name"
        return f"{nodes}, called {self} for now"

    def names(self) -> Iterable[str]:
        """Each of the names, in order."""
        return map(str, range(self.start, self.stop))


class NodeNames(msgspec.Struct, frozen=True):
    """The names of nodes in a file: by written name its line, and runs of generated names, in file order."""

    written: Mapping[str, int] = msgspec.field(default_factory=dict)
    generated: tuple[GeneratedNames, ...] = ()
    file: str = ""

    def all(self) -> Iterator[str]:
        """Every name, written or generated."""
        yield from self.written
        for each in self.generated:
            yield from each.names()


def is_possible(name: str) -> bool:
    """True if a Kubernetes node can have this name: it is a DNS subdomain."""
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def made_possible(name: str) -> str:
    """The possible name nearest to an impossible one, such as dgx-3 for DGX_3; "" if there is none."""
    parts = (part.strip("-") for part in _ODD.sub("-", name.lower()).split("."))
    nearest = ".".join(filter(None, parts))
    return nearest if is_possible(nearest) else ""


class Likely:
    """The name among `candidates` that another one is most likely a misspelling of.

    Numbers have to be equal, but for zeros in front: dgx-17 is no misspelling of dgx-18. Cost O(candidates) once.
    """

    def __init__(self, candidates: Collection[str]) -> None:
        self._by_host: dict[str, str] = {}
        self._by_numbers: dict[tuple[str, ...], list[str]] = {}
        for name in sorted(candidates):
            self._by_host.setdefault(_host(name), name)
            self._by_numbers.setdefault(_numbers(name), []).append(name)

    def meant_by(self, name: str) -> str:
        """The candidate, or ""."""
        alike = self._by_host.get(_host(name), "")
        return alike or closest(name, self._by_numbers.get(_numbers(name), [])[:MOST_CANDIDATES])


def _host(name: str) -> str:
    """A name without its domain, signs, case and zeros in front of numbers: DGX_03.example.com is dgx3."""
    first = name.partition(".")[0].lower()
    kept = name.lower() if first.isdecimal() else first  # an IP address has no domain
    return _NUMBER.sub(lambda match: f"{int(match[0])}_", _ODD.sub("", kept))


def _numbers(name: str) -> tuple[str, ...]:
    """The numbers in a name's first part, without zeros in front; of an address, the numbers of all parts."""
    first = name.partition(".")[0]
    kept = name if first.isdecimal() else first
    return tuple(number.lstrip("0") for number in _NUMBER.findall(kept))
