"""The service itself: its paths, whether it works, and whether it leads."""

import msgspec


class Paths(msgspec.Struct):
    """The list of all paths."""

    paths: list[str]


class Health(msgspec.Struct, omit_defaults=True):
    """`status` is "ok", or "stopped" with the fault after an internal error."""

    status: str
    fault: str = ""


class Readiness(msgspec.Struct, omit_defaults=True):
    """`status` is "ready", "not ready" with the reason, or "stopped". `kernels` says in which way they run."""

    status: str
    reason: str = ""
    kernels: str = ""
