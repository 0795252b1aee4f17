"""What the service answers about its configuration, as values; `docs/http.md` describes the JSON."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hived.errors import UserError


class Refused(msgspec.Struct):
    """Why a text that somebody wrote where the configuration is kept is not in force."""

    reason: str = ""
    when: str = ""


class CurrentConfiguration(msgspec.Struct, rename="camel"):
    """The configuration in force. One that is a file of the service is not `is_pushable`."""

    version: int
    text: str
    source: str = ""
    cluster_id: str = ""
    who: str = ""
    when: str = ""
    why: str = ""
    is_pushable: bool = True
    refused: Refused | None = None


class StoredVersion(msgspec.Struct):
    """A configuration that is or was in force; `text` only where one version was asked for."""

    version: int
    when: str = ""
    who: str = ""
    why: str = ""
    sha256: str = ""
    text: str = ""


class Named(msgspec.Struct):
    """What came, went and changed. Changes are names, or mappings of a name and `what`."""

    added: list[str] = []
    removed: list[str] = []
    changed: list[str | dict[str, str]] = []


class Counted(msgspec.Struct, rename="camel"):
    """A number of cells of a type that changes; `vc` is "" for physical cells."""

    cell_type: str
    old: int
    new: int
    vc: str = ""


class Setting(msgspec.Struct, rename="camel"):
    """Another value that changes."""

    key: str
    old: Any = None
    new: Any = None
    needs_restart: bool = False


class ReportedChanges(msgspec.Struct, rename="camel"):
    """What differs between the configuration in force and another one."""

    nodes: Named = msgspec.field(default_factory=Named)
    cell_types: Named = msgspec.field(default_factory=Named)
    cells: list[Counted] = []
    pinned_cells: Named = msgspec.field(default_factory=Named)
    virtual_clusters: Named = msgspec.field(default_factory=Named)
    shapes: list[Counted] = []
    settings: list[Setting] = []


class ReportedGroup(msgspec.Struct):
    """A group, and what becomes of it."""

    name: str
    vc: str = ""
    priority: int = 0
    pods: list[str] = []
    verdict: str = ""
    reason: str = ""


class ReportedGroups(msgspec.Struct):
    """Groups that hold cells: those that something becomes of, and the number of the others."""

    unaffected: int = 0
    affected: list[ReportedGroup] = []


class Report(msgspec.Struct, rename="camel"):
    """What a configuration would do, or has done, to whom.

    Where it `needs_allow_downgrade`, running work would lose what it is guaranteed, and `refusals` says so.
    """

    base_version: int = 0
    identical: bool = False
    refusals: list[str] = []
    warnings: list[str] = []
    changes: ReportedChanges = msgspec.field(default_factory=ReportedChanges)
    groups: ReportedGroups = msgspec.field(default_factory=ReportedGroups)
    waiting: list[ReportedGroup] = []
    affects_running: bool = False
    needs_allow_downgrade: bool = False

    @property
    def is_refused(self) -> bool:
        """Whether nobody can push it. What only takes leave to harm running work is not."""
        return bool(self.refusals) and not self.needs_allow_downgrade

    @property
    def verdicts(self) -> dict[str, str]:
        """What becomes of each affected group: what somebody agrees to who has read the report."""
        return {group.name: group.verdict for group in self.groups.affected}


def read_report(report: Mapping[str, Any]) -> Report:
    """The JSON of a report as a value. Raises UserError for what is none."""
    try:
        return msgspec.convert(report, Report)
    except msgspec.MsgspecError as error:
        raise UserError(f"this is no report of the service: {error}", 502) from error
