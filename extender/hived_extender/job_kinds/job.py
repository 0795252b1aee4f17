"""A job object as queues need it: its pods, whether it is held back, and how far it has come."""

from enum import Enum
from typing import Any

import msgspec

Document = dict[str, Any]
"""A job object as JSON has it."""


class JobRef(msgspec.Struct, frozen=True, order=True):
    """One job object. Two jobs of one name in a row differ in `uid`."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespace}/{self.name}"


class JobState(Enum):
    """How far a job has come by its own status."""

    HELD = "held"  # suspended, and no pod of it is left
    LEAVING = "leaving"  # suspended, while pods of it still end
    LET_GO = "let go"  # not suspended
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Has it ended for good?"""
        return self in (JobState.SUCCEEDED, JobState.FAILED)


class Role(msgspec.Struct, frozen=True):
    """`count` pods of one template at a time. `template` is a PodTemplateSpec as JSON, not to be changed."""

    name: str
    count: int
    template: Document


class Job(msgspec.Struct, frozen=True):
    """A job object. `created_s` is in seconds since 1970, `limit_s` the declared length of a run or None.

    `labels` and `annotations` are those of the object itself: queue, quota, priority, user. `min_count` is the least
    number of pods that may start, None for all of them.
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
