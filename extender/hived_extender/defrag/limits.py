"""Limits of the cost of a plan for moves."""

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """The most that a plan may cost; None for no limit."""

    gpu_hours: float | None = None
    groups: int | None = None
