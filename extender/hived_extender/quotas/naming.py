"""Which quota a job belongs to: by its labels, else by its namespace."""

from collections.abc import Mapping

from hived.values.errors import UserError
from hived_config.reader import closest
from hived_extender.quotas.tree import Quota, QuotaTree

LABELS = ("quota.scheduling.alibabacloud.com/name", "quota.scheduling.koordinator.sh/name")
"""Labels of a job that name its quota, by its own name or its full one; the first that is there counts."""

MOST_COMPARED = 200
"""Leaves among which the one is looked for that was meant: jobs are read while turns wait, and anybody may misspell."""


def quota_of(tree: QuotaTree, labels: Mapping[str, str], namespace: str) -> Quota | None:
    """The leaf that a job belongs to, None if the tree has none for it. Cost O(1).

    Raises UserError for a name that is no leaf, or a leaf that lists other namespaces: labels are the words of a job's
    author, and charge nobody else's quota.
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
    is_small = len(leaves) <= MOST_COMPARED
    compared = [each for leaf in leaves for each in (leaf.short_name, leaf.name)] if is_small else []
    near = closest(name, compared)
    hint = f", did you mean {near!r}?" if near else f": name one of {', '.join(leaf.name for leaf in leaves[:8])}"
    return UserError(f"quota {name[:80]!r} is not in the ElasticQuotaTree{hint}")
