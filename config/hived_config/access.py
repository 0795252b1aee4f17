"""Rules of access: the namespaces that may use each virtual cluster, up to a priority, or run opportunistically.

The rules are values: they know no file and no API server. Names of namespaces are looked up, so a pod costs the same
with 3 and with 3,000 of them; selectors are tried one after the other.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

import msgspec
import yaml

from hived.values.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_config.reader import (
    Choice,
    Either,
    Given,
    Integer,
    Key,
    ListOf,
    MapOf,
    Reader,
    Record,
    Schema,
    Text,
    ValueKind,
    is_null,
    path_to,
    shorten,
)
from hived_config.selectors import DOES_NOT_EXIST, EXISTS, IN, NOT_IN, Requirement, Selector, matches
from hived_config.skus import LABEL_PATTERN, LABEL_VALUE

PRIORITY_WORDS = {"crit": 120, "prod": 100, "test": 10, "oppo": OPPORTUNISTIC_PRIORITY}
"""OpenPAI's words for priorities."""

PREEMPTIBLE = "preemptible"
"""Of a PriorityClass: opportunistic."""

_WORDS = PRIORITY_WORDS | {PREEMPTIBLE: OPPORTUNISTIC_PRIORITY}


class Priority(ValueKind):
    """A priority as a number or one of the known words."""

    what = f"{', '.join(_WORDS)} or a number from {OPPORTUNISTIC_PRIORITY} to {MAX_GUARANTEED_PRIORITY}"
    words = "word or whole number"

    def read(self, reader: Reader, node: yaml.Node) -> int:
        """The number; 0 after noting why it is neither."""
        if isinstance(node, yaml.ScalarNode) and node.value in _WORDS:
            return _WORDS[node.value]
        return _PRIORITY.read(reader, node) or 0

    def schema(self) -> Schema:
        """Either of them."""
        return {"anyOf": [{"enum": [*_WORDS]}, _PRIORITY.schema()]}


_PRIORITY = Integer(Priority.what, OPPORTUNISTIC_PRIORITY, MAX_GUARANTEED_PRIORITY)


DEFAULT_VIRTUAL_CLUSTER = "default"
"""The virtual cluster of pods that name none."""


def open_default(virtual_clusters: Collection[str]) -> str:
    """The virtual cluster of a pod that names none, where everybody may use each: the only one, else `default`."""
    return next(iter(virtual_clusters)) if len(virtual_clusters) == 1 else DEFAULT_VIRTUAL_CLUSTER


_LONGEST_NAME = 63
_NOTHING: Mapping[str, int] = MappingProxyType({})


class Access(Enum):
    """The users of a virtual cluster: the namespaces that it lists, or all."""

    NAMESPACES = "namespaces"
    EVERYBODY = "everybody"


class Rights(Enum):
    """The scope in which hived's account may change pods and jobs: the whole cluster, or listed namespaces."""

    CLUSTER = "cluster"
    NAMESPACES = "namespaces"


class NamespaceEntry(msgspec.Struct, frozen=True):
    """One entry of a list of namespaces: a `name`, or a selector, which is all `requirements` together.

    Nothing is known of a namespace without labels, since Kubernetes labels each with its name: no selector chooses it.
    """

    name: str = ""
    requirements: Selector = ()
    max_priority: int = MAX_GUARANTEED_PRIORITY

    def selects(self, labels: Mapping[str, str]) -> bool:
        """True for a selector that chooses a namespace with these labels."""
        return bool(self.requirements and labels) and matches(self.requirements, labels)

    def as_json(self) -> Any:
        """As a file could have it."""
        limit = {} if self.max_priority == MAX_GUARANTEED_PRIORITY else {"maxPriority": self.max_priority}
        if self.name:
            return {"name": self.name, **limit} if limit else self.name
        return {"matchExpressions": [each.as_json() for each in self.requirements], **limit}


class VirtualClusterAccess(msgspec.Struct, frozen=True):
    """The namespaces that a virtual cluster lists, and the highest priority of any pod in it."""

    namespaces: tuple[NamespaceEntry, ...] = ()
    max_priority: int = MAX_GUARANTEED_PRIORITY


_UNRESTRICTED = VirtualClusterAccess()


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules of access of one configuration.

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
        """True if every namespace may do everything."""
        has_ceiling = any(own.max_priority < MAX_GUARANTEED_PRIORITY for own in self.virtual_clusters.values())
        return self.access is Access.EVERYBODY and self.opportunistic is None and not has_ceiling

    @property
    def needs_labels(self) -> bool:
        """True if a rule or default depends on the labels of namespaces."""
        return bool(self._selectors) or any(entry.requirements for entry in self.opportunistic or ())

    @property
    def tenants(self) -> frozenset[str] | None:
        """The namespaces in which hived may change pods and jobs; None for all."""
        return None if self.rights is Rights.CLUSTER else frozenset(self._ceilings) | self._opportunists

    @property
    def namespaces(self) -> Collection[str]:
        """The namespaces that virtual clusters list by name, in the order of the file."""
        return self._ceilings.keys()

    @property
    def is_ordered(self) -> bool:
        """True if the order of the virtual clusters may decide the default of a namespace."""
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
        """The reason to refuse a pod of this priority in this virtual cluster; "" if it is allowed.

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


NAMESPACE_NAME = Text("the name of a namespace: at most 63 of a-z, 0-9 and '-'", r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = Text("the name of a label, such as example.com/team", LABEL_PATTERN)
_LABELS = MapOf("values of labels by name", LABEL_VALUE, "label", _LABEL)
_VALUES = ListOf("a list of values", LABEL_VALUE)

_Operator = Enum("_Operator", {"IN": IN, "OUT": NOT_IN, "PRESENT": EXISTS, "ABSENT": DOES_NOT_EXIST})
CONDITION = Record(
    "condition",
    "a condition (a mapping)",
    "A condition on a label of a namespace, as in a Kubernetes label selector.",
    (
        Key("key", _LABEL, "the name of the label", is_required=True),
        Key(
            "operator",
            Choice(_Operator, f"one of {', '.join(each.value for each in _Operator)}"),
            "how the label is compared with `values`, or its presence alone",
            is_required=True,
        ),
        Key("values", _VALUES, "at least one with `In` and `NotIn`, none with the others"),
    ),
)

_CONDITIONS = ListOf("a list of conditions", CONDITION)
_A_NAMESPACE = "a namespace (its name, or a mapping)"
SELECTION_KEYS = (
    Key("name", NAMESPACE_NAME, "the name of a namespace; an entry has either this or a selector", is_nullable=False),
    Key("matchLabels", _LABELS, "labels that a namespace has to have, all of them"),
    Key("matchExpressions", _CONDITIONS, "further conditions that a namespace has to fulfil"),
)

OPPORTUNIST = Record("opportunist", _A_NAMESPACE, "Namespaces that may run opportunistically.", SELECTION_KEYS)
NAMESPACE = Record(
    "namespace",
    _A_NAMESPACE,
    "Namespaces that may use a virtual cluster: one by its name, or all that a selector chooses.",
    (
        *SELECTION_KEYS,
        Key(
            "maxPriority",
            Priority(),
            "the highest priority that they have in this virtual cluster; only with `access: namespaces`",
            MAX_GUARANTEED_PRIORITY,
        ),
    ),
)

OPPORTUNISTIC = Record(
    "opportunistic",
    "who may run opportunistically (a mapping)",
    "Who may run opportunistically (priority -1).",
    (
        Key(
            "namespaces",
            ListOf("a list of namespaces, [] for none", Either(NAMESPACE_NAME, OPPORTUNIST)),
            "names of namespaces, or selectors without `maxPriority`; `[]` for none",
            is_required=True,
        ),
    ),
    is_nullable=True,
)

_NAMESPACES = ListOf("a list of namespaces", Either(NAMESPACE_NAME, NAMESPACE))

ACCESS_KEYS = (
    Key(
        "access",
        Choice(Access),
        "the namespaces that may use a virtual cluster: its own list (`namespaces`), or all (`everybody`); see "
        "[access](#access-to-virtual-clusters)",
        Access.EVERYBODY,
    ),
    Key(
        "opportunistic",
        OPPORTUNISTIC,
        "the namespaces that may run opportunistically: see [access](#access-to-virtual-clusters)",
        rule="every namespace, in a virtual cluster that it may use",
    ),
    Key(
        "rights",
        Choice(Rights),
        "where hived's account may change pods and jobs: in the whole `cluster`, or in the `namespaces` that virtual "
        "clusters list by name: see [permissions](install.md#permissions)",
        Rights.CLUSTER,
    ),
)
USER_KEYS = (
    Key(
        "namespaces",
        _NAMESPACES,
        "the namespaces that may use it, as names or mappings; see [access](#access-to-virtual-clusters). Their "
        "pods are in it unless they name another",
    ),
    Key(
        "maxPriority",
        Priority(),
        "the highest priority that any pod has in it: a number, or a word as in `priorityClasses`",
        MAX_GUARANTEED_PRIORITY,
    ),
)
"""Of a virtual cluster."""


def read_opportunistic(reader: Reader, node: yaml.Node | None) -> tuple[NamespaceEntry, ...] | None:
    """Read the namespaces under `opportunistic`; None if it is left out."""
    if node is None or is_null(node):
        return None
    given = OPPORTUNISTIC.given(reader, node)
    return NamespaceReader(reader, Access.NAMESPACES, OPPORTUNIST).entries(given)


def check_opportunists(reader: Reader, node: yaml.Node | None, rules: AccessRules) -> None:
    """Warn of namespaces that are opportunistic only, but are not listed under `opportunistic`, which is at `node`.

    A selector in either list leaves it open, since labels of namespaces are not known here.
    """
    opportunistic = rules.opportunistic or ()
    if node is None or rules.access is Access.EVERYBODY or any(entry.requirements for entry in opportunistic):
        return
    for vc, own in rules.virtual_clusters.items():
        has_selector = any(entry.requirements for entry in own.namespaces)
        for name in () if has_selector else (entry.name for entry in own.namespaces):
            if _may_run_nothing(rules, name, vc):
                expected = f"it as well: in {shorten(vc)} it may run opportunistically only"
                reader.note(node, f"no namespace {shorten(name)}", expected, is_warning=True)


def check_rights(reader: Reader, node: yaml.Node | None, rules: AccessRules) -> None:
    """Note `rights`, at `node`, for namespaces that are not listed by name."""
    if node is None or rules.rights is Rights.CLUSTER:
        return
    if rules.access is Access.EVERYBODY:
        reader.note(
            node, "namespaces, and every namespace may use every virtual cluster", "`access: namespaces`, or cluster"
        )
    elif rules.needs_labels:
        reader.note(
            node, "namespaces, and some are listed by their labels", "names of namespaces in all lists, or cluster"
        )
    elif not rules.tenants:
        reader.note(node, "namespaces, and no virtual cluster lists one", "a namespace listed, or cluster")


def _may_run_nothing(rules: AccessRules, namespace: str, vc: str) -> bool:
    is_limited = rules.ceiling(namespace, {}, vc) == OPPORTUNISTIC_PRIORITY
    return is_limited and bool(rules.refusal(namespace, {}, vc, OPPORTUNISTIC_PRIORITY))


class NamespaceReader:
    """Reads lists of namespaces, each a name or a `record`. Without `access`, nothing is noted that depends on it."""

    def __init__(self, reader: Reader, access: Access | None, record: Record = NAMESPACE) -> None:
        self._reader = reader
        self._access = access
        self._record = record

    def virtual_cluster(self, given: Given) -> VirtualClusterAccess:
        """The users of a virtual cluster."""
        entries = self.entries(given)
        if not entries and self._access is Access.NAMESPACES:
            expected = "at least one under namespaces, or no namespace can use it"
            self._reader.note(given.nodes.get("namespaces", given.node), "no namespace", expected, is_warning=True)
        return VirtualClusterAccess(entries, given.value("maxPriority"))

    def entries(self, given: Given) -> tuple[NamespaceEntry, ...]:
        """The entries of a list; a name that is given twice is noted."""
        found: list[NamespaceEntry] = []
        first: dict[str, yaml.Node] = {}
        for item in _NAMESPACES.items(self._reader, given.part("namespaces")):
            if is_null(item):
                continue
            is_mapping = isinstance(item, yaml.MappingNode)
            entry = self._mapping(item) if is_mapping else NamespaceEntry(NAMESPACE_NAME.read(self._reader, item))
            if entry.name in first:
                line = self._reader.line(first[entry.name])
                twice = f"namespace {shorten(entry.name)} given twice (first on line {line})"
                self._reader.note(item, twice, "each namespace once")
            elif entry.name:
                first[entry.name] = item
            found.append(entry)
        return tuple(found)

    def _mapping(self, node: yaml.Node) -> NamespaceEntry:
        given = self._record.given(self._reader, node)
        ways = [key.name for key in SELECTION_KEYS if key.name in given.nodes]
        if not ways:
            self._reader.missing(node, "name", "name, matchLabels or matchExpressions")
        elif "name" in ways and len(ways) > 1:
            self._reader.note(node, " and ".join(ways), "either a name or a selector")
        labels = given.value("matchLabels", {})
        requirements = (
            *(Requirement(label, IN, (value,)) for label, value in labels.items()),
            *(
                self._requirement(item)
                for item in _CONDITIONS.items(self._reader, given.part("matchExpressions"))
                if not is_null(item)
            ),
        )
        if ways and "name" not in ways and not requirements and all(_is_empty(given.nodes[way]) for way in ways):
            self._reader.note(node, "a selector of every namespace", "at least one label, or access: everybody")
        name = given.value("name") or ""
        return NamespaceEntry(name, () if name else requirements, self._own_priority(given))

    def _own_priority(self, given: Given) -> int:
        """The `maxPriority` of an entry, which has no meaning where all namespaces may use the virtual cluster."""
        node = given.nodes.get("maxPriority")
        if node is None:
            return MAX_GUARANTEED_PRIORITY
        if not is_null(node) and self._access is Access.EVERYBODY:
            expected = "access: namespaces, or maxPriority of the virtual cluster"
            self._reader.note(node, "maxPriority of one namespace while everybody has access", expected)
        priority: int = given.value("maxPriority")
        return priority

    def _requirement(self, node: yaml.Node) -> Requirement:
        reader = self._reader
        given = CONDITION.given(reader, node)
        key, chosen = given.value("key") or "", given.value("operator")
        operator = "" if chosen is None else chosen.value
        values = tuple(given.value("values", ()))
        values_node = given.nodes.get("values", node)
        takes_values = operator in (IN, NOT_IN)
        if takes_values and not values and isinstance(node, yaml.MappingNode):
            reader.note(values_node, "no values", f"at least one with {operator}")
        if operator and not takes_values and values:
            reader.note(values_node, "values", f"none with {operator}")
        return Requirement(key, operator or IN, values)


def _is_empty(node: yaml.Node) -> bool:
    """True for an absent value, and for an empty list or mapping."""
    return is_null(node) or (isinstance(node, yaml.CollectionNode) and not node.value)
