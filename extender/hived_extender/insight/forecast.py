"""Starts of waiting jobs, each with its kind (docs/forecast.md); forecasts for a running service.

now, certain: the first round of a play says so, whatever ends when. bounded: `bound_of`. estimated: many plays, each
with other ends of the jobs that run, drawn from the past of their virtual clusters; `past` corrects them so that they
hold. Draws are stratified, so that 20 plays see short and long ends of each job alike, and the same for the same
snapshot.

Jobs that end early may let others in, and these may delay a job that would have started sooner had all run on.
So the worst play is no bound. This is one: take away jobs that run, those with the earliest limits first, until the
core has a place for the job. Until it starts, one of these runs, or one of the waiting jobs that may come before it.
The first are over by the last limit of theirs, and each of the others runs for its own limit at most. The sum is a
bound, for one job at a time. It assumes that no new jobs of its priority come, that no hardware fails, and that jobs
which wait are served in their order; docs/forecast.md says more.

The service has one past for all questions, which learns from a snapshot every minute.
"""

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.msgpack import Decoder, encode

from hived.cells.state import GroupState
from hived.cells.topology import BoolArray
from hived.scenario import Scenario, nodes_of, pods_of
from hived.values.errors import HivedError, UserError
from hived.values.specs import OPPORTUNISTIC_PRIORITY, Rules, VirtualClusterSpec
from hived_extender.api.waiting import When
from hived_extender.insight.ended import EndedJobs
from hived_extender.insight.forward import Play, Runner, Scene, Waiter, scene_of
from hived_extender.insight.past import LEAST_ENDS, Corrector, Curves, Past, Raw
from hived_extender.insight.snapshot import Snapshot, WaitingEntry, take
from hived_extender.insight.store import Store
from hived_extender.jobs.progress import MOST_S, write_time
from hived_extender.machine.apart import compute_apart
from hived_extender.machine.service import Service

MOST_ASKS = 200
"""Questions to the core for one bound; beyond that, it is asked less often, and the bound is later."""

SCHEDULING_S = 60.0
"""For kube-scheduler to ask again once there is room, and to bind."""


def bound_of(scene: Scene, number: int, spare: Scenario | None = None) -> float:
    """Seconds from now by which a waiting job starts at the latest; infinite if the declared limits do not say, or add
    up to more than MOST_S.

    `spare` is the scenario of an earlier play that is over. Cost: a copy of the state, and a deletion for each pod.
    """
    waiter = scene.waiters[number]
    grace_s = _most_grace_s(scene)
    is_free = grace_s == math.inf  # nobody counts on evictions
    rivals_s = _rivals_s(scene, number, grace_s)
    if not waiter.is_asked or rivals_s >= MOST_S:
        return math.inf
    is_alone = _is_alone(scene, waiter)
    limited = sorted(
        (runner.left_s, index)
        for index, runner in enumerate(scene.runners)
        if runner.left_s is not None
        and (not is_alone or runner.vc == waiter.entry.vc or (is_free and runner.is_opportunistic))
    )
    after = Scenario.copied(scene.state, scene.at, spare)
    reserving = (group.name for group in after.state.groups.values() if group.state is GroupState.PREEMPTING)
    after.leave(pods_of(after.state, reserving))
    opened = nodes_of(after.state, ())
    stride = max(len(limited) // MOST_ASKS, 1)
    grace_s = 0.0 if is_free else grace_s
    if _has_place(after, waiter, opened, is_free=is_free):
        return _within_reason(rivals_s + grace_s + SCHEDULING_S)
    for count, (left_s, index) in enumerate(limited, 1):
        groups = scene.runners[index].groups
        opened |= nodes_of(after.state, groups)
        after.leave(pods_of(after.state, groups))
        is_due = count % stride == 0 or count == len(limited)
        if is_due and _has_place(after, waiter, opened, is_free=is_free):
            return _within_reason(left_s + rivals_s + grace_s + SCHEDULING_S)
    return math.inf


def _within_reason(seconds: float) -> float:
    return seconds if seconds < MOST_S else math.inf


def _rivals_s(scene: Scene, number: int, grace_s: float) -> float:
    """Seconds for which waiting jobs that may get cells before this one have them, one after the other."""
    is_alone = _is_alone(scene, scene.waiters[number])
    return sum(
        math.inf if rival.entry.limit_s is None else rival.entry.limit_s + grace_s
        for other, rival in enumerate(scene.waiters)
        if _may_come_first(scene, number, other, is_alone=is_alone, is_free=grace_s == math.inf)
    )


def _may_come_first(scene: Scene, number: int, other: int, *, is_alone: bool, is_free: bool) -> bool:
    """May another waiting job get cells that this one needs, and keep them from it?

    Later ones of its own kind come after it. Jobs that it may evict do not keep cells from it by better rules. By the
    reference's rules guaranteed ones may, as it looks at one placement only (rule 18.5); opportunistic ones have no
    part in this placement, unless the job could not use some nodes even if they were empty. All may where the job has
    to find a place that `is_free`, without evictions.
    """
    waiter, rival = scene.waiters[number], scene.waiters[other]
    if other == number or (rival.kind == waiter.kind and other > number):
        return False
    if waiter.is_opportunistic or (is_free and rival.is_opportunistic):
        return True
    is_own = rival.entry.vc == waiter.entry.vc
    is_lower = rival.is_opportunistic or (is_own and rival.entry.priority < waiter.entry.priority)
    if is_lower and not is_free and scene.state.spec.rules is Rules.BETTER:
        return False
    if rival.is_opportunistic and not is_free and not waiter.is_restricted:
        return False
    return not is_alone or is_own


def _is_alone(scene: Scene, waiter: Waiter) -> bool:
    """Does VC safety keep other virtual clusters out of the job's way? It does where every node is healthy and offered,
    for jobs with cells of one virtual cell.
    """
    own = scene.state.spec.virtual_clusters.get(waiter.entry.vc, VirtualClusterSpec(waiter.entry.vc))
    return scene.is_whole and not waiter.is_opportunistic and not waiter.is_restricted and not own.combines


def _most_grace_s(scene: Scene) -> float:
    """Return how long an eviction takes at the most; infinite if unknown of a job that a waiting one may evict."""
    highest: dict[str, int] = {}
    for waiter in scene.waiters:
        highest[waiter.entry.vc] = max(highest.get(waiter.entry.vc, waiter.entry.priority), waiter.entry.priority)
    is_any = any(priority > OPPORTUNISTIC_PRIORITY for priority in highest.values())
    return max((_eviction_s(runner, highest, is_any=is_any) for runner in scene.runners), default=0.0)


def _eviction_s(runner: Runner, highest: Mapping[str, int], *, is_any: bool) -> float:
    """The same of one job, given the highest priority that waits in each virtual cluster."""
    may_be_evicted = is_any if runner.is_opportunistic else highest.get(runner.vc, runner.priority) > runner.priority
    return max(runner.gone_s, runner.grace_s) if may_be_evicted else runner.grace_s


def _has_place(after: Scenario, waiter: Waiter, opened: BoolArray, *, is_free: bool) -> bool:
    try:
        return waiter.has_place(after, waiter.asked(opened, keeps_rules=True), is_free=is_free)
    except UserError:
        return False


PLAYS = 20
"""Futures that are played for one job."""

PLAYS_OF_ALL = 10
"""Futures that are played for a list of all jobs."""

MOST_BOUNDS = 50
"""Jobs of a list for which a bound is worked out; others may be estimated."""

STAYING = (
    "others have to leave first, and it is not known when they do: "
    "a disruption budget, an error or a bad node may keep them"
)

UNLESS = "a newer job takes its cells first"
"""Not covered by declared limits: nothing is held for a job that waits by itself."""

LIKELY, BY = 0.5, 0.9
SEED = 19


def forecast_of(snapshot: Snapshot, entry: WaitingEntry, past: Past) -> When:
    """Return when a waiting job of the snapshot starts. Cost: PLAYS plays, each until the job has started."""
    scene = scene_of(snapshot)
    number = scene.number(entry)
    (raw,) = play(scene, past.durations.at(ages(scene)), PLAYS, target=number)
    return _when(scene, number, raw, past, past.corrector(scene.at))


def forecast_all(snapshot: Snapshot, past: Past) -> dict[str, When]:
    """Return when each waiting job starts, by name. Cost: PLAYS_OF_ALL plays to their ends."""
    scene = scene_of(snapshot)
    return forecasts_from(scene, play(scene, past.durations.at(ages(scene)), PLAYS_OF_ALL), past)


def forecasts_from(scene: Scene, found: Sequence[Raw], past: Past) -> dict[str, When]:
    """The forecasts of all waiting jobs as people see them, by name."""
    corrector = past.corrector(scene.at)
    return {
        waiter.entry.name: _when(scene, number, found[number], past, corrector)
        for number, waiter in enumerate(scene.waiters)
    }


def ages(scene: Scene) -> list[tuple[str, int, float]]:
    """Virtual cluster, leaf cells and age of the jobs that run, for the curves."""
    return [(runner.vc, runner.leaves, runner.age_s) for runner in scene.runners]


def play(
    scene: Scene, curves: Curves, count: int, target: int | None = None, bounded: Collection[int] | None = None
) -> list[Raw]:
    """The forecasts of all waiting jobs, or of `target` alone, from so many plays.

    `bounded` are the jobs whose bounds are worked out; by default the first MOST_BOUNDS that may have one.
    """
    wanted = range(len(scene.waiters)) if target is None else [target]
    draws = _draws(count, len(scene.runners) + len(scene.waiters))
    spare: Scenario | None = None
    starts: list[list[float]] = []
    reserved: Sequence[float | None] = []
    for own in draws:
        one = Play(scene, _ends(scene, curves, own), _lengths(scene, curves, own[len(scene.runners) :]), spare)
        one.run(target)
        starts.append([one.starts[number] for number in wanted])
        reserved, spare = [one.reserved_s[number] for number in wanted], one.scenario
        if target is not None and (one.starts[target] == 0 or reserved[0] is not None):
            break  # that is so in each play
    bound_count = 0
    found = []
    for place, number in enumerate(wanted):
        own_starts = sorted(each[place] for each in starts)
        raw = Raw(
            likely_s=own_starts[math.ceil(len(own_starts) * LIKELY) - 1],
            by_s=own_starts[math.ceil(len(own_starts) * BY) - 1],
            reserved_s=reserved[place],
            is_now=own_starts[-1] == 0,
        )
        is_wanted = bound_count < MOST_BOUNDS if bounded is None else number in bounded
        if is_wanted and not raw.is_now and raw.reserved_s in (None, math.inf) and _has_limits(scene, number, raw):
            bound_count += 1
            raw = msgspec.structs.replace(raw, bound_s=bound_of(scene, number, spare))
        found.append(raw)
    return found


def _has_limits(scene: Scene, number: int, raw: Raw) -> bool:
    """Has any running job declared a limit that may bound this job's wait?"""
    vc = scene.waiters[number].entry.vc
    is_any = scene.waiters[number].is_opportunistic or raw.reserved_s is not None
    return any(runner.left_s is not None and (is_any or runner.vc == vc) for runner in scene.runners)


def _draws(count: int, width: int) -> npt.NDArray[np.float64]:
    """Uniform draws in (0, 1), a row for each play; a column has one in each of `count` equal parts."""
    random = np.random.RandomState(SEED)  # its numbers are the same in every version of numpy
    order = random.random_sample((count, width)).argsort(axis=0, kind="stable")
    return (order + random.random_sample((count, width))) / count


def _ends(scene: Scene, curves: Curves, draws: npt.NDArray[np.float64]) -> list[float]:
    found = []
    for runner, draw in zip(scene.runners, draws.tolist(), strict=False):
        curve = curves.of(runner.vc, runner.leaves)
        drawn = math.inf if curve is None else curve.remaining(runner.age_s, draw)
        if runner.is_leaving:
            drawn = runner.grace_s
        found.append(drawn if runner.left_s is None else min(drawn, runner.left_s))
    return found


def _lengths(scene: Scene, curves: Curves, draws: npt.NDArray[np.float64]) -> list[float]:
    found = []
    for waiter, draw in zip(scene.waiters, draws.tolist(), strict=True):
        curve = curves.of(waiter.entry.vc, waiter.leaves)
        drawn = math.inf if curve is None else curve.remaining(0.0, draw)
        found.append(drawn if waiter.entry.limit_s is None else min(drawn, waiter.entry.limit_s))
    return found


def _when(scene: Scene, number: int, raw: Raw, past: Past, corrector: Corrector) -> When:
    entry, at = scene.waiters[number].entry, scene.at
    position = _position(scene, number) if entry.vc else 0
    if not scene.waiters[number].is_asked:
        return When(kind="unknown", because=entry.refusal or "it cannot be asked for yet", position=position)
    if raw.is_now:
        return When(kind="now", by=_moment(at), position=position)
    if raw.reserved_s is not None and raw.reserved_s < MOST_S:
        return When(kind="certain", by=_moment(at + raw.reserved_s), position=position)
    factors = corrector.of(entry.vc, scene.waiters[number].is_opportunistic)
    likely_s, by_s = factors.corrected(raw.likely_s, raw.by_s)
    if raw.bound_s < MOST_S:
        likely = _moment(at + likely_s) if likely_s < raw.bound_s else ""
        return When(kind="bounded", by=_moment(at + raw.bound_s), likely=likely, unless=UNLESS, position=position)
    if raw.reserved_s is not None:
        return When(kind="unknown", because=STAYING, position=position)
    if by_s < MOST_S:  # later is as good as never
        return When(kind="estimated", by=_moment(at + by_s), likely=_moment(at + likely_s), position=position)
    return When(kind="unknown", because=_why_unknown(entry, past), position=position)


def _why_unknown(entry: WaitingEntry, past: Past) -> str:
    count = past.durations.at(()).count(entry.vc)
    if count < LEAST_ENDS:
        known = f"{count} of its jobs {'has' if count == 1 else 'have'} ended so far"
        return f"virtual cluster {entry.vc} has no history of durations yet: {known}, {LEAST_ENDS} are needed"
    return "it did not start in enough of the futures that were played: too many come first, or hold its cells"


def _position(scene: Scene, number: int) -> int:
    """Place among the waiting jobs of the virtual cluster that ask for cells as this one does."""
    own = scene.waiters[number]
    is_alike = [
        each.entry.vc == own.entry.vc and (each.entry.priority <= OPPORTUNISTIC_PRIORITY) == own.is_opportunistic
        for each in scene.waiters[: number + 1]
    ]
    return sum(is_alike)


def _moment(at: float) -> str:
    """RFC 3339 in UTC, the next whole second."""
    return write_time(math.ceil(round(at, 3)))


log = logging.getLogger(__name__)

MEDIAN, LATE = 0.5, 0.9

EVERY_S = 60.0
"""Between two looks: how exactly durations are known."""

_WHEN, _WHENS, _RAWS = Decoder(When), Decoder(dict[str, When]), Decoder(list[Raw])


class Forecaster:
    """Forecasts for a running service. Thread-safe.

    Works outside the lock of the service but for the snapshots. A replica that does not lead learns nothing; one that
    begins to lead goes on with what a former leader has written to the file. Futures are played in a process of its
    own, which has the past as it was when the process was made. So a question waits for no other one.
    """

    def __init__(self, service: Service, store: Store | None = None, ended: EndedJobs | None = None) -> None:
        """Without a store everything is forgotten at the end of the process. `ended` learns from each look too."""
        self._service, self._store = service, store
        self._ended = ended or EndedJobs()
        self._lock = threading.RLock()  # of the past and the last list; not held during a play
        self._playing = threading.Lock()  # one list at a time; taken before the other one
        self._past: Past | None = None
        self._all: tuple[Snapshot, dict[str, When]] | None = None
        self._curves: Curves | None = None  # as of the last look
        self._has_failed = False
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="forecasting", daemon=True)

    def start(self) -> None:
        """Learn from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Learn nothing any more. The ledger notes the jobs that run now, for the next process."""
        self._is_stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
            with suppress(HivedError):
                self._ended.look(take(self._service))

    def of(self, snapshot: Snapshot, entry: WaitingEntry) -> When:
        """Return when a waiting job of the snapshot starts; see `forecast_of`.

        The forecast of all is used if there is one.
        """
        known = self._all
        if known is not None and known[0] is snapshot and entry.name in known[1]:
            return known[1][entry.name]
        return _WHEN.decode(self._apart(lambda: encode(forecast_of(snapshot, entry, self._known())), snapshot.lock))

    def all(self, snapshot: Snapshot) -> dict[str, When]:
        """Return when each waiting job starts, by name; worked out once for a snapshot. See `forecast_all`."""
        with self._playing:
            known = self._all
            if known is None or known[0] is not snapshot:
                found = self._apart(lambda: encode(forecast_all(snapshot, self._known())), snapshot.lock)
                self._all = known = snapshot, _WHENS.decode(found)
            return known[1]

    def left_s(self, vc: str, leaves: int, ran_s: float) -> tuple[float, float] | None:
        """Return how many seconds more a job runs that has had so many leaf cells for `ran_s`: median and 90th
        percentile.

        None if too few jobs of its virtual cluster have ended, or before the first look of a term. Takes no lock: it is
        asked with that of the service. Cost O(log n).
        """
        curves = self._curves
        curve = None if curves is None else curves.of(vc, leaves)
        return None if curve is None else (curve.remaining(ran_s, MEDIAN), curve.remaining(ran_s, LATE))

    def look(self) -> None:
        """Learn from the service as it is now, if this replica leads, and note forecasts to be judged later."""
        if not self._service.is_ready:
            with self._lock:
                self._past = self._curves = None  # another replica writes the file now
                if self._store is not None:
                    self._store.release()
            self._ended.forget()
            return
        snapshot = take(self._service)
        self._ended.look(snapshot)
        scene = scene_of(snapshot)
        with self._lock:
            past = self._known()
            past.look(scene, self._service.runner.clock_s)
            self._curves = past.durations.at(ages(scene))
            names = [waiter.entry.name for waiter in scene.waiters]
            wanted = [number for number, name in enumerate(names) if past.wants_forecast(name, scene.at)]
        if not wanted:
            return
        played = self._apart(lambda: encode(play(scene, past.durations.at(ages(scene)), PLAYS_OF_ALL)), nullcontext())
        found = _RAWS.decode(played)
        with self._lock:
            self._all = snapshot, forecasts_from(scene, found, past)
            for number in wanted:
                past.note(scene.waiters[number], scene.at, found[number])

    def _apart(self, compute: Callable[[], bytes], lock: AbstractContextManager[object]) -> bytes:
        """See `compute_apart`. Both locks are held while the process is made, but not until its result is there."""
        return compute_apart(compute, self._held_with(lock))

    @contextmanager
    def _held_with(self, lock: AbstractContextManager[object]) -> Iterator[None]:
        with lock, self._lock:
            self._known()  # reads the file, which the other process must not
            yield

    def _known(self) -> Past:
        if self._past is None:
            self._past = Past(self._store)
        return self._past

    def _follow(self) -> None:
        while not self._is_stopping.wait(EVERY_S):
            try:
                self.look()
                self._has_failed = False
            except HivedError:  # the term has ended meanwhile, or the service has stopped and said so
                pass
            except Exception:
                if not self._has_failed:
                    log.critical("a forecast has failed, and others are tried", exc_info=True)
                self._has_failed = True
