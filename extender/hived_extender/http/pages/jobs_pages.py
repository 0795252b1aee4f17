"""Jobs and queues: lists to search, a page for each job with its reason and remedies, and forms to change places."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, get_args
from urllib.parse import urlencode

import msgspec
from flask import Response, redirect, request
from werkzeug.wrappers import Response as Plain

from hived.values.errors import UserError
from hived_extender.api import paths
from hived_extender.api.names import is_full, matching
from hived_extender.api.queues import NOW, QueueAction, QueueArgs, QueuedJob, QueueReport, folded
from hived_extender.api.waiting import (
    MASKED,
    UNTRIED_CAUSES,
    CauseName,
    Certificate,
    IfResult,
    Job,
    JobState,
    When,
    Why,
    with_records,
)
from hived_extender.http.change_rights import QueueChanges
from hived_extender.http.insight_routes import QUEUED, rows_of, states_of
from hived_extender.http.masking import Mask
from hived_extender.http.pages.cells import Kind, marks_of
from hived_extender.http.pages.site import POLL_S, Site, page_number, paged
from hived_extender.insight.answering import NOT_FOUND, Answering, View, unknown
from hived_extender.insight.listing import ListedJob, held_as
from hived_extender.insight.queued import job_of, row_names, try_on_queued, why_queued, with_counts
from hived_extender.jobs.kinds.kind import path_of
from hived_extender.jobs.kinds.table import find_kind
from hived_extender.jobs.progress import read_duration
from hived_extender.kube.client import KubeError, pod_path
from hived_extender.machine.certificates import rfc3339
from hived_extender.queues.answering import QueueAnswers, Wanted

TAB, QUEUES_TAB = "Jobs", "Queues"
ROWS = 50
SELDOM_S = 15
"""Seconds after which the page of a waiting job, or of `MANY` jobs, asks again: these take a while to make."""

MANY = 1000

MOST_QUEUED = 5000
"""Jobs of queues in the list, first ones first."""

WITHOUT_PODS = ("Waiting", "Held", "Refused")
"""States of jobs that wait in a queue, and have no pods."""

MOST_LOGS = 8
"""Pods of a job whose logs its page leads to."""

LOG_LINES, LOG_BYTES = 200, 1 << 20

WORDS_LIMIT = 200
"""Characters of a change to try."""


CAUSES: dict[CauseName, str] = {
    "in-use": "cells are in use",
    "in-pieces": "free cells are in pieces",
    "bad": "cells are bad",
    "lent": "lent cells are reclaimed",
    "preempting": "jobs of lower priority leave for it",
    "kubernetes": "Kubernetes rules nodes out",
    "incomplete": "members are missing",
    "quota": "a quota is used up",
    "order": "others are served first",
    "held": "held back",
    "invalid": "the request is not valid",
    "never": "can never run",
    "unknown": "cause unknown",
}
"""Each cause in a few words."""


ENDED = {"": "waiting and running", "1d": "ended in the last day", "7d": "ended in the last week"}
"""The lists of jobs, by how long ago the latest ones of a list ended."""


class Filters(msgspec.Struct, frozen=True):
    """Limits of a list; "" for no limit. `q` is looked for in names, pods and reasons; `ended` chooses the list."""

    q: str = ""
    vc: str = ""
    state: str = ""
    user: str = ""
    namespace: str = ""
    node: str = ""
    ended: str = ""

    def takes(self, job: Job) -> bool:
        """True if a job is in the list."""
        if (self.vc and job.vc != self.vc) or (self.state and self.state not in states_of(job)):
            return False
        if self.node and not any(self.node in node for node in job.nodes):
            return False
        if self.user not in job.user or self.namespace not in job.namespace:
            return False
        is_masked = job.name == MASKED
        names = job.name, *job.aliases, *job.pods
        return not (self.q and is_masked) and _has(self.q.lower(), (*names, job.sentence, job.cause))


class Row(msgspec.Struct, frozen=True):
    """A job in the list: the path of its page, "" if the caller may not see it, and the end of its HTML id."""

    job: Job
    path: str
    anchor: str


class JobsPages:
    """The list of jobs, and one of them."""

    def __init__(self, site: Site, answering: Answering) -> None:
        self._site = site
        self._answering = answering
        self._queues = site.backend.queue_answers
        self._changes = None if self._queues is None else QueueChanges(self._queues, site.backend.config_desk)

    def jobs(self) -> Response:
        """The list, or what of it the question asks for."""
        filters = Filters(**{name: request.args.get(name, "")[:WORDS_LIMIT] for name in Filters.__struct_fields__})
        filters = msgspec.structs.replace(filters, state=filters.state.capitalize())
        if filters.state not in ("", *get_args(JobState)):
            raise UserError(f"state: found {filters.state!r}, expected one of {', '.join(get_args(JobState))}")
        at_s, mask = self._answering.view().snapshot.at, self._site.mask()
        if filters.ended in ENDED and filters.ended:
            past = self._answering.ended(at_s - read_duration(filters.ended))
            seen = [mask.listed(job, None, at_s) for job in past]
        else:
            seen = with_records(rows_of(self._site.backend, mask, _all_of(filters.vc)), self._site.unwatched_jobs())
        found = [job for job in seen if filters.takes(job)]
        page = min(page_number(), max(1, -(-len(found) // ROWS)))
        return self._site.page(
            "jobs.html",
            TAB,
            poll_s=POLL_S if len(seen) < MANY else SELDOM_S,
            filters=filters,
            vcs=self._site.frames.latest().layout.vcs,
            states=get_args(JobState),
            jobs=[_row(job) for job in found[(page - 1) * ROWS : page * ROWS]],
            causes=CAUSES,
            lists=ENDED,
            has_users=any(job.user for job in seen),
            has_counts=any(job.counts.words for job in found),
            count=len(found),
            total=len(seen),
            by_state=_by_state(found),
            page=page,
            pages=tuple(paged(len(found), page, ROWS)),
            url=f"{paths.PAGE_JOBS_PATH}?{_query(filters)}",
        )

    def job(self, name: str) -> Response | Plain:
        """One job, with its place in a queue if it is in one; see `_elsewhere` for names that are not its full one.

        Raises UserError (404) if there is none, or the caller may not see it.
        """
        mask = self._site.mask()
        try:
            queued = self._place(name, mask)
            if queued is not None and queued.state in WITHOUT_PODS:
                return self._waiting_in_queue(queued, mask)
        except UserError as error:
            if error.code != HTTPStatus.CONFLICT:
                raise
            return _list_of(name)
        try:
            view, listed = self._answering.find(name)
        except UserError as error:
            if error.code != NOT_FOUND:
                raise
            return self._elsewhere(name, mask)
        is_seen = mask.shows(listed.job.namespace)
        if listed.name != name or not is_seen:
            return self._elsewhere(name, mask, listed.name if is_seen else "")
        if queued is None and self._queues is not None:
            queued = self._place(self._queues.first_of(listed.queues_as), mask)
        if queued is not None and queued.state in WITHOUT_PODS:
            return self._waiting_in_queue(queued, mask, listed.job)
        why = mask.why(self._answering.why(listed.name), view.snapshot.at, view.namespaces)
        tried = self._try(lambda words: self._outcome(view, listed, words, mask), why.certificate)
        marks = _marks(view, listed, why.certificate)
        return self._page(
            why,
            queued,
            tried,
            holder_paths=_holder_paths(view, why.certificate),
            may_try=bool(listed.waiting) and why.certificate is not None,
            until=rfc3339(_until(view, listed)),
            marks=json.dumps(marks) if marks else "",
        )

    def _waiting_in_queue(self, queued: QueuedJob, mask: Mask, whole: Job | None = None) -> Response:
        """A job that waits in a queue, without pods; or the `whole` of which it is the first part that waits there."""
        queues = self._queues
        assert queues is not None
        seen = mask.seen(queues.namespaces())
        view, why = self._answering.view(), why_queued(queues, self._answering, queued.name, seen)
        why = why or Why(job=job_of(queued, view))
        why = why if whole is None else msgspec.structs.replace(why, job=held_as(whole, why.job))
        why = mask.why(why, view.snapshot.at, view.namespaces)

        def outcome(words: Sequence[str]) -> IfResult | None:
            found = try_on_queued(queues, self._answering, queued.name, seen, words, mask.shows)
            return None if found is None else mask.outcome(found[0], view.snapshot.at, found[1], view.namespaces)

        found = why.certificate
        holders = () if found is None else [one.group for one in found.holders if one.group != MASKED]
        return self._page(
            why,
            queued,
            self._try(outcome, found),
            holder_paths={name: paths.page_job_path(name) for name in holders},
            may_try=found is not None and bool(queued.queue),
        )

    def _page(self, why: Why, queued: QueuedJob | None, tried: "Tried", **values: Any) -> Response:
        """The page of a job that waits or runs."""
        when = why.when or why.job.when
        sentence = "" if why.certificate is None else why.certificate.sentence
        return self._site.page(
            "job.html",
            TAB,
            why.job.name,
            poll_s=SELDOM_S,
            job=why.job,
            certificate=why.certificate,
            when=when,
            may_help=_may_help(why.certificate, when),
            path=paths.page_job_path(why.job.name),
            tried=tried.words,
            result=tried.result,
            mistake=tried.mistake,
            causes=CAUSES,
            layout=self._site.frames.latest().layout,
            actions=actions_of(self._site, why.job),
            place=None if queued is None else self._place_shown(queued, sentence),
            words=WORDS,
            changes=paths.PAGE_QUEUE_CHANGES_PATH,
            **values,
        )

    def _place(self, name: str, mask: Mask) -> QueuedJob | None:
        """The job of a queue by its full name; None if there is none. Raises UserError (409) if several have it."""
        queues = self._queues
        found = None if queues is None or not is_full(name) else queues.job(name, mask.seen(queues.namespaces()))
        return None if found is None else with_counts([found], self._answering, mask.listed)[0]

    def _place_shown(self, job: QueuedJob, sentence: str) -> "Place":
        """The place of a job in its queue, beside this sentence about its cells, and what the viewer may change."""
        changes = self._changes
        allowed = () if changes is None else changes.allowed(job.name, self._site.caller)
        return Place(
            job,
            path=paths.page_queue_path(job.queue) if job.queue else "",
            turn="" if job.reason == sentence else job.reason.removesuffix(f": {sentence}"),
            buttons=[each for each in _buttons(job) if CHANGES[each][0] in allowed],
            may_move="move" in allowed and job.position > 0,
            token=self._site.guard.token(self._site.caller) if allowed else "",
        )

    def _elsewhere(self, name: str, mask: Mask, known: str = "") -> Response | Plain:
        """The page of a job that has ended, or is called otherwise: the latter's address has its full name.

        Several jobs of a name are a list. One that is in no list is `known` as this. Raises UserError (404).
        """
        held = self._site.unwatched_jobs()
        if record := next((job for job in held if job.name == name), None):
            return self._page(Why(job=record), None, Tried(""), may_try=False)
        at_s = self._answering.view().snapshot.at
        ended = self._answering.ended_job(name)
        ended = ended if ended is not None and mask.shows(ended.namespace) else None
        if ended is not None and ended.name == name:
            return self._ended(mask.listed(ended, None, at_s))
        rows = with_records(rows_of(self._site.backend, mask, _all_of()), held)
        found = [job.name for job in matching([job for job in rows if job.name not in (MASKED, name)], name)]
        if len(found) > 1:
            return _list_of(name)
        found = found or [known] * bool(known)
        if not found and ended is not None:
            return self._ended(mask.listed(ended, None, at_s))
        past = [] if found else [job for job in self._answering.ended() if mask.shows(job.namespace)]
        found = found or [job.name for job in matching([job for job in past if job.name != name], name)]
        if not found:
            raise UserError(unknown(name), NOT_FOUND)
        return redirect(paths.page_job_path(found[0]), 303)

    def _ended(self, job: Job) -> Response:
        """A job that has ended: nothing asks about it again."""
        return self._site.page("job.html", TAB, job.name, poll_s=0, job=job, certificate=None, causes=CAUSES)

    def cancel(self) -> Plain:
        """Delete the object of a job with the viewer's own rights. Raises UserError (403, 404, or the API server's)."""
        self._site.check_form(FORM_LIMIT)
        name, version = request.form.get("job", ""), request.form.get("version", "")
        path = object_path(name, version)
        if path is None:
            raise UserError(f"{name[:80]} is no job object: use the command", NOT_FOUND)
        with self._site.viewer() as kube:
            kube.delete(path, with_dependents=True)
        return _list_of(name)

    def log(self) -> Response:
        """The end of the log of a pod, as the viewer may read it. Raises UserError (403, or the API server's)."""
        namespace, _, name = request.args.get("pod", "").partition("/")
        with self._site.viewer() as kube:
            wanted = {"tailLines": str(LOG_LINES), "limitBytes": str(LOG_BYTES)}
            text = kube.text(f"{pod_path(namespace, name)}/log", wanted)
        return self._site.page("log.html", TAB, f"Log of {name}", poll_s=0, text=text, pod=name, namespace=namespace)

    def _outcome(self, view: View, listed: ListedJob, words: Sequence[str], mask: Mask) -> IfResult:
        """The outcome of changes for a job that has pods. Raises UserError."""
        found = self._answering.try_changes(listed.name, words, mask.shows)
        return mask.outcome(found, view.snapshot.at, listed.job.namespace, view.namespaces)

    def _try(self, outcome: Callable[[Sequence[str]], IfResult | None], certificate: Certificate | None) -> "Tried":
        """The outcome of the changes in the question, separated by spaces, for a job that waits."""
        words = request.args.get("if", "").strip()[:WORDS_LIMIT]
        if not words or certificate is None:
            return Tried(words)
        try:
            return Tried(words, outcome(words.split()))
        except UserError as error:
            return Tried(words, mistake=error.message)


class Tried(msgspec.Struct, frozen=True):
    """Changes that were tried, "" for none, their outcome, or what is wrong with them."""

    words: str
    result: IfResult | None = None
    mistake: str = ""


class Place(msgspec.Struct, frozen=True):
    """The place of a job in its queue: the path of that, why it is not its turn, and the changes of the viewer."""

    job: QueuedJob
    path: str
    turn: str
    buttons: Sequence[str]
    may_move: bool
    token: str


class Actions(msgspec.Struct, frozen=True):
    """The actions of a viewer on a job: `token` and `version` of the form that deletes it, "" if not allowed.

    `pods` are the first ones, as (namespace, name), whose logs are there to be read; with `reads_logs` on a page.
    """

    token: str
    version: str
    pods: tuple[tuple[str, str], ...]
    reads_logs: bool


def actions_of(site: Site, job: Job) -> Actions:
    """The actions on the page of a job (rule 34.3). Costs a review for a viewer who has shown a token."""
    pods = tuple(pod.partition("/")[::2] for pod in job.pods[:MOST_LOGS])
    caller, version = site.caller, job.api_version
    if not site.can_act:
        return Actions("", "", pods, reads_logs=False)
    may_delete = False
    if (kind := find_kind(version, job.name.partition("/")[0])) is not None:
        group = version.rpartition("/")[0]
        resource = {"verb": "delete", "group": group, "resource": kind.plural, "namespace": job.namespace}
        with suppress(KubeError):
            may_delete = caller is None or site.gate.may_do(caller, {**resource, "name": job.name.rpartition("/")[2]})
    return Actions(site.guard.token(caller) if may_delete else "", version, pods, reads_logs=True)


_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def object_path(name: str, version: str) -> str | None:
    """The path of a job object by its full name, None if hived follows no such kind."""
    kind_name, _, where = name.partition("/")
    kind = find_kind(version, kind_name)
    namespace, _, short = where.partition("/")
    is_named = all(_NAME.fullmatch(each) for each in (namespace, short))  # "." would mean the collection
    return None if kind is None or not is_named else path_of(version, kind.plural, namespace, short)


def _all_of(vc: str = "") -> dict[str, list[str]]:
    """The question of `hived get jobs` for the jobs of a virtual cluster, or of all, with those of queues."""
    return {QUEUED: [str(MOST_QUEUED)], **({"vc": [vc]} if vc else {})}


def _list_of(name: str) -> Plain:
    """The list of the jobs of a name, and of those of which it is a part, whatever their namespaces and kinds."""
    return redirect(f"{paths.PAGE_JOBS_PATH}?{urlencode({'q': name.rpartition('/')[2]})}", 303)


def _row(job: Job) -> Row:
    is_masked = job.name == MASKED
    anchor = hashlib.blake2b(job.name.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return Row(job, "" if is_masked else paths.page_job_path(job.name), anchor)


def _by_state(jobs: Iterable[Job]) -> list[tuple[str, int]]:
    counts = Counter(job.state for job in jobs)
    return [(state, counts[state]) for state in get_args(JobState) if counts[state]]


def _marks(view: View, listed: ListedJob, certificate: Certificate | None) -> list[tuple[int, int, int, int]]:
    """The job's own cells, and those of the jobs in its way."""
    holders = [] if certificate is None or certificate.never else [each.group for each in certificate.holders]
    groups = dict.fromkeys((group for holder in holders for group in _groups(view, holder)), Kind.IN_THE_WAY)
    groups |= dict.fromkeys(listed.groups, Kind.CHOSEN)
    with view.snapshot.lock:
        return marks_of(view.snapshot.state, groups)


def _may_help(certificate: Certificate | None, when: When | None) -> bool:
    """True if changes are of use, or were tried: not where a job starts soon, or waits for its own pods or its turn."""
    if certificate is None or certificate.unblock:
        return certificate is not None
    return certificate.cause not in UNTRIED_CAUSES and (when is None or when.kind not in ("now", "certain"))


def _until(view: View, listed: ListedJob) -> float | None:
    """The latest moment of the return of a job's last cells, in seconds since 1970; None if not known."""
    facts = [view.snapshot.running[group] for group in listed.groups if group in view.snapshot.running]
    ends = [each.leaves_s if each.is_leaving else each.declared_end_s for each in facts]
    known = [each for each in ends if each is not None]
    return max(known) if known and len(known) == len(ends) else None


def _groups(view: View, name: str) -> Sequence[str]:
    """The groups of a job, or of a part of it."""
    found = view.named.get(name)
    return found.groups if found is not None and found.name == name else view.snapshot.jobs.get(name, (name,))


def _holder_paths(view: View, certificate: Certificate | None) -> dict[str, str]:
    """The paths of the jobs in the way."""
    if certificate is None:
        return {}
    wanted = dict.fromkeys(each.group for each in certificate.holders if each.group != MASKED)
    return {name: paths.page_job_path(one.job.name) for name in wanted if (one := view.named.get(name)) is not None}


def _has(words: str, texts: Iterable[str]) -> bool:
    return not words or any(words in text.lower() for text in texts)


def _query(filters: Filters) -> str:
    return urlencode({name: value for name, value in msgspec.structs.asdict(filters).items() if value})


FORM_LIMIT = 16 * 1024
"""Bytes of a form."""

HOLD, RELEASE, FRONT, BACK = "hold", "release", "front", "back"
CHANGES: dict[str, tuple[QueueAction, str]] = {
    HOLD: ("hold", ""),
    RELEASE: ("release", ""),
    NOW: ("release", NOW),
    FRONT: ("move", "front"),
    BACK: ("move", "back"),
}
"""Each button: an action, and the place to move to."""


WORDS = {HOLD: "Hold", RELEASE: "Release", NOW: "Release now", FRONT: "To the front", BACK: "To the back"}
"""The texts of buttons."""


class QueuedRow(msgspec.Struct, frozen=True):
    """A job with the path of its page, "" if the caller may not see it."""

    job: QueuedJob
    path: str
    since: str


class QueuesPages:
    """The list of queues, one of them, and the changes of the places of its jobs."""

    def __init__(self, site: Site, answers: QueueAnswers) -> None:
        self._site, self._answers = site, answers
        self._changes = QueueChanges(answers, site.backend.config_desk)

    def queues(self) -> Response:
        """All queues, or those of one virtual cluster."""
        self._check_enabled()
        vc = request.args.get("vc", "")
        queues = [queue for queue in self._answers.queues() if not vc or queue.vc == vc]
        return self._site.page(
            "queues.html", QUEUES_TAB, vc=vc, queues=queues, path_of=paths.page_queue_path, amounts=amounts
        )

    def _check_enabled(self) -> None:
        if not self._answers.is_enabled:
            told = "there are no queues: jobs get cells as they come; see the key queues of the configuration"
            raise UserError(told, HTTPStatus.NOT_FOUND)

    def queue(self, name: str) -> Response:
        """One queue. Raises UserError (404) if there is none."""
        self._check_enabled()
        mask = self._site.mask()
        seen, page, answering = mask.seen(self._answers.namespaces()), page_number(), self._site.backend.answering
        row_of = None if answering is None else row_names(answering)
        total, jobs = self._answers.some_jobs(Wanted(name), seen, (page - 1) * ROWS, ROWS, row_of)
        last = max(1, -(-total // ROWS))
        if page > last:
            page = last
            total, jobs = self._answers.some_jobs(Wanted(name), seen, (page - 1) * ROWS, ROWS, row_of)
        jobs = with_counts(jobs, answering, mask.listed)
        rows = folded(mask.queued(job) for job in jobs)
        return self._site.page(
            "queue.html",
            QUEUES_TAB,
            f"Queue {name}",
            poll_s=POLL_S if total < MANY else SELDOM_S,
            queue=_named(self._answers.queues(), name),
            rows=[self._row(job) for job in rows],
            has_counts=any(job.counts.words for job in rows),
            count=total,
            page=page,
            pages=tuple(paged(total, page, ROWS)),
            url=paths.page_queue_path(name),
            amounts=amounts,
        )

    def job(self, name: str) -> Plain:
        """An earlier address of the page of a job."""
        return redirect(paths.page_job_path(name), 301)

    def change(self) -> Plain:
        """Hold a job, release it or move it, and show it then. Raises UserError (403, 404, 409)."""
        self._site.check_form(FORM_LIMIT)
        chosen, job = request.form.get("change", ""), request.form.get("job", "")
        if before := request.form.get("before", "").strip():
            args = QueueArgs(job, "move", before)
        elif chosen in CHANGES:
            action, to = CHANGES[chosen]
            args = QueueArgs(job, action, to)
        else:
            raise UserError(f"a change is one of {', '.join(CHANGES)}, or has a job to be before: not {chosen[:40]!r}")
        found = self._changes.make(args, self._site.caller, self._site.mask())
        return redirect(paths.page_job_path(found.name), 303)

    def _row(self, job: QueuedJob) -> QueuedRow:
        is_masked = job.name == MASKED
        return QueuedRow(
            job,
            "" if is_masked else paths.page_job_path(job.name),
            rfc3339(job.since),
        )


def amounts(found: dict[str, float] | None) -> str:
    """Amounts by resource, without the domains of their names; "" for none."""
    shown = {name.rpartition("/")[2]: amount for name, amount in (found or {}).items() if amount and name != "memory"}
    return ", ".join(f"{amount:,g} {name}" for name, amount in shown.items())


def _named(queues: list[QueueReport], name: str) -> QueueReport | None:
    return next((queue for queue in queues if queue.name == name), None)


def _buttons(job: QueuedJob) -> tuple[str, ...]:
    """The changes that make sense for a job."""
    if job.state == "Held":
        return (RELEASE, NOW, FRONT, BACK)
    return (HOLD, FRONT, BACK) if job.state == "Waiting" else ()


def add_pages(site: Site) -> None:
    """The lists and the pages of jobs, and of queues; none where the service answers nothing about them."""
    add = site.blueprint.add_url_rule
    if site.backend.answering is not None:
        jobs = JobsPages(site, site.backend.answering)
        add(paths.PAGE_JOBS_PATH, "jobs", jobs.jobs)
        add(f"{paths.PAGE_JOBS_PATH}/<rest:name>", "job", jobs.job)
        add(paths.PAGE_CANCEL_PATH, "cancel", jobs.cancel, methods=["POST"])
        add(paths.PAGE_LOG_PATH, "log", jobs.log)
    if site.backend.queue_answers is not None:
        queues = QueuesPages(site, site.backend.queue_answers)
        add(paths.PAGE_QUEUES_PATH, "queues", queues.queues)
        add(f"{paths.PAGE_QUEUES_PATH}/<rest:name>", "queue", queues.queue)
        add(f"{paths.PAGE_QUEUED_PATH}/<rest:name>", "queued", queues.job)
        add(paths.PAGE_QUEUE_CHANGES_PATH, "queue_changes", queues.change, methods=["POST"])
