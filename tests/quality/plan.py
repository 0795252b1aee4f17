"""All measurements: which function with which arguments, at full length and as a test of seconds."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from traceback import format_exc

from hived.specs import Rules
from tests.quality.dozen import DOZEN_KINDS, DOZEN_LOADS, evictions
from tests.quality.exact_measures import NEEDLESS_LOADS, WAIT_LOADS, Figures, false_waits, needless
from tests.quality.jobs import PHILLY
from tests.quality.large_measures import DEFAULT, MIXED, SPARING, TOPOLOGY, WITHIN, crowd, guarantee, trace_crowd
from tests.quality.lending import lending
from tests.quality.philly_measures import DAYS, philly, private_delays, trace
from tests.quality.small import KINDS, PINNED

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
