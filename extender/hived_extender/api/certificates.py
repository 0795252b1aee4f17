"""The certificate of a configuration: the effect that a replayed trace says it has, and the verdict on that.

The author of a push makes it. The service checks that it is about the configuration in force and the pushed one.
The verdict is not in it: each reader makes it of the figures.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from hived_config.words import counted

PERCENT = 10.0
"""The growth of a mean delay that is allowed by default."""

SLIGHT_S = 1.0
"""A mean delay that grows by less has not grown: a percentage of next to nothing says nothing."""

SIZE_LIMIT = 32 * 1024
"""Bytes of a certificate in JSON. It is kept with its version."""

REPORTED = 200
"""Virtual clusters that a certificate lists, the worst first."""


class CertifiedTrace(msgspec.Struct, frozen=True, rename="camel"):
    """The jobs that were replayed.

    Attributes
    ----------
    name : of the file, or of the record
    sha256 : of the file's bytes; of a record, that of its jobs as JSON
    jobs : how many
    days : so many of the last days of a record were asked for; 0 for a file
    first, last : the times of the first and the last submission (RFC 3339, UTC), "" if the trace tells no dates
    """

    name: str
    sha256: str
    jobs: int
    days: float = 0.0
    first: str = ""
    last: str = ""


class CertifiedVc(msgspec.Struct, frozen=True, rename="camel"):
    """The guaranteed jobs of one virtual cluster.

    Attributes
    ----------
    jobs : how many
    old_delay_s, new_delay_s : mean seconds from submission to start under the configuration in force and under the
        new one; a job that starts under one of them only has waited to the end of the replay under the other
    later, later_max_s : jobs that start later than in a private cluster of exactly the new cells, and by how much at
        most
    lost : jobs that start under the configuration in force, or in the private cluster, and never under the new one
    """

    vc: str
    jobs: int
    old_delay_s: float
    new_delay_s: float
    later: int = 0
    later_max_s: float = 0.0
    lost: int = 0


class Certificate(msgspec.Struct, frozen=True, rename="camel"):
    """The replay of a trace under two configurations.

    Attributes
    ----------
    old_sha256, new_sha256 : of the texts of the configuration in force and of the new one
    version : of hived, which has simulated
    seed : of all that is drawn
    percent : by how much a mean delay may grow
    has_backfill : whether later jobs of a virtual cluster passed those without room
    vcs : the virtual clusters with guaranteed jobs, the worst first; at most REPORTED
    vc_count : how many there are
    """

    trace: CertifiedTrace
    old_sha256: str
    new_sha256: str
    version: str
    seed: int = 0
    percent: float = PERCENT
    has_backfill: bool = False
    vcs: tuple[CertifiedVc, ...] = ()
    vc_count: int = 0

    def failures(self, percent: float | None = None) -> list[str]:
        """The broken promises in words (rule 33.4), one for each virtual cluster and promise; none if all are kept.

        `percent` is the growth that counts, by default that of the certificate.
        """
        allowed = self.percent if percent is None else percent
        return [text for one in self.vcs for text in _failures_of(one, allowed)]

    @property
    def verdict(self) -> Literal["kept", "broken"]:
        """The verdict on all promises together."""
        return "broken" if self.failures() else "kept"


def by_badness(vcs: Sequence[CertifiedVc], percent: float) -> list[CertifiedVc]:
    """Virtual clusters with broken promises first, then those that have the most jobs."""
    return sorted(vcs, key=lambda one: (not _failures_of(one, percent), -one.jobs, one.vc))


def _failures_of(one: CertifiedVc, percent: float) -> list[str]:
    found = []
    if one.later:
        found.append(
            f"{one.vc}: {counted(one.later, 'guaranteed job')} would have started later than in its own cells, by "
            f"up to {span(one.later_max_s)}"
        )
    if one.lost:
        found.append(f"{one.vc}: {counted(one.lost, 'guaranteed job')} would never have started")
    if one.new_delay_s > one.old_delay_s * (1 + percent / 100) and one.new_delay_s - one.old_delay_s >= SLIGHT_S:
        grown = f" ({one.new_delay_s / one.old_delay_s - 1:+.0%})" if one.old_delay_s >= SLIGHT_S else ""
        found.append(
            f"{one.vc}: the mean delay of its {counted(one.jobs, 'guaranteed job')} would have been "
            f"{span(one.new_delay_s)} instead of {span(one.old_delay_s)}{grown}, and {percent:g} % more is allowed"
        )
    return found


def span(seconds: float) -> str:
    """A number of seconds as people say it, in seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
