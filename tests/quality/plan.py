"""All measurements with their arguments, at full length and as a test of seconds, and the bounds of rules 2."""

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from traceback import format_exc

from hived.values.specs import Rules
from tests.quality.dozen import DOZEN_KINDS, DOZEN_LOADS, evictions
from tests.quality.large import PHILLY
from tests.quality.large_measures import (
    DAYS,
    DEFAULT,
    MIXED,
    SPARING,
    TOPOLOGY,
    WITHIN,
    crowd,
    guarantee,
    philly,
    private_delays,
    trace,
    trace_crowd,
)
from tests.quality.lending import lending
from tests.quality.small import KINDS, NEEDLESS_LOADS, PINNED, WAIT_LOADS, Figures, false_waits, needless

TABLES = ("guarantee", "needless", "locality", "fragmentation", "completeness", "saturation", "lending")
MEASURES: dict[str, Callable[..., Figures]] = {
    "guarantee": guarantee, "crowd": crowd, "philly": philly, "needless": needless, "false_waits": false_waits,
    "evictions": evictions, "lending": lending,
    "trace": trace, "trace_crowd": trace_crowd, "private_delays": private_delays,
}  # fmt: skip
SATURATED_DAYS = 3.5  # arrivals of Philly pressed into these are a load of 1.1
CHECKPOINT_S = 1800.0
SIGMA, DRAWS = 0.2, 16  # of other durations of Philly's jobs
TRACE_LOADS = (0.9, 1.1, 2.5)
CRASHED: Figures = {"crashed": 1}


@dataclass(frozen=True, slots=True)
class Unit:
    """One measurement, which several tables may show: `arguments` follow the rules."""

    measure: str
    rules: Rules
    arguments: tuple[bool | int | float | str, ...]
    tables: frozenset[str]

    def run(self) -> Figures:
        """Measure. An error of the core is a finding: its trace goes to stderr, and the figures are `CRASHED`."""
        try:
            return MEASURES[self.measure](self.rules, *self.arguments)
        except Exception:
            print(f"{self.name}\n{format_exc()}", file=sys.stderr, flush=True)
            return CRASHED

    @property
    def name(self) -> str:
        """The measurement as progress shows it."""
        return f"{self.measure} {self.rules.name.lower()} {' '.join(map(str, self.arguments))}"


def units(rules: tuple[Rules, ...], tables: tuple[str, ...], quick: bool) -> list[Unit]:
    """All measurements of these tables, in the order in which they are shown."""
    return [unit for each in rules for unit in _units(each, quick) if unit.tables.intersection(tables)]


def _units(rules: Rules, quick: bool) -> Iterator[Unit]:
    def unit(measure: str, tables: str, *arguments: bool | float | str) -> Unit:
        return Unit(measure, rules, arguments, frozenset(tables.split()))

    jobs = 40 if quick else 1500
    for cells in "R" if quick else "NRP":
        for way in (DEFAULT, TOPOLOGY):
            for share, bad in ((0.0, False), (0.2, False), (0.5, False), (0.3, True)):
                if not quick or share == 0.3:
                    for seed in (1, 2, 3) if bad and not quick else (1,):
                        yield unit("guarantee", "guarantee", cells, way, share, bad, jobs, seed)
        if not quick:
            yield unit("guarantee", "guarantee", cells, MIXED, 0.5, False, jobs, 1)
        if rules is Rules.BETTER and not quick:
            yield unit("guarantee", "guarantee", cells, SPARING, 0.5, False, jobs, 1)
    if PHILLY.exists() and not quick:
        yield unit("philly", "guarantee fragmentation", "N", False, False, 0.0, DAYS)
        yield unit("private_delays", "fragmentation", SIGMA, DRAWS)
        yield unit("philly", "guarantee", "R", False, False, 0.0, DAYS)
        yield unit("philly", "guarantee", "R", True, False, 0.0, DAYS)
        for days in (DAYS, SATURATED_DAYS):
            for checkpoint_s in (0.0, CHECKPOINT_S):
                yield unit("philly", "guarantee saturation", "N", False, True, checkpoint_s, days)
        for checkpoint_s in (0.0, CHECKPOINT_S):
            yield unit("philly", "guarantee saturation", "R", False, True, checkpoint_s, DAYS)
    for kind in KINDS:
        for name in NEEDLESS_LOADS:
            for spares in (False, True) if rules is Rules.BETTER else (False,):
                yield unit("needless", "needless", kind, name, spares, 0, 40 if quick else 8000)
    for kind in DOZEN_KINDS:
        for name in DOZEN_LOADS:
            yield unit("evictions", "needless", kind, name, 0, 100 if quick else 12_500)
    for cells in "R" if quick else "NRP":
        for load in (0.9,) if quick else (0.3, 0.5, 0.7, 0.9, 1.1):
            for share in (0.2, 0.5):
                yield unit("crowd", "needless locality", cells, DEFAULT, load, share, jobs)
                if rules is Rules.BETTER and load >= 0.9:
                    yield unit("crowd", "needless", cells, SPARING, load, share, jobs)
        for load in (0.9,) if quick else (0.5, 0.9):
            yield unit("crowd", "locality", cells, TOPOLOGY, load, 0.2, jobs)
        for load in (0.9,) if quick else (0.5, 0.7, 0.9, 1.1):
            yield unit("crowd", "needless locality", cells, WITHIN, load, 0.2, jobs)
    for cells in "NR" if quick else "NRP":
        yield unit("lending", "lending", cells, 0.7, 200 if quick else 3000, 1 if quick else 2)
    for kind in (*KINDS, PINNED):
        for name in WAIT_LOADS:
            yield unit("false_waits", "completeness", kind, name, 0, 12 if quick else 2900)


def trace_units(rules: tuple[Rules, ...], tables: tuple[str, ...], path: str) -> list[Unit]:
    """The measurements that a trace in a file can have, at each of TRACE_LOADS."""
    return [unit for each in rules for unit in _trace_units(each, path) if unit.tables.intersection(tables)]


def _trace_units(rules: Rules, path: str) -> Iterator[Unit]:
    def unit(measure: str, tables: str, *arguments: bool | float | str) -> Unit:
        return Unit(measure, rules, (*arguments, path), frozenset(tables.split()))

    for load in TRACE_LOADS:
        yield unit("trace", "guarantee fragmentation", "N", False, False, 0.0, load)
        yield unit("trace", "guarantee", "R", False, False, 0.0, load)
        yield unit("trace", "guarantee", "R", True, False, 0.0, load)
        for checkpoint_s in (0.0, CHECKPOINT_S):
            yield unit("trace", "guarantee saturation", "N", False, True, checkpoint_s, load)
    for cells in "NR":
        for load in TRACE_LOADS:
            yield unit("trace_crowd", "needless locality", cells, DEFAULT, load, 0.5)
            if rules is Rules.BETTER:
                yield unit("trace_crowd", "needless", cells, SPARING, load, 0.5)


MOST_LATER = 0  # jobs that start later than in their private cluster
MOST_NEEDLESS = 0  # preemptions although a placement with the same future for the VC evicts nobody
MOST_NEEDLESS_SPARING = 0  # in sparing VCs, preemptions although any placement of the VC evicts nobody
MOST_FALSE_WAITS = 0
LEAST_NEAR = 0.95  # share of gangs at the lowest common level that is possible
MOST_LOST = 1.0  # GPU-hours lost, as a multiple of the reference's
MOST_EVICTIONS = 5  # of one job from lent cells, which rests longer after each
TRACES, CROWDS = ("philly", "trace"), ("crowd", "trace_crowd")  # measures with the same arguments and figures
Results = list[tuple[Unit, Figures]]


@dataclass(frozen=True, slots=True)
class Miss:
    """A bound that rules 2 miss."""

    table: str
    what: str
    figure: float
    bound: float


def misses(results: Results) -> list[Miss]:
    """All bounds missed by what was measured for rules 2, and crashes of either.

    Lost hours are judged only where both rules were measured.
    """
    crashed = [Miss("crash", unit.name, 1, 0) for unit, figures in results if figures == CRASHED]
    results = [(unit, figures) for unit, figures in results if figures != CRASHED]
    found = crashed + [
        miss for unit, figures in results if unit.rules is Rules.BETTER for miss in _misses(unit, figures)
    ]
    for (name, load), figures in near_by_load(results, Rules.BETTER).items():
        for kind, words in (("", "guaranteed"), ("lent_", "opportunistic")):
            gangs, near = figures.get(f"{kind}gangs", 0), figures.get(f"{kind}near", 0)
            if near < LEAST_NEAR * gangs:
                found.append(Miss("locality", f"{words} gangs, {name}, load {load}", near / gangs, LEAST_NEAR))
    lost: dict[str, dict[Rules, float]] = {}
    for unit, figures in results:
        if load := _load(unit):
            by_rules = lost.setdefault(load, {})
            by_rules[unit.rules] = by_rules.get(unit.rules, 0.0) + figures["lost"]
    for load, by_rules in lost.items():
        if len(by_rules) == len(Rules) and by_rules[Rules.BETTER] > MOST_LOST * by_rules[Rules.HIVED]:
            found.append(Miss("saturation", f"GPU-hours lost, {load}", by_rules[Rules.BETTER], by_rules[Rules.HIVED]))
    return found


def near_by_load(results: Results, rules: Rules) -> dict[tuple[str, str], Figures]:
    """Figures of gangs, added up by set-up and load."""
    found: dict[tuple[str, str], list[Figures]] = {}
    for unit, figures in results:
        if unit.measure in CROWDS and unit.rules is rules:
            cells, way, load, *_ = unit.arguments
            name = f"{cells}, {way}" if way else str(cells)
            name = f"trace {name}" if unit.measure == "trace_crowd" else name
            found.setdefault((name, "<= .5" if float(load) <= 0.5 else ">= .7"), []).append(figures)
    return {key: added(some) for key, some in found.items()}


def added(some: Iterable[Figures]) -> Figures:
    """Figures of several measurements, added up."""
    total: Figures = {}
    for figures in some:
        for name, value in figures.items():
            total[name] = total.get(name, 0) + value
    return total


def _load(unit: Unit) -> str:
    """The load of which GPU-hours lost are added up; "" if they are not judged."""
    match unit.measure, unit.arguments:
        case "crowd", (_, way, load, _, _) if way in (DEFAULT, WITHIN):
            return f"random jobs{f' {way}' if way else ''} at {load}"
        case "trace_crowd", (_, "", load, _, _):
            return f"jobs of the trace at {load}, half opportunistic"
        case "trace", (cells, False, True, checkpoint_s, load, _):
            return f"trace {cells} over quota, load {load}, checkpoints {checkpoint_s:.0f} s"
        case "philly", (cells, False, True, checkpoint_s, days):
            return f"Philly {cells} over quota, {days} days, checkpoints {checkpoint_s:.0f} s"
    return ""


def is_sparing(unit: Unit) -> bool:
    """Do the VCs say `sparing: true`?"""
    match unit.measure, unit.arguments:
        case (("guarantee" | "crowd" | "trace_crowd"), (_, way, *_)):
            return way == SPARING
        case "needless", (_, _, spares, *_):
            return bool(spares)
    return False


def _misses(unit: Unit, figures: Figures) -> Iterator[Miss]:
    # over quota (third argument of TRACES) evicted jobs run again from the start, which no placement can prevent
    # and sparing VCs give up the guarantee for that nobody leaves
    is_judged = unit.measure == "guarantee" or (unit.measure in TRACES and not unit.arguments[2])
    is_judged = is_judged and not is_sparing(unit)
    if is_judged and figures["later"] > MOST_LATER:
        yield Miss("guarantee", unit.name, figures["later"], MOST_LATER)
    if unit.measure in {"needless", "evictions", *CROWDS} and figures.get("equal", 0) > MOST_NEEDLESS:
        yield Miss("needless", unit.name, figures["equal"], MOST_NEEDLESS)
    if is_sparing(unit) and figures.get("any", 0) > MOST_NEEDLESS_SPARING:
        yield Miss("needless", unit.name, figures["any"], MOST_NEEDLESS_SPARING)
    if unit.measure == "false_waits" and figures.get("false", 0) > MOST_FALSE_WAITS:
        yield Miss("completeness", unit.name, figures["false"], MOST_FALSE_WAITS)
    if unit.measure == "lending" and figures["most_evictions"] > MOST_EVICTIONS:
        yield Miss("lending", unit.name, figures["most_evictions"], MOST_EVICTIONS)
