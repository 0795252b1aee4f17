"""A pod's description of its gang, in terms that all dialects share, and the objects that pods name as their gang.

A dialect fills in the fields that its own keys state and leaves the rest None. `merged` joins the descriptions that
several dialects give of one pod. A field that is still None then has a default, the same for every dialect.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Protocol, TypeVar

import msgspec

from hived.values.errors import UserError
from hived_extender.jobs.document import Part, json, name, one_of

MOST_GANGS = 64
"""Gangs that start together: each change of one looks at all of them."""

AND = " and "
"""Between the dialects that describe one pod."""

T = TypeVar("T")


class MatchPolicy(Enum):
    """The pods of a gang that count towards its minimum (rule 23.4); users write the values.

    ONLY_WAITING counts pods that have no node yet or have not begun to run. The next two count running and succeeded
    pods as well. ONCE_SATISFIED admits every later pod of a gang that has started by itself.
    """

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    WAITING_RUNNING_SUCCEED = "waiting-running-succeed"
    ONCE_SATISFIED = "once-satisfied"


class GangKey(msgspec.Struct, frozen=True, order=True):
    """The namespace and name of a gang."""

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
    """A wish for all pods of the gang to lie below one cell of a level (rule 13.1).

    `level` is a cell type, or a name that the configuration gives one, such as a node's label. If not `is_required`,
    the lowest common level with room is taken, from `level` upwards; "" starts at the node.
    """

    level: str
    is_required: bool


class JobPart(msgspec.Struct, frozen=True):
    """A pod of a Job that has a domain of nodes for itself: the nodes with one value of the label `topology`.

    The Job is one of `replicas` Jobs of `replicated_job`. Its other pods are created when its leader has a node.
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
    minimum : how many pods have to start together; default 1 (rule 23.2)
    total : how many pods there will be, for messages only; default `minimum`
    task : the pod's role
    task_minimums : how many pods of a role have to be among those that start together, by role; default none
    groups : gangs that start together or not at all, this one among them; default it alone (rule 23.3)
    match_policy : default ONCE_SATISFIED
    is_strict : whether the refusal of one pod's place costs the others theirs; default True
    waiting_s : after how long a gang that cannot start is told so (rule 23.11); default never
    within : default none
    queue : a virtual cluster, if one has that name
    priority_class : the PriorityClass of the gang, where the pods have none
    kube_priority : the priority by PriorityClass that kube-scheduler demands of all its pods. Default: it demands none
    source : the object that describes the gang; its status is written there. Default: there is none
    missing : that object does not exist, or not yet; the gang waits for it (rule 23.5). Default: False
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


def _shown(value: object) -> str:
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
    """One description of a pod from those of several dialects (rule 23.1), None without any.

    Raises UserError if two of them disagree. Their objects may differ if they say the same: the first is the source.
    """
    result: Description | None = None
    for one in descriptions:
        if one != Description(one.dialect):
            result = one if result is None else _merge(result, one)
    return result


def _merge(one: Description, other: Description) -> Description:
    said: dict[str, Any] = {"dialect": f"{one.dialect}{AND}{other.dialect}"}
    for field in Description.__struct_fields__:
        mine, theirs = getattr(one, field), getattr(other, field)
        if field == "dialect":
            continue
        if mine is not None and theirs is not None and mine != theirs and field not in {"source", "refused"}:
            what = _NAMES.get(field, f"the {field}")
            raise UserError(
                f"its gang dialects disagree: {what} is {_shown(mine)} by {one.dialect} and {_shown(theirs)} by "
                f"{other.dialect}; remove one of them or make them agree"
            )
        said[field] = theirs if mine is None else mine
    return Description(**said)


class ObjectKind(msgspec.Struct, frozen=True):
    """A namespaced resource that pods name as their gang; the first of `versions` that the API server has is read."""

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
    """The objects that exist, such as `podgroups.Objects`."""

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        """The object as the API server has it, None if it does not exist. `kind` is `ObjectKind.name`."""


def find(objects: Lookup, ref: ObjectRef) -> Mapping[str, Any] | None:
    """The object of a reference, None if it does not exist."""
    return objects.get(ref.kind, ref.namespace, ref.name)


class NoObjects:
    """The lookup of a program that watches nothing."""

    def get(self, _kind: str, _namespace: str, _name: str, /) -> Mapping[str, Any] | None:
        """Always None."""
        return None


# ---- values that several dialects share


def agreed(readings: Mapping[str, T | None]) -> T | None:
    """The one value that all keys have which are there; UserError, naming the keys, if they have several."""
    found = {key: value for key, value in readings.items() if value is not None}
    first = next(iter(found.values()), None)
    if any(value != first for value in found.values()):
        said = " and ".join(f"{key} says {_shown(value)}" for key, value in found.items())
        raise UserError(f"{said}: they mean the same thing; remove one of them or make them agree")
    return first


def level(value: object) -> str:
    """A cell type, or the key of a node label that stands for one."""
    if not isinstance(value, str) or len(value) > 317 or not value.isprintable():  # the longest key of a label
        raise ValueError("a cell type, or the key of a node label that stands for one")
    return value


def gangs(value: object) -> tuple[GangKey, ...]:
    """Gangs that belong together, each once, ascending by name."""
    expected = 'a JSON list of gangs with their namespaces, such as ["default/workers", "default/servers"]'
    found = set()
    names = json(value, list[str], expected)
    if len(names) > MOST_GANGS:
        raise ValueError(f"at most {MOST_GANGS} gangs that start together")
    for each in names:
        namespace, _, gang = each.partition("/")
        try:
            found.add(GangKey(name(namespace), name(gang)))
        except ValueError:
            raise ValueError(expected) from None
    return tuple(sorted(found))


def match_policy(value: object) -> MatchPolicy:
    """The pods that count towards a minimum."""
    return MatchPolicy(one_of(*(policy.value for policy in MatchPolicy))(value))


def wish(keys: Part, required: str, preferred: str) -> Within | None:
    """The topology wish of two keys, which require and prefer a level; the required one wins."""
    if needed := keys.read(required, level):
        return Within(needed, is_required=True)
    wanted = keys.read(preferred, level)
    return None if wanted is None else Within(wanted, is_required=False)
