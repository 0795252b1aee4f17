"""`hived hold`, `release` and `move`: changes of jobs in queues; the first two of other jobs as well."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NamedTuple

import click
import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_cli.get import lost_hours
from hived_cli.helpers.answers import as_json, ask, output_option, yes_option
from hived_cli.helpers.connecting import asks_api_server, asks_service, unwatched_jobs
from hived_cli.helpers.names import (
    complete_held,
    complete_placed,
    complete_unheld,
    find_alone,
    find_jobs,
    find_queued,
    namespace_option,
    one_of,
    record_of,
    renew_lists,
    submitted_as,
)
from hived_cli.helpers.waits import has_ended
from hived_config.reader import printable
from hived_config.words import counted
from hived_extender.api.inspection import Inspector, NoAnswerError
from hived_extender.api.names import DEFAULT_NAMESPACE, is_full, without_kind
from hived_extender.api.queues import NOW, QueueAction, QueueArgs, QueuedJob
from hived_extender.kube.client import KubeClient, KubeError

ABOUT = """
{summary}

JOB is any of its names, as hived get jobs has it, or a shorter one: namespace/name, or the name alone where one job has
it. Of several names nothing is done if one is unknown, or means several jobs. In a queue a job keeps its place, and one
that runs goes on. A job that no queue has is {done} through the API server, with your own rights: by the field of its
object that suspends it, a command of Volcano, or the record of hived submit. {ends} In a queue, callers need the right
to update the job, or to change the configuration.

\b
Examples:
  hived {action} Job/research/train
  hived {action} train -n research
  hived {action} train other {option}
  hived {action} train -o json
"""

HOLD_ENDS = "If it runs, its pods are deleted, so the command asks first. What cannot be held says why."

RELEASE_ENDS = "It starts once the --begin and --after of its author let it, or at once with --now."

job_argument = click.argument("job", shell_complete=complete_placed)

NOT_THERE = (HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE)
"""No queue has such a job, or there are no queues."""


class Changed(msgspec.Struct):
    """A job that no queue has, after a change, in words."""

    name: str
    action: QueueAction
    told: str


class Planned(NamedTuple):
    """A change of a job that has been found: `make` carries it out.

    It deletes `pods` that run, of the job `name`; `hours` of leaf cells are lost with them.
    """

    make: Callable[[], QueuedJob | Changed]
    name: str = ""
    pods: int = 0
    hours: float = 0.0


def change(inspector: Inspector, job: str, action: QueueAction, *, namespace: str = "", to: str = "") -> QueuedJob:
    """Make a change of a job in its queue; answers where the job is then. Raises UserError.

    One that is released, and that its author does not let start yet, says how it starts all the same.
    """
    bare = without_kind(job)
    named = f"{namespace}/{bare}" if namespace and "/" not in bare else bare
    found = inspector.change_queue(QueueArgs(named, action, to if to == NOW else without_kind(to)))
    if action == "release" and to != NOW and found.state == "Held":
        return replace(found, reason=f"{found.reason}; hived release {found.name} --now starts it at once")
    return found


def tell(found: QueuedJob | Changed) -> None:
    """Print what a change has done, in a line."""
    if isinstance(found, Changed):
        click.echo(f"{printable(found.name)}: {printable(found.told)}")
        return
    place = f", place {found.position} in queue {printable(found.queue)}" if found.position else ""
    why = f": {printable(found.reason)}" if found.reason and (found.state == "Held" or not place) else ""
    click.echo(f"{printable(found.name)}: {found.state}{place}{why}")


def tell_all(found: Sequence[QueuedJob | Changed]) -> None:
    """Print what changes have done as JSON: an object for one, a list for several."""
    values = [msgspec.to_builtins(one) for one in found]
    click.echo(as_json(values[0] if len(values) == 1 else values))


def keeping_its_place(
    action: QueueAction,
    done: str,
    summary: str,
    ends: str,
    option: Callable[[Callable[..., None]], Callable[..., None]],
) -> click.Command:
    """The command that makes a change which leaves jobs at their places."""
    shown = "--now" if action == "release" else "--yes"

    @click.command(
        action, help=ABOUT.format(summary=summary, action=action, done=done, ends=ends, option=shown).strip()
    )
    @click.argument(
        "names",
        metavar="JOB...",
        nargs=-1,
        required=True,
        shell_complete=complete_held if action == "release" else complete_unheld,
    )
    @namespace_option
    @option
    @output_option
    @asks_api_server
    @asks_service
    def command(
        *,
        inspector: Inspector,
        connect: Callable[[], KubeClient],
        names: tuple[str, ...],
        namespace: str,
        output: str,
        yes: bool = True,
        is_now: bool = False,
    ) -> None:
        to, is_json = NOW if is_now else "", output == "json"
        planned = [_plan(inspector, connect, name, namespace, action, to) for name in dict.fromkeys(names)]
        running = [one for one in planned if one.pods]
        for one in running:
            lost = f"with {one.hours:.1f} GPU-hours of work"
            click.echo(f"{printable(one.name)}: {counted(one.pods, 'pod')} will be deleted, {lost}", err=is_json)
        if running and not yes:
            ask(f"Hold {', '.join(printable(one.name) for one in running)}?", "held", is_json)
        found = []
        for one in planned:
            found.append(one.make())
            if not is_json:
                tell(found[-1])
        if is_json:
            tell_all(found)
        if any(isinstance(one, Changed) for one in found):
            renew_lists(inspector)

    return command


def _plan(
    inspector: Inspector, connect: Callable[[], KubeClient], name: str, namespace: str, action: QueueAction, to: str
) -> Planned:
    """The change of the one job of this name. Raises UserError if there is none, or several."""
    try:
        if (queued := find_alone(inspector, name, namespace)) is not None:
            full = queued.name
            return Planned(lambda: change(inspector, full, action, to=to))
        if find_queued(inspector, name, namespace) is not None:
            raise UserError(f"{name} is in no queue", HTTPStatus.NOT_FOUND)
        found = change(inspector, name, action, namespace=namespace, to=to)  # it has come to a queue this moment, or
        return Planned(lambda: found)  # says why no queue has it
    except UserError as error:
        if error.code not in NOT_THERE or isinstance(error, NoAnswerError):
            raise
        if (other := _other_name(inspector, name, namespace)) is not None:
            return Planned(lambda: change(inspector, other, action, to=to))
        return _plan_alone(inspector, _connected(connect, error), name, namespace, action, is_now=to == NOW)


def _loss_of(inspector: Inspector, pods: Sequence[str]) -> tuple[int, float]:
    """How many pods run of the job that has these, and the hours of leaf cells that are lost with them."""
    jobs = [job for job in inspector.jobs() if not (has_ended(job) or frozenset(pods).isdisjoint(job.pods))]
    names = {name for job in jobs for name in (job.name, *job.aliases, *job.pods)}
    lost = (lost_hours(group, datetime.now(UTC)) for group in inspector.groups() if group.name in names)
    return sum(job.counts.running for job in jobs), sum(lost)


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


def _plan_alone(
    inspector: Inspector, kube: KubeClient, name: str, namespace: str, action: QueueAction, *, is_now: bool
) -> Planned:
    """The change of a job that no queue has. Raises UserError."""
    from hived_jobs.deletion import find_maker  # noqa: PLC0415  # as below
    from hived_jobs.records import find_named  # noqa: PLC0415  # most jobs are in queues
    from hived_jobs.suspension import (  # noqa: PLC0415  # as above
        check_may_hold,
        pods_of,
        resume,
        resume_record,
        suspend,
        suspend_cron,
        suspend_record,
    )

    is_hold = action == "hold"

    def planned(full: str, do: Callable[[], str], pods: Sequence[str]) -> Planned:
        def make() -> Changed:
            try:
                return Changed(full, action, do())
            except KubeError as error:
                raise UserError(f"{name}: {error}", error.status) from error

        count, hours = _loss_of(inspector, pods) if is_hold and pods else (0, 0.0)
        return Planned(make, full, count, hours)

    try:
        kind, _, where = name.partition("/") if is_full(name) else ("", "", name)
        record = find_named(kube, *submitted_as(where, namespace))
        record = record if record is not None and kind in ("", record.kind) else None
        made = find_maker(kube, namespace or DEFAULT_NAMESPACE, name) if record is None else None
        is_cron = made is not None and made[0].startswith("CronJob/")
        if record is None and not is_cron:
            unwatched = unwatched_jobs(lambda **_: kube, namespace)
            job = one_of(find_jobs(inspector, name, namespace, unwatched), name)
            if job in unwatched:
                record, made = record_of(kube, job), find_maker(kube, job.namespace, job.name)
        if record is not None:
            full = f"{record.kind}/{record.namespace}/{record.full_name}"
            if not is_hold:
                return planned(full, lambda: resume_record(kube, record, is_now=is_now), ())
            return planned(full, lambda: suspend_record(kube, record), pods_of(kube, record))
        if made is not None and made[0].startswith("CronJob/"):
            return planned(made[0], lambda: suspend_cron(kube, made[1], is_on=is_hold), ())
        if is_hold:
            check_may_hold(kube, job)
    except KubeError as error:
        raise UserError(f"{name}: {error}", error.status) from error
    return planned(job.name, lambda: suspend(kube, job) if is_hold else resume(kube, job, is_now=is_now), job.pods)


hold = keeping_its_place(
    "hold",
    "suspended",
    "Hold jobs: in a queue one that runs goes on; without queues its pods are deleted, after a question.",
    HOLD_ENDS,
    yes_option,
)


release = keeping_its_place(
    "release",
    "resumed",
    "Let jobs that were held take their turn, or start.",
    RELEASE_ENDS,
    click.option("--now", "is_now", is_flag=True, help="Whatever --begin and --after of its author say."),
)


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
        moved = change(inspector, job, "move", namespace=namespace, to=places[0])
    except UserError as error:
        if error.code not in NOT_THERE or isinstance(error, NoAnswerError):
            raise
        found = one_of(find_jobs(inspector, job, namespace), job)
        why = f"{found.name} is in no queue, and so has no place: it is {found.state.lower()} ({error.message})"
        raise UserError(why, HTTPStatus.CONFLICT) from error
    (tell_all([moved]) if output == "json" else tell(moved))
