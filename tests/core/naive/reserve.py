"""A group that had reserved cells in an earlier state gets them again, or is refused (the plain way)."""

from collections.abc import Callable

from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, BindInfo, PodRequest
from tests.core.naive.cluster import Cluster
from tests.core.naive.groups import check_agreement, create_preempting, intended_bindings, planned_cells
from tests.core.naive.model import FREE, PREEMPTING, USED, Group, PhysicalCell, VirtualCell
from tests.core.naive.replay import located_leaves

Validate = Callable[[PodRequest], None]


def reserve(
    cluster: Cluster, pods: tuple[PodRequest, ...], info: BindInfo, validate: Validate, may_be_free: bool = False
) -> None:
    """`validate` raises UserError for a pod that asks for what this cluster does not have."""
    saved = cluster.save()
    try:
        Reservation(cluster, pods, info, may_be_free).run(validate)
    except UserError:
        cluster.restore(saved)
        raise


class Reservation:
    def __init__(self, cluster: Cluster, pods: tuple[PodRequest, ...], info: BindInfo, may_be_free: bool) -> None:
        self.may_be_free = may_be_free
        self.cluster = cluster
        self.pods = pods
        self.info = info
        self.virtual_of: dict[PhysicalCell, VirtualCell] = {}  # the pairs that this group is going to bind

    def refuse(self, reason: str) -> UserError:
        name = self.pods[0].spec.group.name
        return UserError(f"affinity group {name} cannot have its reservation again: {reason}")

    def run(self, validate: Validate) -> None:
        if not self.pods:
            raise UserError("no pod is named for which cells are to be reserved")
        for pod in self.pods:
            own = pod.spec.leaf_cell_count
            if own not in [member.leaf_cell_count for member in pod.spec.group.members]:
                raise UserError(f"the affinity group has no pod of {own} leaf cells")
        self.spec = self.pods[0].spec
        if len({pod.spec.group.name for pod in self.pods}) > 1:
            raise self.refuse("several groups")
        if self.spec.group.name in self.cluster.groups:
            raise self.refuse("the group exists")
        validate(self.pods[0])
        if self.spec.priority < MIN_GUARANTEED_PRIORITY:
            raise self.refuse("opportunistic")
        group = self.make_group()
        for pod in self.pods:
            check_agreement(pod, group)
        leaves = [leaf for leaf, _ in group.leaf_pairs()]
        chain = self.cluster.chains[leaves[0].chain]
        before = self.cluster.spare(chain.name)
        with self.cluster.planning(
            planned_cells(group.leaf_pairs()), catch_up=True, intended=intended_bindings(group.leaf_pairs())
        ):
            create_preempting(self.cluster, group)
        after = self.cluster.spare(chain.name)
        for level in chain.levels:
            if after[level] < 0 and after[level] < before[level]:
                raise self.refuse("VC safety")

    def make_group(self) -> Group:
        sizes = {member.leaf_cell_count: member.pod_count for member in self.spec.group.members}
        placed = [(len(placement.leaf_cell_indices), placement) for member in self.info.members for placement in member]
        if sorted(size for size, _ in placed) != sorted(size for size in sizes for _ in range(sizes[size])):
            raise self.refuse("other sizes")
        located = iter(located_leaves(self.cluster, self.info, self.spec.leaf_cell_type))
        names = {size: [[next(located) for _ in range(size)] for s, _ in placed if s == size] for size in sizes}
        self.check([leaf for pods in names.values() for pod in pods for leaf, _ in pod])
        return Group(
            name=self.spec.group.name,
            spec=self.spec,
            state=PREEMPTING,
            physical={size: [[leaf for leaf, _ in pod] for pod in names[size]] for size in sizes},
            virtual={size: [[self.place(*each) for each in pod] for pod in names[size]] for size in sorted(sizes)},
            allocated={size: [None] * count for size, count in sizes.items()},
            preempting={pod.uid: pod for pod in self.pods},
        )

    def check(self, leaves: list[PhysicalCell | None]) -> None:
        spec = self.spec
        if any(leaf is None for leaf in leaves) or len(set(leaves)) < len(leaves):
            raise self.refuse("a leaf is gone, or there twice")
        if any(not leaf.is_healthy for leaf in leaves):
            raise self.refuse("bad")
        if len({leaf.chain for leaf in leaves}) > 1:
            raise self.refuse("several chains")
        chain = self.cluster.chains[leaves[0].chain]
        if spec.leaf_cell_type and chain.leaf_type != spec.leaf_cell_type:
            raise self.refuse("another leaf cell type")
        if spec.within_cell and spec.within_is_required:
            level = chain.level_of(spec.within_cell)
            if level is None or len({leaf.ancestor_at(level) for leaf in leaves}) > 1:
                raise self.refuse("not within one cell")
        if any(leaf.state not in {FREE, USED} for leaf in leaves):
            raise self.refuse("reserved")
        if all(leaf.state == FREE for leaf in leaves) and not self.may_be_free:
            raise self.refuse("nobody uses it")
        if any(leaf.priority >= spec.priority for leaf in leaves):
            raise self.refuse("used by a group that may not be preempted")

    def place(self, leaf: PhysicalCell, cell_type: str) -> VirtualCell:
        """From the preassigned cell down to the leaf."""
        level = self.cluster.chains[leaf.chain].level_of(cell_type)
        if level is None:
            raise self.refuse("no such preassigned cell type")
        vc = self.cluster.vcs[self.spec.virtual_cluster]
        roots = [root for root in vc.roots(leaf.chain, self.spec.pinned_cell_id) if root.level == level]
        path = [cell for cell in leaf.up() if cell.level <= level]
        top = path.pop()
        virtual = self.partner(top)
        if virtual is None and self.is_free(top):
            virtual = self.first_unbound(roots)
        if virtual is None or virtual not in roots:
            raise self.refuse("no preassigned cell")
        self.virtual_of[top] = virtual
        for cell in reversed(path):
            virtual = self.partner(cell) or self.first_unbound(virtual.children)
            self.virtual_of[cell] = virtual
        return virtual

    def partner(self, cell: PhysicalCell) -> VirtualCell | None:
        return cell.bound or self.virtual_of.get(cell)

    def first_unbound(self, cells: list[VirtualCell]) -> VirtualCell | None:
        chosen = self.virtual_of.values()
        return next((cell for cell in cells if cell.bound is None and cell not in chosen), None)

    def is_free(self, top: PhysicalCell) -> bool:
        if any(cell.overlaps(top) for cell in self.virtual_of):
            return False
        return self.cluster.is_free(top) and not top.is_split
