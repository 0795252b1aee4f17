"""Configurations: the one in force, earlier ones, a plan of another one drawn on the cells, and its push."""

import difflib
import json
from collections.abc import Iterator

import msgspec
from flask import Response, redirect, request
from werkzeug.wrappers import Response as Plain

from hived.values.errors import UserError
from hived_config.changes import Changes
from hived_extender.api import paths
from hived_extender.api.configuration import Config, ConfigPushArgs, ConfigReport, ReportedJob, by_job
from hived_extender.api.waiting import MASKED
from hived_extender.http.change_rights import ConfigPushes
from hived_extender.http.change_routes import CONFIG_BODY_LIMIT, check_size
from hived_extender.http.pages.cells import Kind, marks_of
from hived_extender.http.pages.site import FormGuard, Site
from hived_extender.reconfiguration.configurations import Refused

TAB = "Configuration"
HOME = paths.PAGE_CONFIG_PATH
FILE = "the uploaded file"
SELDOM_S = 15
"""Seconds after which the page asks for versions again."""

MOST_SHOWN = 200
"""Jobs of a plan."""

KINDS = {"unaccounted": Kind.LOST, "partlyUnaccounted": Kind.LOST, "lazilyPreempted": Kind.HARMED}
VERDICTS = {
    "lazilyPreempted": "loses its guarantee: it goes on as opportunistic",
    "unaccounted": "goes on, but its cells are no longer hived's",
    "partlyUnaccounted": "goes on, but some of its cells are no longer hived's",
    "preemptionCancelled": "its preemption is cancelled, and it waits again",
    "restored": "gets its guarantee back",
}

WAITING_VERDICTS = {"neverStarts": "can never start", "couldStart": "could start", "waits": "keeps waiting"}


class DiffLine(msgspec.Struct, frozen=True):
    """A line of a comparison; `kind` is plus, minus, at, or "" for what both have."""

    kind: str
    text: str


class ConfigurationPages:
    """The configuration in force, one version, a plan, and the push of it."""

    def __init__(self, site: Site, pushes: ConfigPushes) -> None:
        self._site = site
        self._pushes = pushes
        self._guard = FormGuard()

    def home(self) -> Response:
        """The configuration in force, the versions that are kept, and the form for another one."""
        now = self._pushes.describe()
        return self._page(
            "configuration.html", poll_s=SELDOM_S, now=now, versions=self._pushes.configurations.versions()
        )

    def version(self, number: str) -> Response:
        """One version, compared with another one: by default the one before it."""
        chosen = self._pushes.configurations.version(_number(number))
        kept = sorted(each.version for each in self._pushes.configurations.versions())
        before = max((each for each in kept if each < chosen.version), default=0)
        against = _number(request.args.get("against", str(before)))
        other = self._pushes.configurations.version(against) if against else None
        lines = list(diff(other.text, chosen.text)) if other is not None else []
        return self._page(
            "configuration_version.html",
            f"Configuration version {chosen.version}",
            poll_s=0,
            chosen=chosen,
            other=other,
            lines=lines,
            kept=kept,
            now=self._pushes.describe(),
        )

    def plan(self) -> Response:
        """The effects of a text, with a form to push it; nothing is changed."""
        self._check_form()
        now = self._pushes.describe()
        text, file = self._text()
        check_size(text)
        report = self._pushes.configurations.plan(text, file)
        return self._plan_page(now, text, file, report, request.form.get("message", ""))

    def push(self) -> Response | Plain:
        """Put a planned text in force, if it still does what the plan has said."""
        self._check_form()
        text = _text_of(request.form.get("text", ""))
        check_size(text)
        push = ConfigPushArgs(
            text,
            FILE,
            request.form.get("message", ""),
            base_version=_number(request.form.get("base", "0")),
            agreed=_agreed(request.form.get("agreed", "{}")),
            allow_downgrade=request.form.get("allow_downgrade") == "yes",
            cluster_id=request.form.get("cluster", ""),
        )
        try:
            version, _ = self._pushes.push(push, self._site.caller)
        except Refused as error:
            report = error.report or self._pushes.configurations.plan(text, FILE)
            return self._plan_page(self._pushes.describe(), text, FILE, report, push.message, error)
        return redirect(f"{HOME}/versions/{version.version}", 303)

    def _plan_page(
        self, now: Config, text: str, file: str, report: ConfigReport, message: str, refusal: Refused | None = None
    ) -> Response:
        affected, refused = report.groups.affected, self._push_refusal()
        report = self._site.mask().report(report) if refused else report
        shown, waiting = by_job(report.groups.affected), by_job(report.waiting)
        return self._page(
            "configuration_plan.html",
            "Plan of a configuration",
            status=200 if refusal is None else refusal.code,
            refusal=refusal.message if refusal is not None else "",
            now=now,
            text=text,
            file=file,
            message=message,
            report=report,
            changes=list(changes(report.changes)),
            affected=shown[:MOST_SHOWN],
            affected_count=len({job.name for job in shown}),
            waiting=waiting[:MOST_SHOWN],
            verdicts=VERDICTS,
            waiting_verdicts=WAITING_VERDICTS,
            has_plan=shown or report.groups.unaffected or not report.refusals,
            job_path=paths.page_job_path,
            masked=MASKED,
            agreed=json.dumps(report.verdicts, sort_keys=True),
            lines=list(diff(now.text, text)),
            layout=self._site.frames.latest().layout,
            marks=self._marks(affected),
            push_refusal=refused,
        )

    def _marks(self, affected: list[ReportedJob]) -> str:
        """The cells of affected groups, for the picture; "" without any."""
        groups = {each.name: KINDS.get(each.verdict, Kind.CHOSEN) for each in affected}
        with self._site.backend.service.runner.exclusive() as machine:
            found = marks_of(machine.verbs.core.state, groups)
        return json.dumps(found) if found else ""

    def _push_refusal(self) -> str:
        """Return why the caller cannot push here, "" if they can."""
        if not self._pushes.is_pushable:
            return "this service accepts no pushes"
        try:
            self._pushes.shown.name_of(self._site.caller)
        except UserError as error:
            return error.message
        return ""

    def _page(self, template: str, title: str = "", status: int = 200, **values: object) -> Response:
        token = self._guard.token(self._site.caller)
        return self._site.page(template, TAB, title, status, token=token, home=HOME, **values)

    def _check_form(self) -> None:
        request.max_form_memory_size = CONFIG_BODY_LIMIT
        is_open = not self._site.gate.knows_callers
        self._guard.check(dict(request.headers), request.form.get("token", ""), self._site.caller, is_open=is_open)

    def _text(self) -> tuple[str, str]:
        """The text of the form, and its name in messages: a file, a kept version, or what was typed."""
        if number := request.form.get("version"):
            return self._pushes.configurations.version(_number(number)).text, f"version {number}"
        upload = request.files.get("file")
        if upload is not None and upload.filename:
            try:
                return _text_of(upload.stream.read().decode("utf-8")), FILE
            except UnicodeDecodeError as error:
                raise UserError(f"{FILE} is not UTF-8 text: {error}") from error
        return _text_of(request.form.get("text", "")), FILE


def add_pages(site: Site) -> None:
    """All pages; none where the service shows no configuration."""
    if site.backend.config_desk is None:
        return
    pages = ConfigurationPages(site, site.backend.config_pushes)
    add = site.blueprint.add_url_rule
    add(HOME, "configuration", pages.home)
    add(f"{HOME}/versions/<number>", "configuration_version", pages.version)
    add(paths.PAGE_CONFIG_PLAN_PATH, "configuration_plan", pages.plan, methods=["POST"])
    add(paths.PAGE_CONFIG_PUSH_PATH, "configuration_push", pages.push, methods=["POST"])


def diff(old: str, new: str) -> Iterator[DiffLine]:
    """The lines that differ between two texts, with a few around them."""
    kinds = {"+": "plus", "-": "minus", "@": "at"}
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
    for number, line in enumerate(lines):
        if number >= 2:  # the names of the files
            yield DiffLine(kinds.get(line[:1], ""), line)


def changes(found: Changes) -> Iterator[tuple[str, str]]:
    """Everything that differs, as (kind, words)."""
    for kind, named in (
        ("Nodes", found.nodes),
        ("Cell types", found.cell_types),
        ("Pinned cells", found.pinned_cells),
        ("Virtual clusters", found.virtual_clusters),
    ):
        for word, names in (("added", named.added), ("removed", named.removed)):
            if names:
                yield kind, f"{word}: {_listed(names)}"
        for each in named.changed[:MOST_SHOWN]:
            name = each if isinstance(each, str) else getattr(each, "node", "") or getattr(each, "cell_type", "")
            yield kind, f"changed: {name} {getattr(each, 'what', '')}".rstrip()
    for count in found.cells:
        yield "Cells", f"{count.cell_type}: {count.old} → {count.new}"
    for shape in found.shapes:
        yield "Promises", f"{shape.vc}: {shape.cell_type} {shape.old} → {shape.new}"
    for setting in found.settings:
        restart = " (after a restart)" if setting.needs_restart else ""
        yield "Settings", f"{setting.key}: {json.dumps(setting.old)} → {json.dumps(setting.new)}{restart}"


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:20])
    return shown if len(names) <= 20 else f"{shown} and {len(names) - 20} more"


def _text_of(form: str) -> str:
    """A text as it was before a form carried it: browsers end its lines as mail does."""
    return form.replace("\r\n", "\n")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise UserError(f"a version is a number, not {text[:40]!r}", 404)
    return int(text)


def _agreed(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise UserError(f"the form is not as this page has made it: {error}") from error
