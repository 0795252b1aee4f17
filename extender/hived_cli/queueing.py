"""`hived hold`, `release` and `move`: changes of jobs in queues; the first two of other jobs as well."""

from collections.abc import Callable
from http import HTTPStatus

import click
import msgspec

from hived.values.errors import UserError
from hived_cli.helpers.answers import as_json, output_option
from hived_cli.helpers.connecting import asks_api_server, asks_service
from hived_cli.helpers.names import (
    complete_held,
    complete_placed,
    complete_unheld,
    find_alone,
    find_held,
    find_jobs,
    find_queued,
    namespace_option,
    one_of,
    submitted_as,
)
from hived_config.reader import printable
from hived_extender.api.inspection import Inspector, NoAnswerError
from hived_extender.api.names import DEFAULT_NAMESPACE, is_full, without_kind
from hived_extender.api.queues import QueueAction, QueueArgs
from hived_extender.kube.client import KubeClient, KubeError

ABOUT = """
{summary}

JOB is any of its names, as hived get jobs has it, or a shorter one: namespace/name, or the name alone where one job has
it. In a queue it keeps its place. A job that no queue has is {done} through the API server, with your own rights:
by the field of its object that suspends it, a command of Volcano, or the record of hived submit. What cannot be held
says why. In a queue, callers need the right to update the job, or to change the configuration.

\b
Examples:
  hived {action} Job/research/train
  hived {action} train -n research
  hived {action} train -o json
"""

job_argument = click.argument("job", shell_complete=complete_placed)

NOT_THERE = (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE)
"""No queue has such a job, or there are no queues."""


class Changed(msgspec.Struct):
    """A job that no queue has, after a change, in words."""

    name: str
    action: QueueAction
    told: str


def change(
    inspector: Inspector, job: str, action: QueueAction, output: str, *, namespace: str = "", to: str = ""
) -> None:
    """Make a change of a job in its queue, and say where the job is then. Raises UserError."""
    bare = without_kind(job)
    named = f"{namespace}/{bare}" if namespace and "/" not in bare else bare
    found = inspector.change_queue(QueueArgs(named, action, without_kind(to)))
    if output == "json":
        click.echo(as_json(msgspec.to_builtins(found)))
        return
    place = f", place {found.position} in queue {printable(found.queue)}" if found.position else ""
    if not place and found.reason:
        place = f": {printable(found.reason)}"
    click.echo(f"{printable(found.name)}: {found.state}{place}")


def keeping_its_place(action: QueueAction, done: str, summary: str) -> click.Command:
    """The command that makes a change which leaves a job at its place."""

    @click.command(action, help=ABOUT.format(summary=summary, action=action, done=done).strip())
    @click.argument("job", shell_complete=complete_held if action == "release" else complete_unheld)
    @namespace_option
    @output_option
    @asks_api_server
    @asks_service
    def command(
        *, inspector: Inspector, connect: Callable[[], KubeClient], job: str, namespace: str, output: str
    ) -> None:
        try:
            found = find_alone(inspector, job, namespace)
            if found is None and find_queued(inspector, job, namespace) is not None:
                raise UserError(f"{job} is in no queue", HTTPStatus.NOT_FOUND)
            change(inspector, job if found is None else found.name, action, output, namespace=namespace)
        except UserError as error:
            if error.code not in NOT_THERE or isinstance(error, NoAnswerError):
                raise
            if (queued := _other_name(inspector, job, namespace)) is not None:
                change(inspector, queued, action, output)
                return
            changed = _change_alone(inspector, _connected(connect, error), job, namespace, action)
            click.echo(
                as_json(changed) if output == "json" else f"{printable(changed.name)}: {printable(changed.told)}"
            )

    return command


def _other_name(inspector: Inspector, name: str, namespace: str) -> str | None:
    """The name as which a queue has a gang that is called by its pods or in its own words; None if none has it."""
    try:
        job = one_of(find_jobs(inspector, name, namespace), name)
    except UserError:
        return None
    return job.name if job.queue and job.name != name and inspector.queued_job(job.name) is not None else None


def _connected(connect: Callable[[], KubeClient], reason: UserError) -> KubeClient:
    """The API server, for a job that no queue has. Raises UserError, which gives that reason too."""
    try:
        return connect()
    except UserError as error:
        raise UserError(f"{reason.message}; and jobs outside of queues need the API server: {error.message}") from error


def _change_alone(inspector: Inspector, kube: KubeClient, name: str, namespace: str, action: QueueAction) -> Changed:
    """Hold or release a job that no queue has. Raises UserError."""
    from hived_jobs.deletion import find_maker  # noqa: PLC0415  # as below
    from hived_jobs.records import find_named  # noqa: PLC0415  # most jobs are in queues
    from hived_jobs.suspension import resume, resume_record, suspend, suspend_cron, suspend_record  # noqa: PLC0415  # as above

    try:
        kind, _, where = name.partition("/") if is_full(name) else ("", "", name)
        record = find_named(kube, *submitted_as(where, namespace))
        if record is None or kind not in ("", record.kind):
            record = find_held(kube, name, namespace) if action == "release" else None
        if record is not None:
            told = (suspend_record if action == "hold" else resume_record)(kube, record)
            return Changed(f"{record.kind}/{record.namespace}/{record.full_name}", action, told)
        made = find_maker(kube, namespace or DEFAULT_NAMESPACE, name)
        if made is not None and made[0].startswith("CronJob/"):
            return Changed(made[0], action, suspend_cron(kube, made[1], is_on=action == "hold"))
        job = one_of(find_jobs(inspector, name, namespace), name)
        told = (suspend if action == "hold" else resume)(kube, job)
    except KubeError as error:
        raise UserError(f"{name}: {error}", error.status) from error
    return Changed(job.name, action, told)


hold = keeping_its_place(
    "hold", "suspended", "Hold a job, so that it does not take its turn in its queue, or has no pods."
)


release = keeping_its_place("release", "resumed", "Let a job that was held take its turn, or start.")


@click.command("move")
@job_argument
@click.option("--front", is_flag=True, help="Before all others of its priority that wait.")
@click.option("--back", is_flag=True, help="Behind all others of its priority that wait.")
@click.option(
    "--before", metavar="JOB", default="", shell_complete=complete_placed,
    help="Before this one, of its priority and queue.",
)  # fmt: skip
@namespace_option
@output_option
@asks_service
def move(*, inspector: Inspector, job: str, front: bool, back: bool, before: str, namespace: str, output: str) -> None:
    """Give a job another place in its queue.

    It moves among those of its priority that wait. JOB is any of its names, or a shorter one. One that is in no queue
    has no place, and the answer says so. Callers need the right to change the configuration.

    \b
    Examples:
      hived move Job/research/train --front
      hived move train --before other
      hived move train --back -o json
    """
    places = [place for place, is_given in (("front", front), ("back", back), (before, bool(before))) if is_given]
    if len(places) != 1:
        raise click.UsageError("give one of --front, --back and --before JOB")
    try:
        change(inspector, job, "move", output, namespace=namespace, to=places[0])
    except UserError as error:
        if error.code not in NOT_THERE or isinstance(error, NoAnswerError):
            raise
        found = one_of(find_jobs(inspector, job, namespace), job)
        told = f"{found.name} is in no queue, and so has no place: it is {found.state.lower()} ({error.message})"
        raise UserError(told, HTTPStatus.CONFLICT) from error
