"""The views for people: the state maps and the JSON shapes (rules 16.2, 16.3)."""

from collections import defaultdict

from hived.values.errors import UserError
from hived.values.specs import FREE_PRIORITY, OPPORTUNISTIC_PRIORITY
from tests.core.naive.cluster import Cluster
from tests.core.naive.model import USED, Group, PhysicalCell, VirtualCell


def health(is_healthy: bool) -> str:
    return "Healthy" if is_healthy else "Bad"


def snapshot(cluster: Cluster) -> tuple[dict, dict, dict]:
    """The maps p, v and g: entries that differ from a fresh healthy cell."""
    p, v = {}, {}
    for cell in cluster.physical_cells():
        bound = cell.bound.address if cell.bound else ""
        entry = [cell.state, health(cell.is_healthy), cell.priority, cell.vc, bound]
        if entry != ["Free", "Healthy", FREE_PRIORITY, "", ""]:
            p[cell.address] = entry
        if cell.opportunistic_entry:
            vc, was_healthy = cell.opportunistic_entry
            v[f"{vc}|{cell.address}-opp"] = [USED, health(was_healthy), OPPORTUNISTIC_PRIORITY, cell.address]
    for cell in cluster.virtual_cells():
        entry = [cell.state, health(cell.is_healthy), cell.priority, cell.bound.address if cell.bound else ""]
        if entry != ["Free", "Healthy", FREE_PRIORITY, ""]:
            v[f"{cell.vc.name}|{cell.address}"] = entry
    return p, v, {name: group_snapshot(group) for name, group in cluster.groups.items()}


def group_snapshot(group: Group) -> dict:
    physical, virtual = placements(group)
    return {
        "vc": group.vc,
        "priority": group.spec.priority,
        "state": group.state,
        "physical": {node: sorted(indices) for node, indices in physical.items()},
        "virtual": {root: sorted(leaves) for root, leaves in virtual.items()},
        "allocated": sorted(pod.uid for pod, _ in group.pods()),
        "preempting": sorted(group.preempting),
        "lazyPreemptor": group.lazy_preemptor,
    }


def placements(group: Group) -> tuple[dict[str, list[int]], dict[str, list[str]]]:
    """{node: device indices} and {preassigned cell: leaf cells}, in group order, without gone leaves (rule 16.3)."""
    physical, virtual = defaultdict(list), defaultdict(list)
    for leaf, v in group.leaf_pairs():
        if leaf is not None:
            physical[leaf.node].append(leaf.index)
        if v is not None:
            virtual[v.root.address].append(v.address)
    return physical, virtual


def inspect(cluster: Cluster, what: str) -> object:
    kind, _, name = what.partition(":")
    match kind:
        case "groups":
            return {"items": [group_json(cluster.groups[g]) for g in sorted(cluster.groups)] or None}
        case "group":
            if name not in cluster.groups:
                raise UserError(f"Affinity group {name} does not exist since it is not allocated or preempting")
            return group_json(cluster.groups[name])
        case "physical":
            return by_address(physical_json(cluster, top) for chain in cluster.chains.values() for top in chain.tops)
        case "vcs":
            return {vc: vc_json(cluster, vc) for vc in cluster.vcs}
        case "vc":
            if name not in cluster.vcs:
                raise UserError(f"VC {name} not found")
            return vc_json(cluster, name)
        case _:
            return {"physicalCluster": inspect(cluster, "physical"), "virtualClusters": inspect(cluster, "vcs")}


def by_address(cells) -> list[dict]:
    return sorted(cells, key=lambda cell: cell["cellAddress"])


def group_json(group: Group) -> dict:
    physical, virtual = placements(group)
    status = {
        "vc": group.vc,
        "priority": group.spec.priority,
        "state": group.state,
        "physicalPlacement": dict(physical),
        "virtualPlacement": dict(virtual),
        "allocatedPods": sorted(pod.uid for pod, _ in group.pods()),
        "preemptingPods": sorted(group.preempting),
        "lazyPreemptionStatus": {"preemptor": group.lazy_preemptor, "preemptionTime": "T"}
        if group.lazy_preemptor
        else 0,
    }
    kept = {key: value for key, value in status.items() if value or key == "priority"}
    return {"metadata": {"name": group.name}, "status": kept}


def own_json(cluster: Cluster, cell: PhysicalCell | VirtualCell) -> dict:
    shown = {
        "cellType": cell.cell_type,
        "cellAddress": cell.address,
        "cellState": cell.state,
        "cellHealthiness": health(cell.is_healthy),
        "cellPriority": cell.priority,
    }
    if cell.parent is None:
        shown["leafCellType"] = cluster.chains[cell.chain].leaf_type
    if cell.is_node_level:
        shown["isNodeLevel"] = True
    if isinstance(cell, PhysicalCell) and cell.vc:
        shown["vc"] = cell.vc
    return shown


def physical_json(cluster: Cluster, cell: PhysicalCell) -> dict:
    return tree_json(cluster, cell, "virtualCell", physical_json)


def virtual_json(cluster: Cluster, cell: VirtualCell) -> dict:
    return tree_json(cluster, cell, "physicalCell", virtual_json)


def tree_json(cluster: Cluster, cell: PhysicalCell | VirtualCell, bound_key: str, child_json) -> dict:
    shown = own_json(cluster, cell)
    if cell.children:
        shown["cellChildren"] = by_address(child_json(cluster, child) for child in cell.children)
    if cell.bound is not None:
        shown[bound_key] = own_json(cluster, cell.bound)
    return shown


def vc_json(cluster: Cluster, name: str) -> list[dict]:
    vc = cluster.vcs[name]
    cells = [virtual_json(cluster, root) for root in [*vc.preassigned, *vc.pinned.values()]]
    for leaf in cluster.physical_cells():
        if leaf.opportunistic_entry and leaf.opportunistic_entry[0] == name:
            cells.append(
                {
                    "cellType": leaf.cell_type,
                    "cellAddress": f"{leaf.address}-opp",
                    "cellState": USED,
                    "cellHealthiness": health(leaf.opportunistic_entry[1]),
                    "cellPriority": OPPORTUNISTIC_PRIORITY,
                    "physicalCell": physical_json(cluster, leaf),
                }
            )
    return by_address(cells)
