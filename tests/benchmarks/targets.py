"""The goals at each size. Timings decide no test: a target that is missed is named, nothing fails."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.benchmarks.figures import Summary

Sizes = Mapping[int, Mapping[str, Summary]]
"""Node count -> key of a row -> figures."""

Limits = dict[int, tuple[float, ...]]
"""Node count -> one number for each part of a row."""


@dataclass(frozen=True, slots=True)
class Target:
    """A row of the table with its limits; `keys` are the rows that each have to keep them.

    `ratios` are limits by size for the first part, as a multiple of the reference's figure, where there is one.
    """

    title: str
    keys: tuple[str, ...]
    parts: tuple[str, ...]
    limits: Limits
    ratios: dict[int, float] = field(default_factory=dict)

    def figures(self, sizes: Sizes, count: int) -> tuple[float, ...]:
        """The worst of the rows at one size, one figure for each part; empty if a row is missing."""
        rows = [sizes[count].get(key) for key in self.keys]
        if None in rows:
            return ()
        return tuple(max(row[part] for row in rows if row is not None) for part in self.parts)

    def is_missed(self, sizes: Sizes, count: int) -> bool:
        """Is any figure above its limit?"""
        figures = self.figures(sizes, count)
        return bool(figures) and any(a > b for a, b in zip(figures, self.limits.get(count, figures), strict=True))

    def ratio(self, sizes: Sizes, reference: Sizes, count: int) -> float | None:
        """Our first part as a multiple of the reference's; None if either is missing."""
        ours = self.figures(sizes, count)
        theirs = self.figures(reference, count) if count in reference else ()
        return ours[0] / theirs[0] if ours and theirs else None


def missed(sizes: Sizes) -> Iterator[tuple[Target, int]]:
    """The targets that are missed, with the size."""
    for target in TARGETS:
        for count in sorted(sizes):
            if target.is_missed(sizes, count):
                yield target, count


def missed_ratios(sizes: Sizes, reference: Sizes) -> Iterator[tuple[Target, int, float]]:
    """The targets of which we take too many times what the reference takes, with the size and the ratio."""
    for target in TARGETS:
        for count in sorted(target.ratios.keys() & sizes.keys()):
            ratio = target.ratio(sizes, reference, count)
            if ratio is not None and ratio > target.ratios[count]:
                yield target, count, ratio


def unmeasured(sizes: Sizes) -> Iterator[tuple[Target, int]]:
    """The targets for a size that was measured, but without the figure."""
    for target in TARGETS:
        for count in sorted(target.limits.keys() & sizes.keys()):
            if not target.figures(sizes, count):
                yield target, count


def _limits(*numbers: float | tuple[float, ...] | None) -> Limits:
    """One for each of the four sizes, None where there is nothing to compare with."""
    return {
        count: number if isinstance(number, tuple) else (number,)
        for count, number in zip((128, 1024, 4096, 16384), numbers, strict=True) if number is not None
    }  # fmt: skip


EXPLAINED_WAYS = ("", ", offered", ", offered, bad")
"""Of keys: every node offered, half of them, the same with bad nodes."""

_P50, _P99, _BOTH, _MAX, _VALUE = ("p50",), ("p99",), ("p50", "p99"), ("max",), ("value",)

TARGETS = (
    Target("first start, kernels not compiled yet, to answering filter calls, s", ("process/first",), _VALUE,
           _limits(3, None, None, None)),
    Target("process start to ready, all nodes added, s", ("process/total",), _VALUE, _limits(1.0, 1.2, 1.6, 3)),
    Target("  of that on a processor, s", ("process/cpu",), _VALUE, _limits(0.6, None, None, 1.2)),
    Target("any pod, annotations read and written, ms", ("load/any, annotated",), _P50,
           _limits(0.10, None, None, None)),
    Target("  a spec in YAML, times one in JSON", ("load/YAML times JSON",), _VALUE, _limits(10, 10, 10, 10)),
    Target("schedule + allocate one pod, mixed load, ms p50/p99", ("load/any",), _BOTH,
           _limits((0.10, 0.5), (0.10, 0.7), (0.12, 1), (0.15, 1.0))),
    Target("1-GPU pod, ms", ("load/1x1", "half/1x1"), _P50, _limits(0.08, 0.08, 0.09, 0.10)),
    Target("first pod of 128x8, ms", ("half/first of 128x8",), _P50, _limits(None, 8, 12, 20)),
    Target("a later pod of 128x8, ms", ("half/later of 128x8",), _P50, _limits(None, 0.1, 0.1, 0.1)),
    Target("node bad, then healthy, each, ms",
           ("half/node down", "half/node up", "full/node down", "full/node up"), _P50,
           _limits(0.02, 0.02, 0.02, 0.02)),
    Target("explanation of a wait, beyond its refusal, ms",
           tuple(f"explain/{kind}{way}" for kind in ("1x1", "1x8", "128x8") for way in EXPLAINED_WAYS),
           _P50, _limits(5, 5, 5, 5)),
    Target("copy of the state, ms", ("copy/new", "copy/again"), _P50, _limits(10, 10, 10, 10)),
    Target("HTTP filter that binds, keep-alive, ms p50/p99", ("web/filter",), _BOTH,
           _limits((0.30, 1), (0.32, 1), (0.36, 1.5), (0.50, 2)), {128: 0.8}),
    Target("  times the same server answering an empty 200", ("web/filter times empty",), _VALUE,
           _limits(3, None, None, None)),
    Target("  the node list is another than the last, ms", ("web/filter other list",), _P50,
           _limits(None, None, None, 1.0)),
    Target("  32 connections that open at once, ms p99", ("web/crowded",), _P99, _limits(None, 25, None, None)),
    Target("  longest while the status of all cells is read in a loop, ms", ("web/filter beside status",), _MAX,
           _limits(5, 8, 12, 15)),
    Target("  the same, ms p99", ("web/filter beside status",), _P99, _limits(None, None, None, 8)),
    Target("  p99 while twenty pages are open, times the one without", ("watched/filter times alone",), _VALUE,
           _limits(None, None, None, 1.1)),
    Target("why a job waits, what helps, and when it starts, ms", ("watched/why",), _P50,
           _limits(None, None, None, 300)),
    Target("status of all cells while filters run, ms", ("web/status",), _P50, _limits(None, None, None, 1500)),
    Target("replay of all bound pods, every GPU used, s", ("web/recovery",), _VALUE, _limits(None, None, None, 3)),
    Target("longest filter while another configuration comes into force, ms",
           ("switch/8-GPU filter", "switch/1-GPU filter"), _MAX, _limits(50, 50, None, None)),
    Target("resident memory, ready, MB", ("web/memory ready",), _VALUE, _limits(85, None, None, None)),
    Target("resident memory, every GPU used, MB", ("web/memory full",), _VALUE, _limits(200, 220, 280, 280)),
)  # fmt: skip
