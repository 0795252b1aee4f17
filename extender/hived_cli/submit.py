"""`hived submit` and `hived resume`: jobs and pod manifests become pods of the cluster."""

import getpass
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import click

from hived.values.errors import HivedError, UserError
from hived_cli.helpers.answers import NEVER, RUNS, as_json, worst
from hived_cli.helpers.connecting import asks_api_server, asks_service
from hived_cli.helpers.documents import as_yaml
from hived_cli.helpers.names import submitted_as
from hived_cli.helpers.tables import table
from hived_cli.helpers.waits import listed
from hived_config.loader import Configuration
from hived_config.reader import printable
from hived_extender.api.inspection import Inspector, NoAnswerError
from hived_extender.api.waiting import MASKED, PodOutcome
from hived_extender.jobs.asks import parse_priority
from hived_extender.jobs.document import Part
from hived_extender.jobs.kinds import gates, marks
from hived_extender.jobs.kinds.table import find_kind
from hived_extender.kube.client import KubeClient, KubeError
from hived_jobs.configuration import find_configuration, is_embedded
from hived_jobs.controller import JobController
from hived_jobs.creation import (
    Created,
    create_jobs,
    refuse_equal_names,
    refuse_known_names,
    refuse_names_of_objects,
    refuse_resources,
    resume_job,
    submission_refusals,
)
from hived_jobs.documents import Document
from hived_jobs.kinds import plan_documents, read_jobs
from hived_jobs.policies import Phase, summary
from hived_jobs.records import read_record
from hived_jobs.submission import (
    Manifest,
    NoConfigurationError,
    PlannedJob,
    PlannedPod,
    Submission,
    TooLargeError,
    priority_classes,
)

UNCHECKED = "--unchecked"

_OUTCOMES = {"bind": "run", "never": "never run", "refused": "be refused", "not-ours": "not be for hived"}


def print_forecasts(inspector: Inspector, jobs: Sequence[PlannedJob], namespace: str) -> int:
    """A row for every pod that would be created; returns the exit code of the worst. Raises UserError if the service
    does not say.
    """
    for job in jobs:
        if job.is_suspended:
            click.echo(f"job {job.name} is suspended: no pod would be created")
        for each in job.objects if job.document is None else ():
            click.echo(f"{each['kind'].lower()}/{each['metadata']['name']} would be created")
    manifests = _manifests(jobs, namespace)
    if not manifests:
        return RUNS
    try:
        told = inspector.what_if(manifests)
    except NoAnswerError as error:
        raise UserError(f"{error.message} Name it with --server, or print the objects alone: -o yaml") from error
    except UserError as error:
        raise UserError(f"{error.message}; -o yaml prints the objects alone") from error
    rows = [[one.name, _OUTCOMES.get(one.outcome, one.outcome), one.node, ",".join(map(str, one.cells)), one.reason]
            for one in told]  # fmt: skip
    click.echo(table(["POD", "WOULD", "NODE", "CELLS", "REASON"], rows))
    for one in told:
        if one.victims:
            click.echo(f"{_preemptor(one, told)} would preempt {_victims(one)}")
    if any(one.outcome == "preempt" for one in told) and not any(one.victims for one in told):  # an older service
        click.echo("Who may have to leave: hived get jobs --node NODE lists the jobs of a node", err=True)
    return worst([one.outcome for one in told])


def _preemptor(one: PodOutcome, told: Sequence[PodOutcome]) -> str:
    return "It" if len(told) == 1 else one.name


def _victims(one: PodOutcome) -> str:
    hidden = [victim.pods for victim in one.victims if victim.name == MASKED]
    named = [f"{printable(victim.name)} ({_pod_count(victim.pods)})" for victim in one.victims if victim.name != MASKED]
    if hidden:
        named.append(f"{len(hidden)} job{'s' * (len(hidden) != 1)} of other tenants ({_pod_count(sum(hidden))})")
    if one.more_victims:
        named.append(f"{one.more_victims} more jobs")
    return ", ".join(named)


def _pod_count(count: int) -> str:
    return f"{count} pod{'s' * (count != 1)}"


def check_taken(inspector: Inspector, jobs: Sequence[PlannedJob], namespace: str) -> str:
    """Ask the service whether it takes the pods. Returns why it could not be asked, "" if it could.

    Raises UserError, with the reason for each pod, if it refuses some, or has no room for them at any time.
    """
    manifests = _manifests(jobs, namespace)
    if not manifests:
        return ""
    try:
        told = inspector.what_if(manifests)
    except NoAnswerError as error:
        return f"{error.message} Name it with --server."
    except UserError as error:
        return error.message
    refused = [one for one in told if one.outcome in ("refused", "never")]
    if refused:
        count = f"{len(refused)} of {len(told)} pods" if len(told) > 1 else "the pod"
        can_never = all(one.outcome == "never" for one in refused)
        says = f"says that {count} can never run" if can_never else f"refuses {count}"
        raise UserError(
            f"nothing was created, because {inspector.server} {says}:\n{_by_reason(refused)}\n"
            f"Correct that, name the cluster's own service with --server, or create them all the same with {UNCHECKED}"
        )
    return ""


def check_access(configuration: Configuration, jobs: Sequence[PlannedJob], namespace: str) -> None:
    """Raise UserError for pods that may not use their virtual cluster, by a configuration that may be another's."""
    refused = submission_refusals(_manifests(jobs, namespace), configuration.rules, configuration.cluster)
    if refused:
        listing = "\n".join(f"  {one}" for one in refused)
        raise UserError(
            f"nothing was created, because the configuration does not allow it:\n{listing}\n"
            f"Correct that, or create the pods all the same with {UNCHECKED}"
        )


def _by_reason(refused: Sequence[PodOutcome]) -> str:
    """A line for each reason, with the pods that it is told of."""
    pods: dict[str, list[str]] = {}
    for one in refused:
        pods.setdefault(one.reason, []).append(f"{one.namespace}/{one.name}")
    return "\n".join(f"  {listed(names, most=5)}: {reason}" for reason, names in pods.items())


def _manifests(jobs: Sequence[PlannedJob], namespace: str) -> list[Manifest]:
    pods = [pod.manifest for job in jobs for pod in job.first_pods()]
    return [{**pod, "metadata": {"namespace": namespace, **pod["metadata"]}} for pod in pods]


def unqueued(jobs: Sequence[PlannedJob], pods: Sequence[Manifest]) -> str:
    """A sentence about the pods of these jobs, as the API server has stored them; "" if all wait in a queue, or are
    to be in none by their own words.
    """
    passing = {
        pod["metadata"]["name"]
        for pod in pods
        if not gates.is_gated(Part("spec.", pod["spec"])) and _may_queue(pod["metadata"])
    }
    found = [job for job in jobs if any(pod.name in passing for pod in job.pods)]
    if not found:
        return ""
    queued = [job.name for job in found if job.document and find_kind(*map(job.document.get, ("apiVersion", "kind")))]
    ways = [f"kubectl apply the file of {listed(queued)}"] if queued else []
    if len(queued) < len(found):
        ways.append(f"create the pods with the scheduling gate {gates.GATE}")
    return (
        "jobs wait in queues here, and pods of hived submit do not: they get cells as they come. To have them wait, "
        f"{', and '.join(ways)} instead"
    )


def _may_queue(metadata: Mapping[str, Any]) -> bool:
    return marks.may_queue(metadata.get("labels") or {}, metadata.get("annotations") or {})


_USER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


class NeverRuns(click.ClickException):
    """A job can never run, as a dry run tells."""

    exit_code = NEVER


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("--vc", help="Virtual cluster; wins over the file's.")
@click.option(
    "--priority", metavar="PRIORITY", help="crit, prod, test, oppo or a number from -1 to 1000; wins over the file's."
)
@click.option("--user", default=getpass.getuser, show_default="your login name", help="Whose job it is.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the pods.")
@click.option("--scheduler-name", help="schedulerName of the pods.  [default: hivedscheduler-ds-<vc>, or hived]")
@click.option(
    "--config",
    envvar="CONFIG",
    show_envvar=True,
    default="",
    help="The cluster's configuration, for SKU types and quotas.  [default: what an embedded cluster publishes, "
    "else ./hivedscheduler.yaml]",
)
@click.option("--dry-run", is_flag=True, help="Create nothing; say where each pod would run, or print the objects.")
@click.option(UNCHECKED, is_flag=True, help="Create pods without asking the service first whether it refuses them.")
@click.option(
    "--watch",
    is_flag=True,
    help="Stay, and run the policies of the jobs until they have ended. OpenPAI jobs and plain pods have none.",
)
@click.option("-o", "--output", type=click.Choice(["text", "yaml", "json"]), default="text", help="Form of the answer.")
@asks_api_server
@asks_service
def command(
    *,
    files: tuple[str, ...],
    config: str,
    connect: Callable[..., KubeClient | None],
    inspector: Inspector,
    dry_run: bool,
    unchecked: bool,
    watch: bool,
    output: str,
    **wanted: Any,
) -> None:
    """Turn jobs and pod manifests into pods and create them.

    Takes jobs of OpenPAI, Kubeflow, Volcano, DLRover and Kubernetes itself, and plain Pod manifests, several documents
    to a file if you like; "-" reads standard input. Objects beside them, such as a Service, are created as they are.
    All files are checked before the first pod is created, and the service is asked. If it refuses a pod, as where
    there is no such virtual cluster, nothing is created. With --dry-run nothing is created. The service is asked where
    each pod would run now, or why it would wait, perhaps for ever. With -o yaml the objects are printed instead, and no
    cluster is needed.

    With --watch the command stays until jobs of Kubeflow, Volcano, DLRover and Kubernetes have ended, with exit code 0
    if all are complete, else 1. It does not wait for OpenPAI jobs and plain pods, which nobody looks after. If there is
    nothing else in the files it creates nothing, with exit code 1.

    The exit code of --dry-run is that of the worst pod: 0 if it would run, also in the place of pods that have to leave
    first; 3 if it would wait; 4 if it could never run, whoever ends; 1 if it is refused, if its name exists already, or
    for a mistake. With -o yaml and -o json nobody is asked, and the exit code is 0 unless there is a mistake.

    \b
    Examples:
      hived submit job.yaml
      hived submit job.yaml --vc research --priority prod
      hived submit job.yaml --dry-run
      hived submit job.yaml --dry-run -o yaml --config hivedscheduler.yaml
      hived submit volcano-job.yaml --watch
      hived submit notebook-pod.yaml --vc research --priority oppo
      hived submit *.yaml --kubeconfig ./kubeconfig -o json
    """
    _check_words(wanted["user"], dry_run=dry_run, watch=watch)
    documents = [each for file in files for each in read_jobs(file)]
    try:
        kube, found = _reach(connect, config, documents, wanted, may_fail=dry_run)
        submission = _submission(found, **wanted)
        jobs = _planned(documents, submission)
    except TooLargeError as error:
        if not dry_run:
            raise
        raise NeverRuns(error.message) from error
    if watch:
        _check_watched(jobs)
    if kube is None or dry_run:
        raise SystemExit(_foretell(inspector, kube, submission, jobs, output))
    refuse_names_of_objects(kube, submission.namespace, jobs)
    unasked = "" if unchecked else _check_taken(inspector, kube, found, jobs, submission.namespace)
    created = create_jobs(kube, submission, jobs)
    _tell_created(created, jobs, output, is_alone=not watch and not is_embedded(kube))
    is_queued = found is not None and found.rules.queueing.is_enabled
    _warn(unqueued(jobs, created.pods) if is_queued else "", unasked)
    if watch:
        watch_jobs(kube, [(job.namespace, job.name) for job in jobs if job.document and not job.is_suspended])


def _warn(unqueued_pods: str, unasked: str) -> None:
    """Warn of pods that wait in no queue, and of pods that were not checked; "" for neither."""
    if unqueued_pods:
        click.echo(f"Warning: {unqueued_pods}", err=True)
    if unasked:
        click.echo(f"Not checked whether hived takes these pods: {unasked}", err=True)


def _check_words(user: str, *, dry_run: bool, watch: bool) -> None:
    """Raises UsageError for options that exclude each other, and UserError for a user that no label can have."""
    if dry_run and watch:
        raise click.UsageError("--dry-run and --watch exclude each other: there would be nothing to watch")
    if not _USER.fullmatch(user):
        raise UserError(f"user {user!r}: expected at most 63 letters, digits, '-', '_' and '.'")


def _reach(
    connect: Callable[..., KubeClient | None], config: str, documents: Sequence[Document], wanted: dict[str, Any], *,
    may_fail: bool,
) -> tuple[KubeClient | None, Configuration | None]:  # fmt: skip
    """The API server, and the cluster's configuration. Raises UserError for mistakes in the documents before others."""
    try:
        kube = connect(may_fail=may_fail)
        return kube, _find_configuration(config, kube, may_fail=may_fail)
    except HivedError:
        with suppress(NoConfigurationError):  # what is wrong with a file goes first
            plan_documents(documents, _submission(find_configuration(config, None), **wanted))
        raise


def _foretell(
    inspector: Inspector, kube: KubeClient | None, submission: Submission, jobs: Sequence[PlannedJob], output: str
) -> int:
    """Say where each pod would run, or print the objects that would be created; returns the exit code.

    Raises UserError if the cluster has one of the names already.
    """
    refuse_equal_names(submission.namespace, jobs)
    if output == "text":
        if kube is not None:
            with suppress(KubeError):  # names are compared where they can be
                refuse_known_names(kube, submission.namespace, jobs)
                refuse_names_of_objects(kube, submission.namespace, jobs)
        return print_forecasts(inspector, jobs, submission.namespace)
    _print(_objects(jobs), output)
    return RUNS


def _check_taken(
    inspector: Inspector, kube: KubeClient, found: Configuration | None, jobs: Sequence[PlannedJob], namespace: str
) -> str:
    """See `check_taken`; without an answer of the service, its configuration decides who may use a virtual cluster.

    That a pod exists already is told rather than what the service says of it.
    """
    try:
        unasked = check_taken(inspector, jobs, namespace)
    except UserError:
        with suppress(KubeError):
            refuse_known_names(kube, namespace, jobs)
        raise
    if unasked and found is not None:
        check_access(found, jobs, namespace)
    return unasked


def _tell_created(created: Created, jobs: Sequence[PlannedJob], output: str, *, is_alone: bool) -> None:
    """Print the objects that were created, or lines about them and about the jobs; see `_tell_of`."""
    if output != "text":
        _print([*created.others, *created.pods], output)
        return
    print_created(created)
    for job in jobs:
        _tell_of(job, is_alone)


def _submission(
    found: Configuration | None, vc: str | None, priority: str | None, user: str, namespace: str,
    scheduler_name: str | None,
) -> Submission:  # fmt: skip
    return Submission(
        user=user,
        virtual_cluster=vc,
        priority=None if priority is None else parse_priority(priority),
        scheduler_name=scheduler_name,
        cluster=found.cluster if found is not None else None,
        namespace=namespace,
    )


def _planned(documents: Sequence[Document], submission: Submission) -> list[PlannedJob]:
    """The jobs of all documents; their warnings are printed. Raises UserError for one that no API server takes."""
    jobs, warnings = plan_documents(documents, submission)
    for job in jobs:
        refuse_resources(job.pods)
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)
    return jobs


def _check_watched(jobs: Sequence[PlannedJob]) -> None:
    """Say which pods --watch does not wait for. Raises UserError if it would wait for nothing at all."""
    unwatched = [pod.name for job in jobs if job.document is None for pod in job.pods]
    if not any(job.document is not None for job in jobs):
        raise UserError(
            "--watch runs the policies of jobs, and OpenPAI jobs and plain pods have none: nothing was created. Submit "
            "them without --watch, and follow them with hived get jobs --watch"
        )
    if unwatched:
        click.echo(f"--watch does not wait for pods without policies: {listed(unwatched)}", err=True)


def watch_jobs(kube: KubeClient, keys: Sequence[tuple[str, str]]) -> None:
    """Run the policies of these jobs until they have ended. Raises UserError unless all are complete."""
    phases = {}
    with JobController(kube, keys, _echo) as controller:
        for key in keys:
            phases[key] = controller.wait_ended(key)
    for (namespace, name), phase in phases.items():
        if phase is not Phase.COMPLETED:
            raise UserError(f"job {namespace}/{name} is {phase.value if phase else 'gone'}, not Completed")


def print_created(created: Created) -> None:
    """A line for everything that was created, and for what was not."""
    for one in [*created.others, *created.pods]:
        click.echo(f"{one['kind'].lower()}/{one['metadata']['name']} created")
    for what in created.unchanged:
        click.echo(f"{what} unchanged")
    for what, count in created.left_out.items():
        click.echo(f"Warning: {what} left out ({count}): this cluster has none", err=True)


def _echo(line: str) -> None:
    click.echo(line)


def _tell_of(job: PlannedJob, is_alone: bool) -> None:
    """Print what happens to a job from now on; `is_alone`: no controller runs its policies."""
    if job.document is None:
        return
    where = "" if job.namespace == "default" else f" -n {job.namespace}"
    if job.is_suspended:
        click.echo(f"job {job.name} is suspended, no pod was created: hived resume {job.name}{where}")
    if job.rules.policies:
        click.echo(f"job {job.name}: {summary(job.rules.policies)}")
    if is_alone and not job.is_suspended:
        click.echo(f"job {job.name}: nobody replaces its pods until you run hived resume {job.name}{where} --watch")


def _pods(jobs: Sequence[PlannedJob]) -> list[PlannedPod]:
    return [pod for job in jobs for pod in job.first_pods()]


def _objects(jobs: Sequence[PlannedJob]) -> list[Manifest]:
    pods = _pods(jobs)
    others = [each for job in jobs if not job.is_suspended for each in job.objects]
    return [*priority_classes(pods), *others, *(pod.manifest for pod in pods)]


def _print(objects: Sequence[Manifest], output: str) -> None:
    listing = {"apiVersion": "v1", "kind": "List", "items": objects}
    click.echo(as_json(listing) if output == "json" else as_yaml(objects))


def _find_configuration(config: str, kube: KubeClient | None, may_fail: bool) -> Configuration | None:
    try:
        return find_configuration(config, kube)
    except KubeError:
        if not may_fail:
            raise
        return find_configuration(config, None)


@click.command()
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the job.")
@click.option("--watch", is_flag=True, help="Stay, and run the job's policies until it has ended; of any job.")
@asks_api_server
def resume(*, name: str, namespace: str, watch: bool, connect: Callable[[], KubeClient]) -> None:
    """Create the pods of a job that was submitted suspended, or that was aborted.

    NAME is the job's, as its file has it or with its namespace; it is resumed as it was submitted. With --watch a job
    that runs already is looked after, where nobody else does: an embedded cluster does it by itself.

    \b
    Examples:
      hived resume train
      hived resume train -n research
      hived resume train --watch
    """
    kube = connect()
    namespace, name = submitted_as(name, namespace)
    record = read_record(kube, namespace, name)
    if record.state.phase.is_resumable or not watch:
        print_created(resume_job(kube, record))
        click.echo(f"job {name} resumed")
    if watch:
        watch_jobs(kube, [(namespace, name)])
