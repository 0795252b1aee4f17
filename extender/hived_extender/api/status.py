"""The state of the whole service, as `hived status` shows it. Moments are RFC 3339 in UTC, "" if unknown."""

from typing import Literal

import msgspec

from hived_extender.api.waiting import BadNode

StandingName = Literal["healthy", "degraded", "not leading", "stopped"]
"""Degraded: it works, and an operator should act on what `warnings` say."""


CertificateUse = Literal["serving", "webhook"]


class FailedPod(msgspec.Struct, frozen=True):
    """A bound pod that runs where the scheduler cannot have it, and why."""

    pod: str
    reason: str


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """The state that this replica found when it began to lead `at` a moment, by a restart or a take-over.

    `bound` pods kept their cells, and `waiting` ones go on waiting. `queued` jobs of queues that an earlier term had
    started still have their cells, or have them held again. `failed` are pods that run now without being accounted for,
    the first of them; `failed_count` counts all.
    """

    at: str
    bound: int
    waiting: int
    queued: int = 0
    failed: list[FailedPod] = []
    failed_count: int = 0


class ShortPromise(msgspec.Struct, frozen=True, kw_only=True):
    """So many leaf cells that a virtual cluster is promised cannot be had now, because of these nodes."""

    vc: str
    cells: int
    nodes: list[BadNode] = []


class ServedCertificate(msgspec.Struct, frozen=True):
    """A certificate that this replica shows to clients, and until when it is valid."""

    use: CertificateUse
    file: str
    until: str


class HistoryFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file of the history, "" if all is in memory; `wanted` is the one of the configuration."""

    file: str = ""
    wanted: str = ""
    bytes: int = 0


class JobTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs by state now, and those that ended within 24 hours by state."""

    now: dict[str, int] = {}
    ended: dict[str, int] = {}


class QueueTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of all queues together; `is_enabled` is false where the configuration has none. Held ones do not wait."""

    is_enabled: bool = False
    queues: int = 0
    waiting: int = 0
    running: int = 0
    borrowed: int = 0


class Notice(msgspec.Struct, frozen=True):
    """Something on which an operator should act, and how."""

    text: str
    remedy: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the replica that answers. One that does not lead has what it knows, and `standing` says why.

    `leads_since` is when its term began, `started` when its process did. `shared` are promises that can each be kept,
    but not all together. `kubernetes` is the version of the API server.
    """

    state: StandingName
    standing: str = ""
    replica: str = ""
    leads_since: str = ""
    started: str = ""
    version: str = ""
    config_version: int = 0
    rules: Literal["hived", 2] = "hived"
    kubernetes: str = ""
    kernels: str = ""
    nodes: int = 0
    bad_nodes: int = 0
    recovered: Recovered | None = None
    short: list[ShortPromise] = []
    shared: list[str] = []
    certificates: list[ServedCertificate] = []
    history: HistoryFile = HistoryFile()
    jobs: JobTotals = JobTotals()
    queues: QueueTotals = QueueTotals()
    warnings: list[Notice] = []
