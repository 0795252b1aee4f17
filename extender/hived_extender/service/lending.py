"""Cells lent to jobs of queues, which guaranteed work of no queue may have back: the link between those who ask.

Whoever holds cells for such work asks a `Lender` for the jobs that could leave, and has it call some of them back.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from hived_extender.job_kinds.job import JobRef
from hived_extender.service.stimuli import Claimed, Hold


class Lent(msgspec.Struct, frozen=True):
    """Jobs on borrowed cells.

    `borrowers` are in the order in which they should leave. `leaving` have been told to, for somebody; `claims` get
    their cells once these have left.
    """

    borrowers: tuple[JobRef, ...] = ()
    leaving: tuple[JobRef, ...] = ()
    claims: tuple[Claimed, ...] = ()


class Lender(Protocol):
    """Knows the jobs on borrowed cells. For any thread."""

    def lent(self) -> Lent:
        """As it is now."""

    def call_back(self, hold: Hold, jobs: Sequence[JobRef]) -> None:
        """Have these jobs leave for a hold. Nobody else gets the cells that it needs until it is forgotten."""

    def forget_others(self, keys: Collection[str]) -> None:
        """Only holds of these keys still wait for jobs to leave."""


class NoLender:
    """There are no queues."""

    def lent(self) -> Lent:
        """See `Lender`."""
        return Lent()

    def call_back(self, hold: Hold, jobs: Sequence[JobRef]) -> None:
        """See `Lender`."""

    def forget_others(self, keys: Collection[str]) -> None:
        """See `Lender`."""
