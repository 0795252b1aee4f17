"""A pod's description of its gang, in the terms that all dialects share.

A dialect fills in what its own keys say and leaves the rest None; `merged` puts together what several dialects say of
one pod. A field that is still None then has a default, which is the same for every dialect: see each field.

The kinds of objects that pods name as their gang, and how a dialect looks one up.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Protocol

import msgspec

from hived.values.errors import UserError


class MatchPolicy(Enum):
    """Which of a gang's pods count towards its minimum; the values are what users write.

    ONLY_WAITING counts pods that have no node yet or have not begun to run. The next two count running and succeeded
    pods as well. ONCE_SATISFIED lets every pod of a gang that has started in by itself.
    """

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    WAITING_RUNNING_SUCCEED = "waiting-running-succeed"
    ONCE_SATISFIED = "once-satisfied"


class GangKey(msgspec.Struct, frozen=True, order=True):
    """A gang is known by its namespace and name; the same name in another namespace is another gang."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ObjectRef(msgspec.Struct, frozen=True, order=True):
    """An object that describes a gang. `kind` is its group and kind, such as "podgroups.scheduling.x-k8s.io"."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Within(msgspec.Struct, frozen=True):
    """All pods of the gang below one cell of a level.

    `level` is a cell type or whatever else names one in the configuration, such as a node's label. If not
    `is_required`, the lowest common level is taken that has room, `level` the lowest that is tried; "" tries from the
    node upwards.
    """

    level: str
    is_required: bool


class JobPart(msgspec.Struct, frozen=True):
    """A pod of a Job that has a domain of nodes for itself, those with one value of the label `topology`.

    The Job is the one of `replicas` Jobs of `replicated_job` with this index; the other pods of a Job are created when
    its leader has a node.
    """

    topology: str
    replicated_job: str
    job_index: str
    replicas: int
    is_leader: bool

    @property
    def job(self) -> tuple[str, str]:
        """The Job within its JobSet."""
        return self.replicated_job, self.job_index


class Description(msgspec.Struct, frozen=True):
    """One pod's gang. None: the dialect does not say.

    Attributes
    ----------
    dialect : the name of the dialect, as messages have it
    gang : None for a pod that is in no gang, but has a topology wish or a queue
    minimum : how many pods have to start together; default 1
    total : how many pods there will be, for messages only; default `minimum`
    task : the pod's role
    task_minimums : how many pods of a role have to be among those that start together, by role; default none
    groups : gangs that start together or not at all, this one among them; default it alone
    match_policy : default ONCE_SATISFIED
    is_strict : whether the refusal of one pod's place costs the others theirs; default True
    waiting_s : after how long a gang that cannot start is told so; default never
    within : default none
    queue : a virtual cluster, if one has that name
    priority_class : the PriorityClass of the gang, where the pods have none
    kube_priority : the priority by PriorityClass that kube-scheduler demands of all its pods. Default: it demands none
    source : the object that describes the gang; its status is written there. Default: there is none
    missing : that object does not exist, or not yet; the gang waits for it. Default: False
    refused : why the pod waits: its object requires what is not built. Default: it does not
    job_part : its part in a JobSet with exclusive placement. Default: in none
    """

    dialect: str
    gang: GangKey | None = None
    minimum: int | None = None
    total: int | None = None
    task: str | None = None
    task_minimums: Mapping[str, int] | None = None
    groups: tuple[GangKey, ...] | None = None
    match_policy: MatchPolicy | None = None
    is_strict: bool | None = None
    waiting_s: float | None = None
    within: Within | None = None
    queue: str | None = None
    priority_class: str | None = None
    kube_priority: int | None = None
    source: ObjectRef | None = None
    missing: bool | None = None
    refused: str | None = None
    job_part: JobPart | None = None


def shown(value: object) -> str:
    """A value of a description for messages."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Within):
        return f"{value.level or 'any level'} ({'required' if value.is_required else 'preferred'})"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


_NAMES = {
    "gang": "the gang's name",
    "total": "the total number of pods",
    "task": "the task",
    "task_minimums": "the minimums of tasks",
    "groups": "the group of gangs",
    "match_policy": "the match policy",
    "is_strict": "the mode",
    "waiting_s": "the waiting time",
    "within": "the topology wish",
    "priority_class": "the priority class",
    "kube_priority": "the priority",
}


def merged(descriptions: Iterable[Description]) -> Description | None:
    """One description of a pod from those of several dialects, None without any. UserError where two of them disagree.

    Their objects may differ, if only the objects say the same: the first is the source.
    """
    result: Description | None = None
    for one in descriptions:
        if one != Description(one.dialect):
            result = one if result is None else _merge(result, one)
    return result


def _merge(one: Description, other: Description) -> Description:
    said: dict[str, Any] = {"dialect": f"{one.dialect} and {other.dialect}"}
    for name in Description.__struct_fields__:
        mine, theirs = getattr(one, name), getattr(other, name)
        if name == "dialect":
            continue
        if mine is not None and theirs is not None and mine != theirs and name not in {"source", "refused"}:
            what = _NAMES.get(name, f"the {name}")
            raise UserError(
                f"its gang dialects disagree: {what} is {shown(mine)} by {one.dialect} and {shown(theirs)} by "
                f"{other.dialect}; remove one of them or make them agree"
            )
        said[name] = theirs if mine is None else mine
    return Description(**said)


class Kind(msgspec.Struct, frozen=True):
    """A namespaced resource; of `versions` the first is read that the API server has."""

    group: str
    plural: str
    versions: tuple[str, ...]

    @property
    def name(self) -> str:
        """As `ObjectRef.kind` has it, and kubectl."""
        return f"{self.plural}.{self.group}"

    def ref(self, namespace: str, name: str) -> ObjectRef:
        """One object of the kind."""
        return ObjectRef(self.name, namespace, name)


class Lookup(Protocol):
    """Where the objects are to be had; `objects.Objects` is one."""

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        """The object as the API server has it, None if it does not exist. `kind` is `Kind.name`."""


def find(objects: Lookup, ref: ObjectRef) -> Mapping[str, Any] | None:
    """The object that `ref` is of, None if it does not exist."""
    return objects.get(ref.kind, ref.namespace, ref.name)


class NoObjects:
    """Where nothing is watched: no object exists."""

    def get(self, _kind: str, _namespace: str, _name: str, /) -> Mapping[str, Any] | None:
        """Always None."""
        return None
