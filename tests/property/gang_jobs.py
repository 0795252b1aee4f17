"""Random jobs whose pods say in some dialect that they start together, and plainly what that means."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hived_extender.jobs.annotations import SCHEDULING_SPEC
from hived_extender.jobs.kinds import coscheduling, native, volcano, yunikorn
from hived_extender.jobs.kinds.description import MatchPolicy, ObjectKind, ObjectRef
from hived_extender.jobs.kinds.koordinator import GROUP_NAME, MIN_AVAILABLE
from tests.extender.machine.small_cluster import Json, spec_text
from tests.extender.machine.small_gangs import koordinator
from tests.property.choices import Choices

NAMESPACES = {"ns": "a", "other": "b"}
CLASSES = {"": 0, "high": 100, "low": -1}
NODE_SIZE = 4
TAINT = "reserved"


@dataclass(frozen=True)
class Gang:
    """Pods that start together, and with those of the other gangs of the same job. `task_minimums` are among them."""

    name: str
    minimum: int
    policy: MatchPolicy = MatchPolicy.ONCE_SATISFIED
    task_minimums: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Template:
    """A pod to be created; `gang` is the name of one of its job's gangs, "" for none."""

    name: str
    job: "Job"
    gpus: int
    gang: str = ""
    task: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    ignores_offers: bool = False


@dataclass(eq=False)
class Job:
    """Pods that their author thinks of as one thing, of one virtual cluster and priority."""

    name: str
    namespace: str
    priority_class: str
    gangs: dict[str, Gang] = field(default_factory=dict)
    templates: list[Template] = field(default_factory=list)
    objects: dict[ObjectRef, Json] = field(default_factory=dict)

    @property
    def priority(self) -> int:
        """As the core has it."""
        return CLASSES[self.priority_class]


def make_job(choices: Choices, name: str, *, sizes: tuple[int, ...] = (), guaranteed: bool = False) -> Job:
    """A job of 1 to 5 pods with 0, 1, 2 or 4 devices each, or one of `sizes`; `guaranteed`, and of no priority."""
    classes = {"": 1} if guaranteed else {"": 4, "high": 4, "low": 3}
    job = Job(name, choices.pick(tuple(NAMESPACES)), choices.weighted(classes))
    kinds: dict[Callable[[Choices, Job, tuple[int, ...]], None], int] = {
        _plain: 1, _labelled: 2, _koordinated: 3, _in_roles: 2, _grouped: 2, _of_volcano: 2, _native: 1,
        _of_yunikorn: 1, _own: 1,
    }  # fmt: skip
    choices.weighted(kinds)(choices, job, sizes)
    job.templates = [_tolerant(template) if choices.chance(30) else template for template in job.templates]
    return job


def _tolerant(template: Template) -> Template:
    """The same, but it may use nodes with the taint."""
    return replace(template, spec={**template.spec, "tolerations": [{"key": TAINT, "operator": "Exists"}]})


def _plain(choices: Choices, job: Job, sizes: tuple[int, ...]) -> None:
    _add(job, "p-0", _size(choices, sizes))


def _labelled(choices: Choices, job: Job, sizes: tuple[int, ...]) -> None:
    gang = _gang(choices, job)
    labels = {GROUP_NAME: gang.name, MIN_AVAILABLE: str(gang.minimum)}
    _fill(choices, job, gang, sizes, labels=labels)


def _koordinated(choices: Choices, job: Job, sizes: tuple[int, ...]) -> None:
    policy = choices.pick(tuple(MatchPolicy)[::-1])
    gang = _gang(choices, job, policy=policy)
    mode = choices.pick(("Strict", "NonStrict"))
    notes = koordinator(gang.name, gang.minimum, match_policy=policy.value, mode=mode)
    _fill(choices, job, gang, sizes, annotations=notes)


def _in_roles(choices: Choices, job: Job, sizes: tuple[int, ...]) -> None:
    """Two gangs that start together."""
    names = json.dumps([f"{job.namespace}/{job.name}-{role}" for role in ("ps", "worker")])
    policy = choices.pick((MatchPolicy.ONCE_SATISFIED, MatchPolicy.WAITING_AND_RUNNING))
    for role in ("ps", "worker"):
        gang = _gang(choices, job, f"{job.name}-{role}", policy=policy, most=2)
        notes = koordinator(gang.name, gang.minimum, match_policy=policy.value, groups=names)
        _fill(choices, job, gang, sizes, annotations=notes, prefix=role)


def _grouped(choices: Choices, job: Job, sizes: tuple[int, ...]) -> None:
    gang = _gang(choices, job)
    _describe(job, coscheduling.PODGROUPS, {"minMember": gang.minimum})
    _fill(choices, job, gang, sizes, labels={coscheduling.LABEL: gang.name})


def _of_volcano(choices: Choices, job: Job, sizes: tuple[int, ...]) -> None:
    tasks = {"ps": 1, "worker": choices.integer(1, 2)}
    gang = _gang(choices, job, task_minimums=tasks, least=sum(tasks.values()))
    _describe(job, volcano.PODGROUPS, {"minMember": gang.minimum, "minTaskMember": tasks})
    notes = {volcano.GROUP_NAMES[0]: gang.name}
    for index in range(gang.minimum + choices.integer(0, 1)):
        task = "ps" if index < 1 else "worker"
        _add(job, f"{task}-{index}", _size(choices, sizes), gang, task, annotations=notes | {volcano.TASK: task})


def _native(choices: Choices, job: Job, sizes: tuple[int, ...]) -> None:
    gang = _gang(choices, job)
    _describe(job, native.PODGROUPS, {"schedulingPolicy": {"gang": {"minCount": gang.minimum}}})
    _fill(choices, job, gang, sizes, schedulingGroup={"podGroupName": gang.name})


def _of_yunikorn(choices: Choices, job: Job, sizes: tuple[int, ...]) -> None:
    tasks = {"head": 1, "worker": choices.integer(1, 3)}
    gang = _gang(choices, job, task_minimums=tasks, least=sum(tasks.values()), most=0)
    groups = json.dumps([{"name": task, "minMember": least} for task, least in tasks.items()])
    for task, least in tasks.items():
        notes = {yunikorn.TASK_GROUP: task, yunikorn.TASK_GROUPS: groups}
        for index in range(least + choices.integer(0, 1)):
            labels = {yunikorn.APPLICATION: gang.name}
            _add(job, f"{task}-{index}", _size(choices, sizes), gang, task, annotations=notes, labels=labels)


def _own(choices: Choices, job: Job, sizes: tuple[int, ...]) -> None:
    """Our own words, which know no minimum: the pods of a group start one by one where their places are kept."""
    count, size = choices.integer(1, 2), _size(choices, sizes) or 1
    ignores = choices.chance(30)
    text = spec_text(
        NAMESPACES[job.namespace], size, job.priority, f"own/{job.name}", count, ignoreK8sSuggestedNodes=ignores
    )
    for index in range(count):
        _add(job, f"own-{index}", size, annotations={SCHEDULING_SPEC: text})
    job.templates = [replace(template, ignores_offers=ignores) for template in job.templates]


def _gang(choices: Choices, job: Job, name: str = "", *, least: int = 1, most: int = 3, **terms: Any) -> Gang:
    gang = Gang(name or job.name, max(least, choices.integer(1, most) if most else 0), **terms)
    job.gangs[gang.name] = gang
    return gang


def _fill(choices: Choices, job: Job, gang: Gang, sizes: tuple[int, ...], prefix: str = "w", **words: Any) -> None:
    """As many pods as start together, or a few more."""
    for index in range(gang.minimum + choices.weighted({0: 4, 1: 2, 2: 1})):
        _add(job, f"{prefix}-{index}", _size(choices, sizes), gang, **words)


def _size(choices: Choices, sizes: tuple[int, ...]) -> int:
    return choices.pick(sizes) if sizes else choices.weighted({4: 2, 2: 3, 1: 3, 0: 1})


def _describe(job: Job, kind: ObjectKind, spec: Json) -> None:
    job.objects[kind.ref(job.namespace, job.name)] = {"metadata": {"name": job.name}, "spec": spec}


def _add(
    job: Job,
    name: str,
    gpus: int,
    gang: Gang | None = None,
    task: str = "",
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> None:
    template = Template(f"{job.name}-{name}", job, gpus, gang.name if gang else "", task)
    if job.priority_class:
        spec["priorityClassName"] = job.priority_class
    job.templates.append(replace(template, annotations=annotations or {}, labels=labels or {}, spec=spec))


def manifest(template: Template, uid: str, second: int, *, is_gated: bool = False) -> Json:
    """The pod as the API server has it after its creation."""
    limits = {"nvidia.com/gpu": template.gpus} if template.gpus else {"cpu": 1}
    gates: Json = {"schedulingGates": [{"name": "wait"}]} if is_gated else {}
    return {
        "metadata": {
            "name": template.name,
            "namespace": template.job.namespace,
            "uid": uid,
            "creationTimestamp": f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z",
            "annotations": dict(template.annotations),
            "labels": dict(template.labels),
        },
        "spec": {
            "nodeName": "",
            "schedulerName": "hived",
            "containers": [{"name": "main", "resources": {"limits": limits}}],
            **template.spec,
            **gates,
        },
        "status": {"phase": "Pending"},
    }
