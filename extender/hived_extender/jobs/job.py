"""A job object as values: its name, its pods, its state, and the pods with which it may start."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

WORKLOAD = "Workload"
"""Kueue's kind of a job that it admits."""

Document = dict[str, Any]
"""A job object as JSON has it."""

_KEY_PARTS = 4


class JobName(msgspec.Struct, frozen=True, order=True):
    """A job object by its API group, kind and name, as its pods name it."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


def typed(name: str, namespace: str) -> str:
    """A job as a command in a sentence names it: alone, whichever namespaces have one of its name."""
    return f"{name} -n {namespace}"


class JobRef(msgspec.Struct, frozen=True, order=True):
    """One job object. A later job of the same name has another `uid`."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"

    @property
    def key(self) -> str:
        """Its key in queues, unique for all time."""
        return f"{self.kind}/{self.namespace}/{self.name}/{self.uid}"

    @property
    def job_name(self) -> JobName:
        """Without version and uid."""
        return JobName(self.api_version.rpartition("/")[0], self.kind, self.namespace, self.name)


def parts_of(key: str) -> list[str]:
    """Kind, namespace, name and uid in the key of a job; empty for any other text."""
    parts = key.split("/")
    return parts if len(parts) == _KEY_PARTS and " " not in key else []


def masked(key: str, namespace: str) -> str:
    """The key of a job for readers of a namespace: only the uid of a job in another namespace. Other texts stay."""
    parts = parts_of(key)
    return f"job {parts[-1]}" if parts and parts[1] != namespace else key


def told(key: str, namespace: str) -> str:
    """The same as people read it, without the uid of a job of their namespace."""
    found = masked(key, namespace)
    return "/".join(parts_of(found)[:-1]) or found


def told_with_uid(key: str, namespace: str) -> str:
    """The same with its uid, for events: a name may come again."""
    found = masked(key, namespace)
    parts, uid = parts_of(found), uid_of(found)
    if found == f"job {uid}":
        return f"a job of another namespace (uid {uid})"
    return f"{'/'.join(parts[:-1])} (uid {uid})" if parts else found


def uid_of(key: str) -> str:
    """The uid of a job by its key, `masked` or not."""
    return key.replace(" ", "/").rpartition("/")[2]


class JobState(Enum):
    """The state of a job by its own status."""

    HELD = "held"  # suspended, and no pod of it is left
    LEAVING = "leaving"  # suspended, while pods of it still end
    RESUMED = "let go"  # not suspended
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Has it ended for good?"""
        return self in (JobState.SUCCEEDED, JobState.FAILED)


class Role(msgspec.Struct, frozen=True):
    """`count` pods of one template at a time, of which `least` have to start together with pods of other roles.

    `template` is a PodTemplateSpec as JSON, not to be changed.
    """

    name: str
    count: int
    template: Document
    least: int = 0


class PodTally(msgspec.Struct, frozen=True):
    """The pods of a job by its own object: `wanted` in all, of which some are `done`; and those that `failed`."""

    wanted: int = 0
    done: int = 0
    failed: int = 0


class Job(msgspec.Struct, frozen=True):
    """A job object. `created_s` is in seconds since 1970, `limit_s` the declared length of a run or None.

    Attributes
    ----------
    labels, annotations : of the object itself: queue, quota, priority, user
    pod_labels : of the template of its first role
    roles : in the order of the object, each with at least one pod
    min_count : the least number of pods that may start, None for all of them
    queue, scheduler : the queue and the schedulerName that the object gives to all its pods, "" if none
    manager : the job object that made this one, None if none of the table did: it has no turn of its own
    made_by : the object whose controller made this one, a job or not, such as a CronJob
    roles_in : the object that has the roles, once its controller has made it; None if they are in the job itself
    owner : the object with which its QueueUnit goes, None for the job object
    comes_back : may it be suspended, and requeued?
    grows : may it have more pods than at its start? These get cells as if it were in no queue
    tally : its pods, those that have ended included
    end_s, end_reason : when it ended, None if unknown, and why it failed, by its own status
    held_s : since when it is suspended, by its own status, None if unknown
    """

    ref: JobRef
    version: str
    created_s: float
    labels: dict[str, str]
    annotations: dict[str, str]
    roles: tuple[Role, ...]
    state: JobState
    priority_class: str = ""
    limit_s: float | None = None
    min_count: int | None = None
    queue: str = ""
    scheduler: str = ""
    manager: JobName | None = None
    made_by: JobName | None = None
    roles_in: JobName | None = None
    owner: JobRef | None = None
    comes_back: bool = True
    grows: bool = False
    tally: PodTally = PodTally()
    end_s: float | None = None
    end_reason: str = ""
    held_s: float | None = None
    pod_labels: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def all_labels(self) -> Mapping[str, str]:
        """Its own labels, and those of its pods."""
        return {**self.pod_labels, **self.labels}


class PodKind(msgspec.Struct, frozen=True):
    """Pods of a unit that are alike: how many there are, how many of them are needed, leaf cells and amounts of each.

    `templates` are their places among the templates of the job's pods with cells.
    """

    count: int
    least: int
    leaf_count: int
    templates: tuple[int, ...]
    request: Mapping[str, float] = msgspec.field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, int, int]:
        """The fields that a choice of pods depends on."""
        return self.count, self.least, self.leaf_count


class Minimum(msgspec.Struct, frozen=True):
    """So many pods of these kinds, which are in the order of the pods, have to start together.

    `others` are the amounts of all pods without cells.
    """

    count: int
    kinds: tuple[PodKind, ...]
    others: Mapping[str, float] = msgspec.field(default_factory=dict)

    @property
    def total(self) -> int:
        """The number of pods."""
        return sum(kind.count for kind in self.kinds)

    @property
    def shape(self) -> tuple[int, tuple[tuple[int, int, int], ...]]:
        """The fields that a choice of pods depends on."""
        return self.count, tuple(kind.shape for kind in self.kinds)
