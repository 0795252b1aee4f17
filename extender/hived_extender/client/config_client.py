"""The service's configuration, asked for and changed over HTTP."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from hived.errors import UserError
from hived_extender.client.config_answers import CurrentConfiguration, Report, StoredVersion, read_report
from hived_extender.client.inspection import Inspector, NoAnswerError

T = TypeVar("T")

CONFIG = "/v1/config"
VERSIONS = f"{CONFIG}/versions"
PLAN = f"{CONFIG}/plan"

PLAN_TIMEOUT_S = 120.0
PUSH_TIMEOUT_S = 600.0
"""A push is answered when the configuration is in force."""


@dataclass(frozen=True, slots=True)
class Push:
    """A configuration to bring into force.

    Attributes
    ----------
    file : what messages call `text`
    message, who : why and by whom; a service that knows its callers does not believe `who`
    base_version : the version that it is made from; another one in force is a conflict
    agreed : by group, what may become of it
    allow_downgrade : running guaranteed work may lose its guarantee
    cluster_id : "" for whichever cluster answers
    """

    text: str
    file: str
    message: str
    who: str
    base_version: int
    agreed: Mapping[str, str]
    allow_downgrade: bool = False
    cluster_id: str = ""

    def as_json(self) -> bytes:
        """The body of the request."""
        body = {
            "text": self.text,
            "file": self.file,
            "message": self.message,
            "who": self.who,
            "baseVersion": self.base_version,
            "agreed": dict(self.agreed),
            "allowDowngrade": self.allow_downgrade,
            "clusterId": self.cluster_id,
        }
        return msgspec.json.encode(body)


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """What became of a push.

    `version` is the one now in force, 0 if the push came to nothing; then `message` says why, and `plan` what it would
    do now, {} if that is not the reason. `is_conflict`: the push met something that was not so when it was planned.
    `raw` is the answer as it came.
    """

    version: int
    message: str
    plan: dict[str, Any]
    is_conflict: bool
    raw: bytes


class _Applied(msgspec.Struct):
    version: int
    outcome: dict[str, Any] | None = None


class _NotApplied(msgspec.Struct):
    message: str
    plan: dict[str, Any] | None = None


class _Versions(msgspec.Struct):
    items: list[StoredVersion]


class ConfigClient:
    """Asks one service; raises UserError as `Inspector` does."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector

    def current(self) -> CurrentConfiguration:
        """The configuration in force."""
        return self._get(CONFIG, CurrentConfiguration)

    def versions(self) -> list[StoredVersion]:
        """The versions that are kept, newest first, without their texts."""
        return self._get(VERSIONS, _Versions).items

    def version(self, number: int) -> StoredVersion:
        """One version with its text."""
        try:
            return self._get(f"{VERSIONS}/{number}", StoredVersion)
        except UserError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            kept = ", ".join(str(each.version) for each in self.versions())
            raise UserError(f"version {number} is not kept; kept are {kept or 'none'}", error.code) from error

    def plan(self, text: str, file: str) -> dict[str, Any]:
        """The report, as JSON, of what a configuration would do."""
        body = msgspec.json.encode({"text": text, "file": file})
        _, answer = self._inspector.ask(PLAN, body, timeout_s=PLAN_TIMEOUT_S)
        self._inspector.decode(PLAN, Report, answer)
        report: dict[str, Any] = msgspec.json.decode(answer)
        return report

    def push(self, push: Push) -> PushAnswer:
        """Bring a configuration into force, and wait until it is."""
        expected = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
        try:
            status, answer = self._inspector.ask(CONFIG, push.as_json(), expected=expected, timeout_s=PUSH_TIMEOUT_S)
        except NoAnswerError as error:
            raise NoAnswerError(f"{error}\nIt may be in force all the same: see hived config history", 503) from error
        if status not in expected:
            applied = self._inspector.decode(CONFIG, _Applied, answer)
            return PushAnswer(applied.version, "", applied.outcome or {}, False, answer)
        refused = self._inspector.decode(CONFIG, _NotApplied, answer)
        plan = refused.plan or {}
        read_report(plan)
        return PushAnswer(0, refused.message, plan, status == HTTPStatus.CONFLICT, answer)

    def _get(self, path: str, answer_type: type[T]) -> T:
        return self._inspector.decode(path, answer_type, self._inspector.fetch(path))
