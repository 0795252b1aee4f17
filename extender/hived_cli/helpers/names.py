"""The names by which people call jobs, with or without a namespace, and their completion in shells."""

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from hived.values.errors import HivedError, UserError
from hived_cli.helpers.waits import GONE
from hived_config.reader import printable
from hived_extender.api.inspection import DEFAULT_SERVER, Credentials, Inspector
from hived_extender.api.queues import HELD_LATER, QueuedJob, QueuedJobs, QueueReport, names_of
from hived_extender.api.waiting import MASKED, FreeCells, Job, Why

GANG = "podgroup/"
KINDS = ("pod", "job")
DEFAULT_NAMESPACE = "default"
FULL = 2
CLOSE_COUNT = 3
MOST_COMPARED = 20_000
"""So many names are compared with an unknown one."""

AGAIN_S = 2.2
"""After so many seconds an unknown name is asked for once more: the service's answers may be two seconds old."""

_PARTS = re.compile(r"[/~:]")


def known_as(name: str, namespace: str) -> list[str]:
    """The names that the service may know a job by, most likely first: docs/commands.md#names-of-jobs has all forms."""
    found = _known_as(name, namespace)
    bare = without_kind(name)
    queued = [GANG + name.partition("/")[2]] if _is_full(name) else []  # its pods, while they wait
    return [*found, *queued, *(_known_as(bare, namespace) if bare != name else ())]


def without_kind(name: str) -> str:
    """A name as people write it, from `pod/NAME` or `job/NAME` as `hived submit` prints it."""
    kind, slash, bare = name.partition("/")
    return bare if slash and kind in KINDS and "/" not in bare else name


def _is_full(name: str) -> bool:
    """True for the name of a gang, or of a job of a queue: Kind/namespace/name."""
    return name.count("/") == FULL


def submitted_as(name: str, namespace: str) -> tuple[str, str]:
    """Namespace and name of a submitted job; a namespace in the name goes first."""
    bare = without_kind(name).removeprefix(GANG)
    where, slash, short = bare.partition("/")
    return (where, short) if slash else (namespace or DEFAULT_NAMESPACE, bare)


def find_queued(inspector: Inspector, name: str, namespace: str) -> QueuedJob | None:
    """The job of a queue that is called so, in whatever namespace if none is given; None if there is none.

    Raises UserError if several are. A namespace in the name goes first.
    """
    bare = without_kind(name).removeprefix(GANG)
    return inspector.queued_job(f"{namespace}/{bare}" if namespace and "/" not in bare else bare)


def _known_as(name: str, namespace: str) -> list[str]:
    short = name.removeprefix(GANG)
    if namespace:
        return [f"{namespace}/{name}", f"{GANG}{namespace}/{short}", f"{namespace}:{name}", name]
    if name.startswith(GANG):
        return [name] if "/" in short else [name, f"{GANG}{DEFAULT_NAMESPACE}/{short}"]
    if "/" in name:
        return [name, f"{GANG}{name}", name.replace("/", ":", 1), f"{DEFAULT_NAMESPACE}:{name}"]
    return [name, f"{DEFAULT_NAMESPACE}/{name}"]


def find_why(inspector: Inspector, name: str, namespace: str) -> Why:
    """All that is known of a job, by whatever name. Raises UserError, with names that are nearly this one, if it is
    unknown; OlderError. Of several jobs with this name the first one that waits is answered, and a line says so.

    An unknown job may have been submitted a moment ago: it is asked for once more, `AGAIN_S` later.
    """
    found, _ = _find_why(inspector, name, namespace)
    if found is None:
        time.sleep(AGAIN_S)
        found, jobs = _find_why(inspector, name, namespace)
        if found is None:
            raise unknown(jobs, name, namespace)
    return found


def find_jobs(inspector: Inspector, name: str, namespace: str) -> list[Job]:
    """The jobs that are called so, at least one: see `matching`. An unknown name is asked for as by `find_why`.

    Raises UserError, with names that are nearly this one, if it is unknown; OlderError.
    """
    found = matching(_present(inspector), name, namespace)
    if not found:
        time.sleep(AGAIN_S)
        jobs = _present(inspector)
        found = matching(jobs, name, namespace)
        if not found:
            raise unknown(jobs, name, namespace)
    return found


def _present(inspector: Inspector) -> list[Job]:
    return [job for job in inspector.jobs() if job.state != GONE]


def _find_why(inspector: Inspector, name: str, namespace: str) -> tuple[Why | None, list[Job]]:
    """All that is known of a job, None for nothing; and the jobs, as far as they had to be asked for."""
    for each in known_as(name, namespace):
        why = inspector.why(each)
        if why is not None:
            return why, []
    jobs = inspector.jobs()
    found = matching(jobs, name, namespace)
    for job in found:
        why = inspector.why(job.name)
        if why is None:
            continue
        if len(found) > 1:
            click.echo(f"{name} is part of {len(found)} names; this is {printable(why.job.name)}", err=True)
        return why, jobs
    return None, jobs


def matching(jobs: Iterable[Job], name: str, namespace: str) -> list[Job]:
    """The jobs that are called so: those with this very name, else those with this pod, else those whose name has it
    as a part, as `train` in `me~train/worker`.
    """
    names = set(known_as(name, namespace))
    seen = [job for job in jobs if job.name != MASKED]
    here = [job for job in seen if not namespace or namespace in (job.namespace, *_namespaces(job))]
    return (
        [job for job in seen if job.name in names]
        or [job for job in seen if not names.isdisjoint(job.pods)]
        or [job for job in seen if _is_full(job.name) and job.name.partition("/")[2] in names]
        or [job for job in here if any(_short(pod) == name for pod in job.pods)]
        or [job for job in here if name in (*_PARTS.split(job.name), job.name.partition(":")[2])]
    )


def unknown(jobs: Sequence[Job], name: str, namespace: str) -> UserError:
    """The error that says that there is no such job, and which there are of nearly this name."""
    known = dict.fromkeys(each for job in jobs if job.name != MASKED for each in (job.name, *job.pods))
    compared = list(known)[:MOST_COMPARED]
    by_part = {part: each for each in reversed(compared) for part in _PARTS.split(each)[1:] or [each]}
    short = _PARTS.split(name)[-1]
    close = [each for each in compared if any(part.startswith(f"{short}-") for part in _PARTS.split(each)[1:])]
    close += get_close_matches(f"{namespace}/{name}" if namespace else name, compared, n=CLOSE_COUNT)
    close += [by_part[each] for each in get_close_matches(short, by_part, n=CLOSE_COUNT)]
    near = ", ".join(printable(each) for each in list(dict.fromkeys(close))[:CLOSE_COUNT])
    where = f" in namespace {namespace}" if namespace else ""
    hint = f"nearest: {near}" if near else "`hived get jobs` lists all"
    return UserError(f"no job, gang, group or pod {name!r}{where} waits or runs; {hint}", 404)


def of_vc(cells: Sequence[FreeCells], name: str | None) -> list[FreeCells]:
    """The cells of one virtual cluster, or of all. Raises UserError if there is none of this name."""
    found = [one for one in cells if not name or name == one.vc]
    if name and not found:
        known = ", ".join(printable(vc) for vc in dict.fromkeys(one.vc for one in cells))
        raise UserError(f"no virtual cluster {name!r}; there are {known or 'none'}", 404)
    return found


def _short(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _namespaces(job: Job) -> set[str]:
    return {pod.partition("/")[0] for pod in job.pods}


ANSWER_S = 1.0
MOST_QUEUED = 100
"""Jobs of queues that are offered."""

_FILES = ("token_file", "certificate_authority", "client_certificate", "client_key")


def complete_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs whose names begin so, each with its state and virtual cluster; those of queues too, which have no pods."""
    found = _asked(ctx, lambda inspector: inspector.jobs())
    return [
        CompletionItem(job.name, help=f"{job.state}, {job.vc}")
        for job in found or ()
        if job.name != MASKED and job.name.startswith(incomplete)
    ] + _queued(ctx, incomplete, is_waiting=True)


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
        for name in names_of(job.name)
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
