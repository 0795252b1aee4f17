"""When a waiting job starts, and of which kind that moment is (docs/forecast.md).

now, certain: the first round of a play says so, whatever ends when. bounded: `bounds`. estimated: many plays, each with
other ends of the jobs that run, drawn from the past of their virtual clusters; `corrections` makes them hold. Draws are
stratified, so that 20 plays see short and long ends of each job alike, and the same for the same snapshot.
"""

import math
from collections.abc import Collection, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from hived.cells.state import State
from hived.values.specs import OPPORTUNISTIC_PRIORITY
from hived_extender.api.waiting import When
from hived_extender.insight.bounds import bound_of
from hived_extender.insight.corrections import Corrector
from hived_extender.insight.durations import LEAST_ENDS, Curves
from hived_extender.insight.forward import Play
from hived_extender.insight.past import Past, Raw
from hived_extender.insight.scene import Scene, scene_of
from hived_extender.insight.snapshot import Snapshot, WaitingEntry
from hived_extender.pods.declared import MOST_S
from hived_extender.pods.progress import write_time

PLAYS = 20
"""Futures that are played for one job."""

PLAYS_OF_ALL = 10
"""Futures that are played for a list of all jobs."""

MOST_BOUNDS = 50
"""Jobs of a list for which a bound is worked out; others may be estimated."""

STAYING = (
    "others have to leave first, and nobody knows when they do: "
    "a disruption budget, an error or a bad node may keep them"
)

UNLESS = "a newer job takes its cells first"
"""What no declared limit covers: nothing is held for a job that waits by itself."""

LIKELY, BY = 0.5, 0.9
SEED = 19


def forecast_of(snapshot: Snapshot, entry: WaitingEntry, past: Past) -> When:
    """When a waiting job of the snapshot starts. Cost: PLAYS plays, each until the job has started."""
    scene = scene_of(snapshot)
    number = scene.number(entry)
    (raw,) = play(scene, past.durations.at(ages(scene)), PLAYS, target=number)
    return _when(scene, number, raw, past, past.corrector(scene.at))


def forecast_all(snapshot: Snapshot, past: Past) -> dict[str, When]:
    """When each waiting job starts, by name. Cost: PLAYS_OF_ALL plays to their ends."""
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
    spare: State | None = None
    starts: list[list[float]] = []
    reserved: Sequence[float | None] = []
    for own in draws:
        one = Play(scene, _ends(scene, curves, own), _lengths(scene, curves, own[len(scene.runners) :]), spare)
        one.run(target)
        starts.append([one.starts[number] for number in wanted])
        reserved, spare = [one.reserved_s[number] for number in wanted], one.state
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
    """Has anybody declared a limit that may bound this job's wait?"""
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
    position = _position(scene, number)
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
