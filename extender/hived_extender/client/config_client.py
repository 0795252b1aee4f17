"""The service's configuration, asked for and changed over HTTP."""

from http import HTTPStatus

import msgspec

from hived.values.errors import UserError
from hived_extender.api.configuration import (
    Config,
    ConfigPlanArgs,
    ConfigPushArgs,
    ConfigPushResult,
    ConfigReport,
    ConfigVersion,
    Refusal,
    VersionEntry,
    VersionList,
)
from hived_extender.api.paths import CONFIG_PATH, CONFIG_PLAN_PATH, CONFIG_VERSIONS_PATH
from hived_extender.client.inspection import Inspector, NoAnswerError

PLAN_TIMEOUT_S = 120.0
PUSH_TIMEOUT_S = 600.0
"""A push is answered when the configuration is in force."""


class PushAnswer(msgspec.Struct, frozen=True):
    """The end of a push.

    `version` is the one now in force, 0 if the push came to nothing; then `message` says why. `plan` is the effect of
    the push, done or to be expected now; None if not known. `is_conflict`: the push met something that was not so when
    it was planned.
    """

    version: int
    message: str
    plan: ConfigReport | None
    is_conflict: bool


class ConfigClient:
    """Asks one service; raises UserError as `Inspector` does."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector

    def current(self) -> Config:
        """The configuration in force."""
        return self._inspector.get(CONFIG_PATH, Config)

    def versions(self) -> list[VersionEntry]:
        """The versions that are kept, newest first, without their texts."""
        return self._inspector.get(CONFIG_VERSIONS_PATH, VersionList).items

    def version(self, number: int) -> ConfigVersion:
        """One version with its text."""
        try:
            return self._inspector.get(f"{CONFIG_VERSIONS_PATH}/{number}", ConfigVersion)
        except UserError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            kept = ", ".join(str(each.version) for each in self.versions())
            raise UserError(f"version {number} is not kept; kept are {kept or 'none'}", error.code) from error

    def plan(self, text: str, file: str) -> ConfigReport:
        """The effect that a configuration would have; messages call it `file`."""
        body = msgspec.json.encode(ConfigPlanArgs(text, file))
        _, answer = self._inspector.ask(CONFIG_PLAN_PATH, body, timeout_s=PLAN_TIMEOUT_S)
        return self._inspector.decode(CONFIG_PLAN_PATH, ConfigReport, answer)

    def push(self, push: ConfigPushArgs) -> PushAnswer:
        """Bring a configuration into force, and wait until it is."""
        expected = (HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
        body = msgspec.json.encode(push)
        try:
            status, answer = self._inspector.ask(CONFIG_PATH, body, expected=expected, timeout_s=PUSH_TIMEOUT_S)
        except NoAnswerError as error:
            raise NoAnswerError(f"{error}\nIt may be in force all the same: see hived config history", 503) from error
        if status not in expected:
            applied = self._inspector.decode(CONFIG_PATH, ConfigPushResult, answer)
            return PushAnswer(applied.version, "", applied.outcome, False)
        refused = self._inspector.decode(CONFIG_PATH, Refusal, answer)
        return PushAnswer(0, refused.message, refused.plan, status == HTTPStatus.CONFLICT)
