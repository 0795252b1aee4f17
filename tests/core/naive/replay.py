"""A pod that is already bound: live after its decision, or read back after a restart (rules 11)."""

from hived.values.errors import UserError
from hived.values.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, BindInfo, PodPlacement, PodRequest
from tests.core.naive.cluster import Cluster
from tests.core.naive.groups import (
    allocate_preempting,
    cancel_preempting,
    check_agreement,
    lazy_preempt,
    reserving_groups,
)
from tests.core.naive.model import (
    ALLOCATED,
    PREEMPTING,
    RESERVED,
    USED,
    Cell,
    Group,
    PhysicalCell,
    VirtualCell,
    VirtualCluster,
)


def invalid(pod: PodRequest, text: str) -> UserError:
    return UserError(f"[{pod.label}]: Invalid pod bind info: {text}")


def check_bind_info(pod: PodRequest, info: BindInfo) -> None:
    """Raise UserError unless the bind info has the members of the spec and the pod among them (rule 2.11)."""
    placements = {len(member[0].leaf_cell_indices): member for member in info.members}
    counts = {size: len(member) for size, member in placements.items()}
    if len(placements) != len(info.members) or counts != {
        member.leaf_cell_count: member.pod_count for member in pod.spec.group.members
    }:
        raise invalid(pod, "members do not match the scheduling spec")
    if not any(is_placed(info, placement) for placement in placements[pod.spec.leaf_cell_count]):
        raise invalid(pod, "the pod is not among the placements")


def is_placed(info: BindInfo, placement: PodPlacement) -> bool:
    return placement.node == info.node and info.leaf_cell_indices[0] in placement.leaf_cell_indices


def add_allocated(cluster: Cluster, pod: PodRequest, info: BindInfo, lazily_preempted: tuple[str, ...]) -> None:
    """The pod takes the slot of its placement; an unknown group is created from its bind info."""
    group = cluster.groups.get(pod.spec.group.name)
    if group is not None:
        check_agreement(pod, group)
    if group is not None and group.state == PREEMPTING:
        if all(leaf.state == RESERVED for leaf, _ in group.leaf_pairs()):
            take_slot(pod, info, group)
            allocate_preempting(cluster, group)
            return
        check_bind_info(pod, info)  # bound by somebody else before the victims left
        cancel_preempting(cluster, group)
        group = None
    if group is None:
        check_bind_info(pod, info)
        name, plan = cluster.last_plan
        if name != pod.spec.group.name:
            plan = bind_info_plan(cluster, info)
        with cluster.planning(plan, catch_up=False):
            for name in lazily_preempted:
                if name in cluster.groups and cluster.groups[name].virtual is not None:
                    lazy_preempt(cluster, cluster.groups[name], pod.spec.group.name)
        group = Replay(cluster, pod, info).run()
    take_slot(pod, info, group)


def take_slot(pod: PodRequest, info: BindInfo, group: Group) -> None:
    """The first slot of the pod's size at its place that is free or its own; UserError if there is none."""
    size = pod.spec.leaf_cell_count
    for slot, holder in enumerate(group.allocated[size]):
        is_ours = holder is None or holder[0].uid == pod.uid
        if is_ours and is_placed(info, group.placement_of(size, slot)[0]):
            group.allocated[size][slot] = pod, info
            return
    raise invalid(pod, "no free placement of its group is there")


def find_leaf(
    cluster: Cluster, chain: str, node: str, index: int, leaf_type: str = "", cell_type: str = ""
) -> PhysicalCell | None:
    """In its chain, else in one of the leaf type, else in one with the cell type, ascending (rule 11.3)."""

    def likeness(leaf: PhysicalCell) -> tuple[bool, bool, bool]:
        own = cluster.chains[leaf.chain]
        return own.name == chain, leaf.cell_type == leaf_type, own.level_of(cell_type) is not None

    leaves = [leaf for own in cluster.chains.values() for leaf in own.leaves()]
    return max((leaf for leaf in leaves if leaf.node == node and leaf.index == index), key=likeness, default=None)


def bind_info_plan(cluster: Cluster, info: BindInfo) -> set[Cell]:
    """The cells that 5h protects while the lazy preemptions of a decision are carried out."""
    plan: set[Cell] = set()
    for leaf, cell_type in located_leaves(cluster, info):
        level = cluster.chains[leaf.chain].level_of(cell_type) if leaf is not None else None
        if level is not None:
            top = leaf.ancestor_at(level)
            plan.update([top] if top.bound is None else [top, top.bound])
    return plan


def located_leaves(cluster: Cluster, info: BindInfo, leaf_type: str = "") -> list[tuple[PhysicalCell | None, str]]:
    return [
        (find_leaf(cluster, info.cell_chain, placement.node, index, leaf_type, cell_type), cell_type)
        for member in info.members
        for placement in member
        for index, cell_type in zip(placement.leaf_cell_indices, placement.preassigned_cell_types, strict=True)
    ]


class Replay:
    """Creates an allocated group from the bind info of one of its pods, leaf by leaf."""

    def __init__(self, cluster: Cluster, pod: PodRequest, info: BindInfo) -> None:
        self.cluster = cluster
        self.spec = pod.spec
        self.info = info
        self.is_lazy = False
        self.is_opportunistic = pod.spec.priority < MIN_GUARANTEED_PRIORITY or any(
            cell_type == "" for _, cell_type in located_leaves(cluster, info)
        )
        self.released_chains: set[str] = set()
        sizes = {member.leaf_cell_count: member.pod_count for member in pod.spec.group.members}
        self.group = Group(
            name=pod.spec.group.name,
            spec=pod.spec,
            state=ALLOCATED,
            physical={size: [] for size in sizes},
            virtual={size: [] for size in sizes},
            allocated={size: [None] * count for size, count in sizes.items()},
            created_from=info,
        )

    def run(self) -> Group:
        located = [
            leaf for leaf, _ in located_leaves(self.cluster, self.info, self.spec.leaf_cell_type) if leaf is not None
        ]
        for group in reserving_groups(located):
            cancel_preempting(self.cluster, group)
        self.cluster.groups[self.group.name] = self.group
        for member in self.info.members:
            size = len(member[0].leaf_cell_indices)
            for placement in member:
                self.group.physical[size].append([])
                self.group.virtual[size].append([])
                self.add_pod(placement, self.group.physical[size][-1], self.group.virtual[size][-1])
        if self.is_opportunistic:
            self.group.virtual = None
        elif self.is_lazy:
            lazy_preempt(self.cluster, self.group, self.group.name)
        for chain in sorted(self.released_chains):
            for level in reversed(self.cluster.chains[chain].levels):
                self.cluster.bind_doomed(chain, level)
        return self.group

    def add_pod(
        self, placement: PodPlacement, physical: list[PhysicalCell | None], virtual: list[VirtualCell | None]
    ) -> None:
        for index, cell_type in zip(placement.leaf_cell_indices, placement.preassigned_cell_types, strict=True):
            wanted = self.info.cell_chain, placement.node, index, self.spec.leaf_cell_type, cell_type
            leaf = find_leaf(self.cluster, *wanted)
            if leaf is not None and leaf.using is not None:
                leaf = None
            physical.append(leaf)
            virtual.append(self.add_leaf(leaf, cell_type) if leaf is not None else None)

    def add_leaf(self, leaf: PhysicalCell, cell_type: str) -> VirtualCell | None:
        virtual = None if self.is_opportunistic else self.find_virtual(leaf, cell_type)
        is_safe = self.cluster.allocate_leaf(leaf, virtual, self.spec.priority, self.group.vc)
        leaf.using = self.group
        self.cluster.set_state(leaf, USED)
        self.is_lazy |= not is_safe
        if not self.cluster.is_safe(leaf.chain):
            self.cluster.unsafe_chains.add(leaf.chain)
        return virtual

    def find_virtual(self, leaf: PhysicalCell, cell_type: str) -> VirtualCell | None:
        """The virtual leaf to use, or None when the group is to be lazily preempted."""
        vc = self.cluster.vcs.get(self.spec.virtual_cluster)
        level = self.cluster.chains[leaf.chain].level_of(cell_type)
        roots = vc.roots(leaf.chain, self.spec.pinned_cell_id) if vc is not None else []
        roots = [root for root in roots if root.level == level]
        if not roots:
            self.is_lazy = True
            return None
        top = leaf.ancestor_at(level)
        self.release_doomed_around(top, vc)
        virtual = None if self.is_lazy else self.choose_virtual(leaf, top, roots)
        if virtual is not None and self.cluster.is_free(leaf) and virtual.root.priority > FREE_PRIORITY:
            self.empty(virtual.root)
        if virtual is None or not self.can_bind(leaf, virtual, top):
            self.is_lazy = True
            return None
        return virtual

    def release_doomed_around(self, top: PhysicalCell, own_vc: VirtualCluster) -> None:
        """Also of a pod that names a pinned cell: what the VC has left are its ordinary preassigned cells."""
        cluster, chain, own = self.cluster, top.chain, own_vc.name
        for vc in cluster.vcs:
            for level in reversed(cluster.chains[chain].levels):
                for cell in list(cluster.doomed[vc][chain][level]):
                    if cell.overlaps(top) and not (cell is top and vc == own) and cell.priority < 0:
                        self.release_doomed(vc, cell)
        roots = [root for root in own_vc.roots(chain) if root.level == top.level]
        if top.bound is None and all(root.bound is not None for root in roots):
            idle = cluster.worst_idle_doomed(own, chain, top.level)
            if idle is not None:
                self.release_doomed(own, idle)

    def release_doomed(self, vc: str, cell: PhysicalCell) -> None:
        self.cluster.release_doomed(vc, cell)
        self.released_chains.add(cell.chain)

    def choose_virtual(self, leaf: PhysicalCell, top: PhysicalCell, roots: list[VirtualCell]) -> VirtualCell | None:
        path = [cell for cell in leaf.up() if cell.level <= top.level]
        bound = next((cell for cell in path if cell.bound is not None), None)
        if bound is not None:
            virtual = bound.bound
            if virtual.root not in roots:
                return None
        else:
            virtual = self.lowest(roots)
        while virtual is not None and virtual.level > 1:
            virtual = self.lowest(virtual.children)
        return virtual

    def lowest(self, cells: list[VirtualCell]) -> VirtualCell | None:
        for cell in cells:
            if cell.priority == FREE_PRIORITY and cell.bound is None:
                return cell
        lowest = min(cells, key=lambda cell: cell.priority)
        return lowest if lowest.priority < self.spec.priority else None

    def empty(self, root: VirtualCell) -> None:
        """Lazily preempt every group that has a cell in this preassigned cell."""
        for virtual in root.leaves:
            if virtual.leaf_priority >= MIN_GUARANTEED_PRIORITY and virtual.bound.state == USED:
                lazy_preempt(self.cluster, virtual.bound.using, self.group.name)

    def can_bind(self, leaf: PhysicalCell, virtual: VirtualCell, top: PhysicalCell) -> bool:
        if virtual.priority != FREE_PRIORITY:
            return False
        for cell, v in zip(leaf.up(), virtual.up(), strict=False):
            if cell.bound is not v and (cell.bound is not None or v.bound is not None):
                return False
            if cell is top:
                break
        return top.bound is not None or (self.cluster.is_free(top) and not top.is_split)
