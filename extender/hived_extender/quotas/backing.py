"""Which virtual cluster backs a quota, and how its `min` fits the cells that the virtual cluster is promised."""

from collections.abc import Mapping

from hived.specs import ClusterSpec
from hived_extender.quotas.tree import Quota, QuotaTree


def virtual_cluster_of(quota: Quota, cluster: ClusterSpec) -> str:
    """The virtual cluster of a leaf's jobs: the one that the tree names, else the one of the leaf's name; "" if none.

    Then the job's own words, or its namespace's, decide.
    """
    named = quota.vc or quota.short_name
    return named if named in cluster.virtual_clusters else ""


def shape_warnings(tree: QuotaTree, cells: Mapping[str, Mapping[str, tuple[int, ...]]]) -> list[str]:
    """Where a leaf's `min` is no sum of cells of the virtual cluster that backs it, with the nearest sums.

    And where the leaves of one virtual cluster are promised more than it has.

    `cells` has, by virtual cluster and device resource, the devices of each cell that it is promised. Cost O(leaves x
    cells x devices).
    """
    found: list[str] = []
    promised: dict[tuple[str, str], float] = {}
    for leaf in tree.leaves():
        vc = leaf.vc or leaf.short_name
        for resource, amount in leaf.min.items():
            sizes = cells.get(vc, {}).get(resource)
            if sizes is None or not amount:
                continue
            promised[vc, resource] = promised.get((vc, resource), 0.0) + amount
            below, above = _nearest(sizes, amount)
            if below != amount:
                near = f"{below:g}" if above is None else f"{below:g} and {above:g}"
                found.append(
                    f"{leaf.name}: min is {amount:g} {resource}, and virtual cluster {vc} is promised cells of "
                    f"{_sizes(sizes)}: nearest are {near}"
                )
    for (vc, resource), amount in promised.items():
        total = sum(cells[vc][resource])
        if amount > total:
            found.append(f"the min of the quotas of virtual cluster {vc} are {amount:g} {resource}, it has {total}")
    return found


def _nearest(sizes: tuple[int, ...], amount: float) -> tuple[float, float | None]:
    """The largest sum of some cells that is at most an amount, and the least that is at least so."""
    sums = 1  # bit i: some cells have i devices together
    for size in sizes:
        sums |= sums << size
    whole = int(amount)
    below = next(value for value in range(min(whole, sums.bit_length() - 1), -1, -1) if sums >> value & 1)
    start = whole if whole == amount else whole + 1
    above = next((value for value in range(start, sums.bit_length()) if sums >> value & 1), None)
    return float(below), None if above is None else float(above)


def _sizes(sizes: tuple[int, ...]) -> str:
    counts: dict[int, int] = {}
    for size in sizes:
        counts[size] = counts.get(size, 0) + 1
    return " and ".join(f"{count} x {size}" for size, count in sorted(counts.items(), reverse=True))
