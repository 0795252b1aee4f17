"""A tree of quotas, read from an ElasticQuotaTree. Values only."""

from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

ROOT = "root"
"""The full name of the topmost quota, whatever the object calls it."""


class Quota(msgspec.Struct, frozen=True):
    """One node of the tree.

    Attributes
    ----------
    name : the full path, such as "root/team/a"
    min, max : amounts by resource in base units: cores, bytes, devices; a resource that `max` lacks is unlimited
    lend_limit : by resource, how much of an unused `min` others may have; all of it where it is not named
    max_jobs : how many jobs may run, None for any number
    drain : what becomes of jobs above a `max` that was lowered: "wait", "preempt-newest" or "preempt-least-work"
    vc : the virtual cluster that the tree names for its jobs, "" if it names none
    """

    name: str
    parent: str = ""
    children: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    min: Mapping[str, float] = msgspec.field(default_factory=dict)
    max: Mapping[str, float] = msgspec.field(default_factory=dict)
    lend_limit: Mapping[str, float] = msgspec.field(default_factory=dict)
    max_jobs: int | None = None
    drain: str = "wait"
    vc: str = ""

    @property
    def is_leaf(self) -> bool:
        """Do jobs belong to it?"""
        return not self.children

    @property
    def short_name(self) -> str:
        """The name as the object has it."""
        return self.name.rpartition("/")[2]


class QuotaTree(msgspec.Struct, frozen=True, dict=True):
    """All quotas by full name, parents before children, in the order of the object. `oversell` multiplies limits."""

    quotas: Mapping[str, Quota]
    oversell: float = 1.0

    def leaves(self) -> Iterator[Quota]:
        """The quotas that jobs belong to."""
        return (quota for quota in self.quotas.values() if quota.is_leaf)

    @cached_property
    def leaf_of_namespace(self) -> Mapping[str, Quota]:
        """The leaf that lists a namespace."""
        return {namespace: leaf for leaf in self.leaves() for namespace in leaf.namespaces}

    @cached_property
    def by_name(self) -> Mapping[str, Quota]:
        """All quotas by their own names and their full ones."""
        return {name: quota for quota in self.quotas.values() for name in (quota.short_name, quota.name)}

    def path(self, name: str) -> list[Quota]:
        """A quota and all above it, the quota first."""
        found = []
        while name:
            found.append(self.quotas[name])
            name = found[-1].parent
        return found

    @property
    def guaranteed_resources(self) -> frozenset[str]:
        """The resources that any `min` names; others are not limited by guarantees."""
        return frozenset(name for quota in self.quotas.values() for name in quota.min)
