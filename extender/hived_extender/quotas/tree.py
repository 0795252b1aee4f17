"""A tree of quotas, read from an ElasticQuotaTree. Values only."""

from collections.abc import Mapping

import msgspec


class Quota(msgspec.Struct, frozen=True):
    """One node of the tree.

    `name` is the full path, such as "root/team/a". `min` and `max` are amounts by resource in base units: cores, bytes,
    devices. A resource that `max` lacks is unlimited. `lend_limit` bounds how much of its unused `min` others may
    have. `vc` is the virtual cluster that backs a leaf, "" for nodes that are no leaf. `max_jobs` is None if unlimited.
    """

    name: str
    parent: str = ""
    children: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    min: Mapping[str, float] = msgspec.field(default_factory=dict)
    max: Mapping[str, float] = msgspec.field(default_factory=dict)
    lend_limit: Mapping[str, float] = msgspec.field(default_factory=dict)
    max_jobs: int | None = None
    oversell_rate: float = 1.0
    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)
    vc: str = ""

    @property
    def is_leaf(self) -> bool:
        """Do jobs belong to it?"""
        return not self.children


class QuotaTree(msgspec.Struct, frozen=True):
    """All quotas by full name, a parent before its children, in the order of the file."""

    quotas: Mapping[str, Quota]
