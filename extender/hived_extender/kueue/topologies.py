"""Nodes that Kueue has chosen itself: a topology assignment, as labels of nodes with a number of pods each.

v1beta1 lists domains one by one. v1beta2 has slices of them, whose values and numbers of pods are one for all domains
(`universal`) or one for each (`individual`, values with what they have in common left out).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived_extender.pods.dialects.kueue import HOST

Domain = tuple[Mapping[str, str], int]
"""Labels of nodes, and how many pods go there."""

MOST_DOMAINS = 2**14


class Individual(msgspec.Struct):
    """The values of one level, one for each domain: what is between `prefix` and `suffix`."""

    roots: list[str]
    prefix: str | None = None
    suffix: str | None = None


class Values(msgspec.Struct):
    """The values of one level: the same for all domains of a slice, or one for each."""

    universal: str | None = None
    individual: Individual | None = None

    def all(self, count: int) -> list[str]:
        """The value of each of `count` domains. Raises ValueError for other numbers of values, or for none."""
        if self.universal is not None:
            return [self.universal] * count
        if self.individual is None or len(self.individual.roots) != count:
            raise ValueError
        return [f"{self.individual.prefix or ''}{root}{self.individual.suffix or ''}" for root in self.individual.roots]


class PodCounts(msgspec.Struct):
    """The numbers of pods: the same for all domains of a slice, or one for each."""

    universal: int | None = None
    individual: list[int] | None = None

    def all(self, count: int) -> list[int]:
        """That of each of `count` domains. Raises ValueError for other numbers of them, or for none."""
        if self.universal is not None:
            return [self.universal] * count
        if self.individual is None or len(self.individual) != count:
            raise ValueError
        return self.individual


class Slice(msgspec.Struct, rename="camel"):
    """Some of the domains of an assignment of v1beta2."""

    domain_count: int
    values_per_level: list[Values]
    pod_counts: PodCounts


class OneDomain(msgspec.Struct):
    """One domain of an assignment of v1beta1."""

    values: list[str]
    count: int


class Assignment(msgspec.Struct):
    """`topologyAssignment` of a pod set, in either version."""

    levels: list[str]
    slices: list[Slice] | None = None
    domains: list[OneDomain] | None = None


def domains_of(assignment: Assignment) -> tuple[Domain, ...]:
    """The domains in their order: pods go to the first ones first. Raises UserError for one that is none."""
    try:
        return tuple(_domains(assignment))
    except ValueError:
        raise UserError("its topology assignment has other numbers of values than of domains") from None


def assignment_on(nodes: Mapping[str, int]) -> dict[str, Any]:
    """An assignment of v1beta2 that has so many pods on each node."""
    values = {"individual": {"roots": list(nodes)}}
    counts = {"individual": list(nodes.values())}
    part = {"domainCount": len(nodes), "valuesPerLevel": [values], "podCounts": counts}
    return {"levels": [HOST], "slices": [part]}


def _domains(assignment: Assignment) -> Iterator[Domain]:
    levels = assignment.levels
    for each in assignment.domains or ():
        yield dict(zip(levels, each.values, strict=True)), each.count
    for part in assignment.slices or ():
        count = part.domain_count
        if count > MOST_DOMAINS:
            raise UserError(f"its topology assignment has more than {MOST_DOMAINS} domains")
        by_level = [each.all(count) for each in part.values_per_level]
        for place, pods in enumerate(part.pod_counts.all(count)):
            yield dict(zip(levels, [values[place] for values in by_level], strict=True)), pods
