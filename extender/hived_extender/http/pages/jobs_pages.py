"""Jobs and queues: lists to search, a page for each job with its reason and remedies, and forms to change places."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import get_args
from urllib.parse import urlencode

import msgspec
from flask import Response, redirect, request
from werkzeug.wrappers import Response as Plain

from hived.values.errors import UserError
from hived_extender.api import paths
from hived_extender.api.queues import QueueAction, QueueArgs, QueuedJob, QueueReport
from hived_extender.api.waiting import MASKED, UNTRIED_CAUSES, CauseName, Certificate, IfResult, Job, When, Why
from hived_extender.http.change_rights import QueueChanges
from hived_extender.http.masking import Mask
from hived_extender.http.pages.cells import Kind, marks_of
from hived_extender.http.pages.site import POLL_S, FormGuard, Site, page_number, paged
from hived_extender.insight.answering import NOT_FOUND, Answering, View, unknown
from hived_extender.insight.listing import JobState
from hived_extender.insight.queued import why_queued
from hived_extender.machine.certificates import rfc3339
from hived_extender.queues.answering import QueueAnswers, Wanted

TAB, QUEUES_TAB = "Jobs", "Queues"
ROWS = 50
SELDOM_S = 15
"""Seconds after which the page of a waiting job, or of `MANY` jobs, asks again: these take a while to make."""

MANY = 1000

WORDS_LIMIT = 200
"""Characters of a change to try."""


CAUSES: dict[CauseName, str] = {
    "in-use": "cells are in use",
    "in-pieces": "free cells are in pieces",
    "bad": "cells are bad",
    "lent": "lent cells are taken back",
    "preempting": "jobs of lower priority leave for it",
    "kubernetes": "Kubernetes rules nodes out",
    "incomplete": "members are missing",
    "quota": "a quota is used up",
    "order": "others are served first",
    "invalid": "the request is not valid",
    "never": "can never run",
    "unknown": "cause unknown",
}
"""Each cause in a few words."""


class Filters(msgspec.Struct, frozen=True):
    """Limits of a list; "" for no limit. `q` is looked for in names, pods and reasons."""

    q: str = ""
    vc: str = ""
    state: str = ""
    user: str = ""
    namespace: str = ""
    node: str = ""

    def takes(self, job: Job) -> bool:
        """True if a job is in the list."""
        if (self.vc and job.vc != self.vc) or (self.state and job.state != self.state):
            return False
        if self.node and not any(self.node in node for node in job.nodes):
            return False
        if self.user not in job.user or self.namespace not in job.namespace:
            return False
        is_masked = job.name == MASKED
        return not (self.q and is_masked) and _has(self.q.lower(), (job.name, job.sentence, job.cause, *job.pods))


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

    def jobs(self) -> Response:
        """The list, or what of it the question asks for."""
        filters = Filters(**{name: request.args.get(name, "")[:WORDS_LIMIT] for name in Filters.__struct_fields__})
        filters = msgspec.structs.replace(filters, state=filters.state.capitalize())
        view, mask = self._answering.view(), self._site.mask()
        at_s = view.snapshot.at
        seen = [mask.listed(one.job, view.certificates.get(one.job.name), at_s) for one in view.jobs]
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
            has_users=any(job.user for job in seen),
            count=len(found),
            total=len(seen),
            by_state=_by_state(found),
            page=page,
            pages=tuple(paged(len(found), page, ROWS)),
            url=f"{paths.PAGE_JOBS_PATH}?{_query(filters)}",
        )

    def job(self, name: str) -> Response | Plain:
        """One job, or its place in a queue while it has no pods.

        Raises UserError (404) if there is none, or the caller may not see it.
        """
        mask = self._site.mask()
        try:
            view, listed = self._answering.find(name)
        except UserError:
            queues = self._site.backend.queue_answers
            queued = None if queues is None else queues.job(name, mask.seen(queues.namespaces()))
            if queued is None:
                raise
            return redirect(paths.page_queued_path(queued.name), 303)
        if not mask.shows(listed.namespace):
            raise UserError(unknown(name), NOT_FOUND)
        why = mask.why(self._answering.why(name), view.snapshot.at, view.namespaces)
        tried = request.args.get("if", "").strip()[:WORDS_LIMIT]
        result, mistake = self._try(view, why.job.name, tried) if tried and why.certificate is not None else (None, "")
        marks, when = _marks(view, why.job.name, why.certificate), why.when or why.job.when
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
            holder_paths=_holder_paths(view, why.certificate),
            tried=tried,
            result=result,
            mistake=mistake,
            may_try=why.certificate is not None,
            causes=CAUSES,
            until=rfc3339(_until(view, why.job.name)),
            marks=json.dumps(marks) if marks else "",
            layout=self._site.frames.latest().layout,
        )

    def _try(self, view: View, name: str, tried: str) -> tuple[IfResult | None, str]:
        """The outcome of changes, separated by spaces; or what is wrong with them."""
        mask = self._site.mask()
        try:
            found = self._answering.try_changes(name, tried.split(), mask.shows)
        except UserError as error:
            return None, error.message
        return mask.outcome(found, view.snapshot.at, view.find(name).namespace, view.namespaces), ""


def _row(job: Job) -> Row:
    is_masked = job.name == MASKED
    anchor = hashlib.blake2b(job.name.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return Row(job, "" if is_masked else paths.page_job_path(job.name), anchor)


def _by_state(jobs: Iterable[Job]) -> list[tuple[str, int]]:
    counts = Counter(job.state for job in jobs)
    return [(state, counts[state]) for state in get_args(JobState) if counts[state]]


def _marks(view: View, name: str, certificate: Certificate | None) -> list[tuple[int, int, int, int]]:
    """The job's own cells, and those of the jobs in its way."""
    listed = view.find(name)
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


def _until(view: View, name: str) -> float | None:
    """The latest moment of the return of a job's last cells, in seconds since 1970; None if not known."""
    facts = [view.snapshot.running[group] for group in view.find(name).groups if group in view.snapshot.running]
    ends = [each.leaves_s if each.is_leaving else each.ends_s for each in facts]
    known = [each for each in ends if each is not None]
    return max(known) if known and len(known) == len(ends) else None


def _groups(view: View, name: str) -> tuple[str, ...]:
    """The groups of a job, or the group of that name."""
    found = view.named.get(name)
    return found.groups if found is not None and found.job.name == name else (name,)


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
    FRONT: ("move", "front"),
    BACK: ("move", "back"),
}
"""Each button: an action, and the place to move to."""


WORDS = {HOLD: "Hold", RELEASE: "Release", FRONT: "To the front", BACK: "To the back"}
"""The texts of buttons."""


class QueuedRow(msgspec.Struct, frozen=True):
    """A job with the path of its page, "" if the caller may not see it."""

    job: QueuedJob
    path: str
    since: str


class QueuesPages:
    """The list of queues, one of them, one of its jobs, and the form to change its place."""

    def __init__(self, site: Site, answers: QueueAnswers) -> None:
        self._site, self._answers = site, answers
        self._changes = QueueChanges(answers, site.backend.config_desk)
        self._guard = FormGuard()

    def queues(self) -> Response:
        """All queues, or those of one virtual cluster."""
        vc = request.args.get("vc", "")
        queues = [queue for queue in self._answers.queues() if not vc or queue.vc == vc]
        return self._site.page(
            "queues.html", QUEUES_TAB, vc=vc, queues=queues, path_of=paths.page_queue_path, amounts=amounts
        )

    def queue(self, name: str) -> Response:
        """One queue. Raises UserError (404) if there is none."""
        mask = self._site.mask()
        seen, page = mask.seen(self._answers.namespaces()), page_number()
        total, jobs = self._answers.some_jobs(Wanted(name), seen, (page - 1) * ROWS, ROWS)
        last = max(1, -(-total // ROWS))
        if page > last:
            page = last
            total, jobs = self._answers.some_jobs(Wanted(name), seen, (page - 1) * ROWS, ROWS)
        return self._page(
            "queue.html",
            f"Queue {name}",
            poll_s=POLL_S if total < MANY else SELDOM_S,
            queue=_named(self._answers.queues(), name),
            rows=[self._row(mask.queued(job)) for job in jobs],
            count=total,
            page=page,
            pages=tuple(paged(total, page, ROWS)),
            url=paths.page_queue_path(name),
            amounts=amounts,
        )

    def job(self, name: str) -> Response:
        """One job. Raises UserError (404) if it is in no queue, or the caller may not see it."""
        mask = self._site.mask()
        found = self._answers.job(name, mask.seen(self._answers.namespaces()))
        if found is None:
            raise UserError(f"no job {name!r} is in a queue: it has ended, or was deleted", 404)
        allowed = self._changes.allowed(found.name, self._site.caller)
        why = self._why(found.name, mask)
        certificate = why.certificate if why is not None else None
        return self._page(
            "queued.html",
            found.name,
            poll_s=SELDOM_S,
            certificate=certificate,
            when=why.when if why is not None else None,
            may_help=bool(certificate is not None and certificate.unblock),
            holder_paths={
                one.group: paths.page_job_path(one.group)
                for one in (certificate.holders if certificate is not None else ())
                if one.group != MASKED
            },
            turn=found.reason if certificate is not None and certificate.sentence != found.reason else "",
            row=self._row(found),
            buttons=[each for each in _buttons(found) if CHANGES[each][0] in allowed],
            may_move="move" in allowed and found.position > 0,
            token=self._guard.token(self._site.caller) if allowed else "",
            path_of=paths.page_queue_path,
        )

    def _why(self, name: str, mask: Mask) -> Why | None:
        """Why a job waits, as of jobs with pods; None for one that does not wait."""
        insight = self._site.backend.answering
        if insight is None:
            return None
        why = why_queued(self._answers, insight, name, mask.seen(self._answers.namespaces()))
        view = insight.view()
        return None if why is None else mask.why(why, view.snapshot.at, view.namespaces)

    def change(self) -> Plain:
        """Hold a job, release it or move it, and show it then. Raises UserError (403, 404, 409)."""
        request.max_form_memory_size = FORM_LIMIT
        is_open = not self._site.gate.knows_callers
        self._guard.check(dict(request.headers), request.form.get("token", ""), self._site.caller, is_open=is_open)
        chosen, job = request.form.get("change", ""), request.form.get("job", "")
        if before := request.form.get("before", "").strip():
            args = QueueArgs(job, "move", before)
        elif chosen in CHANGES:
            action, to = CHANGES[chosen]
            args = QueueArgs(job, action, to)
        else:
            raise UserError(f"a change is one of {', '.join(CHANGES)}, or has a job to be before: not {chosen[:40]!r}")
        found = self._changes.make(args, self._site.caller, self._site.mask())
        return redirect(paths.page_queued_path(found.name), 303)

    def _row(self, job: QueuedJob) -> QueuedRow:
        is_masked = job.name == MASKED
        return QueuedRow(
            job,
            "" if is_masked else paths.page_queued_path(job.name),
            rfc3339(job.since),
        )

    def _page(self, template: str, title: str, status: int = 200, **values: object) -> Response:
        shown = {"changes": paths.PAGE_QUEUE_CHANGES_PATH, "words": WORDS}
        return self._site.page(template, QUEUES_TAB, title, status, **shown, **values)


def amounts(found: dict[str, float] | None) -> str:
    """Amounts by resource, without the domains of their names; "" for none."""
    shown = {name.rpartition("/")[2]: amount for name, amount in (found or {}).items() if amount and name != "memory"}
    return ", ".join(f"{amount:,g} {name}" for name, amount in shown.items())


def _named(queues: list[QueueReport], name: str) -> QueueReport | None:
    return next((queue for queue in queues if queue.name == name), None)


def _buttons(job: QueuedJob) -> tuple[str, ...]:
    """The changes that make sense for a job."""
    if job.state == "Held":
        return (RELEASE, FRONT, BACK)
    return (HOLD, FRONT, BACK) if job.state == "Waiting" else ()


def add_pages(site: Site) -> None:
    """The lists and the pages of jobs, and of queues; none where the service answers nothing about them."""
    add = site.blueprint.add_url_rule
    if site.backend.answering is not None:
        jobs = JobsPages(site, site.backend.answering)
        add(paths.PAGE_JOBS_PATH, "jobs", jobs.jobs)
        add(f"{paths.PAGE_JOBS_PATH}/<rest:name>", "job", jobs.job)
    if site.backend.queue_answers is not None:
        queues = QueuesPages(site, site.backend.queue_answers)
        add(paths.PAGE_QUEUES_PATH, "queues", queues.queues)
        add(f"{paths.PAGE_QUEUES_PATH}/<rest:name>", "queue", queues.queue)
        add(f"{paths.PAGE_QUEUED_PATH}/<rest:name>", "queued", queues.job)
        add(paths.PAGE_QUEUE_CHANGES_PATH, "queue_changes", queues.change, methods=["POST"])
