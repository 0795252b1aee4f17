"""What has to hold in every history of queues, each rule told by slow, obvious means beside the product's own."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from hived.life.invariants import broken_rule
from hived.values.decisions import Bind
from hived.values.specs import PodSpec
from hived_extender.jobs.job import JobState, uid_of
from hived_extender.queues.policies import Policy
from hived_extender.queues.queues import Queues
from hived_extender.queues.room import Ask
from hived_extender.queues.table import Life
from hived_extender.queues.units import Evict, Order, Start, Stop, Unit
from tests.extender.queues.live import decide
from tests.extender.queues.naive import Alone, Job
from tests.property.queued_ideal import ideal
from tests.property.queued_quotas import may_run
from tests.property.queued_replica import Course, Manner, Replica

if TYPE_CHECKING:
    from tests.property.queued import History


@dataclass(slots=True)
class Term:
    """The time of one replica that leads.

    over, there : jobs that were over when it began, and those that were there
    running : those on their own cells by then, with the time at which they were due, and their virtual leaves
    due, dues : when its own schedule started a job last, and how often
    """

    manner: Manner
    began_s: float = 0.0
    over: dict[str, None] = field(default_factory=dict)
    there: dict[str, None] = field(default_factory=dict)
    running: dict[str, tuple[float, tuple[int, ...]]] = field(default_factory=dict)
    due: dict[str, float] = field(default_factory=dict)
    dues: dict[str, int] = field(default_factory=dict)


class Checks:
    """See the module. `fair` and `compared` count shares and starts that were compared.

    `upgraded` counts jobs whose borrowed cells became their own, `taken` those that had to leave though they were due.
    """

    def __init__(self, history: "History") -> None:
        self._history = history
        self._evictions: dict[tuple[str, str], None] = {}
        self._news_s = 0.0  # when a job has come or ended last
        self._terms = [Term(history.manner)]
        self.fair = self.compared = self.upgraded = self.taken = 0

    # Events

    def started(self, order: Start) -> None:
        """A turn starts a job: it has no cells, is there, has not ended, and runs ahead only if it may."""
        course = self._history.courses[order.key]
        assert self._is_willing(course.unit) or not order.is_borrowed, f"{order.key} may not borrow"
        assert not course.has_pods, f"{order.key} was started twice"
        assert not course.is_over, f"{order.key} is over"
        assert course.state is not JobState.LEAVING, f"{order.key} still leaves"

    def stopped(self, order: Stop) -> None:
        """A job on its own cells leaves for nobody but a job of higher priority in its virtual cluster.

        Counted is one that is due on borrowed cells, and leaves for another one.
        """
        history = self._history
        course, group = history.courses[order.key], history.live.state.groups.get(order.key)
        winner = history.courses.get(order.winner)
        if group is not None and group.virtual is not None:
            is_higher = winner is not None and winner.unit.priority > course.unit.priority
            assert is_higher, f"{history.now}: {order.key} leaves its own cells for {order.winner}"
            assert winner is not None
            assert winner.unit.vc == course.unit.vc
        elif order.winner != order.key and history.replica.queues.entitled_since(order.key) is not None:
            self.taken += 1

    def evicted(self, course: Course) -> None:
        """A job leaves for another one: never twice for the same, and not for one that it has evicted itself.

        That one may be due by now: then it cannot be evicted once more. Some are written late: one that was decided
        before a job came or ended counts no more.
        """
        if course.kept.since_s < self._news_s:
            return
        key, uid = course.key, uid_of(course.kept.evicted_for)
        winner = next((each.key for each in self._history.there() if uid_of(each.key) == uid), "")
        if winner:
            assert (winner, key) not in self._evictions, f"{winner} evicts {key} again"
            is_back = (key, winner) in self._evictions and self._history.replica.queues.entitled_since(winner) is None
            assert not is_back, f"{key} has evicted {winner}, which now evicts it"
            self._evictions[winner, key] = None

    def forget_evictions(self) -> None:
        """A job has come or ended."""
        self._evictions.clear()
        self._news_s = self._history.now

    def after_turn(self, *, is_quiet: bool) -> None:
        """Nobody is lost or stuck, guaranteed work is where its own schedule has it, and shares are fair.

        `is_quiet`: the turn has changed nothing.
        """
        history = self._history
        self._nobody_is_lost()
        self._changed_queues_are_known()
        if history.turns % 10 == 0:
            assert broken_rule(history.live.state) is None
        self._own_cells_agree()
        self._due_times()
        if is_quiet:
            self._due_jobs_own_their_cells()
        is_settled = is_quiet and not self._is_anybody_leaving() and not history.rings()
        if is_settled:
            stuck = self._stuck()
            assert stuck is None, f"{history.now}: {stuck}"
            if history.setting.is_fair:
                self._shares_are_fair()

    def at_end(self) -> None:
        """All jobs have run, each no later than in its virtual cluster alone, plus one grace period."""
        courses = self._history.courses.values()
        assert all(course.is_over for course in courses)
        assert not self._history.live.pods
        if self._history.setting.is_bound_promised:
            for term, after in zip(self._terms, [*self._terms[1:], None], strict=True):
                for vc in self._history.spec.virtual_clusters:
                    self._bound_holds(vc, term, inf if after is None else after.began_s)

    # Other replicas

    def begin_term(self) -> None:
        """Another replica leads, and has taken no turn yet."""
        history, running = self._history, {}
        for course in history.there():
            group = history.live.state.groups.get(course.key)
            if group is not None and group.virtual is not None and course.state is JobState.RESUMED:
                since_s = course.kept.entitled_s if course.kept.entitled_s is not None else course.kept.since_s
                running[course.key] = since_s, tuple(group.virtual.tolist())
        over = {key: None for key, course in history.courses.items() if course.is_over}
        there = {course.key: None for course in history.there()}
        self._terms.append(Term(history.manner, history.now, over, there, running))

    def orders(self, but: Container[str]) -> dict[str, list[str]]:
        """The jobs of each queue that wait and are not due, but for these."""
        queues = self._history.replica.queues
        return {queue: _not_entitled(queues, queue, but) for queue in queues.queues()}

    def same_order(self, before: dict[str, list[str]], orders: Sequence[Order]) -> None:
        """After another replica has begun to lead, the jobs that still wait do so in the same order."""
        moved = {order.key for order in orders if not isinstance(order, Evict)}
        queues = self._history.replica.queues
        for queue, keys in before.items():
            now = [key for key in _not_entitled(queues, queue, moved) if key in keys]
            assert [key for key in keys if key in now] == now, f"{queue}: {keys} before, {now} now"

    def same_turn(self, twin: Replica, its: Sequence[Order], ours: Sequence[Order]) -> None:
        """Another replica would have jobs wait in the same order, and leave those alone that run on their own cells.

        Not the same are starts: it does not know which jobs ran ahead and have ended, or have become due meanwhile.
        """
        moved = {order.key for order in (*its, *ours) if not isinstance(order, Evict)}
        history = self._history
        for queue in history.replica.queues.queues():
            here, there = (_not_entitled(each, queue, moved) for each in (history.replica.queues, twin.queues))
            both = [key for key in here if key in there]
            assert both == [key for key in there if key in here], f"{history.now} {queue}: {here} here, {there} there"
        if len(history.setting.priorities) == 1:
            for order in its:
                is_own = isinstance(order, Stop) and not history.courses[order.key].kept.is_borrowed
                assert not is_own, f"{history.now}: another replica takes cells back from {order}"

    # Rules

    def _changed_queues_are_known(self) -> None:
        """Whoever looks at the first units of queues that have changed alone knows those of all."""
        replica = self._history.replica
        queues = replica.queues
        for queue in queues.take_moved():
            replica.firsts[queue] = queues.first(queue, 4)
            places = [queues.position(key) for key in replica.firsts[queue]]
            assert places == [*range(1, len(places) + 1)]
        assert all(replica.firsts.get(queue, []) == queues.order(queue)[:4] for queue in queues.queues())

    def _nobody_is_lost(self) -> None:
        history = self._history
        entries = history.replica.queues.entries
        there = [course.key for course in history.there()]
        assert sorted(entries) == sorted(there), sorted(set(entries) ^ set(there))
        for course in history.there():
            step = entries[course.key].life
            assert not (step is Life.WAITING and course.has_pods), f"{course.key} waits and runs"
            assert step is Life.WAITING or course.key in history.live.pods or step is Life.LEAVING, course.key
        queues = history.replica.queues
        in_order = sorted(key for queue in queues.queues() for key in queues.order(queue))
        assert in_order == sorted(history.waiting()), sorted(set(in_order) ^ set(history.waiting()))

    def _own_cells_agree(self) -> None:
        """Guaranteed work has the virtual cells that its own schedule gives it."""
        history = self._history
        if history.bad or history.setting.health:
            return  # whoever has lost cells may have got others
        for course in history.there():
            group = history.live.state.groups.get(course.key)
            if group is not None and group.virtual is not None and course.state is JobState.RESUMED:
                entry = history.replica.queues.entries[course.key]
                own = history.replica.queues.own_cells(course.key)
                is_there = own == tuple(group.virtual.tolist())
                assert is_there or not entry.life.has_cells, f"{course.key} has {group.virtual}, own {own}"

    def _due_jobs_own_their_cells(self) -> None:
        """Nobody runs on borrowed cells that is due, if these can be its own where they are."""
        history = self._history
        queues, entries = history.replica.queues, history.replica.queues.entries
        for course in history.there():
            group, own = history.live.state.groups.get(course.key), queues.own_cells(course.key)
            if group is None or group.virtual is not None or not own or not entries[course.key].life.has_cells:
                continue
            could = history.live.copied().upgrade(Ask(course.unit, False, own))
            assert could is None, f"{history.now}: {course.key} is due, and runs on borrowed cells of its own"

    def _due_times(self) -> None:
        history, term = self._history, self._terms[-1]
        for key in history.courses:
            due = history.replica.queues.entitled_since(key)
            if due is not None and due != term.due.get(key):
                term.due[key] = due
                term.dues[key] = term.dues.get(key, 0) + 1
                history.log.append(f"{history.now} due {key} {due}")

    def _is_anybody_leaving(self) -> bool:
        history = self._history
        is_written = not history.writing and all(
            each.wanted is None and each.written is None for each in history.replica.queues.entries.values()
        )
        return not is_written or any(course.state is JobState.LEAVING for course in history.there())

    def _stuck(self) -> str | None:
        """A job that waits although it could run beside all others, if there is one."""
        history, refused, running = self._history, dict[PodSpec, None](), self._running()
        starts = [course.last_start_s or 0.0 for course in history.there() if course.has_pods]
        is_whole = not history.bad and min(starts, default=inf) > history.healed_s  # else some run on others' cells
        for key in history.waiting():
            entry, unit = history.replica.queues.entries[key], history.courses[key].unit
            rules = history.manner.rules.of(unit.queue)
            if entry.kept.is_on_hold or rules.policy is Policy.BLOCK or history.setting.most_waiting:
                continue
            if is_whole and history.replica.queues.entitled_since(key) is not None:
                return f"{key} is due, and nobody leaves for it: {history.replica.queues.why(key)}"
            shape = unit.spec.of_group("")
            if shape not in refused and not self._rests(key) and self._may_borrow(unit, running):
                refused[shape] = None
                if isinstance(decide(history.live.state, Ask(unit, True)), Bind):
                    return f"{key} could borrow"
        return None

    def _may_borrow(self, unit: Unit, running: Sequence[Unit]) -> bool:
        history = self._history
        manner, rules = history.manner, history.manner.rules.of(unit.queue)
        of_user = sum(one.user == unit.user and one.queue == unit.queue for one in running)
        is_within = manner.tree is None or may_run(manner.tree, unit, running)
        return self._is_willing(unit) and is_within and (rules.most_running is None or of_user < rules.most_running)

    def _is_willing(self, unit: Unit) -> bool:
        manner = self._history.manner
        borrows = manner.rules.of(unit.queue).borrows
        return unit.priority < 0 or (unit.is_preemptible and (manner.tree is not None if borrows is None else borrows))

    def _running(self) -> list[Unit]:
        history = self._history
        return [course.unit for course in history.there() if course.key in history.live.pods]

    def _rests(self, key: str) -> bool:
        """Does a job borrow no more for a while, as it gave cells back again and again? See `queues.rests`."""
        return self._history.replica.queues.entries[key].kept.returned.goes_on(self._history.now)

    def _shares_are_fair(self) -> None:
        """Each queue has as many jobs as the ideal gives it, or one fewer; where all weigh the same, or one more."""
        history = self._history
        if history.bad or any(map(self._rests, history.waiting())):
            return
        standing = [
            history.courses[key].unit
            for key in history.waiting()
            if not history.replica.queues.entries[key].kept.is_on_hold
        ]
        found = _counted(self._running())
        wished = ideal(history.spec, history.manner, [*self._running(), *standing])
        weights = {history.manner.rules.of(queue).weight for queue in wished}
        for queue, count in wished.items():
            has = found.get(queue, 0)
            is_fair = has >= count - 1 and (has <= count + 1 or len(weights) > 1)
            assert is_fair, f"{history.now} {queue} has {has} jobs of {found}, ideal are {wished}"
            self.fair += 1

    def _bound_holds(self, vc: str, term: Term, until_s: float) -> None:
        """Play a virtual cluster alone from the beginning of a term; some jobs run on its cells by then."""
        history, grace_s = self._history, self._history.setting.grace_s
        alone = Alone(history.spec, vc, term.manner.rules, grace_s, term.manner.tree)
        there, jobs = list[Job](), list[Job]()
        for course in history.courses.values():
            key, unit = course.key, course.unit
            if unit.vc != vc or unit.priority < 0 or key in term.over or course.came_s > until_s:
                continue
            ends = course.end_s is not None and course.end_s <= until_s
            job = Job(unit, max(course.came_s, term.began_s), inf, inf, max(term.dues.get(key, 0) - 1, 0))
            if ends and course.end_s is not None:
                job = replace(job, run_s=self._ran_s(course, term.due.get(key)), known_s=course.end_s)
            if key in term.running:
                since_s, leaves = term.running[key]
                run_s = self._ran_s(course, since_s) if ends else inf
                alone.runs(replace(job, run_s=run_s), since_s, leaves)
            elif key in term.there:
                there.append(job)
            else:
                jobs.append(job)
        starts = alone.play(jobs, there, term.began_s, until_s)
        for job in (*there, *jobs):
            course, at_s = history.courses[job.unit.key], starts.get(job.unit.key)
            if at_s is None:
                assert until_s < inf or course.key not in term.due, "its virtual cluster alone has no room for it"
            if at_s is None or at_s + grace_s >= until_s:
                continue
            first_s = inf if course.first_start_s is None else course.first_start_s
            assert first_s <= at_s + grace_s, f"{course.key} started at {first_s}, alone {at_s}, due {term.due}"
            self.compared += 1

    @staticmethod
    def _ran_s(course: Course, entitled_s: float | None) -> float:
        """How long a job that has ended runs in its own schedule."""
        assert course.end_s is not None
        assert course.last_start_s is not None
        is_late = entitled_s is not None and course.last_start_s > entitled_s
        return course.end_s - (entitled_s if is_late and entitled_s is not None else course.last_start_s)


def _not_entitled(queues: Queues, queue: str, but: Container[str]) -> list[str]:
    """The jobs of a queue that wait for their turn, in order."""
    return [key for key in queues.order(queue) if key not in but and queues.entitled_since(key) is None]


def _counted(units: Sequence[Unit]) -> dict[str, int]:
    found: dict[str, int] = {}
    for unit in units:
        found[unit.queue] = found.get(unit.queue, 0) + 1
    return found
