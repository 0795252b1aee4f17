"""Invariants that must hold after every event (rule 4.6)."""

from hived.values.errors import InvariantError
from hived.values.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY
from tests.core.naive.cluster import Cluster
from tests.core.naive.model import ALLOCATED, FREE, PREEMPTING, RESERVED, RESERVING, USED, PhysicalCell


def require(holds: bool, *what: object) -> None:
    if not holds:
        raise InvariantError(" ".join(map(str, what)))


def check(cluster: Cluster) -> None:
    for cell in cluster.physical_cells():
        check_binding(cell)
        if cell.level > 1:
            require(
                cell.is_healthy == all(child.is_healthy for child in cell.children),
                cell,
                "health is not its children's",
            )
        else:
            check_leaf(cluster, cell)
            is_bad = cell.is_lost or cell.node in cluster.bad_nodes
            require(cell.is_healthy != is_bad, cell, "health is not its own and its node's")
    for virtual in cluster.virtual_cells():
        require(virtual.bound is None or virtual.bound.bound is virtual, virtual, "binding is not mutual")
        require(virtual.leaf_priority == FREE_PRIORITY or virtual.level == 1, virtual, "only leaves have a priority")
    check_groups(cluster)
    for name in cluster.chains:
        check_lists(cluster, name)


def check_binding(cell: PhysicalCell) -> None:
    virtual = cell.bound
    if virtual is None:
        return
    require(virtual.bound is cell, cell, "binding is not mutual")
    require(virtual.level == cell.level and virtual.chain == cell.chain, cell, "is bound across levels")
    if virtual is not virtual.root:
        require(virtual.parent.bound is cell.parent, cell, "and its parent are bound apart")
    else:
        require(cell.parent is None or cell.parent.bound is None, cell, "is bound at its root below a bound cell")


def check_leaf(cluster: Cluster, leaf: PhysicalCell) -> None:
    expected = {FREE: (False, False), USED: (True, False), RESERVING: (True, True), RESERVED: (False, True)}
    require(
        (leaf.using is not None, leaf.reserving is not None) == expected[leaf.state], leaf, "state and groups differ"
    )
    require((leaf.state == FREE) == (leaf.priority == FREE_PRIORITY), leaf, "state and priority differ")
    if leaf.priority >= MIN_GUARANTEED_PRIORITY:
        require(leaf.bound is not None and leaf.bound.priority == leaf.priority, leaf, "is guaranteed but not bound")
    else:
        require(leaf.bound is None or leaf.bound.priority == FREE_PRIORITY, leaf, "is bound at another priority")
    require((leaf.priority == -1) == (leaf.opportunistic_entry is not None), leaf, "opportunistic entry is wrong")
    require(leaf.is_healthy or cluster.is_free(leaf) or leaf.bound is not None, leaf, "is bad but not shown to its VC")


def check_groups(cluster: Cluster) -> None:
    known: dict[str, dict[PhysicalCell, object]] = {"using": {}, "reserving": {}}
    for group in cluster.groups.values():
        role = "reserving" if group.state == PREEMPTING else "using"
        require(bool(group.preempting) if group.state == PREEMPTING else bool(group.pods()), group.name, "has no pods")
        require(group.state != ALLOCATED or not group.preempting, group.name, "is allocated and preempting")
        for leaf, virtual in group.leaf_pairs():
            if leaf is None:
                continue
            require(leaf not in known[role], leaf, role, "twice")
            known[role][leaf] = group
            require(group.state != ALLOCATED or leaf.state == USED, leaf, "is not used by its allocated group")
            if virtual is not None and leaf.state != RESERVING:
                require(leaf.bound is virtual, leaf, "is not bound as its group says")
    for leaf in cluster.physical_cells():
        if leaf.level == 1:
            require(leaf.using is known["using"].get(leaf), leaf, "is used by a group that does not know it")
            require(
                leaf.reserving is known["reserving"].get(leaf), leaf, "is reserved by a group that does not know it"
            )


def check_lists(cluster: Cluster, name: str) -> None:
    chain = cluster.chains[name]
    listed = [cell for level in chain.levels for cell in cluster.free[name][level]]
    covered = [leaf for cell in listed for leaf in cell.leaves]
    require(len(covered) == len(set(covered)), name, "free cells overlap")
    for cell in listed:
        require(cell.parent is None or cell.parent.is_split, cell, "is free below an unsplit cell")
        for below in cell.subtree():
            require(below.bound is None and not below.is_split, below, "is free but bound or split")
    for top in chain.tops:
        for cell in top.subtree():
            is_root = cell.bound is not None and cell.bound.root is cell.bound
            require(not (is_root and cluster.is_free(cell)), cell, "is allocated and free")
            require(
                cluster.is_free(cell) or cell.is_split or any(above.bound is not None for above in cell.up()),
                cell,
                "is neither free nor split nor allocated",
            )
    require(
        cluster.is_safe(name) or name in cluster.unsafe_chains,
        name,
        "VC safety is broken, not by a replay or doomed cell",
    )
    for level in chain.levels:
        below = [cell for free in listed for cell in free.subtree() if cell.level == level]
        require(cluster.left[name][level] == len(below), name, level, "left", cluster.left[name][level], len(below))
        bad = {cell for cell in below if not cell.is_healthy}
        require(len(cluster.bad[name][level]) == len(bad), name, level, "bad free cells repeat or miss")
        require(set(cluster.bad[name][level]) == bad, name, level, "bad free cells differ")
        for vc in cluster.vcs:
            for cell in cluster.doomed[vc][name][level]:
                require(not cell.is_healthy, cell, "is doomed but healthy")
                require(cell.bound is not None and cell.bound.root is cell.bound, cell, "is doomed but not preassigned")
                require(cell.bound.vc.name == vc, cell, "is doomed for another VC")
