"""The needs of a job: the cells of its whole gang, amounts for quotas, and how long it runs.

Each role's template is read as the pod that it will be. So a queued job asks for just that for which its pods will ask.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import GroupSpec, MemberSpec, PodSpec
from hived_extender.jobs.amounts import CellAmounts, amounts_of
from hived_extender.jobs.annotations import MAX_COUNT, SCHEDULING_SPEC, is_quickly_read
from hived_extender.jobs.asks import Ask
from hived_extender.jobs.bind_info import asks_in_own_words
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.jobs.job import Job, JobRef, JobState, Minimum, PodKind, Role
from hived_extender.jobs.kinds import gangs, jobset, marks
from hived_extender.jobs.kinds.description import Description, JobPart
from hived_extender.jobs.misspelt import misplaced
from hived_extender.jobs.outcomes import EvictionName
from hived_extender.jobs.progress import declared_limit, grace_of
from hived_extender.jobs.starts import StartWait
from hived_extender.jobs.wire import Pod, PodMetadata


class Need(msgspec.Struct, frozen=True):
    """The cells, amounts and limits that a job asks for.

    Attributes
    ----------
    spec : the whole gang as one affinity group, named as the key of the job: VC, priority, members by size, cells
    request : amounts by resource of all its pods at once, in base units: cores, bytes, devices
    user : its owner
    is_preemptible : may it run on borrowed cells, from which it is preempted
    limit_s : the longest run, None if none is declared
    grace_s : how long its pods may take to leave after that
    pods : for each member of the group, in its order, the first pod of each role of that size with its number of pods
    minimum : the pods with which it may start, None for all
    has_others : has it pods without cells too, such as initializers, which may come long before the others?
    """

    spec: PodSpec
    request: Mapping[str, float]
    user: str
    is_preemptible: bool = True
    limit_s: float | None = None
    pods: tuple[tuple[Pod, int], ...] = ()
    has_others: bool = False
    minimum: Minimum | None = None
    grace_s: float = 0.0


class QueuedRun(NamedTuple):
    """Since when a job of a queue has cells, how long it lasts at the most, and its priority if it borrows them.

    The latter two are None of one that declares no limit, and of one on its own cells.
    """

    since_s: float
    limit_s: float | None
    lent_at: int | None


class SeenJob(msgspec.Struct, frozen=True):
    """A job as it was seen last. `need` is None if it is not for us to queue, or, as `problem` says, cannot be.

    One that `has_cells` will have pods of ours although it is not for us to queue. `scheduler` is the name that its
    pods have; one of our own if it `names_us`, as jobs without devices may.
    `wait` is why its author does not let it start yet. So many `others` of its pods ask for no cells, and some do.
    """

    job: Job
    need: Need | None
    problem: str = ""
    has_cells: bool = False
    scheduler: str = ""
    names_us: bool = False
    wait: StartWait | None = None
    others: int = 0

    @property
    def is_asleep(self) -> bool:
        """Is it suspended, and will have pods of ours?"""
        return self.has_cells and self.job.state is JobState.HELD

    @property
    def is_ours(self) -> bool:
        """Are pods of it ours, or will be?"""
        return self.need is not None or bool(self.problem) or self.is_asleep


class JobEnd(msgspec.Struct, frozen=True):
    """A job object that has ended, or was deleted at `at_s` before it had; `seen` is how it was last, in its `queue`.

    `number` grows.
    """

    number: int
    seen: SeenJob
    at_s: float
    queue: str = ""


class JobLoss(msgspec.Struct, frozen=True):
    """A job that its queue has suspended at `at_s`, since its cells go to the job `by`. `number` grows."""

    number: int
    job: JobRef
    at_s: float
    why: EvictionName
    by: str
    namespace: str
    priority: int | None = None


def need_of(job: Job, interpreter: Interpreter) -> Need | None:
    """The needs of a job, None if it is not ours to queue: no pod of it is ours with devices.

    Raises UserError, which names the job, if its cells cannot be read, or are not of one kind. Cost: that of reading a
    pod for each role.
    """
    if job.manager is not None or not marks.may_queue(job.labels, job.annotations):
        return None
    if job.roles_in is not None and not job.roles:
        raise UserError(f"{job.ref}: its {job.roles_in.kind} {job.roles_in.name}, which has its pods, is not there yet")
    pods = [(role, _pod_of(job, role)) for role in job.roles]
    specs = [_spec_of(job, role, pod, interpreter) for role, pod in pods]
    ours = [(role, pod, spec) for (role, pod), spec in zip(pods, specs, strict=True) if spec is not None]
    if job.ref.kind == gangs.KIND and job.state is JobState.HELD:
        _check_is_whole(job, [pod for _, pod in pods], interpreter)
    if not ours:
        return None
    _check_domains(job, [pod for _, pod in pods])
    spec = _merged(job, [(role, own) for role, _, own in ours])
    by_size = sorted(ours, key=lambda each: each[2].leaf_cell_count)
    try:
        interpreter.check_access(job.ref.namespace, spec.virtual_cluster, spec.priority)
    except UserError as error:
        raise UserError(f"{job.ref}: {error.message}") from None
    return Need(
        spec,
        _amounts(pods, specs, interpreter.cell_amounts),
        marks.user_of(job.labels, job.annotations, job.ref.namespace),
        job.comes_back and marks.is_preemptible(job.labels),
        _limit(job, [pod for _, pod in pods]),
        tuple((pod, role.count) for role, pod, _ in by_size),
        has_others=len(ours) < len(pods),
        minimum=_minimum(job, pods, specs, interpreter),
        grace_s=max(grace_of(pod) for _, pod, _ in ours),
    )


def _minimum(
    job: Job, pods: Sequence[tuple[Role, Pod]], specs: Sequence[PodSpec | None], interpreter: Interpreter
) -> Minimum | None:
    """The pods with which a job may start (rule 24.6), None for all."""
    if any(asks_in_own_words(pod.annotations) for _, pod in pods):
        return None
    ours = [
        (role, pod, spec.leaf_cell_count, _amounts([(replace(role, count=1), pod)], [spec], interpreter.cell_amounts))
        for (role, pod), spec in zip(pods, specs, strict=True)
        if spec is not None
    ]
    rest = [(role, pod) for (role, pod), spec in zip(pods, specs, strict=True) if spec is None]
    by_size = sorted(range(len(ours)), key=lambda each: ours[each][2])
    places = [by_size.index(each) for each in range(len(ours))]
    others = _amounts(rest, [None] * len(rest), interpreter.cell_amounts)
    said = [interpreter.describe(pod) for (_, pod), spec in zip(pods, specs, strict=True) if spec is not None]
    return _minimum_of(job, ours, others, said, places)


def _check_is_whole(job: Job, pods: Sequence[Pod], interpreter: Interpreter) -> None:
    """Raise UserError while pods of a gang that start together do not exist yet."""
    try:
        said = [None if asks_in_own_words(pod.annotations) else interpreter.describe(pod) for pod in pods]
        members = [(*gangs.members_of(pod, each), bool(pod.gates)) for pod, each in zip(pods, said, strict=True)]
    except UserError as error:
        raise UserError(f"{job.ref}: {error.message}") from None
    together = sorted({gang for each in said if each is not None for gang in each.groups or ()})
    if waits_for := gangs.missing(job.ref, members, together):
        raise UserError(f"{job.ref}: {waits_for}")


def is_ours(job: Job, interpreter: Interpreter) -> bool:
    """Is it ours to queue, even if its cells cannot be read? Raises UserError for malformed templates."""
    return marks.may_queue(job.labels, job.annotations) and has_our_pods(job, interpreter)


def scheduler_of(job: Job) -> str:
    """The schedulerName of its first pods. Raises UserError for malformed templates."""
    spec = _pod_of(job, job.roles[0]).spec if job.roles else None
    return (spec.scheduler_name if spec is not None else "") or job.scheduler or "default-scheduler"


def has_our_pods(job: Job, interpreter: Interpreter) -> bool:
    """Will pods of it be ours, in a queue or not? Raises UserError for malformed templates."""
    if job.manager is not None:
        return False
    return job.roles_in is not None or any(_has_devices(_pod_of(job, role), interpreter) for role in job.roles)


def other_pods(job: Job, interpreter: Interpreter) -> int:
    """How many pods of it at a time ask for no cells beside some that do, such as the head of a RayJob.

    Raises UserError for malformed templates.
    """
    counts = Counter[bool]()
    for role in job.roles:
        counts[_has_devices(_pod_of(job, role), interpreter)] += role.count
    return counts[False] if counts[True] else 0


def _texts(values: Any) -> Any:
    """Labels or annotations with numbers and truth values as texts: not every kind has a schema that refuses them."""
    if not isinstance(values, Mapping):
        return values
    return {
        key: msgspec.json.encode(value).decode() if isinstance(value, bool | int | float) else value
        for key, value in values.items()
    }


def _pod_of(job: Job, role: Role) -> Pod:
    """The first pod of a role, with the fields that the job object sets for all its pods."""
    metadata = role.template.get("metadata") or {}
    try:
        texts = {key: _texts(metadata[key]) for key in ("labels", "annotations") if key in metadata}
        pod = msgspec.convert({**role.template, "metadata": {**metadata, **texts}}, Pod)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{_where(job, role)}its template: {error}") from None
    name = f"{job.ref.name}-{role.name}"
    pod.metadata = PodMetadata(
        name, job.ref.namespace, annotations=pod.metadata.annotations, labels=pod.metadata.labels
    )
    if pod.spec is not None:
        pod.spec.scheduler_name = pod.spec.scheduler_name or job.scheduler
        pod.spec.priority_class_name = pod.spec.priority_class_name or job.priority_class
    return pod


def _where(job: Job, role: Role) -> str:
    """The beginning of a mistake in a template. The only role of a job is its own."""
    return f"{job.ref}: role {role.name}: " if len(job.roles) > 1 else f"{job.ref}: "


def _has_devices(pod: Pod, interpreter: Interpreter) -> bool:
    is_own = SCHEDULING_SPEC in pod.annotations
    return interpreter.is_ours(pod) and (is_own or interpreter.asks_for_devices(pod))


def _spec_of(job: Job, role: Role, pod: Pod, interpreter: Interpreter) -> PodSpec | None:
    """The request of one pod; its group is left empty. None if it needs no cells of ours."""
    if not _has_devices(pod, interpreter):
        _check_understood(job, role, pod, interpreter)
        return None
    try:
        if asks_in_own_words(pod.annotations):
            return _own_spec(pod, interpreter)
        description = interpreter.describe(pod)
        if job.queue and (description is None or description.queue is None):
            description = replace(description or Description(job.ref.kind), queue=job.queue)
        part = jobset.part_of(pod)
        if part is not None:
            description = replace(description or Description(job.ref.kind), job_part=part)
        ask = interpreter.ask(pod, description)
        if part is not None:
            ask = _within_its_domain(ask, part)
    except UserError as error:
        hint = misplaced(job, [pod])
        raise UserError(f"{_where(job, role)}{error.message}{hint and f'; {hint}'}") from None
    return ask.spec(GroupSpec("", ()))


def _check_understood(job: Job, role: Role, pod: Pod, interpreter: Interpreter) -> None:
    """Raise UserError if a pod without devices could never start, while other pods of its job hold cells."""
    if not interpreter.is_ours(pod):
        return
    try:
        interpreter.describe(pod)
    except UserError as error:
        raise UserError(_where(job, role) + error.message) from None


_OFF = f'annotate the job {marks.QUEUE}: "off", and it starts as soon as there is room'


def _check_domains(job: Job, pods: Sequence[Pod]) -> None:
    """Raise UserError if several Jobs of a JobSet ask for a domain of nodes each (rule 24.13)."""
    parts = [part for pod in pods if (part := jobset.part_of(pod)) is not None]
    count = sum(part.replicas for part in parts)
    if count > 1:
        raise UserError(
            f"{job.ref}: its {count} Jobs ask for a domain by {parts[0].topology} each, which cannot be held for more "
            f"than one: {_OFF}"
        )


def _within_its_domain(ask: Ask, part: JobPart) -> Ask:
    """The request of a pod whose Job has a domain of nodes for itself."""
    if not ask.job_cell:
        raise UserError(
            f"its Job asks for a domain by {part.topology}, which is no cell type: name it in topologyLevels, or {_OFF}"
        )
    if ask.within_cell not in ("", ask.job_cell):
        raise UserError(
            f"it asks for a {ask.job_cell} by {part.topology}, and for a {ask.within_cell} besides; keep only one"
        )
    return replace(ask, within_cell=ask.job_cell, within_is_required=True, prefers_near=False)


def _own_spec(pod: Pod, interpreter: Interpreter) -> PodSpec | None:
    if not is_quickly_read(pod.annotations[SCHEDULING_SPEC]):
        raise UserError(f"{SCHEDULING_SPEC} takes long to read: write it in JSON")
    spec = interpreter.own_spec(pod)
    return spec if spec.leaf_cell_count else None


def _merged(job: Job, asked: Sequence[tuple[Role, PodSpec]]) -> PodSpec:
    """One request for all pods (rule 24.5), its members by size."""
    sizes: Counter[int] = Counter()
    for role, spec in asked:
        sizes[spec.leaf_cell_count] = min(sizes[spec.leaf_cell_count] + role.count, MAX_COUNT)
    first_role, first = asked[0]
    for role, spec in asked[1:]:
        for field, word in _AGREED.items():
            mine, theirs = getattr(first, field), getattr(spec, field)
            if mine != theirs:
                raise UserError(
                    f"{job.ref}: {word} of role {first_role.name} is {mine!r}, that of role {role.name} {theirs!r}: a "
                    "job waits in one queue, for cells of one kind; give both the same"
                )
    group = GroupSpec(job.ref.key, tuple(MemberSpec(count, size) for size, count in sorted(sizes.items())))
    is_required = first.within_is_required and all(spec.within_is_required for _, spec in asked)
    return dataclasses.replace(first, leaf_cell_count=max(sizes), group=group, within_is_required=is_required)


_AGREED = {
    "virtual_cluster": "the virtual cluster",
    "priority": "the priority",
    "leaf_cell_type": "the leaf cell type",
    "pinned_cell_id": "the pinned cell",
    "within_cell": "the topology wish",
}
"""Fields of a PodSpec in which all roles agree, and their names in messages."""


def _amounts(pods: Sequence[tuple[Role, Pod]], ours: Sequence[PodSpec | None], cells: CellAmounts) -> dict[str, float]:
    """The amounts of all pods, names ascending: at least the devices of the cells that they ask for."""
    total: dict[str, float] = {}
    for (role, pod), spec in zip(pods, ours, strict=True):
        amounts = amounts_of(pod)
        if spec is not None:
            amounts = cells.at_least(amounts, spec.leaf_cell_type, spec.leaf_cell_count)
        for name, each in amounts.items():
            total[name] = total.get(name, 0.0) + each * role.count
    return dict(sorted(total.items()))


def limit_of(job: Job) -> float | None:
    """The least limit that a job object itself declares, None if it declares none (rule 24.8)."""
    own, _ = declared_limit(Pod(PodMetadata(annotations=job.annotations, labels=job.labels)))
    return min((limit for limit in (own, job.limit_s) if limit is not None), default=None)


def _limit(job: Job, pods: Sequence[Pod]) -> float | None:
    """The least limit of the job object, and of its longest pod if each pod declares one (rule 24.8)."""
    each = [declared_limit(pod)[0] for pod in pods]
    longest = max((limit for limit in each if limit is not None), default=None) if None not in each else None
    return min((limit for limit in (limit_of(job), longest) if limit is not None), default=None)


def _minimum_of(
    job: Job, ours: Sequence[tuple[Role, Pod, int, Mapping[str, float]]], others: Mapping[str, float],
    said: Sequence[Description | None], places: Sequence[int],
) -> Minimum | None:  # fmt: skip
    """The pods with which a job may start, None for all of them.

    ours : each role of pods with cells, with its pod, leaf cells and amounts of one pod, in the order of the job
    others : the amounts of all pods without cells
    said : the gang of each role's pods with cells, as they say
    places : where each of `ours` is among the templates
    """
    total = sum(role.count for role in job.roles)
    least, tasks = _said(job, said)
    if least is None or least >= total:
        return None
    kinds: dict[tuple[object, ...], list[tuple[int, int, int, int, Mapping[str, float]]]] = {}
    for (role, pod, leaf_count, request), place in zip(ours, places, strict=True):
        needed = min(tasks.get(role.name, role.least), role.count)
        key = leaf_count, role.name if needed else "", msgspec.json.encode(pod.spec)
        kinds.setdefault(key, []).append((role.count, needed, leaf_count, place, request))
    found = tuple(
        PodKind(sum(one[0] for one in each), sum(one[1] for one in each), each[0][2], tuple(one[3] for one in each),
                each[0][4])
        for each in kinds.values()
    )  # fmt: skip
    count = sum(kind.count for kind in found)
    needed = max(least - (total - count), sum(kind.least for kind in found), 1)
    return Minimum(needed, found, others) if needed < count else None


def _said(job: Job, said: Sequence[Description | None]) -> tuple[int | None, Mapping[str, int]]:
    """(how many pods start together, how many of each task), by the pods' one gang, else by the job."""
    gangs = {one.gang if one is not None else None for one in said}
    if None in gangs:
        return (job.min_count, {}) if gangs == {None} else (None, {})
    if len(gangs) > 1 or any(one is not None and len(one.groups or ()) > 1 for one in said):
        return None, {}
    tasks = {task: least for one in said if one is not None for task, least in (one.task_minimums or {}).items()}
    return max((one.minimum or 1 for one in said if one is not None), default=None), tasks
