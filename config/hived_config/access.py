"""Rules of access: which namespaces may use which virtual cluster, up to which priority, and which run
opportunistically.

The rules are values: they know no file and no API server. Names of namespaces are looked up, so a pod costs the same
with 3 and with 3,000 of them; selectors are tried one after the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

import msgspec

from hived.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_config.reader import path_to, shorten

DEFAULT_VIRTUAL_CLUSTER = "default"
"""The virtual cluster of pods that name none."""

_LONGEST_NAME = 63
_NOTHING: Mapping[str, int] = MappingProxyType({})


class Access(Enum):
    """The users of a virtual cluster: the namespaces that it lists, or everybody."""

    NAMESPACES = "namespaces"
    EVERYBODY = "everybody"


class Rights(Enum):
    """Where hived's account may change pods and jobs: in the whole cluster, or in the namespaces of lists."""

    CLUSTER = "cluster"
    NAMESPACES = "namespaces"


class Operator(Enum):
    """How a label is compared; the meaning is that of a Kubernetes label selector."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class Requirement(msgspec.Struct, frozen=True):
    """One condition of a selector; `values` are empty for Exists and DoesNotExist."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil it."""
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels

    def as_json(self) -> dict[str, Any]:
        """As `matchExpressions` has it."""
        values = {"values": list(self.values)} if self.values else {}
        return {"key": self.key, "operator": self.operator.value, **values}


class NamespaceEntry(msgspec.Struct, frozen=True):
    """One entry of a list of namespaces: a `name`, or a selector, which is all `requirements` together.

    Nothing is known of a namespace without labels, since Kubernetes labels each with its name: no selector chooses it.
    """

    name: str = ""
    requirements: tuple[Requirement, ...] = ()
    max_priority: int = MAX_GUARANTEED_PRIORITY

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether it is a selector, and chooses a namespace with these labels."""
        return bool(self.requirements and labels) and all(each.holds(labels) for each in self.requirements)

    def as_json(self) -> Any:
        """As a file could have it."""
        limit = {} if self.max_priority == MAX_GUARANTEED_PRIORITY else {"maxPriority": self.max_priority}
        if self.name:
            return {"name": self.name, **limit} if limit else self.name
        return {"matchExpressions": [each.as_json() for each in self.requirements], **limit}


class VirtualClusterAccess(msgspec.Struct, frozen=True):
    """Which namespaces a virtual cluster lists, and the highest priority that anybody has in it."""

    namespaces: tuple[NamespaceEntry, ...] = ()
    max_priority: int = MAX_GUARANTEED_PRIORITY


_UNRESTRICTED = VirtualClusterAccess()


@dataclass(frozen=True, slots=True)
class AccessRules:
    """See the module.

    Attributes
    ----------
    access : whether a virtual cluster is for the namespaces that it lists alone
    virtual_clusters : by name, in the order of the file; one without limits may be left out unless `access` is for
        listed namespaces alone
    opportunistic : the namespaces that may run opportunistically; None for no such rule
    rights : where hived may change pods and jobs
    """

    access: Access = Access.EVERYBODY
    virtual_clusters: Mapping[str, VirtualClusterAccess] = field(default_factory=dict)
    opportunistic: tuple[NamespaceEntry, ...] | None = None
    rights: Rights = Rights.CLUSTER
    _ceilings: Mapping[str, Mapping[str, int]] = field(init=False, repr=False, compare=False)
    _selectors: Mapping[str, tuple[NamespaceEntry, ...]] = field(init=False, repr=False, compare=False)
    _opportunists: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Look the names up once: `_ceilings` has, by namespace, the priority that each virtual cluster allows it."""
        ceilings: dict[str, dict[str, int]] = {}
        selectors: dict[str, tuple[NamespaceEntry, ...]] = {}
        for vc, own in self.virtual_clusters.items():
            for entry in own.namespaces:
                if entry.name:
                    allowed = ceilings.setdefault(entry.name, {})
                    allowed[vc] = max(entry.max_priority, allowed.get(vc, OPPORTUNISTIC_PRIORITY))
            if selecting := tuple(entry for entry in own.namespaces if entry.requirements):
                selectors[vc] = selecting
        opportunists = frozenset(entry.name for entry in self.opportunistic or () if entry.name)
        object.__setattr__(self, "_ceilings", ceilings)
        object.__setattr__(self, "_selectors", selectors)
        object.__setattr__(self, "_opportunists", opportunists)

    @property
    def is_unrestricted(self) -> bool:
        """Whether everybody may do everything."""
        has_ceiling = any(own.max_priority < MAX_GUARANTEED_PRIORITY for own in self.virtual_clusters.values())
        return self.access is Access.EVERYBODY and self.opportunistic is None and not has_ceiling

    @property
    def needs_labels(self) -> bool:
        """Whether any rule or default depends on the labels of namespaces."""
        return bool(self._selectors) or any(entry.requirements for entry in self.opportunistic or ())

    @property
    def tenants(self) -> frozenset[str] | None:
        """The namespaces in which hived may change pods and jobs; None for all."""
        return None if self.rights is Rights.CLUSTER else frozenset(self._ceilings) | self._opportunists

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the virtual clusters may decide which one is the default of a namespace."""
        shared = [vcs for vcs in self._ceilings.values() if len(vcs) > 1]
        return len(self._selectors) > 1 or any(DEFAULT_VIRTUAL_CLUSTER not in vcs for vcs in shared)

    def default_virtual_cluster(self, namespace: str, labels: Mapping[str, str]) -> str | None:
        """The virtual cluster of pods that name none; None if no list has their namespace.

        A list with the name goes before a selector. Of several virtual clusters, it is the one called "default", else
        the first in the file.
        """
        listing = list(self._ceilings.get(namespace, ()))
        listing = listing or [vc for vc, entries in self._selectors.items() if _any_selects(entries, labels)]
        return DEFAULT_VIRTUAL_CLUSTER if DEFAULT_VIRTUAL_CLUSTER in listing else next(iter(listing), None)

    def ceiling(self, namespace: str, labels: Mapping[str, str], virtual_cluster: str) -> int | None:
        """The highest priority that a namespace has in a virtual cluster; None if it may not use it.

        Of several entries for a namespace the most generous one counts, but never more than the virtual cluster's own.
        """
        own = self.virtual_clusters.get(virtual_cluster, _UNRESTRICTED)
        if self.access is Access.EVERYBODY:
            return own.max_priority
        found = [each.max_priority for each in self._selectors.get(virtual_cluster, ()) if each.selects(labels)]
        by_name = self._ceilings.get(namespace, _NOTHING).get(virtual_cluster)
        if by_name is not None:
            found.append(by_name)
        return min(max(found), own.max_priority) if found else None

    def refusal(self, namespace: str, labels: Mapping[str, str], virtual_cluster: str, priority: int) -> str:
        """Why a pod may not have this priority in this virtual cluster; "" if it may.

        An opportunistic pod, too, has to name a virtual cluster that its namespace may use.
        Cost O(selectors of the virtual cluster).
        """
        ceiling = self.ceiling(namespace, labels, virtual_cluster)
        vc = virtual_cluster if len(virtual_cluster) <= _LONGEST_NAME else shorten(virtual_cluster)
        if ceiling is None and virtual_cluster not in self.virtual_clusters:
            return f"there is no virtual cluster {vc}"
        if ceiling is None:
            mend = f"have the configuration list it under {path_to(vc, 'virtualClusters')}.namespaces"
            return f"namespace {namespace} may not use virtual cluster {vc}: {mend}"
        if priority > ceiling == OPPORTUNISTIC_PRIORITY:
            limit = f"only opportunistically, not at priority {priority}"
            return f"namespace {namespace} may use virtual cluster {vc} {limit}"
        if priority > ceiling:
            return f"namespace {namespace} may use virtual cluster {vc} up to priority {ceiling}, not {priority}"
        if priority == OPPORTUNISTIC_PRIORITY and not self._may_run_opportunistically(namespace, labels):
            mend = "have the configuration list it under opportunistic.namespaces"
            return f"namespace {namespace} may not run opportunistically: {mend}"
        return ""

    def _may_run_opportunistically(self, namespace: str, labels: Mapping[str, str]) -> bool:
        if self.opportunistic is None or namespace in self._opportunists:
            return True
        return _any_selects(self.opportunistic, labels)


def _any_selects(entries: tuple[NamespaceEntry, ...], labels: Mapping[str, str]) -> bool:
    return any(entry.selects(labels) for entry in entries)
