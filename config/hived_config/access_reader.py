"""`access`, `opportunistic` and the `namespaces` of a virtual cluster -> the parts of `AccessRules`."""

import yaml

from hived.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_config.access import Access, AccessRules, NamespaceEntry, Operator, Requirement, Rights, VirtualClusterAccess
from hived_config.kinds import Choice, Either, Given, Key, ListOf, MapOf, Record, Text
from hived_config.reader import Reader, is_null, shorten
from hived_config.rules import Priority
from hived_config.skus import LABEL_PATTERN, LABEL_VALUE

_NAMESPACE = Text("the name of a namespace: at most 63 of a-z, 0-9 and '-'", r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = Text("the name of a label, such as example.com/team", LABEL_PATTERN)
_LABELS = MapOf("values of labels by name", LABEL_VALUE, "label", _LABEL)
_VALUES = ListOf("a list of values", LABEL_VALUE)

CONDITION = Record(
    "condition",
    "a condition (a mapping)",
    "A condition on a label of a namespace, as in a Kubernetes label selector.",
    (
        Key("key", _LABEL, "the name of the label", is_required=True),
        Key(
            "operator",
            Choice(Operator, f"one of {', '.join(each.value for each in Operator)}"),
            "how the label is compared with `values`, or whether there is one",
            is_required=True,
        ),
        Key("values", _VALUES, "at least one with `In` and `NotIn`, none with the others"),
    ),
)

_CONDITIONS = ListOf("a list of conditions", CONDITION)
_A_NAMESPACE = "a namespace (its name, or a mapping)"
SELECTION_KEYS = (
    Key("name", _NAMESPACE, "the name of a namespace; an entry has either this or a selector", is_nullable=False),
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
            ListOf("a list of namespaces, [] for none", Either(_NAMESPACE, OPPORTUNIST)),
            "names of namespaces, or selectors without `maxPriority`; `[]` for none",
            is_required=True,
        ),
    ),
    is_nullable=True,
)

_NAMESPACES = ListOf("a list of namespaces", Either(_NAMESPACE, NAMESPACE))

ACCESS_KEYS = (
    Key(
        "access",
        Choice(Access),
        "who may use a virtual cluster: `namespaces`, those that it lists, or `everybody`: see "
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
        "who may use it, names or mappings: see [access](#access-to-virtual-clusters); their pods have it unless they "
        "name another",
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
    """The namespaces under `opportunistic`; None if it is left out."""
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
    """Note it where `rights`, which are at `node`, are for namespaces that nobody has listed by name."""
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
            expected = "at least one under namespaces, or nobody can use it"
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
            entry = self._mapping(item) if is_mapping else NamespaceEntry(_NAMESPACE.read(self._reader, item))
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
            *(Requirement(label, Operator.IN, (value,)) for label, value in labels.items()),
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
        """The `maxPriority` of an entry, which means nothing where everybody may use the virtual cluster."""
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
        key, operator = given.value("key") or "", given.value("operator")
        values = tuple(given.value("values", ()))
        values_node = given.nodes.get("values", node)
        takes_values = operator in (Operator.IN, Operator.NOT_IN)
        if takes_values and not values and isinstance(node, yaml.MappingNode):
            reader.note(values_node, "no values", f"at least one with {operator.value}")
        if operator and not takes_values and values:
            reader.note(values_node, "values", f"none with {operator.value}")
        return Requirement(key, operator or Operator.IN, values)


def _is_empty(node: yaml.Node) -> bool:
    """Whether nothing stands there that a mistake would be noted of."""
    return is_null(node) or (isinstance(node, yaml.CollectionNode) and not node.value)
