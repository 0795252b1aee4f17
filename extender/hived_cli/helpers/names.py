"""The names by which people call jobs, with or without a namespace, and their completion in shells."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from difflib import get_close_matches
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from hived.values.errors import HivedError, UserError
from hived_cli.helpers.waits import has_ended, listed
from hived_config.reader import printable
from hived_extender.api.inspection import DEFAULT_SERVER, Credentials, Inspector, NoAnswerError, OlderError
from hived_extender.api.names import (
    DEFAULT_NAMESPACE,
    GANG,
    is_full,
    known_as,
    matching,
    namespaces_in,
    parts_of,
    spoken,
    without_kind,
)
from hived_extender.api.queues import HELD_LATER, QueuedJob, QueuedJobs, QueueReport
from hived_extender.api.waiting import MASKED, FreeCells, Job, PodView, Why
from hived_extender.kube.client import KubeClient

if TYPE_CHECKING:
    from hived_jobs.records import Record

namespace_option = click.option(
    "-n", "--namespace", default="", help="Namespace of the job.  [default: in its name, else any]"
)

CLOSE_COUNT = 3
MOST_COMPARED = 20_000
"""So many names are compared with an unknown one."""

ALL_ENDED = "3650d"
"""Since when jobs that have ended are asked for: all that are known."""

QUEUED = "500"
"""So many jobs that wait in queues are looked through for a name."""

AGAIN_S = 2.2
"""After so many seconds an unknown name is asked for once more: the service's answers may be two seconds old."""

WATCH_S = 0.3
"""After so many seconds the service's watches have told it of a change, as a rule."""


def renew_lists(inspector: Inspector) -> None:
    """Have the service make its list of jobs anew, so that lists from now on show a change that the API server took."""
    time.sleep(WATCH_S)
    with suppress(UserError):  # the change is made all the same
        inspector.jobs({"new": ("1",), "state": ("Preempting",)})


def submitted_as(name: str, namespace: str) -> tuple[str, str]:
    """Namespace and name of a submitted job; a namespace in the name goes first."""
    bare = without_kind(name).removeprefix(GANG)
    where, slash, short = bare.partition("/")
    return (where, short) if slash else (namespace or DEFAULT_NAMESPACE, bare)


def record_of(kube: KubeClient, job: Job) -> "Record | None":
    """The record of a job that the service does not watch; None of a CronJob. Raises KubeError."""
    from hived_jobs.records import find_named  # noqa: PLC0415  # completion needs it not

    return None if job.api_version else find_named(kube, *submitted_as(job.name.partition("/")[2], ""))


def find_queued(inspector: Inspector, name: str, namespace: str) -> QueuedJob | None:
    """The job of a queue that is called so, in whatever namespace if none is given; None if there is none.

    Raises UserError if several are. A namespace in the name goes first.
    """
    bare = without_kind(name)
    first, slash, short = bare.partition("/")
    if not namespace or "/" in short:
        return inspector.queued_job(bare)
    if not slash:
        return inspector.queued_job(f"{namespace}/{bare}")
    found = inspector.queued_job(f"{first}/{namespace}/{short}")  # KIND/NAME, else NAMESPACE/NAME
    other = inspector.queued_job(bare) if found is None and not first.startswith(GANG[:-1]) else None
    return found if other is None or other.namespace != first else other


def find_waiting(inspector: Inspector, name: str, namespace: str) -> QueuedJob | None:
    """As `find_alone`; None as well if the name is the full one of a job out of queues, and a short one of several."""
    try:
        return find_alone(inspector, name, namespace)
    except UserError as error:
        jobs = _present(inspector, is_new=False) if error.code == HTTPStatus.CONFLICT else []
        if not any(job.name == name for job in jobs):
            raise
        return None


def find_alone(inspector: Inspector, name: str, namespace: str) -> QueuedJob | None:
    """The job of a queue that a name means and no other job beside it; None if it means none, or one out of queues at a
    higher rank (rule 24.19).

    Raises UserError (409) if it means several, which lists them.
    """
    queued = find_queued(inspector, name, namespace)
    if queued is None or queued.name == name:
        return queued
    jobs = _present(inspector, is_new=False)
    mine = [job for job in jobs if queued.name in (job.name, *job.aliases, *job.pods)]
    if not mine:  # lists are up to two seconds old, and have the first ones alone
        mine = [Job(name=queued.name, state="Waiting", namespace=queued.namespace)]
    found = matching([*(job for job in jobs if job not in mine), *mine], name, namespace)
    others = [job for job in found if job not in mine]
    if others and others == found:
        return None
    one_of([Job(name=queued.name, state="Waiting"), *others], name)
    return queued


def find_why(inspector: Inspector, name: str, namespace: str) -> tuple[str, Why]:
    """All that is known of a job, by whatever name, and the name that the service knows.

    Raises UserError, with names that are nearly this one, if it is unknown; (409) if several jobs have it; OlderError.
    One that has ended is answered only if no other is there, the latest of several. An unknown job may have been
    submitted a moment ago: it is asked for once more, `AGAIN_S` later.
    """
    found, _ = _find_why(inspector, name, namespace)
    if found is None:
        time.sleep(AGAIN_S)
        found, jobs = _find_why(inspector, name, namespace)
        if found is None:
            raise unknown(jobs, name, namespace)
    return found


def find_pod(inspector: Inspector, kube: KubeClient, name: str, namespace: str) -> tuple[Job, PodView] | None:
    """A pod that has ended, or has an index and is not made yet, and its job; None without one. Raises KubeError.

    The name is that of the pod, with or without the letters that its controller has drawn: `train-3`. Of several in
    turn it means the one that goes on, else the latest.
    """
    from hived_jobs.job_pods import short_of, with_all_pods  # noqa: PLC0415  # few names are of such pods

    *_, bare = without_kind(name).split("/")
    where = namespaces_in(name) or ((namespace,) if namespace else ())
    for job in _begun_by(inspector, bare):
        if where and job.namespace not in where:
            continue
        pods = with_all_pods(kube, job, is_folded=False).members
        found = [pod for pod in pods if bare in (pod.name.rpartition("/")[2], short_of(pod.name))]
        if found:
            return job, max(found, key=lambda pod: (pod.goes_on, pod.since))
    return None


def _begun_by(inspector: Inspector, pod: str) -> list[Job]:
    """The jobs with whose names that of a pod begins, the longest first; those that have ended behind the others."""
    present = inspector.jobs({"queued": (QUEUED,), "pods": ("1",)})
    ended = inspector.jobs({"ended": (ALL_ENDED,)})
    found = [job for job in (*present, *ended) if job.name != MASKED and pod.startswith(f"{parts_of(job.name)[-1]}-")]
    return sorted(found, key=lambda job: (has_ended(job), -len(job.name)))


def find_jobs(inspector: Inspector, name: str, namespace: str, unwatched: Sequence[Job] = ()) -> list[Job]:
    """The jobs that a name means, at least one, see `api.names.matching`: of all that the service has, and these.

    An unknown one is asked for as by `find_why`. Raises UserError, with names that are nearly this one, if it is
    unknown; OlderError.
    """
    apart = {job.name for job in unwatched}  # pods of some may still leave
    found = matching([*unwatched, *(job for job in _present(inspector) if job.name not in apart)], name, namespace)
    if not found:
        time.sleep(AGAIN_S)
        jobs = _present(inspector)
        found = matching(jobs, name, namespace) or _unlisted(inspector, name, namespace)
        if not found:
            raise unknown(jobs, name, namespace)
    return found


def check_known(inspector: Inspector, name: str, namespace: str, *, is_ended: bool) -> None:
    """Raise UserError (404) unless a job has this name that waits or runs, or that `is_ended`: with nearly this name.

    The error says where the job is found that is the other of the two.
    """
    ended = [job for job in inspector.jobs({"ended": (ALL_ENDED,)}) if job.name != MASKED]
    over = matching(ended, name, namespace)
    if is_ended and not over:
        if found := matching(_present(inspector), name, namespace):
            raise UserError(f"{printable(found[0].name)} has not ended: it is {found[0].state.lower()}", 404)
        raise unknown(ended, name, namespace, "has ended", "`hived get jobs --ended` lists all")
    if not is_ended:
        try:
            if find_queued(inspector, name, namespace) is None:
                find_jobs(inspector, name, namespace)
        except UserError as error:
            if not over or error.code != HTTPStatus.NOT_FOUND:
                raise
            told = f"{printable(over[0].name)} has ended ({over[0].state}): hived get jobs {name} --ended shows it"
            raise UserError(told, 404) from error


def check_group(inspector: Inspector, name: str, error: UserError) -> None:
    """Raise UserError (404), which says what else has the name of an affinity group that does not exist."""
    if isinstance(error, NoAnswerError | OlderError) or "does not exist" not in error.message:
        return
    jobs: list[Job] = []
    with suppress(UserError):  # an older service has no list of jobs
        jobs = _present(inspector)
    if found := matching(jobs, name):
        told = f"it is part of {printable(found[0].name)}, a job: hived get jobs {name}, or hived why {name}"
        raise UserError(f"no affinity group {name!r}; {told}", 404)
    near = ", ".join(nearest(name, [group.name for group in inspector.groups()]))
    hint = f"nearest: {near}" if near else "hived get groups lists all"
    raise UserError(f"no affinity group {name!r} has or awaits cells; {hint}", 404)


def one_of(found: Sequence[Job], name: str) -> Job:
    """The job that a name means. Raises UserError, which lists them, if several have it."""
    if len(found) > 1:
        raise UserError(
            f"{name} is part of {len(found)} names: {listed(sorted(job.name for job in found))}; give one of them", 409
        )
    return found[0]


def _unlisted(inspector: Inspector, name: str, namespace: str) -> list[Job]:
    """A job of which hived places no pod: no list has it."""
    return [why.job for _, why in _whys(inspector, name, namespace) if not has_ended(why.job)][:1]


def _whys(inspector: Inspector, name: str, namespace: str) -> Iterator[tuple[str, Why]]:
    """Each full name that a name may stand for, and all that is known of its job; of those in the namespace, if given,
    or in the one that the name says.
    """
    where = (namespace, *namespaces_in(name)) if namespace else ()
    for each in known_as(name, namespace):
        why = inspector.why(each)
        if why is not None and (not where or why.job.namespace in ("", *where)):
            yield each, why


def _present(inspector: Inspector, *, is_new: bool = True) -> list[Job]:
    """The jobs that have not ended, with the first ones of queues: a gang that waits there has that name as well.

    A new answer is begun after the question: who deletes a gang by an older one would leave its latest pods.
    """
    found = inspector.jobs({"queued": (QUEUED,), "new": ("1" if is_new else "",)})
    return [job for job in found if not has_ended(job) and job.name != MASKED]


def _find_why(inspector: Inspector, name: str, namespace: str) -> tuple[tuple[str, Why] | None, list[Job]]:
    """A name and all that is known of a job, None for nothing; and the jobs, as far as they had to be asked for."""
    is_short = not namespace and "/" not in without_kind(name).removeprefix(GANG) and ":" not in name
    jobs, found, over = list[Job](), None, None
    if is_short:  # jobs of several namespaces may have it
        jobs, found = _listed_why(inspector, name, namespace)
    if found is None:
        found, over = _guessed_why(inspector, name, namespace)
    if found is None and not is_short:
        jobs, found = _listed_why(inspector, name, namespace)
    return found or over or _first_of(inspector, find_ended(inspector, name, namespace), name), jobs


def _guessed_why(
    inspector: Inspector, name: str, namespace: str
) -> tuple[tuple[str, Why] | None, tuple[str, Why] | None]:
    """The first job that has a full name which the name may stand for, and the first of those that have ended."""
    over = None
    for each, why in _whys(inspector, name, namespace):
        if not has_ended(why.job):
            return (each, why), None
        over = over or (each, why)
    return None, over


def _listed_why(inspector: Inspector, name: str, namespace: str) -> tuple[list[Job], tuple[str, Why] | None]:
    """All jobs, and the one that the name means. Raises UserError (409) if it means several."""
    jobs = [job for job in inspector.jobs() if job.name != MASKED]
    found = matching([job for job in jobs if not has_ended(job)], name, namespace)
    return jobs, _first_of(inspector, [one_of(found, name)] if found else [], name)


def find_ended(inspector: Inspector, name: str, namespace: str) -> list[Job]:
    """The jobs that a name means of those that have ended, the latest first. Raises OlderError."""
    ended = [job for job in inspector.jobs({"ended": (ALL_ENDED,)}) if job.name != MASKED]
    return matching(ended, name, namespace)


def _first_of(inspector: Inspector, jobs: Sequence[Job], name: str) -> tuple[str, Why] | None:
    """All that is known of the first of some jobs with a name, and a line if there are several. A pod has its own."""
    bare = without_kind(name)
    for job in jobs:
        own = (pod for pod in job.pods if bare in (pod, pod.partition("/")[2]))
        for known in (*own, job.name):
            if (why := inspector.why(known)) is not None:
                _tell_others(jobs, name, job.name)
                return known, why
    return None


def _tell_others(jobs: Sequence[Job], name: str, chosen: str) -> None:
    """A line about the jobs that a name means beside the chosen one, if there are any."""
    if others := [one for one in dict.fromkeys(job.name for job in jobs) if one != chosen]:
        told = f"{name} is part of {len(jobs)} names; this is {printable(chosen)}, others are {listed(others)}"
        click.echo(told, err=True)


def unknown(
    jobs: Sequence[Job],
    name: str,
    namespace: str,
    does: str = "waits or runs",
    all_in: str = "`hived get jobs` lists all",
) -> UserError:
    """The error that says that there is no such job, and which there are of nearly this name."""
    known = dict.fromkeys(each for job in jobs for each in (job.name, *job.aliases, *job.pods))
    compared = list(known)[:MOST_COMPARED]
    by_part = {part: each for each in reversed(compared) for part in parts_of(each)[1:] or [each]}
    short = parts_of(name)[-1]
    close = [each for each in compared if any(part.startswith(f"{short}-") for part in parts_of(each)[1:])]
    close += get_close_matches(f"{namespace}/{name}" if namespace else name, compared, n=CLOSE_COUNT)
    close += [by_part[each] for each in get_close_matches(short, by_part, n=CLOSE_COUNT)]
    near = ", ".join(printable(each) for each in list(dict.fromkeys(close))[:CLOSE_COUNT])
    where = f" in namespace {namespace}" if namespace else ""
    return UserError(
        f"no job, gang, group or pod {name!r}{where} {does}; {f'nearest: {near}' if near else all_in}", 404
    )


def nearest(name: str, known: Sequence[str]) -> list[str]:
    """A few names that are nearly this one, for a terminal."""
    return [printable(each) for each in get_close_matches(name, list(dict.fromkeys(known)), n=CLOSE_COUNT)]


def of_vc(cells: Sequence[FreeCells], name: str | None) -> list[FreeCells]:
    """The cells of one virtual cluster, or of all. Raises UserError if there is none of this name."""
    found = [one for one in cells if not name or name == one.vc]
    if name and not found:
        known = ", ".join(printable(vc) for vc in dict.fromkeys(one.vc for one in cells))
        raise UserError(f"no virtual cluster {name!r}; there are {known or 'none'}", 404)
    return found


ANSWER_S = 1.0
MOST_QUEUED = 100
"""Jobs of queues that are offered."""

_FILES = ("token_file", "certificate_authority", "client_certificate", "client_key")


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs whose names begin so, each with its state and virtual cluster; those of queues too, which have no pods."""
    found = _asked(ctx, lambda inspector: inspector.jobs())
    return [
        CompletionItem(name, help=f"{job.state}, {job.vc}")
        for job in found or ()
        if job.name != MASKED
        for name in _begun(job, incomplete)
    ] + _queued(ctx, incomplete, is_waiting=True)


def _begun(job: Job, incomplete: str) -> list[str]:
    """The names of a job that begin so: in full, without kind, and without namespace."""
    names = (each for full in (job.name, *job.aliases) for each in (spoken(full) if is_full(full) else (full,)))
    return list(dict.fromkeys(name for name in names if name.startswith(incomplete)))


def complete_unheld(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs in queues that may be held, whose names begin so, with or without kind and namespace."""
    return _queued(ctx, incomplete, lambda job: bool(job.queue) and not _is_held(job))


def complete_held(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same of jobs that are held."""
    return _queued(ctx, incomplete, _is_held)


def complete_placed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The same of jobs that have a place in a queue; if a job is given already, of the others in its queue."""
    given = str(ctx.params.get("job") or next(iter(ctx.args), ""))  # the latter before an option without its value
    moved: QueuedJob | None = _asked(ctx, lambda inspector: inspector.queued_job(given)) if given else None
    name, queue = ("", "") if moved is None else (moved.name, moved.queue)
    return _queued(ctx, incomplete, lambda job: job.position > 0 and job.name != name, queue, is_waiting=True)


def complete_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Queues whose names begin so, each with how many jobs wait."""
    found: list[QueueReport] | None = _asked(ctx, lambda inspector: inspector.queues())
    return [
        CompletionItem(one.name, help=f"{one.waiting} waiting")
        for one in found or ()
        if one.name.startswith(incomplete)
    ]


def _is_held(job: QueuedJob) -> bool:
    return job.state == "Held" or job.reason.endswith(HELD_LATER)


def _queued(
    ctx: click.Context, incomplete: str, takes: Callable[[QueuedJob], bool] = lambda job: True, queue: str = "", *,
    is_waiting: bool = False,
) -> list[CompletionItem]:  # fmt: skip
    wanted = {"prefix": incomplete, "limit": str(MOST_QUEUED), **({"waiting": "1"} if is_waiting else {})}
    found: QueuedJobs | None = _asked(ctx, lambda inspector: inspector.queued_jobs(queue, wanted))
    return [
        CompletionItem(name, help=f"{job.state}, {job.queue}")
        for job in (() if found is None else found.items)
        if takes(job)
        for name in spoken(job.name)
        if name.startswith(incomplete)
    ]


def complete_vcs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Virtual clusters whose names begin so."""
    found = _asked(ctx, lambda inspector: dict.fromkeys(each.vc for each in inspector.free_cells()))
    return [CompletionItem(name) for name in found or () if name.startswith(incomplete)]


def _asked(ctx: click.Context, ask: Callable[[Inspector], Any]) -> Any:
    """The service's answer, None if it gives none in time or the options so far do not do."""
    with suppress(HivedError):
        files = {name: Path(given) for name in _FILES if (given := _given(ctx, name))}
        credentials = Credentials(_given(ctx, "token"), **files)
        return ask(Inspector(_given(ctx, "server") or DEFAULT_SERVER, credentials, timeout_s=ANSWER_S))
    return None


def _given(ctx: click.Context, name: str) -> str:
    return str(ctx.params.get(name) or os.environ.get(f"HIVED_{name.upper()}") or "")
