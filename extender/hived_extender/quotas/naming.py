"""Which quota a job belongs to: by its labels, else by its namespace."""

from collections.abc import Mapping

from hived.errors import UserError
from hived_config.reader import closest
from hived_extender.quotas.tree import Quota, QuotaTree

LABELS = ("quota.scheduling.alibabacloud.com/name", "quota.scheduling.koordinator.sh/name")
"""Labels of a job that name its quota, by its own name or its full one; the first that is there counts."""


def quota_of(tree: QuotaTree, labels: Mapping[str, str], namespace: str) -> Quota | None:
    """The leaf that a job belongs to, None if the tree has none for it. Raises UserError for a name that is no leaf."""
    said = next((labels[label] for label in LABELS if labels.get(label)), "")
    if said:
        return _named(tree, said)
    return next((leaf for leaf in tree.leaves() if namespace in leaf.namespaces), None)


def _named(tree: QuotaTree, name: str) -> Quota:
    leaves = {leaf.name: leaf for leaf in tree.leaves()}
    leaves |= {leaf.short_name: leaf for leaf in tree.leaves()}
    if name in leaves:
        return leaves[name]
    if any(name in (quota.name, quota.short_name) for quota in tree.quotas.values()):
        raise UserError(f"quota {name[:80]!r} has children: name one of its leaves")
    near = closest(name, leaves)
    hint = f", did you mean {near!r}?" if near else f": name one of {', '.join(sorted(leaves)[:8])}"
    raise UserError(f"quota {name[:80]!r} is not in the ElasticQuotaTree{hint}")
