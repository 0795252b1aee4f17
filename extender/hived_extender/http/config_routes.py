"""What the paths of the configuration do: show, plan, push."""

from dataclasses import dataclass
from typing import Protocol

import msgspec

from hived.errors import UserError
from hived_extender.http.answers import Answer, Question
from hived_extender.http.desk import ConfigDesk
from hived_extender.pods.wire import ConfigPlanArgs, ConfigPushArgs, decode_args, encode
from hived_extender.reconfiguration.configurations import Push, Refused

CONFIG_PATH = "/v1/config"
CONFIG_PLAN_PATH = f"{CONFIG_PATH}/plan"
CONFIG_VERSIONS_PATH = f"{CONFIG_PATH}/versions"

CONFIG_TEXT_LIMIT = 1024 * 1024
"""Bytes. A ConfigMap holds no more."""

CONFIG_BODY_LIMIT = 2 * CONFIG_TEXT_LIMIT
"""In JSON a text is longer: line breaks and quotes are escaped."""


class ConfigHandler(Protocol):
    """Answers one request."""

    def __call__(self, desk: ConfigDesk, question: Question) -> Answer:
        """Raises HivedError."""


def config(desk: ConfigDesk, question: Question) -> Answer:
    """The configuration in force: its text, version, and who pushed it."""
    return Answer(encode(desk.configurations.describe() | {"isPushable": desk.is_pushable}))


def versions(desk: ConfigDesk, question: Question) -> Answer:
    """The versions that are kept, the newest first, without their texts."""
    return Answer(encode({"items": desk.configurations.versions()}))


def version(desk: ConfigDesk, question: Question) -> Answer:
    """One of these, with its text."""
    if not (question.name.isascii() and question.name.isdigit() and len(question.name) < 19):
        raise UserError(f"a version is a number, not {question.name!r}", 404)
    return Answer(encode(desk.configurations.version(int(question.name))))


def plan(desk: ConfigDesk, question: Question) -> Answer:
    """What would this configuration do to whom? Nothing is changed."""
    args = decode_args(question.body, ConfigPlanArgs)
    _check_size(args.text)
    return Answer(encode(desk.configurations.plan(args.text, args.file)))


def push(desk: ConfigDesk, question: Question) -> Answer:
    """Put this configuration in force, if it does to running work what was agreed to."""
    if question.is_from_page:  # browsers let any page post to a loopback address, and show it a client certificate
        raise UserError("a page in a browser may not push: it says Origin", 403)
    args = decode_args(question.body, ConfigPushArgs)
    _check_size(args.text)
    wanted = Push(**msgspec.structs.asdict(args))
    try:
        version, outcome = desk.push(wanted, question.caller)
    except Refused as error:
        return Answer(encode({"message": error.message, "plan": error.report}), error.code)
    return Answer(encode({"version": version.version, "outcome": outcome}))


def _check_size(text: str) -> None:
    """Raises UserError (413)."""
    size = len(text.encode(errors="replace"))
    if size > CONFIG_TEXT_LIMIT:
        raise UserError(
            f"the configuration has {size} bytes, at most {CONFIG_TEXT_LIMIT} are taken, as many as a ConfigMap holds: "
            "leave out comments, and cells below the nodes, which are generated",
            413,
        )


@dataclass(frozen=True, slots=True)
class ConfigRoute:
    """As `routes.Route`."""

    method: str
    path: str
    handler: ConfigHandler


CONFIG_ROUTES = (
    ConfigRoute("GET", CONFIG_PATH, config),
    ConfigRoute("POST", CONFIG_PATH, push),
    ConfigRoute("POST", CONFIG_PLAN_PATH, plan),
    ConfigRoute("GET", CONFIG_VERSIONS_PATH, versions),
    ConfigRoute("GET", f"{CONFIG_VERSIONS_PATH}/{{name}}", version),
)
