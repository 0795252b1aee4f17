"""All mutable state in one object, and the low-level operations on cells: lists, bindings, allocation, health.

The methods follow rules 3, 9 and 10 one by one; each names its rule.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from hived.values.specs import FREE_PRIORITY, MIN_GUARANTEED_PRIORITY, OPPORTUNISTIC_PRIORITY, ClusterSpec
from tests.core.naive.model import (
    FREE,
    USED,
    Cell,
    Group,
    PhysicalCell,
    VirtualCell,
    build_chains,
    build_virtual_clusters,
    initial_view,
)
from tests.core.naive.safety import spare_cells

KEPT = {"views", "last_plan", "chains", "vcs", "nodes", "children", "leaves"}  # unchanging, or not undone (rule 5.2)
KEPT |= {"chain", "level", "cell_type", "address", "is_node_level", "parent", "index", "pin", "root"}

CONTAINERS = (dict, list, set)


def swap_remove(cells: list[PhysicalCell], cell: PhysicalCell) -> None:
    """Remove by putting the last one in its place: list order is part of the behaviour (rule 3.2)."""
    at = cells.index(cell)
    cells[at] = cells[-1]
    cells.pop()


class Cluster:
    def __init__(self, spec: ClusterSpec) -> None:
        self.chains = build_chains(spec)
        self.vcs = build_virtual_clusters(spec, self.chains)
        self.nodes = sorted({n for chain in self.chains.values() for top in chain.tops for n in top.nodes})
        self.groups: dict[str, Group] = {}
        self.free: dict[str, dict[int, list[PhysicalCell]]] = {}
        self.bad: dict[str, dict[int, list[PhysicalCell]]] = {}
        self.left: dict[str, dict[int, int]] = {}
        self.doomed: dict[str, dict[str, dict[int, list[PhysicalCell]]]] = {}
        self.planned: list[set[Cell]] = []
        self.intended: list[dict[PhysicalCell, VirtualCell]] = []  # what is about to be bound
        self.last_plan: tuple[str, set[Cell]] = "", set()  # of the last Bind with lazy preemptions: group, cells
        self.left_out: set[tuple[str, int]] = set()  # chains and levels where a doomed cell was not picked
        self.left_unbound: list[PhysicalCell] = []  # cells with bad children that got no virtual cell
        self.bad_nodes: set[str] = set()
        self.unsafe_chains: set[str] = set()  # where a replay or doomed binding broke VC safety (rule 4.4)
        self.views: dict[tuple[str, str, str], list[Cell]] = {}
        self._fill_lists()
        self._build_views()
        self._bind_pinned_cells()
        for node in dict.fromkeys(n for chain in self.chains.values() for top in chain.tops for n in top.nodes):
            self.set_node_health(node, is_healthy=False)

    def _fill_lists(self) -> None:
        for name, chain in self.chains.items():
            self.free[name] = {level: [] for level in chain.levels}
            self.free[name][chain.levels[-1]] = list(chain.tops)
            self.bad[name] = {level: [] for level in chain.levels}
            self.left[name] = {
                level: len(chain.tops) * chain.descendant_count(chain.levels[-1], level) for level in chain.levels
            }
        for vc in self.vcs:
            self.doomed[vc] = {name: {level: [] for level in chain.levels} for name, chain in self.chains.items()}

    def _build_views(self) -> None:
        for name, chain in self.chains.items():
            self.views["", name, ""] = initial_view(chain.tops, chain.node_level)
            for vc in self.vcs.values():
                self.views[vc.name, name, ""] = initial_view(vc.roots(name), chain.node_level)
        for vc in self.vcs.values():
            for pin, root in vc.pinned.items():
                view = initial_view([root], self.chains[root.chain].node_level)
                self.views[vc.name, root.chain, pin] = view

    def _bind_pinned_cells(self) -> None:
        cells = {cell.pin: cell for cell in self.physical_cells() if cell.pin}
        for vc in self.vcs.values():
            for pin in sorted(vc.pinned):
                self.bind_cell(cells[pin], vc.pinned[pin])
                self.allocate_preassigned(cells[pin], is_doomed=False)

    def physical_cells(self) -> Iterator[PhysicalCell]:
        for chain in self.chains.values():
            for top in chain.tops:
                yield from top.subtree()

    def virtual_cells(self) -> Iterator[VirtualCell]:
        for vc in self.vcs.values():
            for root in [*vc.preassigned, *vc.pinned.values()]:
                yield from root.subtree()

    # --- saving and restoring: rule 5.2 -------------------------------------------------------------------------------

    def save(self) -> list[tuple[object, dict]]:
        """Every mutable value except the order of the views, which survives an undone decision (rule 5.2)."""
        holders = [*self.physical_cells(), *self.virtual_cells(), *self.groups.values(), self]
        return [(h, copy_containers({k: v for k, v in vars(h).items() if k not in KEPT})) for h in holders]

    def restore(self, saved: list[tuple[object, dict]]) -> None:
        for holder, values in saved:
            vars(holder).update(copy_containers(values))

    # --- free lists ----------------------------------------------------------------------------------------------

    def is_free(self, cell: PhysicalCell) -> bool:
        """In or below the free list."""
        return any(above in self.free[cell.chain][above.level] for above in cell.up())

    def remove_from_free_list(self, cell: PhysicalCell) -> int:
        """Split unsplit ancestors; the level of the topmost cell that left a list (rule 3.3)."""
        free = self.free[cell.chain]
        for above in cell.up():
            parent = above.parent
            if parent is not None and not parent.is_split:
                free[above.level] += parent.children
                parent.is_split = True
                swap_remove(free[above.level], above)
            else:
                swap_remove(free[above.level], above)
                return above.level
        raise AssertionError("a tree without a top")

    def add_to_free_list(self, cell: PhysicalCell) -> int:
        """Merge upward while all buddies are free; the level at which the merged cell entered its list."""
        free = self.free[cell.chain]
        for above in cell.up():
            parent = above.parent
            buddies = [c for c in parent.children if c is not above] if parent is not None else []
            if parent is None or any(buddy not in free[above.level] for buddy in buddies):
                free[above.level].append(above)
                return above.level
            for buddy in buddies:
                swap_remove(free[above.level], buddy)
            parent.is_split = False
        raise AssertionError("a tree without a top")

    # --- counts --------------------------------------------------------------------------------------------------

    def vc_claims(self, vc: str, chain: str, level: int) -> int:
        """The VC's preassigned cells that are not allocated: doomed ones are bound, and do not count (rule 4.1)."""
        return sum(root.bound is None for root in self.vcs[vc].roots(chain) if root.level == level)

    def claims(self, chain: str, level: int) -> int:
        return sum(self.vc_claims(vc, chain, level) for vc in self.vcs)

    def is_safe(self, chain: str) -> bool:
        """Do the VCs' free cells fit into the free lists, split from the top down (rule 4.3)?"""
        return all(spare >= 0 for spare in self.spare(chain).values())

    def spare(self, chain: str) -> dict[int, int]:
        claims = {level: self.claims(chain, level) for level in self.chains[chain].levels}
        return spare_cells(self.chains[chain], 1, self.free[chain], claims)

    def is_safe_at(self, chain: str, level: int) -> bool:
        """Level by level, which asks less (rule 4.2)."""
        return self.left[chain][level] >= self.claims(chain, level)

    # --- preassigned cells: rules 10.4 to 10.8 ------------------------------------------------------------------------

    def allocate_preassigned(self, cell: PhysicalCell, is_doomed: bool) -> bool:
        """Whether no other level's safety is broken: asked as soon as its count changed, before what follows from that.

        At the cell's own level `left` and the VC's free cells go down together, so nothing breaks there.
        """
        chain, level = cell.chain, cell.level
        left, bad = self.left[chain], self.bad[chain]
        if not cell.is_healthy:
            self.bind_bad_children(cell)
        split_level = self.remove_from_free_list(cell)
        is_safe = True
        for above in cell.up():
            if level < above.level <= split_level:
                left[above.level] -= 1
                is_safe &= self.is_safe_at(chain, above.level)
                if above.is_healthy:
                    self.bind_doomed(chain, above.level)
                else:
                    swap_remove(bad[above.level], above)
        left[level] -= 1
        if cell.is_healthy:
            self.bind_doomed(chain, level)
        else:
            for below in cell.subtree():
                if below in bad[below.level]:
                    swap_remove(bad[below.level], below)
            if not is_doomed:
                self.unbind_doomed(chain, level)
        for lower in range(level - 1, 0, -1):
            left[lower] -= self.chains[chain].descendant_count(level, lower)
            is_safe &= self.is_safe_at(chain, lower)
            if not is_doomed:
                self.bind_doomed(chain, lower)
        return is_safe

    def release_preassigned(self, cell: PhysicalCell, is_doomed: bool) -> None:
        chain, level = cell.chain, cell.level
        left, bad = self.left[chain], self.bad[chain]
        merge_level = self.add_to_free_list(cell)
        for above in cell.up():
            if level < above.level <= merge_level:
                left[above.level] += 1
                if above.is_healthy:
                    self.unbind_doomed(chain, above.level)
                else:
                    bad[above.level].append(above)
        left[level] += 1
        if cell.is_healthy:
            self.unbind_doomed(chain, level)
        else:
            for below in cell.subtree():
                if not below.is_healthy:
                    bad[below.level].append(below)
            if not is_doomed:
                self.bind_doomed(chain, level)
        for lower in range(level - 1, 0, -1):
            left[lower] += self.chains[chain].descendant_count(level, lower)
            if not is_doomed:
                self.unbind_doomed(chain, lower)

    def bind_doomed(self, chain: str, level: int) -> None:
        bad = self.bad[chain][level]
        for name, vc in self.vcs.items():
            while self.vc_claims(name, chain, level) > self.left[chain][level] - len(bad):
                unbound = [root for root in vc.roots(chain) if root.level == level and root.bound is None]
                cell = self.least_bad_free(chain, level)
                root = self._first_unplanned(unbound)
                if cell is None or root is None:
                    break
                self.bind_cell(cell, root)
                self.doomed[name][chain][level].append(cell)
                self.allocate_preassigned(cell, is_doomed=True)
                if not self.is_safe(chain):
                    self.unsafe_chains.add(chain)

    def unbind_doomed(self, chain: str, level: int) -> None:
        for name in self.vcs:
            doomed = self.doomed[name][chain][level]
            while doomed and self.vc_claims(name, chain, level) < self.left[chain][level] - len(self.bad[chain][level]):
                cell = self.worst_idle_doomed(name, chain, level)
                if cell is None:
                    break
                self.release_doomed(name, cell)

    def least_bad_free(self, chain: str, level: int) -> PhysicalCell | None:
        """The first one, or where leaves are lost the one with fewest bad leaves."""
        bad = self.bad[chain][level]
        if not self.has_lost(chain):
            return self._first_unplanned(bad)
        return min(self._unplanned(bad), key=self.bad_count, default=None)

    def worst_idle_doomed(self, vc: str, chain: str, level: int) -> PhysicalCell | None:
        idle = [cell for cell in self.doomed[vc][chain][level] if cell.priority < MIN_GUARANTEED_PRIORITY]
        if not self.has_lost(chain):
            return self._first_unplanned(idle)
        return max(self._unplanned(idle), key=self.bad_count, default=None)

    def release_doomed(self, vc: str, cell: PhysicalCell) -> None:
        """Unbind a doomed cell that nobody uses and give it back."""
        swap_remove(self.doomed[vc][cell.chain][cell.level], cell)
        self.unbind_bad(cell)
        self.release_preassigned(cell, is_doomed=True)

    def is_doomed(self, cell: PhysicalCell) -> bool:
        return any(cell in self.doomed[vc][cell.chain][cell.level] for vc in self.vcs)

    # --- planned cells: rules 10.12, 10.13 ----------------------------------------------------------------------------

    def is_planned(self, cell: Cell) -> bool:
        return any(cell.overlaps(planned) for plan in self.planned for planned in plan)

    def _first_unplanned(self, cells: list[Cell]) -> Cell | None:
        for cell in cells:
            if not self.is_planned(cell):
                return cell
            self.left_out.add((cell.chain, cell.level))
        return None

    def _unplanned(self, cells: list[Cell]) -> list[Cell]:
        self.left_out |= {(cell.chain, cell.level) for cell in cells if self.is_planned(cell)}
        return [cell for cell in cells if not self.is_planned(cell)]

    @contextmanager
    def planning(
        self, cells: set[Cell], catch_up: bool, intended: dict[PhysicalCell, VirtualCell] | None = None
    ) -> Iterator[None]:
        """Keep these cells, and whatever overlaps them, from being picked for doomed bindings or bad children."""
        self.planned.append(cells)
        self.intended.append(intended or {})
        yield
        self.planned.pop()
        self.intended.pop()
        if catch_up and not self.planned:
            self._catch_up()

    def _catch_up(self) -> None:
        pending, self.left_out = self.left_out, set()
        unbound, self.left_unbound = self.left_unbound, []
        for cell in unbound:
            if cell.bound is not None and not cell.is_healthy:
                self.bind_bad_children(cell)
        for chain in sorted({chain for chain, _ in pending}):
            self.recheck_doomed(chain)

    def recheck_doomed(self, chain: str) -> None:
        for level in reversed(self.chains[chain].levels):
            self.unbind_doomed(chain, level)
            self.bind_doomed(chain, level)

    # --- bindings: rules 9.8 to 9.12 ----------------------------------------------------------------------------------

    def bind_cell(self, cell: PhysicalCell, virtual: VirtualCell) -> None:
        assert cell.bound is None
        assert virtual.bound is None
        cell.bound, virtual.bound = virtual, cell
        cell.vc = virtual.vc.name

    def unbind_cell(self, cell: PhysicalCell) -> None:
        cell.bound.state = FREE
        cell.bound.bound = None
        cell.bound = None
        cell.vc = ""

    def bind_bad_children(self, cell: PhysicalCell) -> None:
        for child in cell.children:
            if child.is_healthy:
                continue
            if child.bound is None:
                self._bind_to_unbound_child(child, cell.bound)
            if child.bound is not None:
                self.bind_bad_children(child)

    def _bind_to_unbound_child(self, child: PhysicalCell, virtual_parent: VirtualCell) -> None:
        for plan in self.intended:
            virtual = plan.get(child)
            if virtual is not None and virtual.bound is None and virtual.parent is virtual_parent:
                self.bind_cell(child, virtual)
                return
        for virtual in virtual_parent.children:
            if virtual.bound is None and not any(virtual in plan for plan in self.planned):
                self.bind_cell(child, virtual)
                return
        self.left_unbound.append(child.parent)

    def unbind_bad(self, cell: PhysicalCell) -> None:
        self.unbind_cell(cell)
        for child in cell.children:
            if child.bound is not None:
                self.unbind_bad(child)

    # --- leaves ----------------------------------------------------------------------------------------------------

    def set_state(self, cell: PhysicalCell, state: str) -> None:
        """A parent follows if the state is Used or all children have it; bound virtual cells, too (rules 9.2, 9.3)."""
        cell.state = state
        if cell.bound is not None:
            cell.bound.state = state
        parent = cell.parent
        if parent is not None and (state == USED or all(child.state == state for child in parent.children)):
            self.set_state(parent, state)

    def allocate_leaf(self, leaf: PhysicalCell, virtual: VirtualCell | None, priority: int, vc: str) -> bool:
        """Whether it is safe (rule 9.5); without a virtual leaf the use is opportunistic, whatever the priority."""
        if virtual is None:
            leaf.leaf_priority = OPPORTUNISTIC_PRIORITY
            leaf.vc = vc
            leaf.opportunistic_entry = vc, leaf.is_healthy
            return True
        virtual.leaf_priority = priority
        leaf.leaf_priority = priority
        for cell, v in zip(leaf.up(), virtual.up(), strict=False):
            if v.bound is not None:
                assert v.bound is cell
                break
            self.bind_cell(cell, v)
            if v is virtual.root:
                return self.allocate_preassigned(cell, is_doomed=False)
        return True

    def release_leaf(self, leaf: PhysicalCell) -> None:
        """Rule 9.6: released as guaranteed iff its priority is that of a guaranteed pod."""
        if leaf.leaf_priority < MIN_GUARANTEED_PRIORITY:
            leaf.leaf_priority = FREE_PRIORITY
            leaf.opportunistic_entry = None
            leaf.vc = leaf.bound.vc.name if leaf.bound is not None else ""
            return
        virtual = leaf.bound
        virtual.leaf_priority = FREE_PRIORITY
        root = virtual.root
        top = root.bound
        if leaf.is_healthy:
            self._unbind_up(leaf)
        if root.priority < MIN_GUARANTEED_PRIORITY and not top.is_pinned and not self.is_doomed(top):
            if top.bound is not None:
                self.unbind_bad(top)
            self.release_preassigned(top, is_doomed=False)
        leaf.leaf_priority = FREE_PRIORITY

    def _unbind_up(self, leaf: PhysicalCell) -> None:
        for cell in leaf.up():
            if cell.is_pinned or any(child.bound is not None for child in cell.children):
                break
            is_root = cell.bound.root is cell.bound
            self.unbind_cell(cell)
            if is_root:
                break

    # --- health: rules 10.9 to 10.14 ----------------------------------------------------------------------------------

    def set_node_health(self, node: str, is_healthy: bool) -> None:
        """Chains ascending, leaf cells in full-list order (rule 10.3); lost ones are bad in either case."""
        self.bad_nodes -= {node}
        if not is_healthy:
            self.bad_nodes.add(node)
        for leaf in self.leaves_of(node):
            if is_healthy and not leaf.is_lost:
                self.set_healthy(leaf)
            elif not is_healthy:
                self.set_bad(leaf)

    def leaves_of(self, node: str) -> list[PhysicalCell]:
        return [leaf for chain in self.chains.values() for leaf in chain.leaves() if leaf.node == node]

    def bad_count(self, cell: PhysicalCell) -> int:
        """Leaves that are bad, or will be when the event that is being handled is over."""
        return sum(leaf.is_lost or leaf.node in self.bad_nodes for leaf in cell.leaves)

    def has_lost(self, chain: str) -> bool:
        return any(leaf.is_lost for leaf in self.chains[chain].leaves())

    def set_bad(self, cell: PhysicalCell) -> None:
        if not cell.is_healthy:
            return
        cell.is_healthy = False
        if cell.parent is not None:
            self.set_bad(cell.parent)
        if self.is_free(cell):
            self.bad[cell.chain][cell.level].append(cell)
            self.bind_doomed(cell.chain, cell.level)
        elif not cell.is_split and cell.bound is None:
            self._bind_to_unbound_child(cell, cell.parent.bound)

    def set_healthy(self, cell: PhysicalCell) -> None:
        if cell.is_healthy:
            return
        cell.is_healthy = True
        if self.is_free(cell):
            swap_remove(self.bad[cell.chain][cell.level], cell)
            self.unbind_doomed(cell.chain, cell.level)
        elif cell.bound is not None and not cell.is_pinned:
            self._heal_bound(cell)
        if cell.parent is not None and all(child.is_healthy for child in cell.parent.children):
            self.set_healthy(cell.parent)

    def _heal_bound(self, cell: PhysicalCell) -> None:
        is_doomed = self.is_doomed(cell)
        vc = cell.bound.vc.name
        if is_doomed:
            swap_remove(self.doomed[vc][cell.chain][cell.level], cell)
        if cell.priority < MIN_GUARANTEED_PRIORITY:
            self.unbind_cell(cell)
            if is_doomed:
                self.release_preassigned(cell, is_doomed=True)


def copy_containers(value: object) -> object:
    """Copies of nested dicts, lists and sets, sharing the objects inside."""
    if isinstance(value, dict):
        return {k: copy_containers(v) if isinstance(v, CONTAINERS) else v for k, v in value.items()}
    if isinstance(value, list):
        return [copy_containers(v) if isinstance(v, CONTAINERS) else v for v in value]
    return set(value) if isinstance(value, set) else value
