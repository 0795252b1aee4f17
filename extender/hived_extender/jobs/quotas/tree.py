"""A tree of quotas, read from an ElasticQuotaTree. Values only.

Which quota a job belongs to: by its labels, else by its namespace.

An ElasticQuotaTree (`scheduling.sigs.k8s.io/v1beta1`) as a tree of quotas, and all rules that it has to keep.

Every mistake is told at once, with its place in the object. Its authors are not trusted, so depth and number are
bounded.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived_config.quantities import quantity
from hived_config.reader import closest

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


LABELS = ("quota.scheduling.alibabacloud.com/name", "quota.scheduling.koordinator.sh/name")
"""Labels of a job that name its quota, by its own name or its full one; the first that is there counts."""

MOST_LEAVES_COMPARED = 200
"""Leaves among which the one is looked for that was meant: jobs are read while turns wait, and authors misspell."""


def quota_of(tree: QuotaTree, labels: Mapping[str, str], namespace: str) -> Quota | None:
    """The leaf that a job belongs to (rule 25.2), None if the tree has none for it. Cost O(1).

    Raises UserError for a name that is no leaf, or a leaf that lists other namespaces: a job's author writes the
    labels, and must not charge the quota of others.
    """
    own = tree.leaf_of_namespace.get(namespace)
    said = next((labels[label] for label in LABELS if labels.get(label)), "")
    if not said:
        return own
    leaf = tree.by_name.get(said)
    if leaf is None:
        raise _unknown(tree, said)
    if not leaf.is_leaf:
        raise UserError(f"quota {said[:80]!r} has children: name one of its leaves")
    if leaf.namespaces and own is not leaf:
        instead = f"name {own.name}, which does" if own is not None else "leave the label out, or have it listed there"
        raise UserError(f"quota {leaf.name} does not list namespace {namespace}: {instead}")
    return leaf


def _unknown(tree: QuotaTree, name: str) -> UserError:
    leaves = list(tree.leaves())
    is_small = len(leaves) <= MOST_LEAVES_COMPARED
    compared = [each for leaf in leaves for each in (leaf.short_name, leaf.name)] if is_small else []
    near = closest(name, compared)
    hint = f", did you mean {near!r}?" if near else f": name one of {', '.join(leaf.name for leaf in leaves[:8])}"
    return UserError(f"quota {name[:80]!r} is not in the ElasticQuotaTree{hint}")


NAMESPACE = "kube-system"
"""Trees in other namespaces do not count."""

MOST_QUOTAS, MOST_LEVELS, LONGEST_NAME, MOST_MISTAKES = 10_000, 32, 253, 50
UNLIMITED = 2**31 - 1
"""As much, or more, is no limit; of bytes as many times as much, since 2 GiB is none."""

MAX_JOBS = "kube-queue/max-jobs"
LEND_LIMIT = "alibabacloud.com/lendlimit"
OVERSELL = "oversellrate"
VIRTUAL_CLUSTER = "hivedscheduler.microsoft.com/virtual-cluster"
DRAIN = "hivedscheduler.microsoft.com/over-quota"
FIELDS = ("name", "namespaces", "min", "max", "attributes", "children")
ATTRIBUTES = (LEND_LIMIT, OVERSELL, VIRTUAL_CLUSTER, DRAIN, "resourceflavors", "preempt-policy")
"""The last ones are Kube Queue's alone."""

ALIKE = 0.8
"""So much of the letters of two names are the same if one is the other misspelt."""

MOST_COMPARED, MOST_RESOURCES = 200, 100
"""Unknown words of a tree that are compared with others, and with how many: its author is not trusted."""

DRAINS = ("wait", "preempt-newest", "preempt-least-work")

Amounts = dict[str, float]
Object = Mapping[str, Any]


class _Node(msgspec.Struct):
    """A quota as it stands in the object."""

    quota: Quota
    place: str


class _Reader:
    """Reads one object, and notes every mistake."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []
        self.nodes: list[_Node] = []
        self.oversell = 1.0

    def note(self, place: str, found: str, expected: str) -> None:
        self.mistakes.append(f"{place}: {found}; expected {expected}")

    def read(self, value: object, place: str, parent: str, depth: int, vc: str) -> str:
        """A quota and all below it; returns its full name, "" if it has none."""
        if not isinstance(value, Mapping):
            self.note(place, f"found {_shown(value)}", "an object with name, min and max")
            return ""
        if depth > MOST_LEVELS or len(self.nodes) >= MOST_QUOTAS:
            self.note(place, "too deep or too many", f"at most {MOST_LEVELS} levels and {MOST_QUOTAS} quotas")
            return ""
        name = ROOT if not parent else self._name(value, place, parent)
        if not name:
            return ""
        attributes = self._mapping(value.get("attributes"), f"{place}.attributes")
        vc = str(attributes.get(VIRTUAL_CLUSTER) or vc)
        least, most = (self._amounts(value.get(key), f"{place}.{key}") for key in ("min", "max"))
        most_jobs = most.pop(MAX_JOBS, None)
        if most_jobs is not None and most_jobs % 1:
            if not math.isnan(most_jobs):  # that is told already
                self.note(f"{place}.max.{MAX_JOBS}", f"found {most_jobs:g}", "a whole number of jobs")
            most_jobs = None
        least.pop(MAX_JOBS, None)
        if not parent:
            least |= most
        node = _Node(Quota(name), place)
        self.nodes.append(node)
        children = self._children(value, place, name, depth, vc)
        node.quota = Quota(
            name,
            parent,
            children,
            self._namespaces(value.get("namespaces"), f"{place}.namespaces", is_leaf=not children),
            least,
            {key: amount for key, amount in most.items() if not is_unlimited(key, amount)},
            self._lend_limit(attributes, place, least),
            int(most_jobs) if most_jobs is not None and most_jobs < UNLIMITED else None,
            self._drain(attributes, place),
            vc,
        )
        if not parent:
            self.oversell = self._rate(attributes, place)
        return name

    def _name(self, value: Object, place: str, parent: str) -> str:
        name = value.get("name")
        if isinstance(name, str) and name and "/" not in name and len(name) <= LONGEST_NAME:
            return f"{parent}/{name}"
        self.note(f"{place}.name", f"found {_shown(name)}", f"a name without '/', at most {LONGEST_NAME} characters")
        return ""

    def _children(self, value: Object, place: str, name: str, depth: int, vc: str) -> tuple[str, ...]:
        children = value.get("children")
        if children is None:
            return ()
        if not isinstance(children, list):
            self.note(f"{place}.children", f"found {_shown(children)}", "a list")
            return ()
        read = (
            self.read(child, f"{place}.children[{index}]{_called(child)}", name, depth + 1, vc)
            for index, child in enumerate(children)
        )
        return tuple(filter(None, read))

    def _namespaces(self, value: object, place: str, *, is_leaf: bool) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self.note(place, f"found {_shown(value)}", "a list of names")
            return ()
        if value and not is_leaf:
            self.note(place, "namespaces of a quota that has children", "namespaces at its leaves only")
        return tuple(value)

    def _amounts(self, value: object, place: str) -> Amounts:
        found: Amounts = {}
        for name, given in self._mapping(value, place).items():
            amount = quantity(given)
            if amount is None:
                self.note(f"{place}.{name}", f"found {_shown(given)}", "a quantity of at least 0, such as 8 or 64Gi")
            found[name] = math.nan if amount is None else amount  # that is neither more nor less, so it is told once
        return found

    def _lend_limit(self, attributes: Object, place: str, least: Amounts) -> Amounts:
        text = attributes.get(LEND_LIMIT)
        if text is None:
            return {}
        where = f"{place}.attributes.{LEND_LIMIT}"
        try:
            value = msgspec.json.decode(str(text))
        except (ValueError, RecursionError):
            self.note(where, f"found {_shown(text)}", 'JSON such as {"nvidia.com/gpu": 8}')
            return {}
        found = self._amounts(value, where)
        for name, amount in found.items():
            if amount > least.get(name, 0.0):
                self.note(f"{where}.{name}", f"{amount:g} is more than min {least.get(name, 0.0):g}", "at most min")
        return found

    def _drain(self, attributes: Object, place: str) -> str:
        said = attributes.get(DRAIN, DRAINS[0])
        if said not in DRAINS:
            self.note(f"{place}.attributes.{DRAIN}", f"found {_shown(said)}", f"one of {', '.join(DRAINS)}")
            return DRAINS[0]
        return str(said)

    def _rate(self, attributes: Object, place: str) -> float:
        rate = quantity(attributes.get(OVERSELL, "1"))
        if rate is None or not rate > 0:
            found = _shown(attributes.get(OVERSELL))
            self.note(f"{place}.attributes.{OVERSELL}", f"found {found}", "a number above 0, such as 1.2")
            return 1.0
        return rate

    def _mapping(self, value: object, place: str) -> Object:
        if value is None or isinstance(value, Mapping):
            return value or {}
        self.note(place, f"found {_shown(value)}", "an object")
        return {}


def is_unlimited(resource: str, amount: float) -> bool:
    """Is this much of a resource no limit?"""
    is_bytes = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return amount >= (UNLIMITED * 2**30 if is_bytes else UNLIMITED)


def names_of(document: Object) -> tuple[str, str]:
    """The namespace and the name of an object, "" for one that is missing."""
    metadata = document.get("metadata")
    given = metadata if isinstance(metadata, Mapping) else {}
    return str(given.get("namespace") or ""), str(given.get("name") or "")


def read_tree(document: Object) -> QuotaTree:
    """The tree of an object (rule 25.1).

    Raises UserError, which lists every mistake with its place; of very many the first `MOST_MISTAKES`, and their
    number.
    """
    reader = _Reader()
    spec = document.get("spec")
    root = spec.get("root") if isinstance(spec, Mapping) else None
    if not isinstance(root, Mapping):
        raise UserError(f"spec.root: found {_shown(root)}; expected an object with name, min, max and children")
    reader.read(root, "spec.root", "", 1, "")
    _check_names(reader)
    _check_amounts(reader)
    if reader.mistakes:
        more = len(reader.mistakes) - MOST_MISTAKES
        rest = [f"and {more} more mistakes"] if more > 0 else []
        raise UserError("\n".join(reader.mistakes[:MOST_MISTAKES] + rest))
    return QuotaTree({node.quota.name: node.quota for node in reader.nodes}, reader.oversell)


def misspelt_in(document: Object) -> list[str]:
    """The words of a sound tree that mean nothing, each with its place; of very many the first `MOST_MISTAKES`.

    They break no rule, as Kube Queue ignores them too. Attributes and resources may be of other programs, so only near
    misses are named. Cost O(quotas x resources), and `MOST_COMPARED` comparisons.
    """
    found = _unequal_of_root(document["spec"]["root"])[:MOST_MISTAKES]
    near: dict[tuple[str, str], str] = {}  # by kind of word, and the word
    for place, kind, word, known in _unknown_words(document):
        if (kind, word) not in near and len(near) < MOST_COMPARED:
            near[kind, word] = closest(word, known) if known is FIELDS else alike(word, known)
        meant = near.get((kind, word), "")
        if meant or known is FIELDS:
            hint = f"did you mean {meant}?" if meant else f"expected one of {', '.join(known)}"
            found.append(f"{place}.{word[:LONGEST_NAME]}: means nothing, {hint}")
        if len(found) == MOST_MISTAKES:
            break
    return found


def _unequal_of_root(root: Object) -> list[str]:
    """Each resource of which the root has another `min` than `max`. Kube Queue takes that too."""
    least, most = root.get("min") or {}, root.get("max") or {}
    return [
        f"spec.root: min {name[:LONGEST_NAME]} is {least.get(name, 'absent')} and max {most.get(name, 'absent')}: "
        f"{'the max counts for both' if name in most else 'without a max there is no limit'}; make them equal"
        for name in dict.fromkeys((*most, *least))
        if name != MAX_JOBS and quantity(least.get(name)) != quantity(most.get(name))
    ]


def _unknown_words(document: Object) -> Iterator[tuple[str, str, str, Collection[str]]]:
    """(place, kind of word, word, known words) of each unknown word."""
    root = document["spec"]["root"]
    resources = dict.fromkeys((MAX_JOBS, *(root.get("min") or ()), *(root.get("max") or ())))
    left: list[tuple[str, Object]] = [("spec.root", root)]
    while left:
        place, quota = left.pop()
        yield from ((place, "field", word, FIELDS) for word in quota if word not in FIELDS)
        parts: dict[str, Collection[str]] = {"attributes": ATTRIBUTES, "min": resources, "max": resources}
        for part, known in parts.items():
            words = (word for word in quota.get(part) or () if word not in known)
            yield from ((f"{place}.{part}", part, word, known) for word in words)
        children = list(enumerate(quota.get("children") or ()))
        left += [(f"{place}.children[{index}]{_called(child)}", child) for index, child in reversed(children)]


def alike(word: str, known: Collection[str]) -> str:
    """The known word that this one is misspelt, "" if it is another one. Cost: `MOST_RESOURCES` comparisons."""
    compared = islice(known, MOST_RESOURCES)
    return next(iter(get_close_matches(word[:LONGEST_NAME], compared, n=1, cutoff=ALIKE)), "")


def _check_names(reader: _Reader) -> None:
    seen: dict[str, str] = {}
    namespaces: dict[str, str] = {}
    for node in reader.nodes:
        short = node.quota.short_name
        if short in seen:
            reader.note(f"{node.place}.name", f"{short!r} stands at {seen[short]} as well", "names that are unique")
        seen.setdefault(short, node.place)
        for namespace in node.quota.namespaces:
            if namespace in namespaces:
                found = f"namespace {namespace} is in {namespaces[namespace]} as well"
                reader.note(f"{node.place}.namespaces", found, "each namespace in one quota")
            namespaces.setdefault(namespace, node.quota.name)


def _check_amounts(reader: _Reader) -> None:
    quotas = {node.quota.name: node.quota for node in reader.nodes}
    for node in reader.nodes:
        quota = node.quota
        for name, least in quota.min.items():
            most = quota.max.get(name)
            if most is not None and least > most:
                reader.note(node.place, f"min {name} is {least:g}, more than max {most:g}", "min of at most max")
        _check_children(reader, node, quotas)
        parent = quotas.get(quota.parent)
        for name, most in parent.max.items() if parent is not None else ():
            own = quota.max.get(name)
            if own is not None and own > most:
                found = f"max {name} is {own:g}, its parent's {most:g}"
                reader.note(node.place, found, "a max of at most the parent's")


def _check_children(reader: _Reader, node: _Node, quotas: Mapping[str, Quota]) -> None:
    """The min of children are promised out of their parent's, which is 0 where it is absent."""
    own, below = node.quota.min, dict[str, float]()
    for child in node.quota.children:
        for name, amount in quotas[child].min.items():
            below[name] = below.get(name, 0.0) + amount
    for name, amount in below.items():
        least = own.get(name, 0.0)
        if amount > least and not is_unlimited(name, least):
            near = "" if name in own else alike(name, own)
            hint = f", did they mean {near}?" if near else ""
            found = f"the min {name} of its children are {amount:g} together, its own is {_amount(own.get(name))}{hint}"
            reader.note(node.place, found, "a min of at least the sum of its children's")


def _called(value: object) -> str:
    name = value.get("name") if isinstance(value, Mapping) else None
    return f" ({name[:40]})" if isinstance(name, str) and name else ""


def _amount(value: float | None) -> str:
    return "absent" if value is None else f"{value:g}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:56] + "..."
