"""`hived config push` and `rollback`: the plan is shown, agreed to, and comes into force."""

import getpass
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from hived.values.errors import UserError
from hived_cli.config.certify_options import NO_CERTIFICATE, Certifying, taken
from hived_cli.config.certify_options import OPTIONS as CERTIFY_OPTIONS
from hived_cli.config.certifying import certified, refuse_early
from hived_cli.config.given import read_sound_source, takes_file, tell_mistakes
from hived_cli.config.report import draw
from hived_cli.helpers.answers import as_json, ask, first_line, format_option, refuse_unasked, with_options, yes_option
from hived_cli.helpers.connecting import asks_service
from hived_config.document import ConfigError
from hived_config.openpai import CLUSTER_ID_PATH, DEFAULT_CLUSTER_ID
from hived_config.reader import printable
from hived_extender.api.configuration import Config, ConfigPushArgs, ConfigPushResult, ConfigReport
from hived_extender.api.inspection import ConfigClient, Inspector, PushAnswer

TRIES = 5
"""Tries of a push that needs no answer, while what runs changes."""

_OPTIONS = (
    click.option("--cluster-id", default="", help="Push only to the cluster with this id."),
    yes_option,
    click.option("--message", default="", metavar="TEXT", help="Why, for the history."),
    click.option("--allow-downgrade", is_flag=True, help="Running work may lose what it is guaranteed."),
    *CERTIFY_OPTIONS,
    format_option,
)


@dataclass(frozen=True, slots=True)
class PushOptions:
    """The options of commands that push.

    With `is_json`, only the service's answer goes to stdout; the plan and the question go to stderr. In paictl's form
    (`is_paictl`) the cluster's id is a yes to the question; `typed` is what a standard input says that is no terminal.
    """

    cluster_id: str
    yes: bool
    message: str
    allow_downgrade: bool
    is_json: bool
    certifying: Certifying = NO_CERTIFICATE
    is_paictl: bool = False
    typed: str = ""

    @property
    def is_sure(self) -> bool:
        """True if nobody is asked any more."""
        return self.yes or bool(self.typed)


def pushes(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of commands that push; the command gets them as `pushing`."""

    @wraps(function)
    def push(cluster_id: str, yes: bool, message: str, allow_downgrade: bool, form: str, **options: Any) -> None:
        how = PushOptions(cluster_id, yes, message, allow_downgrade, form == "json", taken(options))
        function(pushing=how, **options)

    return with_options(push, _OPTIONS)


def push_text(
    inspector: Inspector,
    text: str,
    file: str,
    pushing: PushOptions,
    base_version: int | None = None,
    message: str = "",
    cluster_id: str = "",
) -> None:
    """Show what a configuration would do, ask, bring it into force and say which version it is.

    Parameters
    ----------
    file : the name of the text in messages
    base_version : the version that the text was made from; None for the one in force
    message : for the history, where the options have none
    cluster_id : the id of the cluster that the text is for, where the options name none; "" for any

    Where running work would be affected otherwise than was agreed to, it is asked again; with `yes`, tried again.
    Raises UserError if it is refused, or another version came first. Exits with 1 if the answer is no.
    """
    service = ConfigClient(inspector)
    current = service.current()
    cluster_id = _target(current, pushing, cluster_id)
    base = current.version if base_version is None else base_version
    if current.version < base:
        raise UserError(f"there is no version {base} yet, version {current.version} is in force: nothing was pushed")
    if current.version != base:
        raise _conflict(current, base)
    names_cluster = bool(pushing.cluster_id) and not current.cluster_id
    if text == current.text and current.refused is None and not names_cluster:
        _tell(pushing, ConfigPushResult(current.version), f"Nothing to do: identical to version {current.version}")
        return
    refuse_early(current, text, pushing.certifying)
    why = pushing.message or message
    push = ConfigPushArgs(text, file, why, _login_name(), base, {}, pushing.allow_downgrade, cluster_id)
    _Pushing(inspector, pushing).run(push, current)


class _Pushing:
    """One push, as often as it takes."""

    def __init__(self, inspector: Inspector, options: PushOptions) -> None:
        self._inspector = inspector
        self._service = ConfigClient(inspector)
        self._options = options

    def run(self, push: ConfigPushArgs, current: Config) -> None:
        """Push; `current` is the configuration that it is to replace. All that can be refused at once is, before any
        replay.
        """
        plan = self._service.plan(push.text, push.file)
        self._judge(plan, push.base_version)
        if not self._options.is_sure:
            refuse_unasked("pushed")
        wish, is_json = self._options.certifying, self._options.is_json
        certificate = certified(self._inspector, current, push.text, push.file, wish, is_json)
        push = msgspec.structs.replace(push, certificate=certificate)
        tries = 0
        target = current.cluster_id or push.cluster_id or DEFAULT_CLUSTER_ID if self._options.is_paictl else ""
        while not self._options.is_sure or tries < TRIES:
            tries += 1
            if not self._options.is_sure:
                ask(f"Push this to cluster {target}?" if target else "Push this?", "pushed", is_json, target)
            click.echo("waiting until it is in force ...", err=True)
            answer = self._service.push(msgspec.structs.replace(push, agreed=plan.verdicts))
            if answer.version:
                result = ConfigPushResult(answer.version, answer.plan)
                return _tell(self._options, result, f"version {answer.version} is in force")
            plan = self._next_plan(answer, push.base_version)
            click.echo(f"{answer.message}\n", err=True)
            self._judge(plan, push.base_version)
        raise UserError(f"what runs changed {TRIES} times while this was pushed, and nothing was: push again later")

    def _judge(self, plan: ConfigReport, base: int) -> None:
        """Show a plan. Raises UserError if it is of another version, refused, or needs leave that was not given."""
        if plan.base_version != base:
            raise _conflict(self._service.current(), base)
        self._show(plan)
        if plan.is_refused:
            raise UserError("refused: nothing was pushed")
        if plan.needs_allow_downgrade and not self._options.allow_downgrade:
            raise UserError(
                "nothing was pushed: running jobs, listed above, would lose what they are guaranteed. Wait until they "
                "have ended, or leave them their cells; if it is meant, push with --allow-downgrade"
            )
        if plan.affects_running and self._options.typed and not self._options.yes:
            raise UserError(
                "running work would be affected: nothing was pushed; the cluster's id alone does not agree to that, so "
                "give --yes"
            )

    def _next_plan(self, answer: PushAnswer, base: int) -> ConfigReport:
        """The plan of a push that met something else than was planned. Raises UserError if it was refused."""
        if answer.is_conflict:
            current = self._service.current()
            if current.version != base:
                raise _conflict(current, base)
        if answer.is_conflict and answer.plan:
            return answer.plan
        if answer.plan:
            self._show(answer.plan)
        raise UserError(f"nothing was pushed: {answer.message}")

    def _show(self, plan: ConfigReport) -> None:
        click.echo(draw(plan), err=self._options.is_json)


def _target(current: Config, pushing: PushOptions, of_file: str) -> str:
    """The id that the push names, "" for none. Raises UserError if the cluster takes no push, or is another one.

    What standard input says in paictl's form has to be the id that the cluster has by then.
    """
    if not current.is_pushable:
        raise UserError(
            f"the service accepts no pushes: its configuration is the {current.source}, to be changed there; it "
            "accepts them if that is a ConfigMap and it asks who calls (hived serve --authorize)"
        )
    named = pushing.cluster_id or of_file
    found = current.cluster_id or named or DEFAULT_CLUSTER_ID
    if named and named != found:
        where = "" if pushing.cluster_id else f", as {'.'.join(CLUSTER_ID_PATH)} of the file has it"
        raise UserError(f"the id of this cluster is {found}, not {named}{where}: nothing was pushed")
    if pushing.typed and pushing.typed != found:
        raise UserError(
            f"the id of this cluster is {found}, not {printable(pushing.typed)}, as standard input has it: nothing was "
            "pushed"
        )
    return named


def _conflict(current: Config, base: int) -> UserError:
    why = f" ({printable(current.why)})" if current.why else ""
    who = printable(current.who) or "another user"
    return UserError(
        f"{who} pushed version {current.version} at {current.when}{why}, and this was made from "
        f"version {base}: nothing was pushed. `hived config diff --versions {base} {current.version}` shows what came; "
        "take it with `hived config pull`, merge, and push again"
    )


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in containers
        return ""


def _tell(options: PushOptions, answer: ConfigPushResult, text: str) -> None:
    click.echo(as_json(answer) if options.is_json else text)


SERVICE = "service"


@click.command("push")
@takes_file
@click.option(
    "-p", "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
    help="A folder with OpenPAI's services-configuration.yaml, also spelled service-configuration.yaml.",
)  # fmt: skip
@click.option(
    "-m", "part", default=SERVICE, metavar=SERVICE, help="As paictl has it: services' configuration, not others."
)
@click.option(
    "--base-version", type=int, metavar="N",
    help="The version that this was made from: refuse if another one is in force.",
)  # fmt: skip
@pushes
@asks_service
def push(
    inspector: Inspector,
    folder: Path | None,
    part: str,
    path: Path | None,
    base_version: int | None,
    pushing: PushOptions,
) -> None:
    """Bring a configuration into force: check it, show what it would do, ask, and wait until it is.

    FILE is a scheduler configuration or OpenPAI's services-configuration.yaml; DIR is a folder with such a file. -p DIR
    is paictl's form: it takes the cluster's id as a yes, also from a pipe, where running work is not affected. Of an
    OpenPAI file only the scheduler's part and the cluster's id leave this machine. Nothing is stopped, nothing is
    restarted.

    \b
    Examples:
      hived config push -p /cluster-configuration -m service
      echo pai | hived config push -p /cluster-configuration -m service
      hived config push -f hivedscheduler.yaml --message 'two racks for research'
      hived config push hivedscheduler.yaml --certify 14d
      hived config push -f hivedscheduler.yaml --yes --cluster-id prod --format json
    """
    if part != SERVICE:
        raise UserError(
            f"-m {part}: expected -m {SERVICE}, as hived has no other configuration; "
            f"the history takes a reason as --message {shlex.quote(part)}"
        )
    source = folder or path
    if source is None or (folder and path):
        raise UserError("expected either FILE (or -f FILE) or -p DIR, which says what is to be pushed")
    try:
        found = read_sound_source(source)
    except ConfigError as error:
        tell_mistakes(error)
        raise SystemExit(1) from error
    if folder is not None:
        pushing = replace(pushing, is_paictl=True, typed="" if pushing.yes else first_line())
    push_text(inspector, found.text, found.file, pushing, base_version, cluster_id=found.cluster_id)


@click.command("rollback")
@click.argument("version", type=int, required=False)
@pushes
@asks_service
def rollback(inspector: Inspector, version: int | None, pushing: PushOptions) -> None:
    """Bring an earlier version into force again, by default the one before.

    It becomes a new version, and is planned and asked about as any push is.

    \b
    Examples:
      hived config rollback
      hived config rollback 5 --yes
    """
    service = ConfigClient(inspector)
    number = _before(service) if version is None else version
    file, message = f"version {number}", f"rollback to version {number}"
    push_text(inspector, service.version(number).text, file, pushing, message=message)


def _before(service: ConfigClient) -> int:
    """The newest version that is kept and not in force."""
    current = service.current().version
    earlier = [each.version for each in service.versions() if each.version < current]
    if not earlier:
        raise UserError(f"no version before {current} is kept: there is nothing to go back to")
    return max(earlier)
