"""`handle(event) -> Decision`, as the core has it, on the plain model (rules 5)."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hived.hived_rules.placement import MOST_COMPARED
from hived.values.decisions import Applied, Bind, Decision, Preempt, Wait
from hived.values.errors import UserError
from hived.values.events import (
    Event,
    GroupReserved,
    GroupSplit,
    LeavesLost,
    NodeHealthChanged,
    Phase,
    PodAllocated,
    PodDeleted,
    PodProgressed,
    ScheduleRequested,
)
from hived.values.specs import (
    FREE_PRIORITY,
    MIN_GUARANTEED_PRIORITY,
    OPPORTUNISTIC_PRIORITY,
    ClusterSpec,
    PodRequest,
    PodSpec,
)
from tests.core.naive import inspection, invariants, within
from tests.core.naive.cluster import Cluster
from tests.core.naive.groups import (
    cancel_preempting,
    check_agreement,
    create_preempting,
    delete_pod,
    intended_bindings,
    lazy_preempt,
    planned_cells,
    reserving_groups,
    split,
    using_groups,
)
from tests.core.naive.lost import exchange_doomed, lose_leaves
from tests.core.naive.mapping import Mapping, map_leaves
from tests.core.naive.model import BEING_PREEMPTED, PREEMPTING, USED, Cell, Group, PhysicalCell, VirtualCell
from tests.core.naive.placement import Attempt, Placement, Suggestions, attempts, place
from tests.core.naive.replay import add_allocated
from tests.core.naive.reserve import reserve


class NaiveScheduler:
    """The oracle with the core's interface."""

    def __init__(self, spec: ClusterSpec) -> None:
        self.cluster = Cluster(spec)

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(self.cluster.nodes)

    def handle(self, event: Event) -> Decision:
        decision = self.decide(event)
        self.cluster.unsafe_chains = {chain for chain in self.cluster.unsafe_chains if not self.cluster.is_safe(chain)}
        return decision

    def decide(self, event: Event) -> Decision:
        match event:
            case ScheduleRequested():
                return Search(self.cluster, event).run()
            case PodAllocated():
                add_allocated(self.cluster, event.pod, event.bind_info, event.lazily_preempted)
            case PodProgressed():
                pass  # no decision of the reference looks at it
            case PodDeleted():
                delete_pod(self.cluster, event.pod)
            case GroupSplit():
                split(self.cluster, event.group, event.pods)
            case GroupReserved():
                reserve(self.cluster, event.pods, event.bind_info, self.validate, event.may_be_free)
            case NodeHealthChanged():
                self.cluster.set_node_health(event.node, event.is_healthy)
                exchange_doomed(self.cluster, event.node)
            case LeavesLost():
                lose_leaves(self.cluster, event)
                exchange_doomed(self.cluster, event.node)
        return Applied()

    def validate(self, pod: PodRequest) -> None:
        Search(self.cluster, ScheduleRequested(pod)).validate()

    def plan(self, pods: Sequence[PodRequest], suggested: object) -> list[Decision]:
        cluster = self.cluster
        saved, groups = cluster.save(), dict(cluster.groups)
        views, last_plan = {key: list(view) for key, view in cluster.views.items()}, cluster.last_plan
        decisions = []
        try:
            for pod in pods:
                decision = self.handle(ScheduleRequested(pod, Phase.FILTERING, suggested))
                if isinstance(decision, Bind):
                    self.handle(PodAllocated(pod, decision.bind_info, decision.lazily_preempted))
                decisions.append(decision)
        finally:
            cluster.restore(saved)
            cluster.groups, cluster.views, cluster.last_plan = groups, views, last_plan
        return decisions

    def snapshot(self) -> tuple[dict, dict, dict]:
        return inspection.snapshot(self.cluster)

    def inspect(self, what: str) -> object:
        return inspection.inspect(self.cluster, what)

    def check(self) -> None:
        invariants.check(self.cluster)


class Search:
    """One `ScheduleRequested`. Whatever is not carried out is undone (rule 5.2)."""

    def __init__(self, cluster: Cluster, event: ScheduleRequested) -> None:
        self.cluster = cluster
        self.pod: PodRequest = event.pod
        self.spec: PodSpec = event.pod.spec
        self.phase = event.phase
        self.suggested = None
        if event.suggested is not None:
            self.suggested = frozenset(
                n for n, ok in zip(cluster.nodes, np.asarray(event.suggested), strict=True) if ok
            )
        self.lazily_preempted: list[str] = []

    def run(self) -> Decision:
        group = self.cluster.groups.get(self.spec.group.name)
        if group is None:
            return self.schedule_new()
        check_agreement(self.pod, group)
        if group.state != PREEMPTING:
            return self.take_slot(group)
        if self.phase is Phase.PREEMPTING and self.is_spoilt(group):
            saved = self.cluster.save()
            cancel_preempting(self.cluster, group)
            try:
                return self.schedule_new()
            except UserError:
                self.cluster.restore(saved)
                raise
        group.preempting[self.pod.uid] = self.pod
        return self.continue_preempting(group)

    # --- known groups --------------------------------------------------------------------------------------------

    def take_slot(self, group: Group) -> Decision:
        size = self.spec.leaf_cell_count
        slots = group.allocated[size]
        slot = next((i for i, pod in enumerate(slots) if pod is None), None)
        if slot is None:
            raise UserError(
                f"Requesting more pods than the configured number for {size} leaf cells ({len(slots)} pods) "
                f"in affinity group {group.name}"
            )
        if group.state == BEING_PREEMPTED:
            leaves = [leaf for leaf in group.physical[size][slot] if leaf is not None]
            if any(leaf.state != USED or leaf.using is not group for leaf in leaves):
                return Wait("the affinity group is being preempted")
        return Bind(group.bind_info(size, slot))

    def is_spoilt(self, group: Group) -> bool:
        suggestions = Suggestions(self.suggested, group.spec.ignore_suggested_nodes)
        return any(not leaf.is_healthy or not suggestions.allow(leaf) for leaf, _ in group.leaf_pairs())

    def continue_preempting(self, group: Group) -> Decision:
        victims = using_groups(leaf for leaf, _ in group.leaf_pairs())
        if victims:
            return preempt(victims)
        return Bind(group.bind_info(self.spec.leaf_cell_count, 0))

    # --- new groups ------------------------------------------------------------------------------------------------

    def error(self, text: str) -> UserError:
        return UserError(f"[{self.pod.label}]: {text}")

    def schedule_new(self) -> Decision:
        self.validate()
        saved = self.cluster.save()
        physical, virtual, reason = self.find_placement()
        if physical is None:
            return Wait(reason)
        group = Group(
            name=self.spec.group.name,
            spec=self.spec,
            state=PREEMPTING,
            physical=physical,
            virtual=virtual,
            allocated={m.leaf_cell_count: [None] * m.pod_count for m in self.spec.group.members},
            preempting={self.pod.uid: self.pod},
        )
        victims = using_groups(leaf for leaf, _ in group.leaf_pairs())
        if victims and self.phase is Phase.PREEMPTING:
            self.reserve(group)
            return preempt(victims)
        info = group.bind_info(self.spec.leaf_cell_count, 0)
        self.cluster.restore(saved)
        return preempt(victims) if victims else Bind(info, tuple(self.lazily_preempted))

    def reserve(self, group: Group) -> None:
        pairs = list(group.leaf_pairs())
        with self.cluster.planning(planned_cells(pairs), catch_up=True, intended=intended_bindings(pairs)):
            for preemptor in reserving_groups(leaf for leaf, _ in group.leaf_pairs()):
                cancel_preempting(self.cluster, preemptor)
            create_preempting(self.cluster, group)

    def validate(self) -> None:
        spec = self.spec
        vc = self.cluster.vcs.get(spec.virtual_cluster)
        if vc is None:
            raise self.error(f"VC {spec.virtual_cluster} does not exists!")
        if spec.pinned_cell_id:
            if spec.pinned_cell_id not in vc.pinned:
                raise self.error(f"VC {vc.name} does not have pinned cell {spec.pinned_cell_id}")
            if not self.is_guaranteed:
                raise self.error(f"opportunistic pod not supported to use pinned cell {spec.pinned_cell_id}")
        elif spec.leaf_cell_type:
            wanted = f"Pod requesting leaf cell type {spec.leaf_cell_type} which"
            if spec.leaf_cell_type not in self.leaf_types():
                raise self.error(f"{wanted} the whole cluster does not have")
            if self.is_guaranteed and not self.chains_of(spec.leaf_cell_type):
                raise self.error(f"{wanted} VC {vc.name} does not have")
        self.validate_level()

    def validate_level(self) -> None:
        """The cell type that the group is to be within one cell of exists in a chain that would be tried."""
        spec = self.spec
        if spec.pinned_cell_id:
            chains = [self.cluster.vcs[spec.virtual_cluster].pinned[spec.pinned_cell_id].chain]
        else:
            types = [spec.leaf_cell_type] if spec.leaf_cell_type else self.leaf_types()
            chains = [chain for leaf_type in types for chain in self.chains_of(leaf_type)]
        known = list(
            dict.fromkeys(name for chain in chains for _, name in sorted(self.cluster.chains[chain].types.items()))
        )
        if spec.within_cell and chains and spec.within_cell not in known:
            raise self.error(
                f"withinCell is {spec.within_cell}, which is no type of the cells that the pod can use: "
                f"{', '.join(known)}"
            )

    @property
    def is_guaranteed(self) -> bool:
        return self.spec.priority >= MIN_GUARANTEED_PRIORITY

    def leaf_types(self) -> list[str]:
        return sorted({chain.leaf_type for chain in self.cluster.chains.values()})

    def chains_of(self, leaf_type: str) -> list[str]:
        """Ascending; for guaranteed pods those where the VC has non-pinned preassigned cells (rule 5.8)."""
        vc = self.cluster.vcs[self.spec.virtual_cluster]
        return [
            name
            for name, chain in self.cluster.chains.items()
            if chain.leaf_type == leaf_type and (not self.is_guaranteed or vc.roots(name))
        ]

    def find_placement(self) -> tuple[Placement | None, Placement | None, str]:
        if self.spec.pinned_cell_id:
            root = self.cluster.vcs[self.spec.virtual_cluster].pinned[self.spec.pinned_cell_id]
            return self.place_in_chain(root.chain, self.spec.pinned_cell_id)
        last_reason = ""
        for leaf_type in [self.spec.leaf_cell_type] if self.spec.leaf_cell_type else self.leaf_types():
            reason = ""
            for chain in self.chains_of(leaf_type):
                physical, virtual, why = self.place_in_chain(chain, "")
                if physical is not None:
                    return physical, virtual, ""
                reason = why or reason
            last_reason = reason or last_reason
        return None, None, last_reason

    def place_in_chain(self, name: str, pin: str) -> tuple[Placement | None, Placement | None, str]:
        spec, chain = self.spec, self.cluster.chains[name]
        if not spec.within_cell and spec.within_is_required:
            if not self.cluster.vcs[spec.virtual_cluster].packs_by_topology:
                return self.place_anywhere(name, pin)
            fitting = [n for n in chain.levels if chain.descendant_count(n, 1) >= within.leaf_total(spec.group)]
            return self.place_nearest(
                name, pin, range(min([*fitting, chain.levels[-1]]), chain.levels[-1] + 1), packs=True
            )
        level = chain.level_of(spec.within_cell) if spec.within_cell else chain.node_level
        if level is None:
            return None, None, ""
        if not spec.within_is_required:
            return self.place_nearest(name, pin, range(level, chain.levels[-1] + 1))
        physical, virtual = self.place_within(name, level, with_victims=True)
        return physical, virtual, "" if physical is not None else self.reason_within(name, level)

    def place_nearest(
        self, name: str, pin: str, levels: range, *, packs: bool = False
    ) -> tuple[Placement | None, Placement | None, str]:
        """The lowest level that has room without victims, or anywhere; then the same with victims."""
        saved = self.cluster.save()
        for with_victims in (False, True):
            for level in levels:
                if packs and not with_victims:
                    physical, virtual = self.place_packed(name, level)
                    if physical is not None:
                        return physical, virtual, ""
                physical, virtual = self.place_within(name, level, with_victims=with_victims)
                if physical is not None:
                    return physical, virtual, ""
            physical, virtual, reason = self.place_anywhere(name, pin)
            if with_victims or (physical is not None and not self.victims(physical)):
                return physical, virtual, reason
            self.undo(saved)
        raise AssertionError("the second round ends")

    def victims(self, physical: Placement) -> list[Group]:
        return using_groups(leaf for pods in physical.values() for pod in pods for leaf in pod)

    def undo(self, saved: list) -> None:
        self.cluster.restore(saved)
        self.lazily_preempted = []

    def place_within(self, name: str, level: int, *, with_victims: bool) -> tuple[Placement | None, Placement | None]:
        """Below one cell of a level: the one with fewest free leaf cells that suffice; where victims are only at last.

        Preempting in the VC, the cell that has most free leaf cells comes first.
        """
        spec, chain = self.spec, self.cluster.chains[name]
        cells = within.candidates(self.cluster, chain, spec, level)
        wanted = within.leaf_total(spec.group)
        saved = self.cluster.save()
        at_last = None
        for attempt in attempts(spec.priority):
            if attempt.priority == OPPORTUNISTIC_PRIORITY:
                fitting = [cell for cell in cells if within.free_count(cell, spec) >= wanted]
                ordered = sorted(fitting, key=lambda cell: (within.free_count(cell, spec), broken_above(cell, wanted)))
            else:
                fitting = [cell for cell in cells if len(cell.leaves) >= wanted]
                ordered = sorted(fitting, key=lambda cell: (-within.free_count(cell, spec), broken_above(cell, wanted)))
            for cell in ordered:
                for eligible in within.ways(self.cluster, chain, cell, spec):
                    found = self.place_below(cell, eligible, attempt)
                    if found is None:
                        continue
                    if not self.victims(found[0]):
                        return found
                    at_last = at_last or (cell, eligible, attempt)
                    self.undo(saved)
        if at_last is None or not with_victims:
            return None, None
        return self.place_below(*at_last)

    def place_packed(self, name: str, level: int) -> tuple[Placement | None, Placement | None]:
        """Without victims, where fewest cells that nobody uses come to be used in part.

        Of several cells that nobody uses and below which as many would be broken above them, only the first that works;
        no more than `MOST_COMPARED` in all.
        """
        spec, chain = self.spec, self.cluster.chains[name]
        wanted = within.leaf_total(spec.group)
        cells = [
            cell
            for cell in within.candidates(self.cluster, chain, spec, level)
            if within.free_count(cell, spec) >= wanted
        ]
        broken = {cell: broken_above(cell, wanted) for cell in cells}
        saved = self.cluster.save()
        choices: list[tuple[int, Cell, list[Cell]]] = []
        alike: set[int] = set()
        for cell in sorted(cells, key=lambda cell: (broken[cell], within.free_count(cell, spec))):
            is_untouched = cell.priority == FREE_PRIORITY and cell.is_healthy
            if len(choices) == MOST_COMPARED or (is_untouched and broken[cell] in alike):
                continue
            for eligible in within.ways(self.cluster, chain, cell, spec):
                found = self.place_below(cell, eligible, Attempt(OPPORTUNISTIC_PRIORITY))
                if found is not None and not self.victims(found[0]):
                    taken = set(placed_leaves(found[0]))
                    below = [each for each in cell.subtree() if 1 < each.level < level]
                    more = sum(
                        each.priority == FREE_PRIORITY and 0 < len(taken & set(each.leaves)) < len(each.leaves)
                        for each in below
                    )
                    choices.append((broken[cell] + more, cell, eligible))
                    if is_untouched:
                        alike.add(broken[cell])
                    self.undo(saved)
                    break
                self.undo(saved)
        if not choices:
            return None, None
        _, cell, eligible = min(choices, key=lambda choice: choice[0])
        return self.place_below(cell, eligible, Attempt(OPPORTUNISTIC_PRIORITY))

    def place_below(
        self, cell: PhysicalCell, eligible: list[Cell], attempt: Attempt
    ) -> tuple[Placement, Placement | None] | None:
        chain = self.cluster.chains[cell.chain]
        suggestions = Suggestions(self.suggested, self.spec.ignore_suggested_nodes)
        found = within.place_below(eligible, chain, self.spec, cell.level, attempt, suggestions)
        if found is None or not self.is_guaranteed:
            return None if found is None else (found, None)
        mapping = self.map_placement(found, replace(suggestions, within=cell))
        return None if mapping is None else (apply_mapping(found, mapping), found)

    def reason_within(self, name: str, level: int) -> str:
        spec, chain = self.spec, self.cluster.chains[name]
        suggestions = Suggestions(self.suggested, spec.ignore_suggested_nodes)
        where = f"VC {spec.virtual_cluster}" if self.is_guaranteed else "the physical cluster"
        wanted = within.leaf_total(spec.group)
        refused = f"no {spec.within_cell} of {where} has {wanted} free {chain.leaf_type}s"
        cells = within.candidates(self.cluster, chain, spec, level)
        if within.cell_beside(self.cluster, spec) is not None:
            refused += f" beside affinity group {spec.beside}"
        if not cells:
            return f"{refused}: that is not in chain {name}"
        most, best = within.most_room(self.cluster, chain, cells, spec, suggestions)
        if most < wanted:
            return f"{refused}: most is {most} in {best.address}"
        members = ",".join(f"{m.pod_count}x{m.leaf_cell_count}" for m in spec.group.members)
        return f"{refused} where pods of {members} fit: most is {most} in {best.address}"

    def place_anywhere(self, chain: str, pin: str) -> tuple[Placement | None, Placement | None, str]:
        spec = self.spec
        suggestions = Suggestions(self.suggested, spec.ignore_suggested_nodes)
        view = self.cluster.views[spec.virtual_cluster if self.is_guaranteed else "", chain, pin]
        found, reason = place(view, spec.group.members, spec.priority, suggestions)
        if not self.is_guaranteed:
            return found, None, reason and f"{reason} when scheduling in physical cluster"
        if found is None:
            return None, None, f"{reason} when scheduling in VC {spec.virtual_cluster}"
        mapping = self.map_placement(found, suggestions)
        if mapping is None:
            return None, None, self.mapping_reason(placed_leaves(found))
        return apply_mapping(found, mapping), found, ""

    def map_placement(self, found: Placement, suggestions: Suggestions) -> Mapping | None:
        leaves = placed_leaves(found)
        saved = self.cluster.save()
        self.preempt_lazily(leaves)
        mapping = map_leaves(self.cluster, leaves, suggestions)
        if mapping is None:
            self.undo(saved)
        return mapping

    def preempt_lazily(self, leaves: list[VirtualCell]) -> None:
        """First, groups whose cells are wanted and that allow it leave the VC (rule 8.7)."""
        plan = planned_cells((leaf.bound, leaf) for leaf in leaves)
        self.cluster.last_plan = self.spec.group.name, plan
        with self.cluster.planning(plan, catch_up=False):
            for leaf in leaves:
                hardware = leaf.bound
                group = hardware.using if hardware is not None and hardware.state == USED else None
                if group is not None and group.spec.lazy_preemption and group.virtual is not None:
                    lazy_preempt(self.cluster, group, self.spec.group.name)
                    self.lazily_preempted.append(group.name)

    def mapping_reason(self, leaves: list[VirtualCell]) -> str:
        placement: dict[str, list[str]] = {}
        for leaf in leaves:
            placement.setdefault(leaf.root.address, []).append(leaf.address)
        suggested = "" if self.spec.ignore_suggested_nodes else " or non-suggested"
        shown = json.dumps(placement, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return (
            f"Mapping the virtual placement would need to use at least one bad{suggested} node "
            f"(virtual placement : {shown})"
        )


def broken_above(cell: PhysicalCell, wanted: int) -> int:
    """How many of a cell and those above it nobody uses, and would be used in part by so many leaves below it."""
    return sum(above.priority == FREE_PRIORITY and len(above.leaves) > wanted for above in cell.up())


def placed_leaves(found: Placement) -> list[Cell]:
    return [leaf for size in sorted(found) for pod in found[size] for leaf in pod]


def apply_mapping(found: Placement, mapping: Mapping) -> Placement:
    return {size: [[mapping[leaf] for leaf in pod] for pod in pods] for size, pods in found.items()}


def preempt(victims: list[Group]) -> Preempt:
    by_node: dict[str, set[str]] = {}
    for group in victims:
        for pod, info in group.pods():
            by_node.setdefault(info.node, set()).add(pod.uid)
    return Preempt({node: tuple(sorted(by_node[node])) for node in sorted(by_node)})
