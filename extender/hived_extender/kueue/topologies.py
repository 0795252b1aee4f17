"""Nodes that Kueue has chosen itself: a topology assignment, as labels of nodes with a number of pods each.

v1beta1 lists domains one by one. v1beta2 has slices of them, whose values share what they have in common.
"""

from collections.abc import Iterator, Mapping

import msgspec

from hived.errors import UserError

Domain = tuple[Mapping[str, str], int]
"""Labels of nodes, and how many pods go there."""

MOST_DOMAINS = 2**14


class _Values(msgspec.Struct, rename="camel"):
    roots: list[str] | None = None
    prefix: str = ""
    suffix: str = ""
    universal_value: str | None = None

    def at(self, place: int) -> str:
        if self.universal_value is not None:
            return self.universal_value
        return f"{self.prefix}{(self.roots or [])[place]}{self.suffix}"


class _Slice(msgspec.Struct, rename="camel"):
    domain_count: int
    values_per_level: list[_Values]
    pod_counts: list[int] | None = None
    universal_pod_count: int | None = None

    def count_at(self, place: int) -> int:
        return (self.pod_counts or [])[place] if self.universal_pod_count is None else self.universal_pod_count


class _Domain(msgspec.Struct):
    values: list[str]
    count: int


class Assignment(msgspec.Struct):
    """`topologyAssignment` of a pod set, in either version."""

    levels: list[str]
    slices: list[_Slice] | None = None
    domains: list[_Domain] | None = None


def domains_of(assignment: Assignment) -> tuple[Domain, ...]:
    """The domains in their order: pods go to the first ones first. Raises UserError for one that is none."""
    try:
        found = tuple(_domains(assignment))
    except (IndexError, ValueError):
        raise UserError("its topology assignment has other numbers of values than of domains") from None
    return found


def _domains(assignment: Assignment) -> Iterator[Domain]:
    levels = assignment.levels
    for each in assignment.domains or ():
        yield dict(zip(levels, each.values, strict=True)), each.count
    for part in assignment.slices or ():
        if part.domain_count > MOST_DOMAINS:
            raise UserError(f"its topology assignment has more than {MOST_DOMAINS} domains")
        for place in range(part.domain_count):
            values = [each.at(place) for each in part.values_per_level]
            yield dict(zip(levels, values, strict=True)), part.count_at(place)
