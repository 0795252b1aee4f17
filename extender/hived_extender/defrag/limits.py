"""What a plan for moves may cost."""

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """What a plan may cost at most; None for no limit."""

    gpu_hours: float | None = None
    groups: int | None = None
