"""The paths of changes: show, plan and push configurations, and plan and carry out moves of groups."""

from hived.values.errors import UserError
from hived_extender.api.certificates import SIZE_LIMIT
from hived_extender.api.configuration import ConfigPlanArgs, ConfigPushArgs, ConfigPushResult, Refusal, VersionList
from hived_extender.api.defrag import DefragArgs
from hived_extender.http.answers import Answer, Question
from hived_extender.http.routing import Backend
from hived_extender.jobs.wire import decode_args, encode
from hived_extender.reconfiguration.configurations import Refused

CONFIG_TEXT_LIMIT = 1024 * 1024
"""Bytes. A ConfigMap holds no more."""

CONFIG_BODY_LIMIT = 2 * (CONFIG_TEXT_LIMIT + SIZE_LIMIT)
"""In JSON a text is longer: line breaks and quotes are escaped. A push may have a certificate too."""


def config(backend: Backend, question: Question) -> Answer:
    """The configuration in force: its text, version, and who pushed it."""
    return Answer(encode(backend.config_pushes.describe()))


def versions(backend: Backend, question: Question) -> Answer:
    """The versions that are kept, the newest first, without their texts."""
    return Answer(encode(VersionList(backend.config_pushes.configurations.versions())))


def version(backend: Backend, question: Question) -> Answer:
    """One of these, with its text."""
    if not (question.name.isascii() and question.name.isdigit() and len(question.name) < 19):
        raise UserError(f"a version is a number, not {question.name!r}", 404)
    return Answer(encode(backend.config_pushes.configurations.version(int(question.name))))


def plan(backend: Backend, question: Question) -> Answer:
    """The effects of this configuration on jobs. Nothing is changed."""
    args = decode_args(question.body, ConfigPlanArgs)
    check_size(args.text)
    report = backend.config_pushes.configurations.plan(args.text, args.file)
    may_name = report.groups.affected or report.waiting or report.warnings or report.refusals
    if may_name and not _may_push(backend, question):
        report = backend.mask(question).report(report)
    return Answer(encode(report))


def push(backend: Backend, question: Question) -> Answer:
    """Put this configuration in force, if it does to running work what was agreed to."""
    if question.is_from_page:  # browsers let any page post to a loopback address, and show it a client certificate
        raise UserError("a page in a browser may not push: it says Origin", 403)
    args = decode_args(question.body, ConfigPushArgs)
    check_size(args.text)
    try:
        version, outcome = backend.config_pushes.push(args, question.caller)
    except Refused as error:
        return Answer(encode(Refusal(error.message, error.report)), error.code)
    return Answer(encode(ConfigPushResult(version.version, outcome)))


def _may_push(backend: Backend, question: Question) -> bool:
    """True if a caller may push the plan: they agree to its effects by the names of jobs."""
    try:
        backend.config_pushes.name_of(question.caller)
    except UserError:
        return False
    return True


def check_size(text: str) -> None:
    """Raises UserError (413) for a text that no ConfigMap holds."""
    size = len(text.encode(errors="replace"))
    if size > CONFIG_TEXT_LIMIT:
        raise UserError(
            f"the configuration has {size} bytes, at most {CONFIG_TEXT_LIMIT} are taken, as many as a ConfigMap holds: "
            "leave out comments, and cells below the nodes, which are generated",
            413,
        )


def inputs(backend: Backend, question: Question) -> Answer:
    """All that a plan for defragmentation depends on. Nothing is changed."""
    backend.refuse_strangers(question, "the input of a plan")
    return Answer(encode(backend.defrag.inputs()))


def moves(backend: Backend, question: Question) -> Answer:
    """The moves under way, or the last ones."""
    return Answer(encode(backend.mask(question).moves(backend.defrag.report())))


def apply(backend: Backend, question: Question) -> Answer:
    """Carry out a plan for defragmentation, if it still holds."""
    who = _who(backend, question)
    return Answer(encode(backend.defrag.apply(decode_args(question.body, DefragArgs), who)))


def stop(backend: Backend, question: Question) -> Answer:
    """Move no further group, and free the held cells."""
    return Answer(encode(backend.defrag.stop_moving(_who(backend, question))))


def _who(backend: Backend, question: Question) -> str:
    """The name of the caller, who has the right to change the configuration. Raises UserError (403)."""
    if question.is_from_page:  # browsers let any page post to a loopback address, and show it a client certificate
        raise UserError("a page in a browser may not move groups: it says Origin", 403)
    return backend.config_pushes.name_of(question.caller, "move groups")
