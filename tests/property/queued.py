"""Random histories of queues on a real core: arrivals, ends, failures, changed rules, moves, restarts.

    python -m tests.property.queued --events 100000 --seed 1

Checked after every turn: no job is lost or runs twice, nobody waits who could run, shares are within one job of each
other, and nobody is evicted to and fro. At the end: every guaranteed job has started no later than it would have in its
virtual cluster alone, as `naive.Alone` plays it, plus one grace period.
"""

import argparse
import heapq
import sys
import time
import traceback
from dataclasses import dataclass, field, replace
from random import Random

from hived.decisions import Bind
from hived.invariants import broken_rule
from hived.specs import ClusterSpec, GroupSpec, MemberSpec, PodSpec
from hived.specs import Rules as CoreRules
from hived_extender.queues.policies import WAKE_S, Policy, QueueRules, Rules
from hived_extender.queues.queues import Queues, rebuilt
from hived_extender.queues.room import Ask
from hived_extender.queues.units import Evict, Order, Start, Stop, Unit
from tests.extender.queues.live import Live, decide
from tests.extender.queues.naive import Alone, Job
from tests.quality.small import small_cluster

KINDS = ("NODE", "RACK", "MIX", "PAIR")


@dataclass(frozen=True)
class Setting:
    """Of one history. Shares in percent; times in whole seconds, so that moments are equal or clearly not."""

    kind: str
    policy: Policy = Policy.HIVED
    grace_s: int = 0
    events: int = 200
    borrows: bool = True
    opportunistic: int = 20
    priorities: tuple[int, ...] = (0,)
    limits: int = 0
    failures: int = 0
    restarts: int = 2
    edits: int = 2
    removals: int = 3
    load: float = 1.5
    restarts_always: bool = False  # would other queues, told what is kept, order the same before every turn?


@dataclass
class Course:
    """What really became of a unit."""

    unit: Unit
    run_s: float
    came_s: float
    first_start_s: float | None = None
    last_start_s: float | None = None
    due_s: float | None = None
    dues: int = 0
    end_s: float | None = None
    is_removed: bool = False
    was_disturbed: bool = False  # by a failure, so that no promise covers it


@dataclass
class History:
    """One history; `run` plays it."""

    setting: Setting
    seed: int
    spec: ClusterSpec = field(init=False)
    queues: Queues = field(init=False)
    live: Live = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.setting} {self.seed}")
        self.spec = small_cluster(self.setting.kind, CoreRules.BETTER, self.random)
        self.spec = replace(
            self.spec, virtual_clusters={n: v for n, v in self.spec.virtual_clusters.items() if v.virtual_cells}
        )
        self.rules = Rules(default=QueueRules(policy=self.setting.policy, borrows=self.setting.borrows))
        self.queues = Queues(self.spec)
        self.queues.told_rules(self.rules)
        self.live = Live(self.spec)
        self._empty = Live(self.spec)
        self.now = 0.0
        self.courses: dict[str, Course] = {}
        self.arrived: list[str] = []
        self.running: dict[str, bool] = {}
        self.leaving: dict[str, str] = {}
        self.timers: list[tuple[float, int, str, str]] = []
        self.count = 0
        self.evictions: dict[tuple[str, str], int] = {}
        self.log: list[str] = []
        self.stops = self.turns = 0
        self.events = 0  # that happen to queues: arrivals, ends, departures, failures, removals, edits, restarts

    # Playing

    def run(self) -> None:
        """All events, and then until nothing waits."""
        for number in range(self.setting.events):
            self._play_until(self.now + self.random.choice((0, 1, 1, 2, 3)))
            self._happen(number)
            self._turn()
            self._check()
        while self.timers or self._waiting():
            wake = self.timers[0][0] if self.timers else self._wake()
            assert wake is not None
            was = self.turns, self.now
            self._play_until(wake)
            self._turn()
            self._check()
            if not self.timers and was[1] == self.now:
                why = [(key, self.queues.why(key)) for key in self._waiting()[:5]]
                raise AssertionError(f"nothing happens, and these wait: {why}")

    def _play_until(self, until: float) -> None:
        while True:
            moments = [self.timers[0][0]] if self.timers else []
            wake = self._own_end()
            if wake is not None and wake > self.now:
                moments.append(wake)
            moment = min(moments, default=until)
            if moment > until:
                break
            self.now = max(moment, self.now)
            # a job that comes at the very moment of an end finds it over
            while self.timers and self.timers[0][0] <= self.now:
                _, _, what, key = heapq.heappop(self.timers)
                self._ring(what, key)
            self._turn()
            self._check()
            if self.now >= until and not (self.timers and self.timers[0][0] <= self.now):
                break
        self.now = max(until, self.now)

    def _wake(self) -> float:
        """When there is to be a turn though nothing happens until then."""
        moments = [self.now + WAKE_S, self.queues.next_own_end_s()]
        return min(moment for moment in moments if moment is not None)

    def _own_end(self) -> float | None:
        return self.queues.next_own_end_s()

    def _ring(self, what: str, key: str) -> None:
        kind, _, number = what.partition(" ")
        self.events += 1
        course = self.courses[key]
        if kind == "end" and key in self.running and key not in self.leaving and course.last_start_s == float(number):
            self._end(key)
        elif kind == "left" and key in self.leaving:
            del self.leaving[key], self.running[key]
            self.live.release(key)
            self.queues.evicted(key, self.now)
            self.log.append(f"{self.now} left {key}")

    def _end(self, key: str) -> None:
        course = self.courses[key]
        del self.running[key]
        self.live.release(key)
        course.end_s = self.now
        self.log.append(f"{self.now} end {key}")
        self.queues.ended(key, self.now)
        self.evictions.clear()
        self._note_due()

    def _happen(self, number: int) -> None:
        dice, setting = self.random.randrange(100), self.setting
        self.events += 1
        if dice < setting.failures and self.running:
            key = self.random.choice(list(self.running))
            if key not in self.leaving:
                del self.running[key]
                self.live.release(key)
                self.log.append(f"{self.now} fail {key}")
                self.queues.evicted(key, self.now)
                for course in self.courses.values():
                    course.was_disturbed = True
            return
        dice -= setting.failures
        if 0 <= dice < setting.restarts:
            self._restart()
            return
        dice -= setting.restarts
        if 0 <= dice < setting.edits:
            self.queues.told_rules(self.rules)
            self.queues.room_made()
            return
        dice -= setting.edits
        waiting = self._waiting()
        if 0 <= dice < setting.removals and waiting:
            key = self.random.choice(waiting)
            self.courses[key].is_removed = True
            self.queues.removed(key)
            self.log.append(f"{self.now} removed {key}")
            self.evictions.clear()
            return
        self._arrive(number)

    def _arrive(self, number: int) -> None:
        random, setting = self.random, self.setting
        vc = random.choice(list(self.spec.virtual_clusters))
        key = f"j{number:05}"
        size, count = random.choice((1, 1, 2, 2, 4)), random.choice((1, 1, 1, 2, 3))
        priority = -1 if random.randrange(100) < setting.opportunistic else random.choice(setting.priorities)
        run_s = float(random.choice((3, 8, 20, 40)) * setting.load)
        limit = run_s + random.choice((0, 0, 5)) if random.randrange(100) < setting.limits else None
        spec = PodSpec(vc, priority, size, GroupSpec(key, (MemberSpec(count, size),)))
        preemptible = random.randrange(100) < 80
        unit = Unit(key, vc, spec, self.now, is_preemptible=preemptible, limit_s=limit)
        is_borrowing = priority < 0 or (preemptible and setting.borrows)
        if not isinstance(decide(self._empty.state, Ask(unit, is_borrowing)), Bind):
            return
        self.courses[key] = Course(unit, run_s, self.now)
        self.arrived.append(key)
        self.queues.arrived(unit)
        self.log.append(
            f"{self.now} arrived {key} {vc} p{priority} {count}x{size} pre={preemptible} run={run_s} lim={limit}"
        )
        self.evictions.clear()

    def _restart(self) -> None:
        before = {queue: self.queues.order(queue) for queue in self.queues.queues()}
        self.log.append(f"{self.now} restart")
        self.queues = self._rebuilt()
        self._turn()
        after = {queue: self.queues.order(queue) for queue in self.queues.queues()}
        started = self.running
        assert {q: [k for k in keys if k not in started] for q, keys in before.items()} == {
            q: [k for k in after.get(q, []) if k not in started] for q in before
        }

    def _rebuilt(self) -> Queues:
        """Other queues that are told all that is kept of these."""
        memos = self.queues.dump()
        queues = rebuilt(
            self.spec, [(self.courses[key].unit, memos[key]) for key in self.arrived if key in memos], self.rules
        )
        for number, (key, winner) in enumerate(self.leaving.items()):
            queues.leaving(key, winner, float(number))
        return queues

    def _turn(self) -> None:
        self.turns += 1
        twin, room = (self._rebuilt(), self.live.copied()) if self.setting.restarts_always else (None, None)
        orders = self.queues.turn(self.now, self.live)
        if twin is not None and room is not None:
            self._check_twin(twin, twin.turn(self.now, room), orders)
        for order in orders:
            self.log.append(f"{self.now} {order}")
            if isinstance(order, Start):
                assert order.key not in self.running, f"{order.key} was started twice"
                course = self.courses[order.key]
                assert not course.is_removed
                assert course.end_s is None
                self.running[order.key] = order.is_borrowed
                course.last_start_s = self.now
                if course.first_start_s is None:
                    course.first_start_s = self.now
                self._later(course.run_s, f"end {self.now}", order.key)
            elif isinstance(order, Stop):
                assert order.key in self.running
                assert order.key not in self.leaving
                self.leaving[order.key] = order.winner
                self.stops += 1
                pair = (order.winner, order.key)
                self.evictions[pair] = self.evictions.get(pair, 0) + 1
                assert self.evictions[pair] < 2, f"{pair} twice"
                self._later(self.setting.grace_s, "left", order.key)
            else:
                assert isinstance(order, Evict)
        self._note_due()

    def _note_due(self) -> None:
        for key, course in self.courses.items():
            due = self.queues.due(key)
            if due is not None and due != course.due_s:
                course.due_s = due
                course.dues += 1
                self.log.append(f"{self.now} due {key} {due}")

    def _later(self, after: float, what: str, key: str) -> None:
        self.count += 1
        heapq.heappush(self.timers, (self.now + after, self.count, what, key))

    # Checks

    def _check_twin(self, twin: Queues, its: list[Order], ours: list[Order]) -> None:
        """Jobs that are due start on the same cells, and those that wait do so in the same order.

        Not promised: `Block` tries a queue again at once, as nobody keeps when it has last. With several priorities,
        others of equal priority may leave. Claims of units that others leave for are made anew.
        """
        setting = self.setting
        if setting.policy is Policy.BLOCK or len(setting.priorities) > 1 or setting.failures:
            return
        its_due, our_due = ([each for each in all_ if _is_due_start(each)] for all_ in (its, ours))
        assert its_due == our_due, f"{self.now}: {our_due} here, {its_due} after a restart"
        if not self.leaving:
            assert sorted(map(str, its)) == sorted(map(str, ours)), f"{self.now}: {ours} here, {its} after a restart"
        started = [each.key for each in (*its, *ours) if isinstance(each, Start)]
        for queue in self.queues.queues():
            here, there = ([key for key in each.order(queue) if key not in started] for each in (self.queues, twin))
            assert here == there, f"{self.now} {queue}: {here} here, {there} after a restart"

    def _waiting(self) -> list[str]:
        return [
            key
            for key, course in self.courses.items()
            if key not in self.running and course.end_s is None and not course.is_removed
        ]

    def _check(self) -> None:
        waiting = self._waiting()
        in_order = [key for queue in self.queues.queues() for key in self.queues.order(queue)]
        assert sorted(in_order) == sorted(waiting), (sorted(set(waiting) ^ set(in_order)), self.now)
        if self.turns % 10 == 0:
            assert broken_rule(self.live.state) is None
        self._check_agreement()
        if not self.leaving and not any(at <= self.now for at, *_ in self.timers):
            stuck = self._is_stuck()
            assert stuck is None, stuck

    def _check_agreement(self) -> None:
        """Guaranteed work has the virtual cells that its own schedule gives it."""
        for key, is_borrowed in self.running.items():
            if not is_borrowed and key not in self.leaving:
                own = self.queues.own_cells(key)
                virtual = self.live.state.groups[key].virtual
                assert virtual is not None
                assert own == tuple(virtual.tolist()), f"{self.now} {key} has {virtual}, own {own}"

    def _is_stuck(self) -> str | None:
        """A unit that waits although it could run beside all others, if there is one."""
        refused: set[PodSpec] = set()
        if self.setting.policy is not Policy.BLOCK:
            for key in self._waiting():
                unit = self.courses[key].unit
                may_borrow = unit.priority < 0 or (self.setting.borrows and unit.is_preemptible)
                shape = unit.spec.of_group("")
                is_new = may_borrow and shape not in refused
                refused.add(shape)
                if is_new and isinstance(decide(self.live.state, Ask(unit, True)), Bind):
                    return f"{key} could borrow at {self.now}"
                if self.queues.due(key) is not None:
                    return (
                        f"{key} is due since {self.queues.due(key)}, and nobody leaves for it: {self.queues.why(key)}"
                    )
        return None

    def check_bound(self) -> int:
        """Raise AssertionError for a job that started too late; returns how many were compared."""
        compared = 0
        for vc in self.spec.virtual_clusters:
            jobs: list[Job] = []
            for course in self.courses.values():
                if course.unit.vc != vc or course.unit.priority < 0 or course.is_removed:
                    continue
                assert course.end_s is not None
                assert course.last_start_s is not None
                due = course.due_s
                ran = course.end_s - course.last_start_s
                if due is not None and course.last_start_s > due:
                    ran = course.end_s - due
                jobs.append(Job(course.unit, course.came_s, ran, course.end_s, max(course.dues - 1, 0)))
            starts = Alone(self.spec, vc, self.setting.policy, self.setting.grace_s).play(jobs)
            for job in jobs:
                key = job.unit.key
                if key not in starts:
                    assert self.courses[key].due_s is None, "its virtual cluster alone has no room for it"
                    continue
                first = self.courses[key].first_start_s
                assert first is not None
                assert first <= starts[key] + self.setting.grace_s, (
                    f"{key} started at {first}, alone {starts[key]}, due {self.courses[key].due_s}"
                )
                compared += 1
        return compared


def _is_due_start(order: Order) -> bool:
    return isinstance(order, Start) and not order.is_borrowed


def main() -> None:
    """Play histories with about so many events together."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began, events, turns, compared, seed, misses = time.monotonic(), 0, 0, 0, given.seed, 0
    while events < given.events:
        setting = random_setting(Random(seed), 100)
        history = History(setting, seed)
        try:
            history.run()
            compared += history.check_bound() if is_bound_promised(setting) else 0
        except AssertionError:
            traceback.print_exc()
            print("\n".join(history.log[-60:]), f"seed {seed}: {setting}", sep="\n", flush=True)
            misses += 1
        events, turns, seed = events + history.events, turns + history.turns, seed + 1
        if seed % 20 == 0:
            print(f"{events} events, {seed - given.seed} histories, {misses} misses", flush=True)
    print(
        f"{events} events, {turns} turns, {seed - given.seed} histories from seed {given.seed} on,"
        f" {compared} starts compared with the bound, {misses} misses, {time.monotonic() - began:.0f} s"
    )
    sys.exit(misses > 0)


def is_bound_promised(setting: Setting) -> bool:
    """Nothing fails, and nobody is removed: both would change the schedule of the virtual cluster alone.

    With several priorities, others of equal priority may be preempted than alone. And a job may be preempted there
    while it waits for a grace period, and its cells by then be those of the next one, which has to wait for another.
    """
    return setting.failures == 0 and setting.removals == 0 and len(setting.priorities) == 1


def random_setting(random: Random, events: int) -> Setting:
    """Some setting."""
    is_calm, restarts = random.random() < 0.6, random.choice((0, 2))
    return Setting(
        kind=random.choice(KINDS),
        policy=random.choice((Policy.HIVED, Policy.HIVED, Policy.PRIORITY, Policy.BLOCK)),
        grace_s=random.choice((0, 0, 2, 5)),
        events=events,
        borrows=random.random() < 0.8,
        opportunistic=random.choice((0, 20, 50)),
        priorities=random.choice(((0,), (0,), (0, 1, 5))),
        limits=random.choice((0, 30, 80)),
        failures=0 if is_calm else 5,
        restarts=restarts,
        removals=0 if is_calm else 5,
        load=random.choice((0.5, 1.0, 2.0)),
    )


if __name__ == "__main__":
    main()
