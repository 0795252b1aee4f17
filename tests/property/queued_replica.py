"""Jobs as the API server has them, and the replica that leads: what survives it is written on the jobs alone."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from hived.values.specs import ClusterSpec
from hived_extender.jobs.job import Job, JobRef, JobState
from hived_extender.jobs.quotas.tree import QuotaTree
from hived_extender.jobs.quotas.usage import drained
from hived_extender.queues.ledger import Ledger, TreeLedger, Unlimited
from hived_extender.queues.policies import Rules
from hived_extender.queues.queued_jobs import Action, QueuedJobs
from hived_extender.queues.table import USUAL, Kept, Pace
from hived_extender.queues.tree_use import running_in, usage_of
from hived_extender.queues.units import Order, Start, Stop, Unit, Upgrade
from tests.extender.queues.live import Live


@dataclass(slots=True)
class Course:
    """A job object, and what really becomes of the job.

    `has_pods`: its pods run, or still end."""

    unit: Unit
    run_s: float
    came_s: float
    state: JobState = JobState.HELD
    kept: Kept = field(default_factory=Kept)
    has_pods: bool = False
    is_deleted: bool = False
    first_start_s: float | None = None
    last_start_s: float | None = None
    end_s: float | None = None

    @property
    def key(self) -> str:
        """Of its unit."""
        return self.unit.key

    @property
    def is_over(self) -> bool:
        """Has it ended, or is it gone?"""
        return self.is_deleted or self.state.is_over

    @property
    def job(self) -> Job:
        """As a watch tells it."""
        return Job(ref_of(self.key), "1", self.unit.created_s, {}, {}, (), self.state)


@dataclass(frozen=True, slots=True)
class Manner:
    """How queues are served."""

    rules: Rules
    tree: QuotaTree | None = None

    def new_ledger(self) -> Ledger:
        """Counts use by the tree."""
        return Unlimited() if self.tree is None else TreeLedger(self.tree)


@dataclass
class Replica:
    """The turns of one term of leadership, as `queues.turns.Turns` takes them.

    `cuts` are those that had to be cut, `firsts` the first units of each queue, as of its last change.
    """

    spec: ClusterSpec
    manner: Manner
    jobs: Iterable[Course]
    live: Live
    bad: Iterable[str]
    now: float
    pace: Pace = USUAL
    cuts: int = 0
    firsts: dict[str, list[str]] = field(default_factory=dict)
    queues: QueuedJobs = field(init=False)

    def __post_init__(self) -> None:
        self.queues = QueuedJobs(self.spec, pace=self.pace)
        self.queues.told_rules(self.manner.rules, self.manner.new_ledger)
        for course in sorted(self.jobs, key=lambda each: each.key):
            self.see(course, self.now, has_cells=course.has_pods, is_first=True)
            self.runs_on(course)
        self.queues.health(dict.fromkeys(self.bad, False))

    def runs_on(self, course: Course) -> None:
        """The cells of a job are known by its pods, and whose they are."""
        group, entry = self.live.state.groups.get(course.key), self.queues.entries[course.key]
        is_lent = group is not None and group.virtual is None
        if group is not None and entry.life.has_cells and is_lent != entry.kept.is_borrowed:
            self.queues.correct_borrowed(course.key, is_borrowed=is_lent)
        if group is not None and group.virtual is not None:
            self.queues.runs_on(course.key, tuple(group.virtual.tolist()))

    def see(self, course: Course, now: float, *, has_cells: bool = False, is_first: bool = False) -> None:
        """A job looks like this now."""
        self.queues.job_seen(course.job, course.unit, course.kept, now, has_cells=has_cells, is_first=is_first)

    def shrunk(self, course: Course) -> None:
        """Some pods of a job have ended, and are not made anew."""
        group = self.live.state.groups[course.key]
        own = () if group.virtual is None else tuple(group.virtual.tolist())
        self.queues.shrink(course.unit, own)

    def turn(self, now: float, live: Live, reclaim: Callable[[str], None]) -> list[Order]:
        """Jobs above a quota leave, and a turn is taken; `reclaim` is told the keys of jobs that leave."""
        tree = self.manner.tree
        if tree is not None:
            for key, quota in drained(usage_of(tree, self.queues), running_in(tree, self.queues, now)).items():
                reclaim(key)
                self.queues.suspend(key, quota, now)
                self.queues.lost_turn(key)
        orders = self.queues.turn(now, live)
        while self.queues.is_cut:
            self.cuts += 1
            orders += self.queues.turn(now, live)
        for order in orders:
            if isinstance(order, Start):
                self.queues.resume(order.key, now, is_borrowed=order.is_borrowed)
            elif isinstance(order, Upgrade):
                self.queues.own(order.key)
            elif isinstance(order, Stop):
                reclaim(order.key)
                self.queues.suspend(order.key, order.winner, now)
        return orders

    def actions(self, now: float) -> list[Action]:
        """The calls on jobs that are due."""
        return self.queues.take_actions(now, 1_000)


def ref_of(key: str) -> JobRef:
    """The job of a unit."""
    kind, namespace, name, uid = key.split("/")
    return JobRef("batch/v1", kind, namespace, name, uid)
