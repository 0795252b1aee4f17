"""`hived why`: why a job does not start, what would help, and when it starts."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NoReturn

import click
import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_cli.helpers.answers import NEVER, RUNS, WAITS, form_option, printed
from hived_cli.helpers.connecting import asks_api_server, unwatched_jobs
from hived_cli.helpers.names import complete_jobs, find_pod, find_waiting, find_why, namespace_option
from hived_cli.helpers.waits import draw_pod, draw_trial, draw_why, has_ended, queued
from hived_cli.helpers.watching import Answer, Show, watches
from hived_config.reader import printable
from hived_extender.api.inspection import Inspector
from hived_extender.api.names import matching
from hived_extender.api.queues import QueuedJob
from hived_extender.api.waiting import Job, PodView, Why
from hived_extender.kube.client import KubeClient, KubeError

WITHOUT_PODS = ("Waiting", "Held", "Refused")
"""States of jobs that wait in a queue, and have no pods."""


@click.command("why")
@click.argument("name", metavar="POD|JOB|GROUP", shell_complete=complete_jobs)
@namespace_option
@click.option(
    "--if", "changes", multiple=True, metavar="CHANGE",
    help="Try a change: priority=N, opportunistic, pods=16x1, leafType=TYPE, vc=NAME, ends=JOB, heal=NODE, move=JOB, "
    "cells=VC:+2xTYPE or combine=VC. Several are tried together.",
)  # fmt: skip
@form_option("text")
@click.option("--json", "is_json", is_flag=True, help="The same as -o json.")
@asks_api_server
@watches
def command(
    *,
    inspector: Inspector,
    connect: Callable[..., KubeClient | None],
    show: Show,
    name: str,
    namespace: str,
    changes: tuple[str, ...],
    output: str,
    is_json: bool,
) -> None:
    """Say why a job does not start, who has its cells, what would help, and when it starts.

    A job that waits in a queue has no pods yet: the answer has its place there as well.
    The name may be that of a pod (NAMESPACE/NAME, or NAME with -n), a gang, an affinity group, or a job. What is said
    to help was tried by the scheduler's core on a copy of its state: with that change alone the job starts at once.
    The service's answers are at most two seconds old: a name that it does not know is asked for once more after that
    time, before an error says that there is none. With --if changes of your own are tried. Nothing is
    changed and nothing is held.

    The exit code is 0 for an answer. With --if it is 0 if the job would start, 3 if it would wait all the same, and 4
    if it could never run; 1 for a mistake. With --watch it is 0 once the job is gone. A job that has ended is known for
    a week: how it ended, what it used, and when and for whom it was preempted.

    \b
    Examples:
      hived why default/train-0
      hived why train-0 -n research
      hived why me~train/default
      hived why train --if priority=200
      hived why train --if pods=16x1 --if vc=research
      hived why train --json | jq .certificate.unblock
      hived why train --watch
    """
    is_json = is_json or output == "json"
    context = click.get_current_context()
    if changes and context.params["is_watched"]:
        raise click.UsageError("--if and --watch exclude each other")
    waiting = find_waiting(inspector, name, namespace)
    if waiting is not None and waiting.state in WITHOUT_PODS:
        if changes:
            _try(inspector, Job(name=waiting.name, state="Waiting"), changes, is_json=is_json)
        show(lambda: _told(inspector, waiting.name, is_json=is_json))
        return
    try:
        known, found = _find(inspector, name, namespace, waiting)
        held = _held(connect, name, namespace) if has_ended(found.job) else None
    except UserError as error:
        is_unknown = error.code == HTTPStatus.NOT_FOUND
        held = _held(connect, name, namespace) if is_unknown else None
        part = _part(inspector, connect, name, namespace) if is_unknown and held is None else None
        if held is None and part is None:
            raise
        if part is not None and not part[1].goes_on:
            job, pod = part
            click.echo(
                printed(Why(job=replace(job, members=[pod]))) if is_json else draw_pod(job, pod, datetime.now(UTC))
            )
            return
        if part is not None:
            known, found = _find(inspector, part[1].name, "", None)
    if held is not None:
        click.echo(printed(held) if is_json else draw_why(held, datetime.now(UTC)))
        return
    if changes and has_ended(found.job):
        raise UserError(f"{printable(found.job.name)} has ended ({found.job.state}): no change is tried", 404)
    if changes:
        is_part = known in found.job.pods
        _try(inspector, replace(found.job, name=known if is_part else found.job.name), changes, is_json=is_json)

    def answer() -> Answer | None:
        why = inspector.why(known)
        if why is None:
            click.echo(f"{found.job.name} is gone: it has ended, or was deleted", err=True)
            return None
        if has_ended(why.job) and context.params["is_watched"]:
            said = f", {why.job.sentence}" if why.job.sentence else ""
            click.echo(f"{why.job.name} has ended: {why.job.state}{said}", err=True)
            return None
        job = inspector.queued_job(why.job.name)
        if is_json:
            return msgspec.json.encode(why)
        return draw_why(why, datetime.now(UTC), queued(job) if job is not None else "")

    show(answer)


def _held(connect: Callable[..., KubeClient | None], name: str, namespace: str) -> Why | None:
    """Return the job of this name that the service does not watch; None if there is none."""
    found = matching(unwatched_jobs(connect, namespace), name, namespace)
    return Why(job=found[0], when=found[0].when) if found else None


def _part(
    inspector: Inspector, connect: Callable[..., KubeClient | None], name: str, namespace: str
) -> tuple[Job, PodView] | None:
    """A pod that has ended or is to come, as far as the caller may read pods; see `find_pod`."""
    kube = connect(may_fail=True)
    try:
        return None if kube is None else find_pod(inspector, kube, name, namespace)
    except KubeError:
        return None


def _find(inspector: Inspector, name: str, namespace: str, queued_job: QueuedJob | None) -> tuple[str, Why]:
    """See `find_why`. A job that its queue has just admitted has no pods yet."""
    try:
        return find_why(inspector, name, namespace)
    except UserError as error:
        if queued_job is None or error.code != HTTPStatus.NOT_FOUND:
            raise
        told = f"{queued_job.name} does not wait: {printable(queued_job.reason)}; its pods are not known yet"
        raise UserError(told, error.code) from error


def _try(inspector: Inspector, job: Job, changes: Sequence[str], *, is_json: bool) -> NoReturn:
    """Say what comes of changes, and end with the exit code for it."""
    result = inspector.why_if(job.name, changes)
    click.echo(printed(result) if is_json else draw_trial(job, changes, result))
    never = result.certificate is not None and result.certificate.never
    raise SystemExit(RUNS if result.starts else NEVER if never else WAITS)


def _told(inspector: Inspector, name: str, *, is_json: bool) -> Answer | None:
    """A job that waits as a job; None once it does not."""
    job = inspector.queued_job(name)
    if job is None or job.state not in WITHOUT_PODS:
        click.echo(f"{name} has left its queue: hived why {name} says more", err=True)
        return None
    why = inspector.why(name)
    if why is None:
        return None
    return msgspec.json.encode(why) if is_json else draw_why(why, datetime.now(UTC), queued(job))
