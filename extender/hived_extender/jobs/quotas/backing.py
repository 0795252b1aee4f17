"""The virtual cluster that backs a quota, and the admission of a tree before it is stored.

Only a tree that breaks a rule is refused. A likely mistake gets a warning: a `min` that is no sum of cells, or a word
that means nothing. A change that leaves the tree as it is passes, so that labels and finalizers can be changed.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_config.division import divide
from hived_config.reader import closest
from hived_extender.jobs.quotas.tree import (
    NAMESPACE,
    ROOT,
    VIRTUAL_CLUSTER,
    Quota,
    QuotaTree,
    alike,
    misspelt_in,
    names_of,
    read_tree,
)

MOST_NAMED = 8
"""Leaves that are named in one warning."""

Sizes = dict[int, int]
"""Numbers of cells by their devices."""


def virtual_cluster_of(quota: Quota, cluster: ClusterSpec) -> str:
    """The virtual cluster of a leaf's jobs (rule 25.7); "" if the job or its namespace decides."""
    named = quota.vc or quota.short_name
    return named if named in cluster.virtual_clusters else ""


def cells_of(cluster: ClusterSpec, resources: Mapping[str, str]) -> dict[str, dict[str, Sizes]]:
    """By virtual cluster and device resource, how many cells of each size it is promised, pinned ones included.

    A size is a number of devices. `resources` has the device resource of each leaf cell type that stands for devices.
    Cost O(entries of the configuration).
    """
    found: dict[str, dict[str, Sizes]] = {vc: {} for vc in cluster.virtual_clusters}
    for chain in divide(cluster):
        leaf_type = chain.levels[-1].cell_type
        if leaf_type not in resources:
            continue
        sku = cluster.sku_types.get(leaf_type)
        for level in chain.levels:
            size = level.leaf_count * (sku.gpu if sku is not None else 1)
            for counts in (level.promised, level.pinned):
                for vc, count in counts.items():
                    sizes = found[vc].setdefault(resources[leaf_type], {})
                    sizes[size] = sizes.get(size, 0) + count
    return found


def fit_warnings(tree: QuotaTree, cluster: ClusterSpec, resources: Mapping[str, str]) -> list[str]:
    """Warnings where a tree does not fit the cluster: its root, then its leaves. `resources` as for `cells_of`."""
    found = root_warnings(tree, devices_of(cluster, resources))
    return [*found, *leaf_warnings(tree, cluster, resources)]


def leaf_warnings(tree: QuotaTree, cluster: ClusterSpec, resources: Mapping[str, str]) -> list[str]:
    """The same without how much the root has."""
    cells = cells_of(cluster, resources)
    found = _misspelt_resources(tree, devices_of(cluster, resources))
    return [*found, *shape_warnings(tree, cells), *_unbacked(tree, cells)]


def _misspelt_resources(tree: QuotaTree, devices: Mapping[str, int]) -> list[str]:
    """Resources of the root that no cells have, and that are nearly one. `misspelt_in` compares others with these."""
    root = tree.quotas[ROOT]
    others = [name for name in dict.fromkeys((*root.min, *root.max)) if name not in devices]
    near = {name: alike(name, devices) for name in others}
    return [f"{ROOT}: no cell has {name}, did you mean {meant}?" for name, meant in near.items() if meant]


def _unbacked(tree: QuotaTree, cells: Mapping[str, object]) -> list[str]:
    """Leaves with a `min` that no virtual cluster backs, as none has their name and they name none: the first ones."""
    names = [one for one in tree.leaves() if not one.vc and one.short_name not in cells and any(one.min.values())]
    if not names:
        return []
    hints = {leaf.name: closest(leaf.short_name, cells) for leaf in names[:MOST_NAMED]}
    shown = ", ".join(f"{name} (did you mean {near}?)" if near else name for name, near in hints.items())
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return [
        f"{shown}{more}: no virtual cluster has this name, so min is no promise of cells, and jobs run where their "
        f"pods ask; the attribute {VIRTUAL_CLUSTER} names one"
    ]


def devices_of(cluster: ClusterSpec, resources: Mapping[str, str]) -> dict[str, int]:
    """The devices of each resource in the cells of a cluster. Cost O(entries of the configuration)."""
    found: dict[str, int] = {}
    for chain in divide(cluster):
        leaf_type = chain.levels[-1].cell_type
        if leaf_type in resources:
            sku = cluster.sku_types.get(leaf_type)
            count = chain.leaf_count * (sku.gpu if sku is not None else 1)
            found[resources[leaf_type]] = found.get(resources[leaf_type], 0) + count
    return found


def root_warnings(tree: QuotaTree, devices: Mapping[str, int]) -> list[str]:
    """Warnings where the root has more devices than the cluster, times its rate; an unlimited root has not."""
    times = "" if tree.oversell == 1.0 else f", times the oversellrate {tree.oversell:g}"
    return [
        f"{ROOT}: max is {most:g} {name}{times}, and the cluster has {count}: quotas below it may "
        f"promise more than there is; give {math.floor(count / tree.oversell)}"
        for name, count in devices.items()
        if (most := tree.quotas[ROOT].max.get(name, 0.0)) * tree.oversell > count
    ]


def shape_warnings(tree: QuotaTree, cells: Mapping[str, Mapping[str, Mapping[int, int]]]) -> list[str]:
    """Warnings about leaves whose `min` is no sum of cells, with the nearest sums (rule 25.8).

    And about leaves of one virtual cluster that are promised more than it has, or that name one that does not exist.

    `cells` is as `cells_of` returns it. Cost O(leaves + devices x sizes).
    """
    found: list[str] = []
    promised: dict[tuple[str, str], float] = {}
    sums: dict[tuple[str, str], int] = {}
    for leaf in tree.leaves():
        vc = leaf.vc or leaf.short_name
        if leaf.vc and leaf.vc not in cells:
            near = closest(vc, cells)
            hint = f", did you mean {near!r}?" if near else ""
            found.append(f"{leaf.name}: virtual cluster {vc[:80]!r} is not in the configuration{hint}")
        for resource, amount in leaf.min.items():
            sizes = cells.get(vc, {}).get(resource)
            if sizes is None or not amount:
                continue
            key = vc, resource
            promised[key] = promised.get(key, 0.0) + amount
            if key not in sums:
                sums[key] = _sums(sizes)
            below, above = _nearest(sums[key], amount)
            if below != amount:
                near = f"nearest is {below:g}" if above is None else f"nearest are {below:g} and {above:g}"
                found.append(
                    f"{leaf.name}: min is {amount:g} {resource}, and virtual cluster {vc} is promised cells of "
                    f"{_listed(sizes)}: {near}"
                )
    for (vc, resource), amount in promised.items():
        total = sum(size * count for size, count in cells[vc][resource].items())
        if amount > total:
            found.append(f"the min of the quotas of virtual cluster {vc} are {amount:g} {resource}, it has {total}")
    return found


def _sums(sizes: Mapping[int, int]) -> int:
    """Bit i is set if some cells have i devices together."""
    found = 1
    for size, count in sizes.items():
        part, left = 1, count
        while left:  # parts of 1, 2, 4, ... cells and a rest: every number of cells is a sum of some
            part = min(part, left)
            found |= found << size * part
            part, left = 2 * part, left - part
    return found


def _nearest(sums: int, amount: float) -> tuple[float, float | None]:
    """The largest sum of some cells that is at most an amount, and the least that is at least so."""
    whole = min(int(amount), sums.bit_length() - 1)
    below = (sums & (1 << whole + 1) - 1).bit_length() - 1
    if below == amount:
        return float(below), float(below)
    higher = sums >> whole + 1
    return float(below), None if not higher else float(whole + (higher & -higher).bit_length())


def _listed(sizes: Mapping[int, int]) -> str:
    return " and ".join(f"{count} x {size}" for size, count in sorted(sizes.items(), reverse=True))


MOST_WARNINGS = 20

Object = Mapping[str, Any]
Beside = Callable[[Object, QuotaTree], list[str]]
"""Gives warnings about a tree that follow from all that runs now; may be called on any thread."""


class Verdict(msgspec.Struct, frozen=True):
    """The reason why a tree is refused, "" if it is not, and warnings for its author."""

    refusal: str = ""
    warnings: tuple[str, ...] = ()


def judge(
    document: Object,
    old: Object | None,
    cluster: ClusterSpec,
    resources: Mapping[str, str],
    beside: Beside | None = None,
) -> Verdict:
    """The verdict about an object that is created, or changed from `old`. Raises nothing that the object causes.

    `resources` has the device resource of each leaf cell type that stands for devices.
    """
    if old is not None and old.get("spec") == document.get("spec"):
        return Verdict()
    if names_of(document)[0] not in ("", NAMESPACE):
        return Verdict(warnings=(f"trees count in namespace {NAMESPACE} only, so this one changes nothing",))
    try:
        tree = read_tree(document)
    except UserError as error:
        return Verdict(f"the quota tree breaks rules, and is not stored:\n{error.message}")
    warnings = [*misspelt_in(document), *fit_warnings(tree, cluster, resources)]
    if beside is not None:
        warnings += beside(document, tree)
    more = len(warnings) - MOST_WARNINGS
    return Verdict(warnings=(*warnings[:MOST_WARNINGS], *([f"and {more} more warnings"] if more > 0 else [])))
