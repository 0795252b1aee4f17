"""OpenPAI's job protocol, version 2: a job file -> pods, by OpenPAI's own rules.

A task asks for as many SKUs as cover its GPUs, CPU and memory; all tasks of a job form one gang unless the file names
affinity groups or turns gangs off. A gang larger than its virtual cluster can ever hold is refused here, where a person
waits for the answer.

A job is a user's: two users may have jobs of one name, so OpenPAI calls a job `USER~JOB`. Its pods and its record have
the plain name while that is free, else the user's before it. Its ends and retries are told as policies.

HiveD's part (SKUs, pinned cells, gangs, nearness) has two forms in OpenPAI, the second of which was made for HiveD's
next version; keys of both may be mixed.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from hived.values.errors import UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, ClusterSpec
from hived_config.access import PRIORITY_WORDS
from hived_config.words import counted
from hived_extender.jobs.amounts import Capacity, Request, cluster_capacity, sku, skus_needed, vc_capacity
from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION
from hived_extender.jobs.asks import priority_class_name
from hived_extender.jobs.device_words import HIVED_WORD, NO_DEVICE, NVIDIA_WORD
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_jobs.documents import Document, Section
from hived_jobs.policies import Action, Event, Policy, Rules
from hived_jobs.submission import (
    JOB,
    JOB_NAME,
    USER_NAME,
    Manifest,
    NoConfigurationError,
    PlannedJob,
    PlannedPod,
    RoleSize,
    Submission,
    TooLargeError,
    full_name,
    scheduling_annotation,
)

MAX_INSTANCES = 150_000
"""No task role has more tasks than Kubernetes has pods in its largest clusters."""


@dataclass(frozen=True, slots=True)
class TaskRole:
    """A task role as written, with what `extras.hivedScheduler` says of it. `sees_devices`: those of its cells."""

    name: str
    section: Section
    instances: int
    resources: Request
    image: str
    commands: str
    shared_memory_mib: int
    completion: "Completion"
    retries: int
    sku_type: str = ""
    pinned_cell_id: str = ""
    group: str = ""
    within: str = ""
    sku_count: int = 0
    sees_devices: bool = True


@dataclass(frozen=True, slots=True)
class Completion:
    """The number of instances of a task role that fail, or succeed, before the job ends; None for no such number."""

    failed: int | None = 1
    succeeded: int | None = None

    def __str__(self) -> str:
        numbers = (("minFailedInstances", self.failed), ("minSucceededInstances", self.succeeded))
        return ", ".join(f"{key}={-1 if number is None else number}" for key, number in numbers)


@dataclass(frozen=True, slots=True)
class Job:
    """The part that all tasks of a job share. `retries` of the whole job are endless if None, and `leaf_cell_type` of
    tasks with GPUs is their own.
    """

    name: str
    user: str
    virtual_cluster: str
    priority: int
    is_gang: bool
    flags: dict[str, bool]
    retries: int | None
    leaf_cell_type: str | None = None

    @property
    def full_name(self) -> str:
        """The name that no other job has, as in OpenPAI."""
        return full_name(self.user, self.name)

    def stem(self, names_user: bool) -> str:
        """Its name as names of pods and labels have it: at most 63 characters."""
        stem = _dns_name(f"{self.user}-{self.name}" if names_user else self.name)
        if len(stem) <= MOST_NAME:
            return stem
        digest = hashlib.sha256(self.full_name.encode()).hexdigest()[:8]
        return f"{stem[: MOST_NAME - 9].rstrip('-.')}-{digest}"

    @property
    def is_opportunistic(self) -> bool:
        """True if it may use any cell of the cluster, and keep none."""
        return self.priority == OPPORTUNISTIC_PRIORITY

    @property
    def owner(self) -> str:
        """The owner of the cells that it uses, for messages."""
        return "the cluster" if self.is_opportunistic else f"VC {self.virtual_cluster}"


def placed_roles(roles: list[TaskRole], root: Section, job: Job, capacity: Capacity | None) -> list[TaskRole]:
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


def near_roles(roles: list[TaskRole], root: Section, cluster: ClusterSpec | None) -> list[TaskRole]:
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
    """Return why the instances of a task role cannot be kept in a cell of their own; "" if they can."""
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


def _within_one(section: Section, cluster: ClusterSpec | None) -> str:
    """The cell type at `withinOne`, "" for none."""
    cell_type = section.text("withinOne", "")
    if cell_type and cluster is not None and cell_type not in cluster.cell_types:
        raise section.refuse("withinOne", f"no cell type {cell_type!r} (known: {known(cluster.cell_types)})")
    return cell_type


def _placed_role(role: TaskRole, wish: Section, job: Job, capacity: Capacity | None) -> TaskRole:
    sku, pin = _place_of(wish, "skuType"), wish.text("pinnedCellId", "")
    sku_type = sku.text("skuType", "")
    if role.resources.gpu and job.leaf_cell_type is not None:
        if pin:
            raise wish.refuse("pinnedCellId", "it says which cell to use: leave --gpu-type out")
        sku_type = job.leaf_cell_type
    gang_count = wish.whole("minGangInstance", role.instances, maximum=MAX_INSTANCES)
    if gang_count != role.instances:
        wish.warn("minGangInstance", f"not honoured: all {role.instances} instances start together")
    if sku_type and pin:
        raise wish.refuse("pinnedCellId", "skuType and pinnedCellId exclude each other")
    if pin and job.is_opportunistic:
        raise wish.refuse("pinnedCellId", "an opportunistic job cannot use a pinned cell")
    if pin and capacity is not None and pin not in capacity.pinned:
        raise wish.refuse("pinnedCellId", f"{job.owner} has no pinned cell {pin!r} (known: {known(capacity.pinned)})")
    if sku_type and capacity is not None and sku_type not in capacity.by_type:
        raise sku.refuse("skuType", f"{job.owner} has no SKU type {sku_type!r} (known: {known(capacity.by_type)})")
    group, sku_count = wish.text("affinityGroupName", ""), _place_of(wish, "skuNum").whole("skuNum", 0)
    return replace(role, sku_type=sku_type, pinned_cell_id=pin, group=group, sku_count=sku_count)


def _place_of(wish: Section, key: str) -> Section:
    """Return the section of a SKU's wishes: beside its other ones, as OpenPAI's portal has it, or one of its own."""
    own = wish.section("resourcePerInstance")
    if key in own and key in wish:
        raise wish.refuse(key, f"resourcePerInstance has a {key} too; keep one of them")
    return own if key in own else wish


def known(names: Iterable[str]) -> str:
    """Names for a message, sorted."""
    return ", ".join(sorted(names)) or "none"


COMPLETION = "openpai/completion"
"""Annotation that keeps a task role's completion rules for whoever watches the pods."""

KIND = "OpenPAI"
"""The kind of these jobs in their records."""

MOST_NAME = 63
"""Characters of a label."""

ENDLESS = -1
"""So many retries are endless, and a completion of so many instances never comes."""

DEFAULT_VIRTUAL_CLUSTER = "default"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_NAME_RULE = "at most 63 letters, digits, '-', '_' and '.', letters or digits at both ends"
_PARAMETER = re.compile(r"<%\s*\$parameters\.([\w.-]+)\s*%>")


def plan_openpai_job(document: Document, submission: Submission) -> PlannedJob:
    """The pods of a job, role by role in file order.

    Raises UserError with file, line and place for anything the job may not ask for, TooLargeError if it can never run;
    unknown keys become warnings. Without a configuration the job is as one before has sized it.
    Source: OpenPAI's rules for turning a job into pods.
    """
    if submission.cluster is None and not submission.sizes:
        raise NoConfigurationError(
            f"{document.file}: an OpenPAI job needs the cluster's configuration for its SKU types and quotas: "
            "give --config FILE or set CONFIG, or connect to a cluster started by hived serve --embedded"
        )
    root = document.section()
    if root.text("protocolVersion") != "2":
        raise root.refuse("protocolVersion", f"found {root.text('protocolVersion')!r}, expected 2")
    if root.text("type", "job") != "job":
        raise root.refuse("type", f"found {root.text('type')!r}, expected job")
    root.skip("version", "contributor", "description", "secrets")
    root.section("parameters").skip()
    root.section("extras").skip()
    job, cluster = _job(root, submission), submission.cluster
    capacity = None if cluster is None else _capacity(root, job, cluster)
    placed = placed_roles(_task_roles(root, job), root, job, capacity)
    placed = near_roles(placed, root, cluster)
    if cluster is None or capacity is None:
        roles = [_as_sized(role, submission.sizes) for role in placed]
    else:
        roles = [_sized_role(role, capacity, cluster) for role in placed]
        _check_quotas(roles, job, capacity)
    root.warn_unknown()
    return _planned(document, roles, job, submission, submission.names_user)


def _planned(
    document: Document, roles: list[TaskRole], job: Job, submission: Submission, names_user: bool
) -> PlannedJob:
    """The job under its plain name, or with its user's in front."""
    stem = job.stem(names_user)
    pods = [_pod(role, index, stem, roles, job, submission) for role in roles for index in range(role.instances)]
    if len({pod.name for pod in pods}) < len(pods):
        told = "names that differ only in case or punctuation make pods of the same name"
        raise document.section().refuse("taskRoles", told)
    return PlannedJob(
        pods,
        kind=KIND,
        name=stem,
        namespace=submission.namespace,
        virtual_cluster=submission.virtual_cluster or "",
        document=_stored_form(document),
        labels={JOB_NAME: job.name, USER_NAME: job.user},
        sizes={role.name: RoleSize(role.sku_count, role.sees_devices) for role in roles},
        names_user=names_user,
        apart=None if names_user else lambda: _planned(document, roles, job, submission, True),
        rules=_rules(roles, job),
    )


def _stored_form(document: Document) -> Manifest:
    """A job's document as it is kept in the cluster: without secrets, which are for images alone."""
    written: Manifest = document.written()
    written.pop("secrets", None)
    for prerequisite in written.get("prerequisites") or ():
        prerequisite.pop("auth", None)
    return written


def _rules(roles: list[TaskRole], job: Job) -> Rules:
    """Return the rules of OpenPAI for pods that end or go.

    A gang that loses a pod starts again, as its pods know each other; other instances come again one by one. Neither is
    a retry. Instances without a gang are started again as often as their task role says, before they count as failed.
    """
    policies = [Policy(Action.RESTART_JOB, (Event.POD_EVICTED,), is_free=True)] if job.is_gang else []
    after_failures = Action.FAIL_JOB if job.retries == 0 else Action.RESTART_JOB
    for role in roles:
        if role.retries:
            most = None if role.retries == ENDLESS else role.retries
            policies.append(Policy(Action.RESTART_POD, (Event.POD_FAILED,), role.name, most=most, is_free=True))
        if role.completion.failed is not None:
            failed = role.completion.failed
            policies.append(Policy(after_failures, (Event.POD_FAILED,), role.name, at_least=failed))
        if role.completion.succeeded is not None:
            succeeded = role.completion.succeeded
            policies.append(Policy(Action.COMPLETE_JOB, (Event.POD_SUCCEEDED,), role.name, at_least=succeeded))
    return Rules(tuple(policies), job.retries, ends_well=True)


def _job(root: Section, submission: Submission) -> Job:
    name = root.text("name")
    if not _NAME.fullmatch(name):
        raise root.refuse("name", f"found {name!r}, expected {_NAME_RULE}")
    defaults, extras = root.section("defaults"), root.section("extras")
    defaults.skip("deployment")
    hived = extras.section("hivedScheduler")
    word = hived.text("jobPriorityClass", "test")
    if word not in PRIORITY_WORDS:
        raise hived.refuse("jobPriorityClass", f"found {word!r}, expected {', '.join(PRIORITY_WORDS)}")
    flags = {
        "gangReleaseEnable": hived.flag("gangReleaseEnable", False),
        "lazyPreemptionEnable": hived.flag("lazyPreemptionEnable", False),
        "ignoreK8sSuggestedNodes": hived.flag("ignoreK8sSuggestedNodes", False),
    }
    virtual_cluster = defaults.text("virtualCluster", DEFAULT_VIRTUAL_CLUSTER)
    retries = root.whole("jobRetryCount", 0, minimum=2 * ENDLESS)
    if retries == 2 * ENDLESS:
        root.warn("jobRetryCount", f"taken as {ENDLESS}: a job that has succeeded is not started again")
    return Job(
        name=name,
        user=submission.user,
        virtual_cluster=submission.virtual_cluster or virtual_cluster,
        priority=PRIORITY_WORDS[word] if submission.priority is None else submission.priority,
        is_gang=extras.flag("gangAllocation", True),
        flags=flags,
        retries=None if retries < 0 else retries,
        leaf_cell_type=submission.leaf_cell_type,
    )


def _task_roles(root: Section, job: Job) -> list[TaskRole]:
    prerequisites = root.sections("prerequisites")
    for item in prerequisites:
        item.skip()
    images = {item.text("name"): item.text("uri") for item in prerequisites if item.text("type", "") == "dockerimage"}
    parameters = root.section("parameters")
    wraps = _deployment(root)
    roles = [
        _task_role(name, section, job, images, parameters, wraps)
        for name, section in root.section("taskRoles").members().items()
    ]
    if not roles:
        raise root.refuse("taskRoles", "missing; expected at least one task role")
    return roles


def _task_role(
    name: str,
    section: Section,
    job: Job,
    images: dict[str, str],
    parameters: Section,
    wraps: dict[str, tuple[str, str]],
) -> TaskRole:
    if not _NAME.fullmatch(name):
        raise section.refuse("", f"a task role's name has {_NAME_RULE}")
    image = section.text("dockerImage")
    if image not in images:
        message = f"no prerequisite of type dockerimage is named {image!r} (known: {known(images)})"
        raise section.refuse("dockerImage", message)
    asked = section.section("resourcePerInstance")
    resources = Request(asked.whole("gpu", 0), asked.number("cpu", 0), asked.number("memoryMB", 0))
    if "ports" in asked:
        asked.warn("ports", "not supported, ignored")
    asked.skip("ports")
    options = section.section("extraContainerOptions")
    shared_memory_mib = options.whole("shmMB", 0)
    retries = section.whole("taskRetryCount", 0, minimum=ENDLESS)
    if retries and job.is_gang:
        told = (
            "not honoured in a gang: jobRetryCount starts all of it again, and without gangAllocation this one counts"
        )
        section.warn("taskRetryCount", told)
    before, after = wraps.get(name, ("", ""))
    commands = "\n".join(part for part in (before, *section.texts("commands"), after) if part)
    role = TaskRole(
        name=name,
        section=section,
        instances=section.whole("instances", 1, minimum=1, maximum=MAX_INSTANCES),
        resources=resources,
        image=images[image],
        commands=_fill_parameters(commands, parameters, section),
        shared_memory_mib=shared_memory_mib,
        completion=_completion(section.section("completion")),
        retries=0 if job.is_gang else retries,
    )
    section.skip("data", "output", "script", "prerequisites")
    return role


def _completion(section: Section) -> Completion:
    """The numbers of a task role; a missing one, 0 and null have OpenPAI's default."""
    failed = section.whole("minFailedInstances", 0, minimum=ENDLESS, maximum=MAX_INSTANCES)
    succeeded = section.whole("minSucceededInstances", 0, minimum=ENDLESS, maximum=MAX_INSTANCES)
    return Completion(None if failed == ENDLESS else failed or 1, succeeded if succeeded > 0 else None)


def _deployment(root: Section) -> dict[str, tuple[str, str]]:
    """Return the commands before and after a task role's own, as the chosen deployment has them."""
    chosen = root.section("defaults").text("deployment", "")
    wraps: dict[str, tuple[str, str]] = {}
    names = []
    for deployment in root.sections("deployments"):
        names.append(deployment.text("name"))
        if names[-1] == chosen:
            for role, section in deployment.section("taskRoles").members().items():
                wraps[role] = ("\n".join(section.texts("preCommands")), "\n".join(section.texts("postCommands")))
    if chosen and chosen not in names:
        message = f"no deployment is named {chosen!r} (known: {known(names)})"
        raise root.section("defaults").refuse("deployment", message)
    return wraps


def _fill_parameters(commands: str, parameters: Section, section: Section) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in parameters:
            raise section.refuse("commands", f"uses $parameters.{match[1]}, which the job does not set")
        return parameters.text(match[1])

    return _PARAMETER.sub(value, commands)


def _capacity(root: Section, job: Job, cluster: ClusterSpec) -> Capacity:
    """Return the cells that the job may use: its VC's, for an opportunistic job the cluster's."""
    try:
        capacity = vc_capacity(cluster, job.virtual_cluster)
    except UserError as error:
        defaults = root.section("defaults")
        if defaults.text("virtualCluster", DEFAULT_VIRTUAL_CLUSTER) != job.virtual_cluster:
            raise
        raise defaults.refuse("virtualCluster", error.message) from error
    return cluster_capacity(cluster) if job.is_opportunistic else capacity


def _sized_role(role: TaskRole, capacity: Capacity, cluster: ClusterSpec) -> TaskRole:
    """The role with the number of SKUs that each of its tasks gets: as written, else what its resources need."""
    types = [role.sku_type] if role.sku_type else sorted(capacity.leaf_types)
    offered = sku(cluster, types)
    without_gpus = [each for each in types if not sku(cluster, [each]).gpu]
    if role.resources.gpu and offered.gpu and without_gpus and not role.pinned_cell_id:
        names = ", ".join(without_gpus)
        text = f"asks for GPUs, but may run on {names} without any; give a skuType in extras.hivedScheduler.taskRoles"
        role.section.warn("resourcePerInstance", text)
    try:
        needed = skus_needed(role.resources, offered)
    except UserError as error:
        raise role.section.refuse("resourcePerInstance", error.message) from error
    if role.sku_count and role.sku_count < needed:
        text = f"takes {counted(needed, 'SKU')}, but skuNum in extras.hivedScheduler.taskRoles says {role.sku_count}"
        role.section.warn("resourcePerInstance", text)
    sees_devices = bool(offered.gpu and (role.resources.gpu or not without_gpus))
    return replace(role, sku_count=role.sku_count or needed, sees_devices=sees_devices)


def _as_sized(role: TaskRole, sizes: Mapping[str, RoleSize]) -> TaskRole:
    """The role with the cells that it had when the job was submitted. Raises UserError if they are not known."""
    size = sizes.get(role.name)
    if size is None:
        raise role.section.refuse("", "the record of the job does not know its size")
    return replace(role, sku_count=size.cells, sees_devices=size.sees_devices)


def _check_quotas(roles: list[TaskRole], job: Job, capacity: Capacity) -> None:
    """Refuse a gang, or a task that is its own gang, that can never fit; and a gang of two minds."""
    for group in dict.fromkeys(role.group for role in roles if role.group):
        gang = [role for role in roles if role.group == group]
        kinds = {role.sku_type or role.pinned_cell_id for role in gang}
        if len(kinds) > 1:
            names = ", ".join(sorted(kind or "any" for kind in kinds))
            raise gang[0].section.refuse("", f"affinity group {group!r} mixes SKU types or pinned cells: {names}")
        _check_quota(gang[0], sum(role.instances * role.sku_count for role in gang), f"gang {group!r}", job, capacity)
    for role in roles:
        if not role.group:
            _check_quota(role, role.sku_count, "each task", job, capacity)


def _check_quota(role: TaskRole, requested: int, who: str, job: Job, capacity: Capacity) -> None:
    if role.pinned_cell_id:
        maximum, where = capacity.pinned[role.pinned_cell_id][1], f"pinned cell {role.pinned_cell_id}"
    else:
        maximum, where = capacity.by_type[role.sku_type] if role.sku_type else capacity.largest(), job.owner
    if requested > maximum:
        kind = f" of type {role.sku_type}" if role.sku_type else ""
        message = (
            f"{who} requests {counted(requested, 'SKU')}, exceeds maximum {counted(maximum, 'SKU')}{kind} in {where}"
        )
        raise TooLargeError(role.section.refuse("", message).message)


def _pod(role: TaskRole, index: int, stem: str, roles: list[TaskRole], job: Job, submission: Submission) -> PlannedPod:
    labels = {
        JOB: stem,
        JOB_NAME: job.name,
        USER_NAME: job.user,
        "virtualCluster": job.virtual_cluster,
        "taskRole": role.name,
        "taskIndex": str(index),
    }
    annotations = scheduling_annotation(_scheduling_spec(role, roles, job))
    if "completion" in role.section:
        annotations[COMPLETION] = str(role.completion)
    manifest: Manifest = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{stem}-{_dns_name(f'{role.name}-{index}')}",
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": submission.scheduler_for(job.virtual_cluster),
            "priorityClassName": priority_class_name(job.priority),
            "restartPolicy": "Never",
            "containers": [_container(role, index, job)],
        },
    }
    if role.shared_memory_mib:
        size = f"{role.shared_memory_mib}Mi"
        manifest["spec"]["volumes"] = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    return PlannedPod(manifest, job.priority, role.name)


def _scheduling_spec(role: TaskRole, roles: list[TaskRole], job: Job) -> dict[str, object]:
    spec: dict[str, object] = {"virtualCluster": job.virtual_cluster, "priority": job.priority}
    if role.pinned_cell_id:
        spec["pinnedCellId"] = role.pinned_cell_id
    if role.sku_type:
        spec["leafCellType"] = role.sku_type
    spec |= {"leafCellNumber": role.sku_count, **job.flags}
    if role.within:
        spec["withinCell"] = role.within
    if role.group:
        gang = [other for other in roles if other.group == role.group]
        spec["affinityGroup"] = {
            "name": f"{job.full_name}/{role.group}",
            "members": [{"podNumber": other.instances, "leafCellNumber": other.sku_count} for other in gang],
        }
    return spec


def _container(role: TaskRole, index: int, job: Job) -> Manifest:
    devices: Manifest = {"value": NO_DEVICE}
    if role.sees_devices:
        devices = {"valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{LEAF_CELL_ISOLATION}']"}}}
    limits: dict[str, str | int] = {ENABLE_LIMIT: 1}
    if role.resources.cpu:
        limits["cpu"] = _quantity(role.resources.cpu)
    if role.resources.memory_mib:
        limits["memory"] = f"{_quantity(role.resources.memory_mib)}Mi"
    container: Manifest = {
        "name": "app",
        "image": role.image,
        "command": ["sh", "-c", role.commands],
        "env": [
            {"name": NVIDIA_WORD, **devices},
            {"name": HIVED_WORD, **devices},
            {"name": "PAI_JOB_NAME", "value": job.full_name},
            {"name": "PAI_USER_NAME", "value": job.user},
            {"name": "PAI_CURRENT_TASK_ROLE_NAME", "value": role.name},
            {"name": "PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX", "value": str(index)},
        ],
        "resources": {"limits": limits},
    }
    if role.shared_memory_mib:
        container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    return container


def _dns_name(text: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", text.lower()).strip("-.")


def _quantity(number: float) -> str:
    """A number as Kubernetes reads it, to a thousandth."""
    return f"{number:.3f}".rstrip("0").rstrip(".")
