"""Completion of names by asking the service: shells wait for it, so it says nothing rather than something late."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from hived.errors import HivedError
from hived_extender.api.queues import QueuedJobs, QueueReport, names_of
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


def complete_queued(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs in queues whose names begin so, with or without kind and namespace."""
    return _queued(ctx, incomplete, is_waiting=False)


def complete_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Queues whose names begin so, each with how many jobs wait."""
    found: list[QueueReport] | None = _asked(ctx, lambda inspector: inspector.queues())
    return [
        CompletionItem(one.name, help=f"{one.waiting} waiting")
        for one in found or ()
        if one.name.startswith(incomplete)
    ]


def _queued(ctx: click.Context, incomplete: str, *, is_waiting: bool) -> list[CompletionItem]:
    wanted = {"prefix": incomplete, "limit": str(MOST_QUEUED), **({"waiting": "1"} if is_waiting else {})}
    found: QueuedJobs | None = _asked(ctx, lambda inspector: inspector.queued_jobs("", wanted))
    return [
        CompletionItem(name, help=f"{job.state}, {job.queue}")
        for job in (() if found is None else found.items)
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
