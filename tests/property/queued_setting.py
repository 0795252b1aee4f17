"""What one random history of queues is like; `queued.History` plays it."""

from dataclasses import dataclass, field
from random import Random

from hived_extender.queues.policies import Policy
from hived_extender.queues.table import USUAL, Pace
from tests.quality.small import KINDS


@dataclass(frozen=True)
class Setting:
    """Times are whole seconds, so that moments are equal or clearly not; shares are in percent.

    Attributes
    ----------
    opportunistic, limits : of all jobs, those of priority -1, and those that declare a limit
    load : how long jobs run
    size : leaf cells of every job, which then is one pod; 0 for gangs of all sizes
    weights : queues weigh 1, 2 or 3 where nobody has a quota tree
    quotas : several leaves of a quota tree for each virtual cluster, with all that they may say
    users : jobs of a user that may run at a time in a queue; 0 for any number
    most_waiting : jobs of a user that take part in turns; 0 for any number
    failures, health, restarts, edits, removals, people, shrinking : of all events: a job loses its pods; a node fails
        or heals; the other replica leads; rules or quotas are changed; a job is deleted; people hold, release, move or
        suspend one; some pods of a job end, and are not made anew
    write_s : calls on job objects take up to so long, and are lost if another replica leads by then
    pace : how much a turn does before it is cut
    restarts_always : before every turn another replica is asked what it would do
    """

    kind: str
    policy: Policy = Policy.HIVED
    grace_s: int = 0
    events: int = 200
    borrows: bool = True
    opportunistic: int = 20
    priorities: tuple[int, ...] = (0,)
    limits: int = 0
    load: float = 1.5
    size: int = 0
    weights: bool = False
    quotas: bool = False
    users: int = 0
    most_waiting: int = 0
    failures: int = 0
    health: int = 0
    restarts: int = 2
    edits: int = 0
    removals: int = 0
    people: int = 0
    shrinking: int = 0
    write_s: int = 0
    pace: Pace = field(default=USUAL, repr=False)
    restarts_always: bool = False

    @property
    def is_calm(self) -> bool:
        """Does nothing happen but arrivals, ends and restarts?"""
        others = (
            self.failures, self.health, self.edits, self.removals, self.people, self.shrinking, self.write_s,
        )  # fmt: skip
        return not any(others)

    @property
    def is_bound_promised(self) -> bool:
        """Could a job be later than in its virtual cluster alone for no reason that the documentation names?"""
        return self.is_calm and len(self.priorities) == 1 and not self.most_waiting

    @property
    def is_fair(self) -> bool:
        """Do all jobs fit everywhere, and may all be taken back, so that shares can be those of the ideal?"""
        return (
            bool(self.size)
            and self.borrows
            and self.policy is not Policy.BLOCK
            and not (self.users or self.most_waiting or self.edits)
        )


def random_setting(random: Random, events: int) -> Setting:
    """Some setting. Half of all are calm, so that the bound is promised."""
    is_calm = random.random() < 0.5
    size = random.choice((0, 0, 0, 1, 4))

    def share(*values: int) -> int:
        return 0 if is_calm else random.choice(values)

    return Setting(
        kind="NODE" if size == 4 else random.choice(KINDS),
        policy=random.choice((Policy.HIVED, Policy.HIVED, Policy.PRIORITY, Policy.BLOCK)),
        grace_s=random.choice((0, 0, 2, 5)),
        events=events,
        borrows=random.random() < 0.8,
        opportunistic=random.choice((0, 20, 50)),
        priorities=random.choice(((0,), (0,), (0, 1, 5))),
        limits=random.choice((0, 30, 80)),
        load=random.choice((0.5, 1.0, 2.0)),
        size=size,
        weights=random.random() < 0.3,
        quotas=random.random() < 0.5,
        users=random.choice((0, 0, 0, 1, 3)),
        most_waiting=random.choice((0, 0, 0, 0, 2)),
        failures=share(0, 3),
        health=share(0, 0, 3),
        restarts=random.choice((0, 2, 5)),
        edits=share(0, 3),
        removals=share(0, 3),
        people=share(0, 5),
        shrinking=share(0, 0, 8),
        write_s=share(0, 0, 3),
        pace=random.choice((USUAL, Pace(1, 1))),
    )
