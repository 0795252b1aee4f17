"""HiveD's part of an OpenPAI job: the SKUs, pinned cells, gangs and nearness of its task roles.

OpenPAI has two forms of it, the second of which was made for HiveD's next version; keys of both may be mixed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from hived.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_extender.pods.capacity import Capacity, Resources
from hived_jobs.documents import Section

MAX_INSTANCES = 150_000
"""No task role has more tasks than Kubernetes has pods in its largest clusters."""


@dataclass(frozen=True, slots=True)
class TaskRole:
    """A task role as written, with what `extras.hivedScheduler` says of it. `sees_devices`: those of its cells."""

    name: str
    section: Section
    instances: int
    resources: Resources
    image: str
    commands: str
    shared_memory_mib: int
    completion: str
    sku_type: str = ""
    pinned_cell_id: str = ""
    group: str = ""
    within: str = ""
    sku_count: int = 0
    sees_devices: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """The part that all tasks of a job share."""

    name: str
    user: str
    virtual_cluster: str
    priority: int
    is_gang: bool
    flags: dict[str, bool]

    @property
    def is_opportunistic(self) -> bool:
        """Whether it may use any cell of the cluster, and keep none."""
        return self.priority == OPPORTUNISTIC_PRIORITY

    @property
    def owner(self) -> str:
        """The owner of the cells that it uses, for messages."""
        return "the cluster" if self.is_opportunistic else f"VC {self.virtual_cluster}"


def placed_roles(roles: list[TaskRole], root: Section, job: Job, capacity: Capacity) -> list[TaskRole]:
    """The roles with SKU type, pinned cell and gang, as `extras.hivedScheduler.taskRoles` and the rules say."""
    wishes = root.section("extras").section("hivedScheduler").section("taskRoles")
    for name in wishes.members():
        if all(name != role.name for role in roles):
            raise wishes.refuse(name, "no such task role in taskRoles")
    placed = [_placed_role(role, wishes.section(role.name), job, capacity) for role in roles]
    groups = _role_groups(placed, root)
    if groups:
        rest = "default" if job.is_gang else ""
        return [replace(role, group=groups.get(role.name, rest)) for role in placed]
    if not job.is_gang:
        return [replace(role, group="") for role in placed]
    if not any(role.group for role in placed):
        return [replace(role, group="default") for role in placed]
    return placed


def _role_groups(roles: list[TaskRole], root: Section) -> dict[str, str]:
    """By task role, the gang that `extras.hivedScheduler.taskRoleGroups` puts it in, named as by OpenPAI."""
    groups: dict[str, str] = {}
    for group in root.section("extras").section("hivedScheduler").sections("taskRoleGroups"):
        names = group.texts("taskRoles")
        if len(names) < 2:
            raise group.refuse("taskRoles", f"found {known(names)}, expected at least two task roles")
        for name in names:
            role = next((role for role in roles if role.name == name), None)
            if role is None:
                raise group.refuse("taskRoles", f"no such task role in taskRoles: {name}")
            if name in groups or role.group:
                raise group.refuse("taskRoles", f"{name} is in an affinity group already")
            groups[name] = _gang(group)
        if not group.flag("gang", True):
            group.warn("gang", "not honoured: the task roles of a group start together")
    return groups


def near_roles(roles: list[TaskRole], root: Section, cluster: ClusterSpec) -> list[TaskRole]:
    """The roles with the cell type, one cell of which their gang is to be in.

    Cells are chosen for a gang as a whole, so a wish for one of several task roles is left out with a warning.
    """
    hived = root.section("extras").section("hivedScheduler")
    gangs = {_gang(section): _within_one(section, cluster) for section in hived.sections("taskRoleGroups")}
    near = []
    for role in roles:
        wish, within = hived.section("taskRoles").section(role.name), gangs.get(role.group, "")
        own = _within_one(wish, cluster)
        if own and own != within:
            reason = _why_not_near(role, roles)
            if reason:
                wish.warn("withinOne", f"not honoured: {reason}")
            else:
                within = own
        near.append(replace(role, within=within))
    return near


def _why_not_near(role: TaskRole, roles: list[TaskRole]) -> str:
    """Why the instances of a task role cannot be kept in a cell of their own; "" if they can."""
    mates = [other.name for other in roles if role.group and other.group == role.group and other is not role]
    if mates:
        return (
            f"cells are chosen for a gang as a whole, and {', '.join(mates)} belongs to it too; say it in "
            "taskRoleGroups, or give the task role an affinityGroupName"
        )
    return "without a gang each instance is placed by itself" if not role.group and role.instances > 1 else ""


def _gang(section: Section) -> str:
    """OpenPAI's name of a group of task roles."""
    return f"taskRoleGroups/{'_'.join(section.texts('taskRoles'))}"


def _within_one(section: Section, cluster: ClusterSpec) -> str:
    """The cell type at `withinOne`, "" for none."""
    cell_type = section.text("withinOne", "")
    if cell_type and cell_type not in cluster.cell_types:
        raise section.refuse("withinOne", f"no cell type {cell_type!r} (known: {known(cluster.cell_types)})")
    return cell_type


def _placed_role(role: TaskRole, wish: Section, job: Job, capacity: Capacity) -> TaskRole:
    sku, pin = _place_of(wish, "skuType"), wish.text("pinnedCellId", "")
    sku_type = sku.text("skuType", "")
    gang_count = wish.whole("minGangInstance", role.instances, maximum=MAX_INSTANCES)
    if gang_count != role.instances:
        wish.warn("minGangInstance", f"not honoured: all {role.instances} instances start together")
    if sku_type and pin:
        raise wish.refuse("pinnedCellId", "skuType and pinnedCellId exclude each other")
    if pin and job.is_opportunistic:
        raise wish.refuse("pinnedCellId", "an opportunistic job cannot use a pinned cell")
    if pin and pin not in capacity.pinned:
        raise wish.refuse("pinnedCellId", f"{job.owner} has no pinned cell {pin!r} (known: {known(capacity.pinned)})")
    if sku_type and sku_type not in capacity.by_type:
        raise sku.refuse("skuType", f"{job.owner} has no SKU type {sku_type!r} (known: {known(capacity.by_type)})")
    group, sku_count = wish.text("affinityGroupName", ""), _place_of(wish, "skuNum").whole("skuNum", 0)
    return replace(role, sku_type=sku_type, pinned_cell_id=pin, group=group, sku_count=sku_count)


def _place_of(wish: Section, key: str) -> Section:
    """Where a task role says this of its SKU: beside its other wishes, as OpenPAI's portal has it, or in a section."""
    own = wish.section("resourcePerInstance")
    if key in own and key in wish:
        raise wish.refuse(key, f"resourcePerInstance has a {key} too; keep one of them")
    return own if key in own else wish


def known(names: Iterable[str]) -> str:
    """Names for a message, sorted."""
    return ", ".join(sorted(names)) or "none"
