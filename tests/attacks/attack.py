"""The parts that every attack shares: its means, and its outcome."""

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

FULL = 1.0

LEAST_TIMED_SCALE = 0.1
"""Latency, memory and CPU are judged from this scale on: below, too little is measured."""

MOST_SHOWN = 20
"""Faults of an attack that are kept with their words."""

UNHURT_MS = 10.0
"""A p99 up to this meets every target, as the attackers themselves use the cores of the service."""

MOST_RATIO = 2.0
"""How much greater the p99 of honest calls may be beside an attack."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Of honest calls, in milliseconds. `failed` had no answer, or a wrong one."""

    p50: float
    p99: float
    count: int
    failed: int = 0
    first_failure: str = ""

    @classmethod
    def of(cls, spent_ms: Sequence[float], failures: Sequence[str] = ()) -> "Latency":
        """From single calls, of which two are needed at least."""
        if len(spent_ms) < 2:
            return cls(0.0, 0.0, len(spent_ms), len(failures), next(iter(failures), ""))
        cuts = statistics.quantiles(spent_ms, n=100, method="inclusive")
        return cls(cuts[49], cuts[98], len(spent_ms), len(failures), next(iter(failures), ""))


@dataclass(slots=True)
class Outcome:
    """The outcome of an attack. `let_in`, `faults` and `missed` are empty where hived stood firm."""

    tried: int = 0
    refused: int = 0
    let_in: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    alone: Latency | None = None
    beside: Latency | None = None
    not_run: str = ""
    seconds: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether the attack succeeded in any way."""
        return bool(self.let_in or self.faults or self.missed)

    @property
    def ratio(self) -> float | None:
        """The p99 beside the attack over the p99 alone."""
        if self.alone is None or self.beside is None or not self.alone.p99:
            return None
        return self.beside.p99 / self.alone.p99

    def fault(self, text: str) -> None:
        """Note a fault; of many, only the first ones with their words."""
        if len(self.faults) < MOST_SHOWN:
            self.faults.append(text)
        elif len(self.faults) == MOST_SHOWN:
            self.faults.append("and more")

    def expect(self, is_met: bool, target: str) -> None:
        """Note a target that is missed."""
        if not is_met:
            self.missed.append(target)

    def judge_latency(self, run: "Run", most_ratio: float = MOST_RATIO) -> None:
        """Note failed honest calls, and a p99 that the attack has raised too much."""
        for when, latency in (("alone", self.alone), ("beside the attack", self.beside)):
            if latency is not None and (latency.failed or not latency.count):
                self.missed.append(f"{latency.failed} honest calls failed {when}: {latency.first_failure}")
        if run.is_timed and self.beside is not None and self.ratio is not None:
            is_met = self.ratio <= most_ratio or self.beside.p99 <= UNHURT_MS
            self.expect(is_met, f"p99 of honest calls is {self.ratio:.1f} times that alone, at most {most_ratio:g}")


@dataclass(frozen=True, slots=True)
class Run:
    """The means of an attack: a seed, a scale, a folder of its own, and how to tell of progress."""

    seed: int
    scale: float
    folder: Path
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True)

    def count(self, full: int, least: int = 1) -> int:
        """So many at full scale; fewer at a lower one."""
        return max(least, round(full * min(self.scale, FULL)))

    def seconds(self, full: float, least: float = 1.0) -> float:
        """The same for a duration."""
        return max(least, full * min(self.scale, FULL))

    @property
    def is_timed(self) -> bool:
        """Whether targets of time and memory count."""
        return self.scale >= LEAST_TIMED_SCALE


@dataclass(frozen=True, slots=True)
class Attack:
    """A line of the table of attacks."""

    name: str
    about: str
    run: Callable[[Run], Outcome]
