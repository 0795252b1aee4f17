"""Random histories of queues on a real core, with two replicas of which one leads.

    python -m tests.property.queued --events 100000 --seed 1

Jobs arrive and end; pods are lost, nodes fail and heal; jobs are deleted, held, moved and suspended, and shrink; rules
and quotas are changed below their use; calls on jobs come late or are lost; another replica leads, which knows what is
written on jobs. `queued_checks` says what has to hold after every turn and at the end.
"""

import argparse
import heapq
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from random import Random

from msgspec.structs import replace as changed

from hived.life.groups import nodes_of_slots
from hived.values.decisions import Bind
from hived.values.specs import GroupSpec, MemberSpec, PodSpec
from hived.values.specs import Rules as CoreRules
from hived_extender.jobs.job import JobState
from hived_extender.queues.policies import WAKE_S, Policy, QueueRules, Rules
from hived_extender.queues.queued_jobs import Action, Change
from hived_extender.queues.room import Ask, Pending
from hived_extender.queues.table import Life, Returned
from hived_extender.queues.units import Order, Start, Stop, Unit, Upgrade
from tests.extender.queues.live import Live, decide
from tests.property.queued_checks import Checks
from tests.property.queued_quotas import Quotas, request_of
from tests.property.queued_replica import Course, Manner, Replica
from tests.property.queued_setting import Setting, random_setting
from tests.quality.small import small_cluster

USERS = ("ann", "ben", "eve")


class History:
    """One history; `run` plays it. `log` has all that happened, a line each."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.random = Random(f"{setting} {seed}")
        spec = small_cluster(setting.kind, CoreRules.BETTER, self.random)
        own = {name: vc for name, vc in spec.virtual_clusters.items() if vc.virtual_cells}
        self.spec = replace(spec, virtual_clusters=own)
        self.quotas = Quotas(self.spec, self.random) if setting.quotas else None
        self.weights = {vc: self.random.choice((1.0, 2.0, 3.0)) if setting.weights else 1.0 for vc in own}
        self.policy = setting.policy
        self.manner = self._manner()
        self.live, self._empty = Live(self.spec), Live(self.spec)
        self.bad: dict[str, None] = {}
        self.healed_s = -1.0  # when a node healed last
        self.courses: dict[str, Course] = {}
        self._there: dict[str, Course] = {}
        self.now = 0.0
        self.log: list[str] = []
        self.timers: list[tuple[float, int, str, str, object]] = []
        self.writing: dict[int, Action] = {}  # calls that have not been carried out
        self.count = self.events = self.turns = self.stops = 0
        self.replica = self._new_replica()
        self.checks = Checks(self)

    # Playing

    def run(self) -> None:
        """All events, and then until nothing waits."""
        for number in range(self.setting.events):
            self._play_until(self.now + self.random.choice((0, 1, 1, 2, 3)))
            self._happen(number)
            self._turn()
        self._let_all_end()
        self.checks.at_end()

    def _let_all_end(self) -> None:
        """People and quotas hold nobody back any more, and all hardware is well."""
        for node in list(self.bad):
            self._set_health(node)
        if self.quotas is not None:
            self.quotas.open()
        if self.quotas is not None or self.setting.most_waiting:
            self.manner = self._manner(most_waiting=None)
            self._take_over("rules are opened")
        for course in self.there():
            if course.kept.is_on_hold or self.replica.queues.entries[course.key].kept.is_on_hold:
                self._hold(course.key, False)
        latest_s = self.now + sum(course.run_s + self.setting.grace_s for course in self.there()) * 2 + 10_000
        latest_s += Returned.LONGEST_S * 2  # of jobs that only borrow
        while self.timers or self.waiting():
            was = self.now
            assert was < latest_s, f"these wait for ever: {self.waiting()}"
            self._play_until(self.timers[0][0] if self.timers else self._wake_s())
            self._turn()
            if not self.timers and was == self.now:
                why = [(key, self.replica.queues.why(key)) for key in self.waiting()[:5]]
                raise AssertionError(f"nothing happens, and these wait: {why}")

    def _play_until(self, until: float) -> None:
        while True:
            moments = [self.timers[0][0]] if self.timers else []
            own_end = self.replica.queues.next_own_end_s()
            if own_end is not None and own_end > self.now:
                moments.append(own_end)
            moment = min(moments, default=until)
            if moment > until:
                break
            self.now = max(moment, self.now)
            # a job that comes at the very moment of an end finds it over
            while self.rings():
                _, _, what, key, detail = heapq.heappop(self.timers)
                self._ring(what, key, detail)
            self._turn()
            if self.now >= until and not self.rings():
                break
        self.now = max(until, self.now)

    def rings(self) -> bool:
        """Does anything more happen at this moment?"""
        return bool(self.timers) and self.timers[0][0] <= self.now

    def _wake_s(self) -> float:
        """When there is to be a turn though nothing happens until then."""
        moments = [self.now + WAKE_S, self.replica.queues.next_own_end_s()]
        return min(moment for moment in moments if moment is not None)

    def _later(self, after: float, what: str, key: str, detail: object) -> None:
        self.count += 1
        heapq.heappush(self.timers, (self.now + after, self.count, what, key, detail))

    def _ring(self, what: str, key: str, detail: object) -> None:
        course = self.courses[key]
        self.events += 1
        if what == "write" and isinstance(detail, int) and detail in self.writing:
            self._written(self.writing.pop(detail))
        elif what == "end" and course.has_pods and course.last_start_s == detail:
            self._end(course)
        elif what == "left" and course.has_pods and course.state is JobState.LEAVING and course.last_start_s == detail:
            self._left(course)

    # The cluster and its controllers

    def _written(self, action: Action) -> None:
        """A call on a job object has been carried out."""
        course = self.courses[action.job.key]
        queues = self.replica.queues
        if course.is_over:
            queues.wrote(action, "404", self.now)
            return
        course.kept = action.kept
        if action.change is Change.RESUME and (course.state is not JobState.RESUMED or not course.has_pods):
            assert course.state is not JobState.LEAVING or course.has_pods, course
            self._let_go(course)
        elif action.change is Change.SUSPEND and course.state is JobState.RESUMED:
            self._suspend(course)
        queues.wrote(action, "", self.now)
        self.replica.see(course, self.now)

    def _let_go(self, course: Course) -> None:
        course.state = JobState.RESUMED
        assert not course.has_pods, f"{course.key} was started twice"
        if course.key not in self.live.pods:
            return  # it has been called back meanwhile, and its pods wait
        course.has_pods, course.last_start_s = True, self.now
        if course.first_start_s is None:
            course.first_start_s = self.now
        self._later(course.run_s, "end", course.key, self.now)

    def _suspend(self, course: Course) -> None:
        self.checks.evicted(course)
        if not course.has_pods:
            course.state = JobState.HELD
            return
        course.state = JobState.LEAVING
        self._later(self.setting.grace_s, "left", course.key, course.last_start_s)

    def _left(self, course: Course) -> None:
        self.log.append(f"{self.now} left {course.key}")
        self._release(course)
        course.state = JobState.HELD
        self.replica.see(course, self.now)

    def _end(self, course: Course) -> None:
        self.log.append(f"{self.now} end {course.key}")
        self._release(course)
        course.state, course.end_s = JobState.SUCCEEDED, self.now
        del self._there[course.key]
        self.replica.see(course, self.now)
        self.checks.forget_evictions()

    def _release(self, course: Course) -> None:
        course.has_pods = False
        self.live.release(course.key)

    # Events

    def _happen(self, number: int) -> None:
        setting = self.setting
        self.events += 1
        dice = self.random.randrange(100)
        lead = partial(self._take_over, "another replica leads")
        for share, act in (
            (setting.failures, self._fail),
            (setting.health, lambda: self._set_health(self.random.choice(list(self.spec_nodes())))),
            (setting.restarts, lead),
            (setting.edits, self._edit),
            (setting.removals, self._delete),
            (setting.people, self._interfere),
            (setting.shrinking, self._shrink),
        ):
            if dice < share:
                act()
                if act is not lead:
                    self.checks.forget_evictions()
                return
            dice -= share
        self._arrive(number)

    def _arrive(self, number: int) -> None:
        random, setting = self.random, self.setting
        vc = random.choice(list(self.spec.virtual_clusters))
        key = f"Job/{vc}/j{number:05}/u{number}"
        size, count = random.choice((1, 1, 2, 2, 4)), random.choice((1, 1, 1, 2, 3))
        if setting.size:
            size, count = setting.size, 1
        priority = -1 if random.randrange(100) < setting.opportunistic else random.choice(setting.priorities)
        run_s = float(random.choice((3, 8, 20, 40)) * setting.load)
        limit = run_s + random.choice((0, 0, 5)) if random.randrange(100) < setting.limits else None
        spec = PodSpec(vc, priority, size, GroupSpec(key, (MemberSpec(count, size),)))
        unit = Unit(
            key, vc if self.quotas is None else self.quotas.queue(vc), spec, self.now, random.choice(USERS),
            request_of(size * count), bool(setting.size) or random.randrange(100) < 80, limit,
        )  # fmt: skip
        if self._is_possible(unit):
            course = self.courses[key] = self._there[key] = Course(unit, run_s, self.now)
            self.log.append(
                f"{self.now} arrived {key} {unit.queue} {unit.user} p{priority} {count}x{size}"
                f" pre={unit.is_preemptible} run={run_s} lim={limit}"
            )
            self.replica.see(course, self.now)
            self.checks.forget_evictions()

    def _is_possible(self, unit: Unit) -> bool:
        """Would it run some day, at the latest once quotas are opened?"""
        may_borrow = unit.priority < 0 or (unit.is_preemptible and (self.quotas is not None or self.setting.borrows))
        is_small = self.quotas is None or unit.is_preemptible
        return is_small and isinstance(decide(self._empty.state, Ask(unit, may_borrow)), Bind)

    def _fail(self) -> None:
        """A job loses its pods, and makes others: hived calls it back."""
        entries = self.replica.queues.entries
        running = [one for one in self.there() if one.has_pods and entries[one.key].life.has_cells]
        if running:
            self._lose(self.random.choice(running))

    def _lose(self, course: Course) -> None:
        self.log.append(f"{self.now} fails {course.key}")
        self._called_back(course.key)
        self.replica.queues.suspend(course.key, "", self.now)

    def _called_back(self, key: str) -> None:
        assert key in self.live.pods, f"{key} has no cells"
        if not self.courses[key].has_pods:
            self.live.release(key)

    def spec_nodes(self) -> list[str]:
        """The nodes by name."""
        return list(self.live.state.topology.node_names)

    def _set_health(self, node: str) -> None:
        is_healthy = node in self.bad
        self.log.append(f"{self.now} {node} {'heals' if is_healthy else 'fails'}")
        there = [key for key, nodes in self._nodes().items() if node in nodes]
        self.live.set_health(node, is_healthy)
        self.replica.queues.health({node: is_healthy})
        if is_healthy:
            del self.bad[node]
            self.healed_s = self.now
            return
        self.bad[node] = None
        for key in there:
            entry = self.replica.queues.entries[key]
            if entry.life.has_cells and self.random.random() < 0.5:
                self._lose(self.courses[key])

    def _nodes(self) -> dict[str, Sequence[str]]:
        """The nodes of each job that has cells."""
        state = self.live.state
        return {key: nodes_of_slots(state, group) for key, group in state.groups.items()}

    def _edit(self) -> None:
        """Other rules at once, or other quotas with other turns."""
        if self.quotas is not None and self.random.random() < 0.7:
            what = self.quotas.edit()
            self._finish_calls()
            self.manner = self._manner()
            self._take_over(f"quota {what}")
            return
        self.policy = self.random.choice(list(Policy))
        self.manner = self._manner()
        self.replica.manner = self.manner
        self.log.append(f"{self.now} policy {self.policy}")
        self.replica.queues.told_rules(self.manner.rules, self.manner.new_ledger)

    def _delete(self) -> None:
        """A job object is deleted, and its pods with it."""
        there = self.there()
        if there:
            course = self.random.choice(there)
            self.log.append(f"{self.now} deleted {course.key}")
            course.is_deleted = True
            del self._there[course.key]
            if course.key in self.live.pods:
                self._release(course)
            self.replica.queues.job_gone(course.job.ref)
            self.checks.forget_evictions()

    def _shrink(self) -> None:
        """Some pods of a job end, and are not made anew: it gives their cells back."""
        entries = self.replica.queues.entries
        able = [
            one
            for one in self.there()
            if one.has_pods and entries[one.key].life.has_cells and one.unit.spec.group.members[0].pod_count > 1
        ]
        if not able:
            return
        course = self.random.choice(able)
        (member,) = course.unit.spec.group.members
        slots = sorted(self.random.sample(range(member.pod_count), self.random.randint(1, member.pod_count - 1)))
        group = GroupSpec(course.key, (MemberSpec(len(slots), member.leaf_cell_count),))
        request = request_of(len(slots) * member.leaf_cell_count)
        course.unit = changed(course.unit, spec=replace(course.unit.spec, group=group), request=request)
        self.log.append(f"{self.now} shrinks {course.key} to {len(slots)}")
        self.live.shrink(course.unit, slots)
        self.replica.see(course, self.now)
        self.replica.shrunk(course)

    def _interfere(self) -> None:
        """People hold, release, move or suspend a job."""
        there = self.there()
        if not there:
            return
        course = self.random.choice(there)
        entry = self.replica.queues.entries[course.key]
        what = self.random.choice(("hold", "release", "front", "back", "suspend", "resume"))
        self.log.append(f"{self.now} {what} {course.key}")
        if what in ("hold", "release"):
            self._hold(course.key, what == "hold")
        elif what == "suspend":
            if course.state is JobState.RESUMED:
                self._suspend(course)
                self.replica.see(course, self.now)
        elif what == "resume":
            if course.state is JobState.HELD:
                course.state = JobState.RESUMED
                self.replica.see(course, self.now)
        elif entry.life is Life.WAITING:
            self.replica.queues.move(course.key, what)

    def _hold(self, key: str, is_held: bool) -> None:
        self.replica.queues.hold(key, is_held=is_held)

    # Replicas

    def _manner(self, most_waiting: int | None = 0) -> Manner:
        setting = self.setting
        queues = self.weights if self.quotas is None else {leaf.name: 1.0 for leaf in self.quotas.tree().leaves()}
        own = QueueRules(
            policy=self.policy,
            borrows=None if self.quotas is not None else setting.borrows,
            most_running=setting.users or None,
            most_waiting=(setting.most_waiting or None) if most_waiting == 0 else most_waiting,
        )
        rules = {queue: changed(own, weight=weight) for queue, weight in queues.items()}
        return Manner(Rules(own, rules), None if self.quotas is None else self.quotas.tree())

    def _take_over(self, why: str) -> None:
        """Another replica leads: it knows jobs as they are written, and cells by pods. Calls under way are lost."""
        self.log.append(f"{self.now} {why}")
        if self.random.random() < 0.5:
            self._finish_calls()
        self.writing.clear()
        unwritten = [key for key, entry in self.replica.queues.entries.items() if entry.wanted or entry.written]
        before = self.checks.orders(but=unwritten)  # a place that nobody has written is lost
        lost = [course for course in self.there() if course.key in self.live.pods and not course.has_pods]
        for course in lost:
            self.live.release(course.key)
        is_same = self.replica.manner == self.manner
        self.replica = self._new_replica()
        for course in self.there():
            if course.state is JobState.RESUMED and not course.has_pods:
                self._hold_again(course)
        self.checks.begin_term()
        started = self._take_turn(self.replica, self.live)
        if is_same:
            self.checks.same_order(before, started)

    def _hold_again(self, course: Course) -> None:
        """A job was let go by a replica that then lost its cells."""
        queues = self.replica.queues
        if queues.entries[course.key].life.has_cells:
            ask = Ask(course.unit, course.kept.is_borrowed, queues.own_cells(course.key))
            if isinstance(self.live.hold(ask, Pending()), Bind):
                self._let_go(course)
                self.replica.runs_on(course)
            else:
                queues.suspend(course.key, "", self.now)

    def _finish_calls(self) -> None:
        for number, action in list(self.writing.items()):
            del self.writing[number]
            self._written(action)

    def _new_replica(self) -> Replica:
        return Replica(self.spec, self.manner, self.there(), self.live, self.bad, self.now, self.setting.pace)

    def _turn(self) -> None:
        self.turns += 1
        twin, room = (self._new_replica(), self.live.copied()) if self.setting.restarts_always else (None, None)
        orders = self._take_turn(self.replica, self.live)
        if twin is not None and room is not None:
            self.checks.same_turn(twin, twin.turn(self.now, room, lambda key: None), orders)

    def _take_turn(self, replica: Replica, live: Live) -> list[Order]:
        orders = replica.turn(self.now, live, self._called_back)
        for order in orders:
            self.log.append(f"{self.now} {order}")
            if isinstance(order, Start):
                self.checks.started(order)
            elif isinstance(order, Stop):
                self.checks.stopped(order)
            elif isinstance(order, Upgrade):
                self.checks.upgraded += 1
        actions = replica.actions(self.now)
        for action in actions:
            self._call(action)
        self.checks.after_turn(is_quiet=not orders and not actions)
        return orders

    def _call(self, action: Action) -> None:
        after = self.random.randint(0, self.setting.write_s)
        if not after:
            self._written(action)
            return
        self.count += 1
        self.writing[self.count] = action
        self._later(after, "write", action.job.key, self.count)

    def there(self) -> list[Course]:
        """The jobs that are not over."""
        return list(self._there.values())

    def waiting(self) -> list[str]:
        """The jobs without cells, as the replica has them."""
        entries = self.replica.queues.entries
        return [course.key for course in self.there() if entries[course.key].life is Life.WAITING]


def main() -> None:
    """Play histories with about so many events together."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    began, seed, misses = time.monotonic(), given.seed, 0
    events = turns = fair = compared = upgraded = taken = 0
    while events < given.events:
        setting = random_setting(Random(seed), 100)
        history = History(setting, seed)
        try:
            history.run()
        except AssertionError:
            traceback.print_exc()
            print("\n".join(history.log[-60:]), f"seed {seed}: {setting}", sep="\n", flush=True)
            misses += 1
        events, turns, seed = events + history.events, turns + history.turns, seed + 1
        upgraded, taken = upgraded + history.checks.upgraded, taken + history.checks.taken
        fair, compared = fair + history.checks.fair, compared + history.checks.compared
        if seed % 20 == 0:
            print(f"{events} events, {seed - given.seed} histories, {misses} misses", flush=True)
    print(
        f"{events} events, {turns} turns, {seed - given.seed} histories from seed {given.seed} on,"
        f" {compared} starts compared with the bound, {fair} shares with the ideal, {upgraded} jobs upgraded,"
        f" {taken} due jobs taken from, {misses} misses,"
        f" {time.monotonic() - began:.0f} s"
    )
    sys.exit(misses > 0)


if __name__ == "__main__":
    main()
