"""How jobs wait in queues in a simulation: the policies by name, and the limits that jobs declare.

A trace has no declared limits. They are made from durations: people ask for a round time that is long enough.
"""

import random

import msgspec

from hived.errors import UserError
from hived_extender.queues.policies import Policy as QueuePolicy
from hived_simulator.tasks import Task

ALONE = "alone"
"""`queue:alone`: nobody borrows."""

NAMES = {
    "queue": QueuePolicy.HIVED,
    "queue-priority": QueuePolicy.PRIORITY,
    "queue-block": QueuePolicy.BLOCK,
}

_MINUTE_S, _HOUR_S, _DAY_S = 60.0, 3600.0, 86400.0
LIMITS_S = (
    *(minutes * _MINUTE_S for minutes in (5, 15, 30)),
    *(hours * _HOUR_S for hours in (1, 2, 4, 8, 12)),
    *(days * _DAY_S for days in (1, 2, 3, 5, 7)),
)
"""Times that people ask for; beyond them, whole weeks."""


class Queueing(msgspec.Struct, frozen=True):
    """How the queues of a policy are served, and what they know of jobs.

    Attributes
    ----------
    policy : as in the key `queue` of a virtual cluster
    borrows : may jobs run ahead, on idle cells
    limit_factor : a job's declared limit as a multiple of its duration, before it is rounded up; 0: no limits
    unlimited_share : the share of jobs that declare none, drawn by `seed`
    """

    policy: QueuePolicy = QueuePolicy.HIVED
    borrows: bool = True
    limit_factor: float = 2.0
    unlimited_share: float = 0.0
    seed: int = 0

    def limit_s(self, task: Task) -> float | None:
        """The limit that a task declares, None if it has none. All tasks of a job declare alike."""
        if not self.limit_factor:
            return None
        if (
            self.unlimited_share
            and random.Random(f"limits/{self.seed}/{task.place[0]}").random() < self.unlimited_share
        ):
            return None
        return rounded_up(task.duration_s * self.limit_factor)


def rounded_up(least_s: float) -> float:
    """The shortest time that people ask for and that is at least this long, in seconds."""
    found = next((limit_s for limit_s in LIMITS_S if limit_s >= least_s), None)
    return LIMITS_S[-1] * -(-least_s // LIMITS_S[-1]) if found is None else found


def is_queue(text: str) -> bool:
    """Does this name a policy with queues, or mean to?"""
    return text.partition(":")[0] in NAMES


def queueing_named(text: str) -> tuple[str, QueuePolicy, bool]:
    """The name without what follows a colon, the policy, and whether jobs borrow. UserError for other words there."""
    name, has_words, words = text.partition(":")
    if has_words and words != ALONE:
        raise UserError(f"--against {text!r}: expected {name} or {name}:{ALONE}")
    return name, NAMES[name], not has_words
