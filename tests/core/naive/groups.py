"""The life of an affinity group: created, preempting, being preempted, lazily preempted, deleted (rules 8, 9.1)."""

from collections.abc import Iterable, Sequence

from hived.values.errors import UserError
from hived.values.specs import BindInfo, PodRequest, PodSpec
from tests.core.naive.cluster import Cluster
from tests.core.naive.model import (
    ALLOCATED,
    BEING_PREEMPTED,
    FREE,
    PREEMPTING,
    RESERVED,
    RESERVING,
    USED,
    Cell,
    Group,
    PhysicalCell,
    VirtualCell,
)

Pairs = Iterable[tuple[PhysicalCell | None, VirtualCell | None]]


def check_agreement(pod: PodRequest, group: Group) -> None:
    """Rule 2.8: raise UserError at the first field in which the pod differs from the pod that created the group."""

    def fields(spec: PodSpec) -> dict[str, object]:
        return {
            "virtualCluster": spec.virtual_cluster,
            "priority": spec.priority,
            "members": ",".join(f"{m.pod_count}x{m.leaf_cell_count}" for m in spec.group.members),
            "pinnedCellId": spec.pinned_cell_id,
            "leafCellType": spec.leaf_cell_type,
            "lazyPreemptionEnable": str(spec.lazy_preemption).lower(),
            "ignoreK8sSuggestedNodes": str(spec.ignore_suggested_nodes).lower(),
            "withinCell": within_text(spec),
            "elastic": str(spec.elastic).lower(),
        }

    mine, theirs = fields(pod.spec), fields(group.spec)
    for name, value in mine.items():
        if value != theirs[name]:
            raise UserError(
                f"[{pod.label}]: Pod does not match its affinity group {group.name}: "
                f"{name} is {value}, group has {theirs[name]}"
            )


def within_text(spec: PodSpec) -> str:
    if not spec.within_is_required:
        return f"preferred {spec.within_cell}"
    return f"required {spec.within_cell}" if spec.within_cell else ""


def split(cluster: Cluster, name: str, pods: Sequence[PodRequest]) -> None:
    """Each slot of an allocated group goes on as a group of its own, with the cells that it has."""
    whole = cluster.groups.get(name)
    if whole is None or whole.state != ALLOCATED:
        raise UserError(f"affinity group {name} cannot be split: it is not allocated")
    refused = f"affinity group {name} cannot be split:"
    slots = [(size, i) for size in sorted(whole.physical) for i in range(len(whole.physical[size]))]
    if len(pods) != len(slots):
        raise UserError(f"{refused} it has {len(slots)} pods, {len(pods)} are given")
    parts: dict[str, Group] = {}
    for number, ((size, i), pod) in enumerate(zip(slots, pods, strict=True)):
        spec = pod.spec
        if [(m.pod_count, m.leaf_cell_count) for m in spec.group.members] != [(1, size)]:
            raise UserError(f"{refused} slot {number} has {size} leaf cells for one pod, {pod.label} asks for others")
        for field, mine, theirs in (
            ("virtualCluster", spec.virtual_cluster, whole.vc),
            ("priority", spec.priority, whole.spec.priority),
            ("pinnedCellId", spec.pinned_cell_id, whole.spec.pinned_cell_id),
            ("leafCellType", spec.leaf_cell_type, whole.spec.leaf_cell_type),
            ("lazyPreemptionEnable", spec.lazy_preemption, whole.spec.lazy_preemption),
        ):
            if mine != theirs:
                raise UserError(f"{refused} {pod.label} has another {field}")
        if spec.group.name in cluster.groups or spec.group.name in parts:
            raise UserError(f"{refused} there is a group {spec.group.name} already")
        placement, chain = whole.placement_of(size, i)
        info = BindInfo(placement.node, placement.leaf_cell_indices, chain, ((placement,),))
        parts[spec.group.name] = Group(
            name=spec.group.name,
            spec=spec,
            state=ALLOCATED,
            physical={size: [whole.physical[size][i]]},
            virtual={size: [whole.virtual[size][i]]} if whole.virtual is not None else None,
            allocated={size: [(pod, info)]},
            lazy_preemptor=whole.lazy_preemptor,
            created_from=info,
        )
    del cluster.groups[name]
    cluster.groups |= parts
    for part in parts.values():
        for leaf, _ in part.leaf_pairs():
            if leaf is not None:
                leaf.using = part


def planned_cells(pairs: Pairs) -> set[Cell]:
    """Protected by 5h: the virtual leaves with their ancestors, and the physical cells of their preassigned cells."""
    plan: set[Cell] = set()
    for leaf, virtual in pairs:
        if virtual is None:
            continue
        plan.update(virtual.up())
        if leaf is not None:
            plan.add(leaf.ancestor_at(virtual.root.level))
        if virtual.root.bound is not None:
            plan.add(virtual.root.bound)
    return plan


def intended_bindings(pairs: Pairs) -> dict[PhysicalCell, VirtualCell]:
    """Which virtual cell is about to be bound to each physical one, from the leaves up to the preassigned cells."""
    return {
        cell: above
        for leaf, virtual in pairs
        if leaf is not None and virtual is not None
        for cell, above in zip(leaf.up(), virtual.up(), strict=False)
    }


def using_groups(leaves: Iterable[PhysicalCell]) -> list[Group]:
    """Victims: groups that use these cells, by first use (rule 8.1)."""
    return list(dict.fromkeys(leaf.using for leaf in leaves if leaf.state in {USED, RESERVING}))


def reserving_groups(leaves: Iterable[PhysicalCell]) -> list[Group]:
    """Overlapping preemptors, ascending (rule 8.2)."""
    groups = {leaf.reserving.name: leaf.reserving for leaf in leaves if leaf.state in {RESERVING, RESERVED}}
    return [groups[name] for name in sorted(groups)]


def lazy_preempt(cluster: Cluster, group: Group, preemptor: str) -> None:
    """The group leaves its VC and keeps its cells opportunistically (rules 8.7, 8.8)."""
    for leaf, virtual in group.leaf_pairs():
        if leaf is not None and virtual is not None and leaf.state == USED and leaf.using is group:
            cluster.release_leaf(leaf)
            cluster.allocate_leaf(leaf, None, 0, group.vc)
    group.virtual = None
    group.lazy_preemptor = preemptor


def create_preempting(cluster: Cluster, group: Group) -> None:
    """Reserve every cell of the group's placement (rule 8.3). Overlapping preemptors have been cancelled before."""
    for leaf, virtual in group.leaf_pairs():
        victim = leaf.using
        if leaf.state == USED:
            cluster.release_leaf(leaf)
            victim.state = BEING_PREEMPTED
        cluster.allocate_leaf(leaf, virtual, group.spec.priority, group.vc)
        leaf.reserving = group
        cluster.set_state(leaf, RESERVING if leaf.state == USED else RESERVED)
    cluster.groups[group.name] = group


def cancel_preempting(cluster: Cluster, group: Group) -> None:
    """Give the cells back: Reserving to its victim, Reserved to nobody (rule 8.6)."""
    plan = planned_cells(group.leaf_pairs())
    given_back = intended_bindings(
        (leaf, next(v for p, v in leaf.using.leaf_pairs() if p is leaf))
        for leaf, _ in group.leaf_pairs()
        if leaf.state == RESERVING
    )
    with cluster.planning(plan, catch_up=True, intended=given_back):
        for leaf, _ in group.leaf_pairs():
            cluster.release_leaf(leaf)
            leaf.reserving = None
            if leaf.state == RESERVING:
                cluster.set_state(leaf, USED)
                victim = leaf.using
                virtual = next(v for p, v in victim.leaf_pairs() if p is leaf)
                cluster.allocate_leaf(leaf, virtual, victim.spec.priority, victim.vc)
            else:
                cluster.set_state(leaf, FREE)
    del cluster.groups[group.name]


def allocate_preempting(cluster: Cluster, group: Group) -> None:
    """All victims are gone: the reserved cells are used by their preemptor."""
    for leaf, _ in group.leaf_pairs():
        leaf.reserving = None
        leaf.using = group
        cluster.set_state(leaf, USED)
    group.state = ALLOCATED
    group.preempting = {}


def delete_allocated(cluster: Cluster, group: Group) -> None:
    """The last pod is gone. Cells reserved by a preemptor are already allocated to it (rule 8.5)."""
    for leaf, _ in group.leaf_pairs():
        if leaf is None:
            continue
        leaf.using = None
        if leaf.state == USED:
            cluster.release_leaf(leaf)
            cluster.set_state(leaf, FREE)
        else:
            cluster.set_state(leaf, RESERVED)
    del cluster.groups[group.name]


def delete_pod(cluster: Cluster, pod: PodRequest) -> None:
    """A pod is gone, whatever it was (rule 2.13)."""
    group = cluster.groups.get(pod.spec.group.name)
    if group is None:
        return
    if group.state == PREEMPTING:
        if group.preempting.pop(pod.uid, None) is not None and not group.preempting:
            cancel_preempting(cluster, group)
        return
    for slots in group.allocated.values():
        slots[:] = [None if slot is not None and slot[0].uid == pod.uid else slot for slot in slots]
    if not group.pods():
        delete_allocated(cluster, group)
