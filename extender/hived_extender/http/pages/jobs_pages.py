"""Jobs: a list to search, and a page for each with the reason why it waits, when it starts and what would help."""

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
from hived_extender.api.paths import PAGE_JOBS_PATH, page_job_path, page_queued_path
from hived_extender.api.waiting import MASKED, UNTRIED_CAUSES, CauseName, Certificate, IfResult, Job, When
from hived_extender.http.pages.marks import Kind, marks_of
from hived_extender.http.pages.site import POLL_S, Site, page_number, paged
from hived_extender.insight.answering import NOT_FOUND, Answering, View, unknown
from hived_extender.insight.listing import JobState
from hived_extender.service.certificates import rfc3339

TAB = "Jobs"
ROWS = 50
SELDOM_S = 15
"""How often the page of a waiting job, or of very many jobs, is asked for again: these take a while to find out."""

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
    """What a list is limited to; "" for no limit. `q` is looked for in names, pods and reasons."""

    q: str = ""
    vc: str = ""
    state: str = ""
    user: str = ""
    namespace: str = ""
    node: str = ""

    def takes(self, job: Job) -> bool:
        """Whether a job is in the list."""
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
    """See the module."""

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
            url=f"{PAGE_JOBS_PATH}?{_query(filters)}",
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
            return redirect(page_queued_path(queued.name), 303)
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
            path=page_job_path(why.job.name),
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


def add_pages(site: Site) -> None:
    """The list and the pages of jobs; none where the service has nobody to answer."""
    answering = site.backend.answering
    if answering is None:
        return
    pages = JobsPages(site, answering)
    site.blueprint.add_url_rule(PAGE_JOBS_PATH, "jobs", pages.jobs)
    site.blueprint.add_url_rule(f"{PAGE_JOBS_PATH}/<rest:name>", "job", pages.job)


def _row(job: Job) -> Row:
    is_masked = job.name == MASKED
    anchor = hashlib.blake2b(job.name.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return Row(job, "" if is_masked else page_job_path(job.name), anchor)


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
    """Whether changes are of use, or were tried: not where a job starts soon, or waits for its own pods or its turn."""
    if certificate is None or certificate.unblock:
        return certificate is not None
    return certificate.cause not in UNTRIED_CAUSES and (when is None or when.kind not in ("now", "certain"))


def _until(view: View, name: str) -> float | None:
    """When the last of a job's cells are given back at the latest, in seconds since 1970; None if nobody knows."""
    facts = [view.snapshot.running[group] for group in view.find(name).groups if group in view.snapshot.running]
    ends = [each.leaves_s if each.is_leaving else each.ends_s for each in facts]
    known = [each for each in ends if each is not None]
    return max(known) if known and len(known) == len(ends) else None


def _groups(view: View, name: str) -> tuple[str, ...]:
    """The groups of a job, or the group of that name."""
    found = view.named.get(name)
    return found.groups if found is not None and found.job.name == name else (name,)


def _holder_paths(view: View, certificate: Certificate | None) -> dict[str, str]:
    """Where the jobs in the way are shown."""
    if certificate is None:
        return {}
    wanted = dict.fromkeys(each.group for each in certificate.holders if each.group != MASKED)
    return {name: page_job_path(one.job.name) for name in wanted if (one := view.named.get(name)) is not None}


def _has(words: str, texts: Iterable[str]) -> bool:
    return not words or any(words in text.lower() for text in texts)


def _query(filters: Filters) -> str:
    return urlencode({name: value for name, value in msgspec.structs.asdict(filters).items() if value})
