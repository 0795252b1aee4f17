"""Queues: who waits, runs and borrows, the jobs of each in their order, and forms to hold, release and move them."""

import msgspec
from flask import Response, redirect, request
from werkzeug.wrappers import Response as Plain

from hived.values.errors import UserError
from hived_extender.api import paths
from hived_extender.api.queues import QueueAction, QueueArgs, QueuedJob, QueueReport
from hived_extender.api.waiting import MASKED, Why
from hived_extender.http.masking import Mask
from hived_extender.http.pages.form_guard import FormGuard
from hived_extender.http.pages.site import POLL_S, Site, page_number, paged
from hived_extender.http.queue_changes import QueueChanges
from hived_extender.insight.queued import why_queued
from hived_extender.queues.answering import QueueAnswers, Wanted
from hived_extender.service.certificates import rfc3339

TAB = "Queues"
ROWS = 50
MANY, SELDOM_S = 1000, 15
"""A list of so many jobs is asked for again only every few seconds, since it takes a while to make."""

FORM_LIMIT = 16 * 1024
"""Bytes of a form."""

HOLD, RELEASE, FRONT, BACK = "hold", "release", "front", "back"
CHANGES: dict[str, tuple[QueueAction, str]] = {
    HOLD: ("hold", ""),
    RELEASE: ("release", ""),
    FRONT: ("move", "front"),
    BACK: ("move", "back"),
}
"""What each button does: an action, and the place to move to."""


WORDS = {HOLD: "Hold", RELEASE: "Release", FRONT: "To the front", BACK: "To the back"}
"""What is written on each button."""


class Row(msgspec.Struct, frozen=True):
    """A job with the path of its page, "" if the caller may not see it."""

    job: QueuedJob
    path: str
    since: str


class QueuesPages:
    """See the module."""

    def __init__(self, site: Site, answers: QueueAnswers) -> None:
        self._site, self._answers = site, answers
        self._changes = QueueChanges(answers, site.backend.config_desk)
        self._guard = FormGuard()

    def queues(self) -> Response:
        """All queues, or those of one virtual cluster."""
        vc = request.args.get("vc", "")
        queues = [queue for queue in self._answers.queues() if not vc or queue.vc == vc]
        return self._site.page("queues.html", TAB, vc=vc, queues=queues, path_of=paths.page_queue_path, amounts=amounts)

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

    def _row(self, job: QueuedJob) -> Row:
        is_masked = job.name == MASKED
        return Row(
            job,
            "" if is_masked else paths.page_queued_path(job.name),
            rfc3339(job.since),
        )

    def _page(self, template: str, title: str, status: int = 200, **values: object) -> Response:
        shown = {"changes": paths.PAGE_QUEUE_CHANGES_PATH, "words": WORDS}
        return self._site.page(template, TAB, title, status, **shown, **values)


def add_pages(site: Site) -> None:
    """All pages; none where the service has no queues."""
    answers = site.backend.queue_answers
    if answers is None:
        return
    pages = QueuesPages(site, answers)
    add = site.blueprint.add_url_rule
    add(paths.PAGE_QUEUES_PATH, "queues", pages.queues)
    add(f"{paths.PAGE_QUEUES_PATH}/<rest:name>", "queue", pages.queue)
    add(f"{paths.PAGE_QUEUED_PATH}/<rest:name>", "queued", pages.job)
    add(paths.PAGE_QUEUE_CHANGES_PATH, "queue_changes", pages.change, methods=["POST"])


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
