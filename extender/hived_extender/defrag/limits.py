"""The most that a plan for moves may cost."""

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """Limits of a plan; None for no limit."""

    gpu_hours: float | None = None
    groups: int | None = None
