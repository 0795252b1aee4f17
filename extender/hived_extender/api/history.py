"""The past of a cluster in numbers: series of samples, as the service keeps them and pages and commands show them."""

from typing import Literal

import msgspec

MetricName = Literal[
    "leaf_cells",
    "leaf_cells_bad",
    "leaf_cells_promised",
    "leaf_cells_used",
    "leaf_cells_short",
    "leaf_cells_borrowed",
    "free_cells",
    "waiting_pods",
    "started_pods",
    "start_delay_seconds",
    "preempted_pods",
    "preempted_gpu_hours",
]
"""All that is sampled; docs/history.md says what each is."""


class Series(msgspec.Struct, frozen=True):
    """Numbers of one metric, one for each entry of `History.times`; null where nothing was sampled.

    `labels` are those of the metric: `vc`, `cause` of waiting pods, `chain` and `level` of free cells.
    """

    metric: MetricName
    labels: dict[str, str]
    values: list[float | None]


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Series between two moments.

    `times` are the beginnings of equal intervals of `step` seconds, in seconds since 1970, ascending. A value is the
    mean of an interval; of pods that started or were preempted, of their delays and GPU-hours it is the sum.
    `is_kept` is false if all is in memory only, and begins anew with the process.
    """

    step: int
    times: list[int]
    series: list[Series] = []
    is_kept: bool = True
