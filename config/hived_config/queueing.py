"""Whether jobs wait in queues, in which order, and what each virtual cluster's queue may do."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from hived_config.kinds import Boolean, Choice, Given, Integer, Key, Number, Record

START_S = 600


class QueuePolicy(Enum):
    """The order of a queue: ours, or those of Kube Queue."""

    HIVED = "hived"
    PRIORITY = "Priority"
    BLOCK = "Block"
    ROUND = "Round"


class QueueOfVc(msgspec.Struct, frozen=True):
    """The queue of one virtual cluster. Limits are None for any number."""

    borrows: bool = False
    weight: float = 1.0
    most_running: int | None = None
    most_waiting: int | None = None

    def as_json(self) -> dict[str, Any]:
        """As a file could have it."""
        values = {"borrow": self.borrows, "weight": self.weight}
        limits = {"maxRunningPerUser": self.most_running, "maxWaitingPerUser": self.most_waiting}
        return values | {key: value for key, value in limits.items() if value is not None}


class Queueing(msgspec.Struct, frozen=True):
    """The rules of queues. `half_life_s`: borrowed use of the past counts less with time; 0 for present use alone.

    `start_s`: a job that was let go has a pod with a node after so long, or waits again.
    """

    is_enabled: bool = False
    policy: QueuePolicy = QueuePolicy.HIVED
    half_life_s: float = 0.0
    start_s: float = START_S
    virtual_clusters: Mapping[str, QueueOfVc] = msgspec.field(default_factory=dict)

    def of(self, vc: str) -> QueueOfVc:
        """The queue of one virtual cluster."""
        return self.virtual_clusters.get(vc, QueueOfVc())

    def as_json(self) -> dict[str, Any]:
        """As a file could have it, the queues of virtual clusters left aside."""
        minutes = {"halfLifeMinutes": self.half_life_s / 60} if self.half_life_s else {}
        minutes |= {"startMinutes": self.start_s / 60} if self.start_s != START_S else {}
        return {"enabled": self.is_enabled, "policy": self.policy.value, **minutes}


class _Queues(Record):
    """`queues`: read as a whole."""

    def read(self, reader: Any, node: Any) -> Queueing:
        """The rules, without those of virtual clusters."""
        given = self.given(reader, node)
        start = given.value("startMinutes")
        if start == 0:
            reader.note(given.nodes["startMinutes"], "0", "a number of minutes above 0")
        return Queueing(
            bool(given.value("enabled")),
            given.value("policy") or QueuePolicy.HIVED,
            60.0 * (given.value("halfLifeMinutes") or 0.0),
            60.0 * start if start else START_S,
        )


QUEUES = _Queues(
    "queues",
    "how jobs wait in queues (a mapping)",
    "Jobs wait as jobs: they are suspended until cells for all of their pods are held.",
    (
        Key(
            "enabled",
            Boolean(),
            "whether jobs are held back until it is their turn; see [queues](queues.md)",
            False,
            is_nullable=False,
        ),
        Key(
            "policy",
            Choice(QueuePolicy),
            "the order: `hived` reserves a start for the first job and lets others past that do not delay it; "
            "`Priority`, `Block` and `Round` are Kube Queue's",
            QueuePolicy.HIVED,
            is_nullable=False,
        ),
        Key(
            "halfLifeMinutes",
            Number("a number of minutes"),
            "borrowed use of the past counts in the order of borrowers, half after so long",
            rule="present use alone counts",
            is_nullable=False,
        ),
        Key(
            "startMinutes",
            Number("a number of minutes"),
            "a job that was let go, and has no pod with a node after so long, goes back to the end of its queue, and "
            "rests: so long, and [longer each time](queued-jobs.md)",
            START_S // 60,
            is_nullable=False,
        ),
    ),
)
QUEUES_KEY = Key("queues", QUEUES, "jobs wait in [queues](queues.md)", rule="they do not", is_nullable=False)

QUEUE_OF_VC = Record(
    "queue",
    "the queue of a virtual cluster (a mapping)",
    "The queue of a virtual cluster's jobs, where `queues` is enabled.",
    (
        Key(
            "borrow",
            Boolean(),
            "whether its guaranteed jobs may run ahead of their turn on idle cells of others, which are taken back; "
            "with a quota tree its `max` decides",
            False,
            is_nullable=False,
        ),
        Key("weight", Number("a number"), "of its share of cells that are borrowed", 1.0, is_nullable=False),
        Key(
            "maxRunningPerUser",
            Integer("a whole number of jobs", 1),
            "the most jobs of one user of a namespace that run at a time",
            rule="no limit",
            is_nullable=False,
        ),
        Key(
            "maxWaitingPerUser",
            Integer("a whole number of jobs", 1),
            "the most jobs of one user that take part in the order; others stand aside until some have started",
            rule="no limit",
            is_nullable=False,
        ),
    ),
)
QUEUE_OF_VC_KEY = Key(
    "queue", QUEUE_OF_VC, "its queue, where `queues` is enabled", rule="as by default", is_nullable=False
)


def read_queue_of_vc(given: Given) -> QueueOfVc | None:
    """The queue of a virtual cluster whose keys are `given`, None without the key."""
    node = given.part("queue")
    if node is None:
        return None
    parts = QUEUE_OF_VC.given(given.reader, node)
    weight = parts.value("weight")
    if weight is not None and not weight > 0:
        given.reader.note(parts.nodes["weight"], f"{weight:g}", "a weight above 0")
        weight = None
    return QueueOfVc(
        bool(parts.value("borrow")),
        1.0 if weight is None else weight,
        parts.value("maxRunningPerUser"),
        parts.value("maxWaitingPerUser"),
    )
