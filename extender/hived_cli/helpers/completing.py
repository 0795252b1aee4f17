"""Completion of names by asking the service: shells wait for it, so it says nothing rather than something late."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from hived.errors import HivedError
from hived_extender.api.queues import HELD_LATER, QueuedJob, QueuedJobs, QueueReport, names_of
from hived_extender.api.waiting import MASKED
from hived_extender.client.inspection import DEFAULT_SERVER, Credentials, Inspector

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
