"""The configuration in force, earlier versions, plans and pushes, as the paths below /v1/config have them."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from hived_config.changes import Changes
from hived_config.words import counted
from hived_extender.api.certificates import Certificate


class ConfigPlanArgs(msgspec.Struct):
    """config/plan: the text to try, which messages call `file`."""

    text: str
    file: str = "the configuration"


class ConfigPushArgs(msgspec.Struct, frozen=True, rename="camel"):
    """config: put this text in force.

    `baseVersion` is the version that it was made from, 0 for whichever is in force. `agreed` has the accepted verdict
    of each affinity group, by its name, in the words of a plan; `who` counts only where callers are not known. With
    `allowDowngrade` running guaranteed work may lose its guarantee; `clusterId` is "" for whichever cluster answers.
    `certificate` is of this text and the one in force.
    """

    text: str
    file: str = "the configuration"
    message: str = ""
    who: str = ""
    base_version: int = 0
    agreed: dict[str, str] = {}
    allow_downgrade: bool = False
    cluster_id: str = ""
    certificate: Certificate | None = None


class VersionEntry(msgspec.Struct, kw_only=True):
    """A version of the configuration: when it was pushed (RFC 3339, UTC), by whom, why and with which certificate."""

    version: int
    when: str = ""
    who: str = ""
    why: str = ""
    sha256: str = ""
    certificate: Certificate | None = None


class VersionList(msgspec.Struct):
    """The versions that are kept, the newest first."""

    items: list[VersionEntry]


class ConfigVersion(VersionEntry, kw_only=True):
    """A version with its text."""

    text: str


class RefusedEdit(msgspec.Struct):
    """The reason why a text that another client stored as the configuration is not in force."""

    reason: str = ""
    when: str = ""


class Config(ConfigVersion, kw_only=True, rename="camel"):
    """The configuration in force. One that is a file of the service is not `is_pushable`.

    `record` is the folder of the service's record, a slash and the name of the run; "" if it keeps none. The next text
    `may_lack_certificate` if an administrator has allowed that once.
    """

    source: str = ""
    cluster_id: str = ""
    is_pushable: bool = True
    refused: RefusedEdit | None = None
    record: str = ""
    may_lack_certificate: bool = False


class ReportedJob(msgspec.Struct, frozen=True):
    """A group that holds cells, or a part of a job that waits, and its fate; its `job` in lists, "" if hidden.

    `job_pods` counts the pods with cells of the job of a group, whatever their fates; else 0. `priority` is None if it
    names no `vc`.
    """

    name: str
    vc: str = ""
    priority: int | None = None
    pods: list[str] = []
    verdict: str = ""
    reason: str = ""
    job: str = ""
    job_pods: int = 0

    @property
    def pods_told(self) -> str:
        """The pods in words: `2 of 14 pods` of a job of which others have another fate."""
        count = len(self.pods)
        return f"{count} of {counted(self.job_pods, 'pod')}" if count < self.job_pods else counted(count, "pod")


MOST_REASONS = 3


def by_job(parts: Iterable[ReportedJob]) -> list[ReportedJob]:
    """An entry for each job and verdict, named as the job, with all pods and the first of its different reasons."""
    found: dict[object, list[ReportedJob]] = {}
    for index, part in enumerate(parts):
        found.setdefault((part.job, part.verdict) if part.job else index, []).append(part)
    return [_together(each) for each in found.values()]


def _together(parts: Sequence[ReportedJob]) -> ReportedJob:
    reasons = [*dict.fromkeys(part.reason for part in parts if part.reason)]
    more = [f"and {len(reasons) - MOST_REASONS} more"] if len(reasons) > MOST_REASONS else []
    pods = [pod for part in parts for pod in part.pods]
    first = parts[0]
    return replace(first, name=first.job or first.name, pods=pods, reason="; ".join(reasons[:MOST_REASONS] + more))


class ReportedGroups(msgspec.Struct, frozen=True, rename="camel"):
    """Groups that hold cells: the affected ones, and the number of the others.

    `unaffected_jobs` have none that is affected; None from a service of an older version, which counts groups only.
    """

    unaffected: int = 0
    affected: list[ReportedJob] = []
    unaffected_jobs: int | None = None

    @property
    def spared_count(self) -> int:
        """The number of jobs that nothing becomes of."""
        return self.unaffected if self.unaffected_jobs is None else self.unaffected_jobs


class BadCells(msgspec.Struct, frozen=True, rename="camel"):
    """The nodes of a cell type that are not there or not healthy: how many of how many, and the first of them."""

    cell_type: str
    bad: int
    total: int
    nodes: list[str] = []


class ConfigReport(msgspec.Struct, frozen=True, rename="camel"):
    """The effects of a configuration, planned or done.

    Where it `needs_allow_downgrade`, running work would lose guaranteed cells, and `refusals` says so. `bad` has the
    nodes that would be bad under it now.
    """

    base_version: int = 0
    identical: bool = False
    refusals: list[str] = []
    warnings: list[str] = []
    changes: Changes = Changes()
    groups: ReportedGroups = ReportedGroups()
    waiting: list[ReportedJob] = []
    affects_running: bool = False
    needs_allow_downgrade: bool = False
    bad: list[BadCells] = []

    @property
    def is_refused(self) -> bool:
        """True if no caller can push it. One that only needs permission to harm running work is not refused."""
        return bool(self.refusals) and not self.needs_allow_downgrade

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each affected group: a push agrees to exactly this."""
        return {group.name: group.verdict for group in self.groups.affected}


class _Unknown(Changes, frozen=True, omit_defaults=True):
    """Changes that cannot be compared: in JSON an empty object."""


UNKNOWN_CHANGES = _Unknown()


class ConfigPushResult(msgspec.Struct):
    """The version that is now in force, and its effects; null if it was in force before."""

    version: int
    outcome: ConfigReport | None = None


class Refusal(msgspec.Struct):
    """The reason why a push was refused, and its effects if done now; null if they are not the reason."""

    message: str
    plan: ConfigReport | None = None
