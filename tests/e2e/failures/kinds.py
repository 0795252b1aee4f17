"""Kinds of failures, one function each: it disturbs a cluster at work, and returns when that is over."""

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.e2e.failures.working_cluster import WorkingCluster
from tests.e2e.http_proxy import Hold, Side, Spoil
from tests.e2e.own_clock import set_clock
from tests.e2e.processes import Process

COME_S = 60.0
"""So long a request that is bound to come may take."""

OUTAGE_S = float(os.environ.get("HIVED_E2E_OUTAGE_S", "10"))
"""So long the API server is away."""

FILTER, BIND, BINDING = r"/filter$", r"/bind$", r"/binding$"
REFUSED = (404, 409)


@dataclass(frozen=True, slots=True)
class Step:
    """A moment on a pod's way: something is held, the leader is killed, what was held goes on, or not."""

    name: str
    hold: Callable[[WorkingCluster], Hold]
    kills_after: bool = False  # what is held goes on first, and the leader dies within a moment
    is_lost: bool = False  # what was held never arrives
    goes_on_late: bool = False  # what was held goes on when another leads


def _verb(side: Side, verb: str) -> Callable[[WorkingCluster], Hold]:
    return lambda working: working.verbs.hold(side, "POST", verb)


def _write(side: Side) -> Callable[[WorkingCluster], Hold]:
    return lambda working: working.api.hold(side, "POST", BINDING)


STEPS = (
    Step("filter is asked", _verb(Side.REQUEST, FILTER)),
    Step("the leader is about to decide", _verb(Side.REQUEST, FILTER), kills_after=True),
    Step("filter is answered, the answer is lost", _verb(Side.ANSWER, FILTER), is_lost=True),
    Step("filter is answered", _verb(Side.ANSWER, FILTER)),
    Step("bind is asked, and asked of the next leader", _verb(Side.REQUEST, BIND), goes_on_late=True),
    Step("the leader is about to write the binding", _verb(Side.REQUEST, BIND), kills_after=True),
    Step("the binding is on its way", _write(Side.REQUEST), goes_on_late=True),
    Step("the binding is stored, the answer is lost", _write(Side.ANSWER), is_lost=True),
    Step("bind is answered, the answer is lost", _verb(Side.ANSWER, BIND), is_lost=True),
    Step("the pod is bound", _verb(Side.ANSWER, BIND), kills_after=True),
)


def leader_killed_at_every_step(working: WorkingCluster) -> None:
    """kill -9 of the leader between filter and bound, at each step, in an order that chance has chosen."""
    for step in working.chance.sample(STEPS, len(STEPS)):
        leader = working.cluster.leader()
        working.cluster.await_followers()
        hold = step.hold(working)
        probe = working.probe()
        assert hold.wait(COME_S), f"nothing came to: {step.name}"
        if step.kills_after:
            hold.release()
            time.sleep(working.chance.uniform(0, 0.004))
        killed_at = time.monotonic()
        leader.kill()
        leader.start(ready_s=None)
        if step.goes_on_late:
            working.await_leader(killed_at)
        (hold.drop if step.is_lost else hold.release)()
        if step.goes_on_late and hold.pattern.pattern == BINDING:
            assert hold.answered.wait(COME_S)
            assert hold.status in REFUSED, f"a binding of the dead leader was answered {hold.status}"
        working.await_bound(probe, killed_at)


def leader_frozen(working: WorkingCluster) -> None:
    """SIGSTOP of the leader while it binds; another takes over; then it wakes up, and its binding arrives."""
    for step in working.chance.sample(["on its way", "late", "about to be written"], 3):
        leader = working.cluster.leader()
        working.cluster.await_followers()
        is_writing = step == "about to be written"
        hold = working.verbs.hold(Side.REQUEST, "POST", BIND) if is_writing else _write(Side.REQUEST)(working)
        probe = working.probe()
        assert hold.wait(COME_S), f"nothing came to: {step}"
        if is_writing:
            hold.release()
            time.sleep(working.chance.uniform(0, 0.004))
        leader.freeze()
        frozen_at = time.monotonic()
        try:
            working.await_leader(frozen_at, besides=leader)
            if step == "on its way":
                _release_refused(hold)
        finally:
            leader.thaw()
        if step == "late":
            working.pause(0.0, 1.0)
            _release_refused(hold)
        working.await_bound(probe, frozen_at)


def leader_stopped(working: WorkingCluster) -> None:
    """A polite stop of the leader, three times under load; it comes back each time."""
    for _ in range(3):
        working.pause(0.5, 2.0)
        leader = working.cluster.leader()
        working.cluster.await_followers()
        stopped_at = time.monotonic()
        probe = working.probe()
        leader.stop()
        working.await_leader(stopped_at)
        leader.start(ready_s=None)
        working.await_bound(probe, stopped_at)


def scheduler_killed(working: WorkingCluster) -> None:
    """kill -9 of kube-scheduler, three times at moments of chance; it is started again after a while."""
    for _ in range(3):
        working.pause(0.2, 2.0)
        scheduler = _scheduler(working)
        scheduler.kill()
        working.pause(0.0, 1.0)
        probe = working.probe()
        scheduler.start()
        working.await_bound(probe, time.monotonic())


def api_server_away(working: WorkingCluster) -> None:
    """The API server is stopped, killed or frozen, and comes back."""
    working.pause(1.0, 4.0)
    server = working.plane.apiserver
    how = working.chance.choice(["stopped", "killed", "frozen"])
    {"stopped": server.stop, "killed": server.kill, "frozen": server.freeze}[how]()
    time.sleep(OUTAGE_S)
    if how == "frozen":
        server.thaw()
        server.wait_ready()
    else:
        server.start()
    back_at = time.monotonic()
    probe = working.probe()
    working.await_leader(back_at)
    working.await_bound(probe, back_at)


def history_compacted(working: WorkingCluster) -> None:
    """Watches break, etcd forgets all that has happened until then, and the watches are told 410."""
    working.pause(1.0, 3.0)
    working.api.is_open_for_watches = False
    working.api.cut_watches()
    unseen = working.probe()  # so that there is something that the watches have missed
    working.pause(1.0, 2.0)
    working.plane.compact()
    working.plane.apiserver.kill()
    working.plane.apiserver.start()
    working.api.is_open_for_watches = True
    working.await_bound(unseen, time.monotonic())
    assert working.wait(lambda: working.api.expired_count, COME_S), "no watch was told 410"


def watches_cut(working: WorkingCluster) -> None:
    """Every watch of our service breaks once a second."""
    count = 0
    for _ in range(12):
        time.sleep(1.0)
        count += working.api.cut_watches()
    assert count > 0, "no watch was open"
    working.await_bound(working.probe(), time.monotonic())


def events_in_disorder(working: WorkingCluster) -> None:
    """Events come twice, late, and in another order; that does not end."""
    spoilers: list[Disorder] = []

    def spoil() -> Spoil:
        spoilers.append(Disorder(random.Random(working.chance.random())))
        return spoilers[-1]

    working.api.spoil = spoil
    working.api.cut_watches()
    working.pause(8.0, 10.0)
    working.await_bound(working.probe(), time.monotonic())
    assert sum(spoiler.count for spoiler in spoilers) > 0, "nothing was spoiled"


class Disorder:
    """Doubles lines, now or later, and lets later ones overtake them; `count` says how often."""

    def __init__(self, chance: random.Random) -> None:
        self.count = 0
        self._chance = chance
        self._late: list[bytes] = []

    def __call__(self, lines: list[bytes]) -> list[bytes]:
        """As `Spoil`."""
        given = []
        for line in lines:
            what = self._chance.random()
            if b'"BOOKMARK"' in line or b'"ERROR"' in line or what < 0.5:
                given.append(line)
                continue
            self.count += 1
            if what < 0.7:
                given += [line, line]
            elif what < 0.85:
                given.append(line)
                self._late.append(line)
            else:
                self._late.append(line)
        if not lines or self._chance.random() < 0.3:
            self._chance.shuffle(self._late)
            given, self._late = given + self._late, []
        return given


def clock_jumps(working: WorkingCluster) -> None:
    """The wall clock of our service jumps by up to half a day, forward and back; the last jump stays."""
    for _ in range(8):
        working.pause(0.5, 1.5)
        set_clock(working.clock, working.chance.randint(-43200, 43200))
    working.await_bound(working.probe(), time.monotonic())


def _release_refused(hold: Hold) -> None:
    hold.release()
    assert hold.answered.wait(COME_S)
    assert hold.status in REFUSED, f"a binding of the frozen leader was answered {hold.status}"


def _scheduler(working: WorkingCluster) -> Process:
    scheduler = working.plane.scheduler
    assert scheduler is not None
    return scheduler
