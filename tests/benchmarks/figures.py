"""The measured figures, as they travel from the measuring process to the table and to the JSON file."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Summary = dict[str, float]
"""Of samples: p50, p99, max in ms, and their count. Of a single figure: value, in the unit of its row."""


@dataclass(slots=True)
class Figures:
    """Samples in nanoseconds by row, and single values in the unit of their row."""

    samples: dict[str, list[int]] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)

    def summaries(self) -> dict[str, Summary]:
        """By row."""
        singles = {key: {"value": value} for key, value in self.values.items()}
        return singles | {key: summarise(samples) for key, samples in self.samples.items()}


def summarise(samples: Sequence[int]) -> Summary:
    """Nearest-rank percentiles of at least one sample, in ms."""
    ordered = sorted(samples)
    ranks = {"p50": 0.50, "p99": 0.99, "max": 1.0}
    return {
        name: ordered[math.ceil(rank * len(ordered)) - 1] / 1e6 for name, rank in ranks.items()
    } | {"count": len(ordered)}  # fmt: skip


def growth(figures: Mapping[int, float]) -> float | None:
    """The exponent e in figure ~ nodes ** e, least squares on logarithms; None for less than two sizes."""
    points = [(math.log(nodes), math.log(figure)) for nodes, figure in figures.items() if figure > 0]
    if len(points) < 2:
        return None
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return float(sum((x - mean_x) * (y - mean_y) for x, y in points) / spread)
