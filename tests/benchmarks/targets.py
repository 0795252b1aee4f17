"""The goals at each size, and the times of HiveD's own implementation in Go.

HiveD was measured with the same workload on the same kind of machine. Timings decide no test: a target that is missed
is named, nothing fails.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.benchmarks.figures import Summary

Sizes = Mapping[int, Mapping[str, Summary]]
"""Node count -> key of a row -> figures."""

Limits = dict[int, tuple[float, ...]]
"""Node count -> one number for each part of a row."""


@dataclass(frozen=True, slots=True)
class Target:
    """A row of the table with its limits; `keys` are the rows that each have to keep them."""

    title: str
    keys: tuple[str, ...]
    parts: tuple[str, ...]
    limits: Limits
    hived: Limits

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


def missed(sizes: Sizes) -> Iterator[tuple[Target, int]]:
    """The targets that are missed, with the size."""
    for target in TARGETS:
        for count in sorted(sizes):
            if target.is_missed(sizes, count):
                yield target, count


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


_P50, _BOTH, _VALUE = ("p50",), ("p50", "p99"), ("value",)

TARGETS = (
    Target("process start to ready, all nodes added, s", ("process/total",), _VALUE,
           _limits(1.0, 1.2, 1.6, 3), _limits(0.2, 0.8, 7.8, 186)),
    Target("schedule + allocate one pod, mixed load, ms p50/p99", ("load/any",), _BOTH,
           _limits((0.10, 0.5), (0.10, 0.7), (0.12, 1), (0.15, 1.0)),
           _limits((0.16, 1.1), (0.59, 8.9), (0.92, 18), (3.3, 117))),
    Target("1-GPU pod, ms", ("load/1x1", "half/1x1"), _P50,
           _limits(0.08, 0.08, 0.09, 0.10), _limits(0.10, 0.21, 0.80, 5.2)),
    Target("first pod of 128x8, ms", ("half/first of 128x8",), _P50,
           _limits(None, 8, 12, 20), _limits(None, 27, 83, 518)),
    Target("a later pod of 128x8, ms", ("half/later of 128x8",), _P50,
           _limits(None, 0.1, 0.1, 0.1), _limits(None, 2.0, 2.3, 3.5)),
    Target("node bad, then healthy, each, ms",
           ("half/node down", "half/node up", "full/node down", "full/node up"), _P50,
           _limits(0.02, 0.02, 0.02, 0.02), _limits(0.01, 0.04, 0.15, 1.6)),
    Target("HTTP filter that binds, keep-alive, ms p50/p99", ("web/filter",), _BOTH,
           _limits((0.30, 1), (0.32, 1), (0.36, 1.5), (0.50, 2)),
           _limits((0.34, 2.9), (0.66, 3.9), (1.26, 7.3), (4.6, 17.8))),
    Target("  the node list is another than the last, ms", ("web/filter other list",), _P50,
           _limits(None, None, None, 1.0), {}),
    Target("  longest while the status of all cells is read in a loop, ms", ("web/filter beside status",), ("max",),
           _limits(5, 8, 12, 15), {}),
    Target("replay of all bound pods, every GPU used, s", ("web/recovery",), _VALUE,
           _limits(None, None, None, 3), _limits(None, None, None, 108)),
    Target("longest filter while another configuration comes into force, ms",
           ("switch/8-GPU filter", "switch/1-GPU filter"), ("max",), _limits(50, 50, None, None), {}),
    Target("resident memory, every GPU used, MB", ("web/memory full",), _VALUE,
           _limits(200, 220, 280, 500), _limits(None, None, None, 1080)),
)  # fmt: skip
