"""`access`, `opportunistic` and the `namespaces` of a virtual cluster -> the parts of `AccessRules`."""

import re
from collections.abc import Mapping

import yaml

from hived.specs import MAX_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY
from hived_config.access import Access, AccessRules, NamespaceEntry, Operator, Requirement, VirtualClusterAccess
from hived_config.reader import Reader, closest, describe, is_null, shorten
from hived_config.rules import read_priority
from hived_config.skus import A_LABEL_VALUE, LABEL, LABEL_VALUE

ACCESS_KEYS = ("access", "opportunistic")
OPPORTUNISTIC_KEYS = ("namespaces",)
SELECTION_KEYS = ("name", "matchLabels", "matchExpressions")
ENTRY_KEYS = (*SELECTION_KEYS, "maxPriority")
REQUIREMENT_KEYS = ("key", "operator", "values")

DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)

_ENTRY = "a namespace (its name, or a mapping)"
_NAMESPACE = "the name of a namespace: at most 63 of a-z, 0-9 and '-'"
_LABEL = "the name of a label, such as example.com/team"
_LIST = "a list of namespaces"


def read_access(reader: Reader, node: yaml.Node | None) -> Access | None:
    """The value of `access`; everybody if it is left out, None after noting that it is none."""
    if node is None or is_null(node):
        return Access.EVERYBODY
    choices = {str(each.value): each for each in Access}
    expected = " or ".join(choices)
    word = reader.text(node, expected)
    if word not in choices and isinstance(node, yaml.ScalarNode):
        reader.note(node, describe(node), expected, closest(word, choices))
    return choices.get(word)


def read_opportunistic(reader: Reader, node: yaml.Node | None) -> tuple[NamespaceEntry, ...] | None:
    """The namespaces under `opportunistic`; None if it is left out."""
    if node is None or is_null(node):
        return None
    what = "who may run opportunistically (a mapping)"
    fields = reader.known_fields(node, what, OPPORTUNISTIC_KEYS)
    expected = f"{_LIST}, [] for none"
    listed = fields.get("namespaces")
    if listed is None:
        reader.missing(node, "namespaces", expected)
        return ()
    if is_null(listed):
        reader.note(listed, "nothing", expected)
    return NamespaceReader(reader, Access.NAMESPACES, SELECTION_KEYS).entries(listed)


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


def _may_run_nothing(rules: AccessRules, namespace: str, vc: str) -> bool:
    is_limited = rules.ceiling(namespace, {}, vc) == OPPORTUNISTIC_PRIORITY
    return is_limited and bool(rules.refusal(namespace, {}, vc, OPPORTUNISTIC_PRIORITY))


class NamespaceReader:
    """Reads lists of namespaces, in which `keys` may stand. Without `access`, nothing is noted that depends on it."""

    def __init__(self, reader: Reader, access: Access | None, keys: tuple[str, ...] = ENTRY_KEYS) -> None:
        self._reader = reader
        self._access = access
        self._keys = keys

    def virtual_cluster(self, node: yaml.Node, fields: Mapping[str, yaml.Node]) -> VirtualClusterAccess:
        """Who may use a virtual cluster, by the fields of its mapping."""
        entries = self.entries(fields.get("namespaces"))
        if not entries and self._access is Access.NAMESPACES:
            expected = "at least one under namespaces, or nobody can use it"
            self._reader.note(fields.get("namespaces", node), "no namespace", expected, is_warning=True)
        return VirtualClusterAccess(entries, self._priority(fields.get("maxPriority")))

    def entries(self, node: yaml.Node | None) -> tuple[NamespaceEntry, ...]:
        """The entries of a list; a name that is given twice is noted."""
        found: list[NamespaceEntry] = []
        first: dict[str, yaml.Node] = {}
        for item in self._reader.items(node, _LIST, _NAMESPACE):
            if is_null(item):
                continue
            entry = self._mapping(item) if isinstance(item, yaml.MappingNode) else NamespaceEntry(self._name(item))
            if entry.name in first:
                line = self._reader.line(first[entry.name])
                twice = f"namespace {shorten(entry.name)} given twice (first on line {line})"
                self._reader.note(item, twice, "each namespace once")
            elif entry.name:
                first[entry.name] = item
            found.append(entry)
        return tuple(found)

    def _mapping(self, node: yaml.Node) -> NamespaceEntry:
        fields = self._reader.known_fields(node, _ENTRY, self._keys)
        ways = [key for key in SELECTION_KEYS if key in fields]
        if not ways:
            self._reader.missing(node, "name", "name, matchLabels or matchExpressions")
        elif "name" in ways and len(ways) > 1:
            self._reader.note(node, " and ".join(ways), "either a name or a selector")
        requirements = (*self._labels(fields.get("matchLabels")), *self._expressions(fields.get("matchExpressions")))
        if ways and "name" not in ways and not requirements and all(_is_empty(fields[way]) for way in ways):
            self._reader.note(node, "a selector of every namespace", "at least one label, or access: everybody")
        name = self._name(fields["name"]) if "name" in fields else ""
        return NamespaceEntry(name, () if name else requirements, self._own_priority(fields.get("maxPriority")))

    def _name(self, node: yaml.Node) -> str:
        name = self._reader.text(node, _NAMESPACE)
        if isinstance(node, yaml.ScalarNode) and not DNS_LABEL.fullmatch(name):
            self._reader.note(node, describe(node), _NAMESPACE)
        return name

    def _own_priority(self, node: yaml.Node | None) -> int:
        """The `maxPriority` of an entry, which means nothing where everybody may use the virtual cluster."""
        if node is not None and not is_null(node) and self._access is Access.EVERYBODY:
            expected = "access: namespaces, or maxPriority of the virtual cluster"
            self._reader.note(node, "maxPriority of one namespace while everybody has access", expected)
        return self._priority(node)

    def _priority(self, node: yaml.Node | None) -> int:
        return MAX_GUARANTEED_PRIORITY if node is None or is_null(node) else read_priority(self._reader, node)

    # ---- selectors

    def _labels(self, node: yaml.Node | None) -> list[Requirement]:
        found = []
        for name, key, value in self._reader.fields(node, "values of labels by name"):
            self._check_label(name, key)
            found.append(Requirement(name, Operator.IN, (self._value(value),)))
        return found

    def _expressions(self, node: yaml.Node | None) -> list[Requirement]:
        what = "a condition (a mapping)"
        items = self._reader.items(node, "a list of conditions", what)
        return [self._requirement(item, what) for item in items if not is_null(item)]

    def _requirement(self, node: yaml.Node, what: str) -> Requirement:
        reader = self._reader
        fields = reader.known_fields(node, what, REQUIREMENT_KEYS)
        key = reader.required_name(node, fields, "key", _LABEL)
        if key:
            self._check_label(key, fields["key"])
        choices = {str(each.value): each for each in Operator}
        expected = f"one of {', '.join(choices)}"
        word = reader.required_name(node, fields, "operator", expected)
        if word and word not in choices:
            reader.note(fields["operator"], describe(fields["operator"]), expected, closest(word, choices))
        operator = choices.get(word, Operator.IN)
        values_node = fields.get("values")
        values = tuple(self._value(each) for each in reader.items(values_node, "a list of values", A_LABEL_VALUE))
        takes_values = operator in (Operator.IN, Operator.NOT_IN)
        if word in choices and takes_values and not values and isinstance(node, yaml.MappingNode):
            reader.note(values_node or node, "no values", f"at least one with {word}")
        if not takes_values and values:
            reader.note(values_node or node, "values", f"none with {word}")
        return Requirement(key, operator, values)

    def _value(self, node: yaml.Node) -> str:
        value = self._reader.text(node, A_LABEL_VALUE)
        if isinstance(node, yaml.ScalarNode) and not LABEL_VALUE.fullmatch(value):
            self._reader.note(node, describe(node), A_LABEL_VALUE)
        return value

    def _check_label(self, name: str, node: yaml.Node) -> None:
        if not LABEL.fullmatch(name):
            self._reader.note(node, f"label {shorten(name)}", _LABEL)


def _is_empty(node: yaml.Node) -> bool:
    """Whether nothing stands there that a mistake would be noted of."""
    return is_null(node) or (isinstance(node, yaml.CollectionNode) and not node.value)
