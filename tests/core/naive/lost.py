"""Leaves that are bad singly: which are lost, and cells that are exchanged for less bad ones."""

from collections.abc import Iterable

from hived.values.events import LeavesLost
from hived.values.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY
from tests.core.naive.cluster import Cluster
from tests.core.naive.model import PhysicalCell


def lose_leaves(cluster: Cluster, event: LeavesLost) -> None:
    """First what is lost is noted, then leaves turn bad, then others healthy."""
    leaves = [leaf for leaf in cluster.leaves_of(event.node) if cluster.chains[leaf.chain].leaf_type == event.leaf_type]
    known = [leaf for leaf in leaves if leaf.index in event.known]
    before = [leaf for leaf in leaves if leaf.is_lost]
    chosen = choose(cluster, leaves, known, event.count)
    for leaf in leaves:
        leaf.is_lost = leaf in chosen
    for leaf in leaves:
        if leaf in chosen and leaf not in before:
            cluster.set_bad(leaf)
    for leaf in leaves:
        if leaf in before and leaf not in chosen and event.node not in cluster.bad_nodes:
            cluster.set_healthy(leaf)


def choose(cluster: Cluster, leaves: list[PhysicalCell], known: list[PhysicalCell], count: int) -> list[PhysicalCell]:
    """The known ones, and as many others as are wanted, always the one that hurts least next."""
    chosen = list(known)
    while len(chosen) < min(count, len(leaves)):
        left = [leaf for leaf in leaves if leaf not in chosen]
        chosen.append(min(left, key=lambda leaf: cost(cluster, leaf, left, chosen, count - len(chosen))))
    return chosen


def rank(cluster: Cluster, leaf: PhysicalCell) -> tuple:
    return leaf.priority > FREE_PRIORITY, not leaf.is_lost, leaf.priority, not cluster.is_free(leaf)


def cost(
    cluster: Cluster, leaf: PhysicalCell, left: list[PhysicalCell], chosen: Iterable[PhysicalCell], wanted: int
) -> tuple:
    """How much it hurts to lose this leaf; then whole cells that it breaks; then how many may follow beside it."""
    inside = [cell for cell in leaf.up() if 1 < cell.level <= cluster.chains[leaf.chain].node_level]
    broken = [cell for cell in inside if not cell.is_split and not set(chosen) & set(cell.leaves)]
    beside = [other for other in left if other.parent is leaf.parent and rank(cluster, other) == rank(cluster, leaf)]
    return *rank(cluster, leaf), len(broken), -min(len(beside), wanted)


def exchange_doomed(cluster: Cluster, node: str) -> None:
    """Doomed cells that nobody uses go back for free ones with fewer bad leaves, if either is above or below a node."""
    for name, chain in cluster.chains.items():
        has_exchanged = False
        for level in reversed(chain.levels) if cluster.has_lost(name) else ():
            if has_exchanged:
                cluster.unbind_doomed(name, level)
                cluster.bind_doomed(name, level)
            leaves = [leaf for leaf in chain.leaves() if leaf.node == node]
            for cell in dict.fromkeys(leaf.ancestor_at(level) for leaf in leaves):
                has_exchanged |= exchange(cluster, cell)


def exchange(cluster: Cluster, cell: PhysicalCell) -> bool:
    place = cell.chain, cell.level
    doomed, free = [], []
    if cluster.is_free(cell) and not cell.is_healthy:
        free = [cell]
        doomed = [cluster.worst_idle_doomed(vc, *place) for vc in cluster.vcs]
    elif cluster.is_doomed(cell) and cell.priority < MIN_GUARANTEED_PRIORITY:
        free = [cluster.least_bad_free(*place)]
        doomed = [cell]
    for worse in doomed:
        for better in free:
            if worse is not None and better is not None and cluster.bad_count(better) < cluster.bad_count(worse):
                cluster.release_doomed(worse.bound.vc.name, worse)
                cluster.bind_doomed(*place)
                return True
    return False
