"""Label selectors and node selectors, and amounts of resources as whole numbers, whose sums fit into 64 bits."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import msgspec

from hived_config.quantities import LONGEST_QUANTITY, exact
from hived_config.selectors import IN, NOT_IN, Requirement, Selector, matches


class NodeTerm(NamedTuple):
    """A term of required node affinity: all of its labels, and all of its names."""

    labels: Selector
    names: Selector


class RequirementSpec(msgspec.Struct):
    """A requirement as JSON has it."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None

    @property
    def size(self) -> int:
        """The number of its keys and values."""
        return 1 + len(self.values or ())

    def read(self) -> Requirement:
        """The same as a value."""
        return Requirement(self.key, self.operator, tuple(self.values or ()))


class LabelSelectorSpec(msgspec.Struct, rename="camel"):
    """A label selector as JSON has it."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[RequirementSpec] | None = None

    @property
    def size(self) -> int:
        """The number of its keys and values."""
        return len(self.match_labels or ()) + sum(each.size for each in self.match_expressions or ())

    def read(self) -> Selector:
        """The same as a value."""
        labels = [Requirement(key, IN, (value,)) for key, value in sorted((self.match_labels or {}).items())]
        return (*labels, *(each.read() for each in self.match_expressions or ()))


class NodeTermSpec(msgspec.Struct, rename="camel"):
    """A term of required node affinity as JSON has it."""

    match_expressions: list[RequirementSpec] | None = None
    match_fields: list[RequirementSpec] | None = None

    @property
    def size(self) -> int:
        """The number of its keys and values, and one for itself."""
        return 1 + sum(each.size for said in (self.match_expressions, self.match_fields) for each in said or ())

    def read(self) -> NodeTerm | None:
        """The same as a value; None if no node meets it: it is empty, or of a form that Kubernetes rejects."""
        labels = tuple(each.read() for each in self.match_expressions or ())
        names = tuple(each.read() for each in self.match_fields or ())
        if not (labels or names) or not all(_is_known_of_names(each) for each in names):
            return None
        return NodeTerm(labels, names)


def of_labels(labels: Mapping[str, str]) -> Selector:
    """The selector that demands these labels, as a nodeSelector does."""
    return LabelSelectorSpec(dict(labels)).read()


def node_matches(terms: Sequence[NodeTerm] | None, name: str, labels: Mapping[str, str]) -> bool:
    """Does a node meet one of the terms? None demands nothing."""
    return terms is None or any(
        matches(term.labels, labels) and all(each.holds(name) for each in term.names) for term in terms
    )


def _is_known_of_names(requirement: Requirement) -> bool:
    return requirement.key == "metadata.name" and requirement.operator in {IN, NOT_IN} and len(requirement.values) == 1


MOST = 2**50
"""More of a resource counts as this much: a sum for 8,192 pods fits into 64 bits."""

CPU = "cpu"
PODS = "pods"


def units(resource: str, quantity: str | int | float) -> int:
    """A quantity in thousandths of a CPU, else in whole units (bytes, devices), rounded up.

    0 for anything that is no quantity, and for texts too long for one that the API server stores; at most MOST.
    """
    text = str(quantity)
    return _whole(text, 1000 if resource == CPU else 1) if len(text) <= LONGEST_QUANTITY else 0


@lru_cache(maxsize=4096)
def _whole(text: str, per_unit: int) -> int:
    return min(ceil((exact(text) or 0) * per_unit), MOST)
