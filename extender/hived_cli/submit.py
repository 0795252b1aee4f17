"""`hived submit` and `hived resume`: jobs and pods of files are created, and suspended ones started."""

import getpass
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from http import HTTPStatus
from typing import Any

import click

from hived.values.errors import HivedError, UserError
from hived_cli.helpers.answers import NEVER, RUNS, as_json, worst
from hived_cli.helpers.connecting import asks_api_server, asks_service
from hived_cli.helpers.documents import as_yaml
from hived_cli.helpers.names import submitted_as
from hived_cli.helpers.tables import table
from hived_cli.helpers.waits import listed
from hived_cli.queueing import change, tell
from hived_config.loader import Configuration
from hived_config.reader import printable
from hived_config.words import counted
from hived_extender.api.inspection import Inspector, NoAnswerError
from hived_extender.api.names import short_name
from hived_extender.api.queues import NOW
from hived_extender.api.waiting import MASKED, PodOutcome, Victim
from hived_extender.jobs.asks import parse_priority
from hived_extender.jobs.document import Part
from hived_extender.jobs.job import JobRef, JobState, typed
from hived_extender.jobs.kinds import gates, marks
from hived_extender.jobs.kinds.table import has_switch, read
from hived_extender.jobs.kinds.table import resume as resume_object
from hived_extender.kube.client import KubeClient, KubeError
from hived_jobs.configuration import find_configuration, is_embedded
from hived_jobs.controller import JobController
from hived_jobs.creation import (
    Created,
    apart_from_others,
    check_objects,
    create_jobs,
    find_object,
    refuse_equal_names,
    refuse_known_names,
    refuse_names_of_objects,
    refuse_resources,
    resume_job,
)
from hived_jobs.documents import Document
from hived_jobs.kinds import plan_documents, read_jobs
from hived_jobs.objects import bound_in_queue, ends, near_devices, reading, wait_ended
from hived_jobs.options import (
    Options,
    find_awaited,
    is_job,
    read_after,
    read_array,
    read_begin,
    read_limit,
    write_options,
)
from hived_jobs.policies import Phase, summary
from hived_jobs.records import find_named, read_named
from hived_jobs.served import Served
from hived_jobs.submission import (
    Manifest,
    NoConfigurationError,
    PlannedJob,
    PlannedPod,
    Submission,
    TooLargeError,
    check_leaf_cell_type,
    priority_classes,
)

UNCHECKED = "--unchecked"

AGAIN_S, BUSY_S = 0.5, 60.0
"""A service that answers others is asked again after so many seconds, for so long."""

FOLLOW_S, CHECK_S = 5.0, 0.2
"""So long a service has to hear of a job that it shall start, and between two questions about it."""

_OUTCOMES = {"bind": "run", "never": "never run", "refused": "be refused", "not-ours": "not be for hived"}


def print_forecasts(
    inspector: Inspector, jobs: Sequence[PlannedJob], namespace: str, configuration: Configuration | None = None
) -> int:
    """A row for every pod that would be created; returns the exit code of the worst. Raises UserError if the service
    does not say.
    """
    for job in jobs:
        if job.is_suspended and not job.is_object:
            click.echo(f"job {job.name} is suspended: no pod would be created")
        for each in job.objects if job.document is None else ():
            click.echo(f"{each['kind'].lower()}/{each['metadata']['name']} would be created")
        if job.is_object:
            click.echo(f"job {job.name}: {reading(job, configuration)}")
    manifests = _manifests(jobs, namespace)
    if not manifests:
        return RUNS
    try:
        told = _outcomes(inspector, jobs, namespace, configuration)
    except NoAnswerError as error:
        raise UserError(f"{error.message} Name it with --server, or print the objects alone: -o yaml") from error
    except UserError as error:
        raise UserError(f"{error.message}; -o yaml prints the objects alone") from error
    rows = [[one.name, _would(one), one.node, ",".join(map(str, one.cells)), one.reason] for one in told]
    click.echo(table(["POD", "WOULD", "NODE", "CELLS", "REASON"], rows))
    for one in told:
        if one.victims:
            click.echo(f"{_preemptor(one, told)} would preempt {_victims(one)}")
    if any(one.outcome == "preempt" for one in told) and not any(one.victims for one in told):  # an older service
        click.echo("Who may have to leave: hived get jobs --node NODE lists the jobs of a node", err=True)
    return worst([one.outcome for one in told])


def _would(one: PodOutcome) -> str:
    """Says what a pod would do. hived gives a node only to a pod that takes cells."""
    if one.outcome == "bind" and not one.node:
        return "be left to kube-scheduler"
    return _OUTCOMES.get(one.outcome, one.outcome)


def _preemptor(one: PodOutcome, told: Sequence[PodOutcome]) -> str:
    return "It" if len(told) == 1 else one.name


def _victims(one: PodOutcome) -> str:
    hidden = [victim.pods for victim in one.victims if victim.name == MASKED]
    shown = [victim for victim in one.victims if victim.name != MASKED]
    named = [f"{_short(victim, one.namespace)} ({counted(victim.pods, 'pod')})" for victim in shown]
    if hidden:
        named.append(f"{counted(len(hidden), 'job')} of other tenants ({counted(sum(hidden), 'pod')})")
    if one.more_victims:
        named.append(f"{counted(one.more_victims, 'more job')}")
    return ", ".join(named)


def _short(victim: Victim, namespace: str) -> str:
    """The name of a job for readers of a namespace."""
    return printable(short_name(victim.name, victim.namespace, namespace))


def check_taken(
    inspector: Inspector, jobs: Sequence[PlannedJob], namespace: str, configuration: Configuration | None = None
) -> None:
    """Ask the service whether it takes the pods.

    Raises UserError, with the reason for each pod, if it refuses some, or has no room for them at any time; also if it
    does not say.
    """
    if not _manifests(jobs, namespace):
        return
    try:
        told = _outcomes(inspector, jobs, namespace, configuration)
    except UserError as error:
        remedy = " Name it with --server" if isinstance(error, NoAnswerError) else ""
        raise UserError(
            f"nothing was created, because nobody could check it: {error.message}{remedy}; {UNCHECKED} creates all "
            "without a check"
        ) from error
    refused = [one for one in told if one.outcome in ("refused", "never")]
    if refused:
        count = f"{len(refused)} of {len(told)} pods" if len(told) > 1 else "the pod"
        can_never = all(one.outcome == "never" for one in refused)
        says = f"says that {count} can never run" if can_never else f"refuses {count}"
        raise UserError(
            f"nothing was created, because {inspector.server} {says}:\n{_by_reason(refused)}\n"
            f"Correct that, name the cluster's own service with --server, or create them all the same with {UNCHECKED}"
        )


def _outcomes(
    inspector: Inspector, jobs: Sequence[PlannedJob], namespace: str, configuration: Configuration | None
) -> list[PodOutcome]:
    """The service's answer for each pod. Raises as `Inspector.what_if`.

    A job that queues needs cells for all of its pods at once. Where its virtual cluster is too small, it may borrow.
    """
    told = _asked(inspector, _manifests(jobs, namespace))
    if configuration is None or not _has_queues(configuration):
        return told
    try:
        trees = {one.vc for one in inspector.queues() if one.name != one.vc}
    except UserError:  # without the right to see them
        trees = set(configuration.cluster.virtual_clusters)
    found, first = list[PodOutcome](), 0
    for job in jobs:
        bound, count = bound_in_queue(job, configuration, trees), len(job.first_pods())
        own = told[first : first + count]
        if bound is not None:
            own = bound.judged(own, partial(_ask_lent, inspector, _manifests([job], namespace)))
        found += own
        first += count
    return found


def _asked(inspector: Inspector, pods: Sequence[Manifest]) -> list[PodOutcome]:
    """The service's answer, asked for again while it answers others. Raises as `Inspector.what_if`."""
    until = time.monotonic() + BUSY_S
    while True:
        try:
            return inspector.what_if(pods)
        except UserError as error:
            if error.code != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > until:
                raise
        time.sleep(AGAIN_S)


def _ask_lent(inspector: Inspector, pods: Sequence[Manifest]) -> list[PodOutcome]:
    """The outcomes of pods on cells that their queue borrows."""
    from hived_extender.queues.bounds import opportunistic  # noqa: PLC0415  # loads numpy; help does without

    lent = deepcopy(pods)
    for pod in lent:
        pod["metadata"]["annotations"] = opportunistic(pod["metadata"].get("annotations") or {})
    return _asked(inspector, lent)


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
    if not any(pod.name in passing for job in jobs for pod in job.own_pods()):
        return ""
    return (
        "jobs wait in queues here, and plain pods do not: they get cells as they come. To have them wait, give them "
        f"the scheduling gate {gates.GATE}"
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
@click.option(
    "--gpu-type", metavar="TYPE", help="Leaf cell type of the pods' GPUs, such as A100; wins over the file's."
)
@click.option("--user", default=getpass.getuser, show_default="your login name", help="Whose job it is.")
@click.option(
    "-n", "--namespace", default="default", show_default=True, help="Namespace of jobs and pods that name none."
)
@click.option("--scheduler-name", help="schedulerName of the pods.  [default: hivedscheduler-ds-<vc>, or hived]")
@click.option(
    "--config",
    envvar="CONFIG",
    show_envvar=True,
    default="",
    help="The cluster's configuration, for SKU types and quotas.  [default: what an embedded cluster publishes, "
    "else ./hivedscheduler.yaml]",
)
@click.option(
    "--time",
    "limit",
    metavar="DURATION",
    help="End the job after so long, such as 90m, 1h30m, 2d or 1-12:00:00; a number alone is minutes, as for sbatch. "
    "Plans count on it.",
)
@click.option(
    "--begin",
    metavar="TIME|+DURATION",
    help="Start the job no earlier than 18:00, tomorrow, 2026-12-24T18:00 (times of this machine's zone) or "
    "2026-12-24T18:00:00Z, or so long from now: +2h, now+30m.",
)
@click.option(
    "--after",
    metavar="JOB[,JOB...]",
    help="Start the job once these have succeeded. afterok:JOB:JOB says the same, and afterany:JOB:JOB means ended, in "
    "success or not.",
)
@click.option(
    "--array",
    metavar="N|A-B[:STEP][%LIMIT]",
    help="Run the pod of a Job so often, with another index each, LIMIT at a time. The index is in "
    "JOB_COMPLETION_INDEX, from 0.",
)
@click.option("--dry-run", is_flag=True, help="Create nothing; say where each pod would run, or print the objects.")
@click.option(UNCHECKED, is_flag=True, help="Create all without asking the service first whether it refuses the pods.")
@click.option(
    "--watch",
    is_flag=True,
    help="Stay until the jobs have ended, and run the policies of those that have no controller. Plain pods are not "
    "waited for.",
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
    limit: str | None,
    begin: str | None,
    after: str | None,
    array: str | None,
    **wanted: Any,
) -> None:
    """Create the jobs of files.

    Takes any object of a kind that the cluster has, such as Job, JobSet, PyTorchJob, RayJob, LeaderWorkerSet, TrainJob
    or StatefulSet, and creates it as it is: its pod templates get the scheduler's name and the options below, and a
    line says what hived reads of it. Where the cluster lacks the kind of a job of Kubeflow, Volcano, DLRover or
    JobSet, its pods are made at once. So are those of OpenPAI jobs, and plain Pods. A file may have several documents
    and Lists, in YAML or JSON; "-" reads standard input. A name is made of metadata.generateName.

    A job of OpenPAI is its user's: one of another user may have the same name.

    All files are checked before anything is created, and the service is asked. If it refuses a pod, as where there is
    no such virtual cluster, or does not answer, nothing is created. With --dry-run nothing is created. The service is
    asked where each pod would run now, or why it would wait, perhaps for ever. With -o yaml the objects are printed
    instead, and no cluster is needed.

    With --watch the command stays until the jobs have ended, with exit code 0 if all are complete, else 1. It does not
    wait for plain pods and services such as a Deployment. If there is nothing else in the files it
    creates nothing, with exit code 1.

    The exit code of --dry-run is that of the worst pod: 0 if it would run, also in the place of pods that have to leave
    first; 3 if it would wait; 4 if it could never run, whoever ends; 1 if it is refused, if its name exists already, or
    for a mistake. With -o yaml and -o json the service is not asked, and the exit code is 0 unless there is a mistake.

    \b
    Examples:
      hived submit job.yaml
      hived submit job.yaml --vc research --priority prod
      hived submit job.yaml --gpu-type V100
      hived submit job.yaml --time 2h --begin +30m
      hived submit job.yaml --time 90 --begin 18:00
      hived submit train.yaml --after prepare,afterany:cleanup
      hived submit sweep.yaml --array 1-100:5%4
      hived submit job.yaml --dry-run
      hived submit job.yaml --dry-run -o yaml --config hivedscheduler.yaml
      hived submit volcano-job.yaml --watch
      hived submit rayjob.yaml --vc research -o json
      hived submit notebook-pod.yaml --vc research --priority oppo
      hived submit *.yaml --kubeconfig ./kubeconfig -o json
    """
    _check_words(wanted["user"], dry_run=dry_run, watch=watch)
    options = _options(limit, begin, after, array)
    documents = [each for file in files for each in read_jobs(file)]
    try:
        kube, found = _reach(connect, config, documents, wanted, may_fail=dry_run)
        submission = _submission(found, **wanted)
        served = None if kube is None else Served(kube)
        notes = _write_options(documents, options, kube, served, submission.namespace)
        jobs, warnings = _planned(documents, submission, served, found)
    except TooLargeError as error:
        if not dry_run:
            raise
        raise NeverRuns(error.message) from error
    refuse_equal_names(submission.namespace, jobs)
    if watch:
        _check_watched(jobs)
    if kube is None or dry_run:
        if kube is not None and output == "text":
            jobs = _with_free_names(kube, found, submission, jobs)
            check_objects(kube, submission.namespace, jobs)
        _tell_first(notes if output == "text" else (), warnings)
        raise SystemExit(_foretell(inspector, found, submission, jobs, output))
    jobs = [apart_from_others(kube, job) for job in jobs]
    refuse_names_of_objects(kube, submission.namespace, jobs, has_queues=_has_queues(found))
    if not unchecked:
        _check_taken(inspector, kube, found, jobs, submission.namespace)
    created = create_jobs(kube, submission, jobs)
    _tell_first(notes if output == "text" else (), warnings)
    _tell_created(created, found, output, is_alone=not watch and not is_embedded(kube))
    if _has_queues(found) and (unqueued_pods := unqueued(created.jobs, created.pods)):
        click.echo(f"Warning: {unqueued_pods}", err=True)
    if options.is_timed:
        _warn_unfollowed(inspector, [job for job in created.jobs if job.is_object])
    if watch:
        _watch(kube, created.jobs)


def _has_queues(found: Configuration | None) -> bool:
    return found is not None and found.rules.queueing.is_enabled


def _options(limit: str | None, begin: str | None, after: str | None, array: str | None) -> Options:
    return Options(
        None if limit is None else read_limit(limit),
        None if array is None else read_array(array),
        None if begin is None else read_begin(begin, time.time()),
        () if after is None else read_after(after),
    )


def _write_options(
    documents: Sequence[Document], options: Options, kube: KubeClient | None, served: Served | None, namespace: str
) -> list[str]:
    """Write options into the documents of jobs. Returns sentences about them. Raises UserError, KubeError."""
    if options.after and (kube is None or served is None):
        raise UserError("--after: there is no cluster to look for these jobs in")
    told = []
    for document in documents:
        where = document.section().section("metadata").text("namespace", "") or namespace
        awaited = find_awaited(kube, served, options.after, where) if kube is not None and served is not None else ()
        told += write_options(document, options, served, awaited)
    if options != Options() and not told and not any(map(is_job, documents)):
        raise UserError("--time, --array, --begin and --after are for jobs, and there is none in the files")
    return told


def _warn_unfollowed(inspector: Inspector, jobs: Sequence[PlannedJob]) -> None:
    """Warn of jobs that are held until a moment, and that the service does not know a while after their creation."""
    until = time.monotonic() + FOLLOW_S
    for job in jobs:
        name = f"{job.kind}/{job.namespace}/{job.name}"
        try:
            while inspector.why(name) is None:
                if time.monotonic() > until:
                    click.echo(
                        f"Warning: {inspector.server} does not follow {name}, perhaps for lack of rights: nothing will "
                        "start it. See docs/install.md#permissions",
                        err=True,
                    )
                    break
                time.sleep(CHECK_S)
        except UserError as error:
            click.echo(f"Warning: not checked whether hived will start {name}: {error.message}", err=True)


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


def _with_free_names(
    kube: KubeClient, found: Configuration | None, submission: Submission, jobs: list[PlannedJob]
) -> list[PlannedJob]:
    """The jobs as they would be named. Raises UserError if the cluster has one of the names already."""
    with suppress(KubeError):  # names are compared where they can be
        jobs = [apart_from_others(kube, job) for job in jobs]
        refuse_known_names(kube, submission.namespace, jobs)
        refuse_names_of_objects(kube, submission.namespace, jobs, has_queues=_has_queues(found))
    return jobs


def _tell_first(notes: Sequence[str], warnings: Sequence[str]) -> None:
    """Print what was made of options and documents, once nothing refuses them."""
    for note in notes:
        click.echo(note)
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)


def _foretell(
    inspector: Inspector,
    found: Configuration | None,
    submission: Submission,
    jobs: Sequence[PlannedJob],
    output: str,
) -> int:
    """Say where each pod would run, or print the objects that would be created; returns the exit code."""
    if output == "text":
        return print_forecasts(inspector, jobs, submission.namespace, found)
    _print(_objects(jobs), output)
    return RUNS


def _check_taken(
    inspector: Inspector, kube: KubeClient, found: Configuration | None, jobs: Sequence[PlannedJob], namespace: str
) -> None:
    """See `check_taken`. That a pod exists already is told rather than what the service says of it."""
    try:
        check_taken(inspector, jobs, namespace, found)
    except UserError:
        with suppress(KubeError):
            refuse_known_names(kube, namespace, jobs)
        raise


def _tell_created(created: Created, found: Configuration | None, output: str, *, is_alone: bool) -> None:
    """Print the objects that were created, or lines about them and about the jobs; see `_tell_of`."""
    if output != "text":
        _print([*created.others, *created.pods], output)
        return
    print_created(created)
    for job in created.jobs:
        if job.is_object:
            click.echo(f"job {job.name}: {reading(job, found)}")
        else:
            _tell_of(job, found, is_alone)


def _submission(
    found: Configuration | None, vc: str | None, priority: str | None, gpu_type: str | None, user: str, namespace: str,
    scheduler_name: str | None,
) -> Submission:  # fmt: skip
    if gpu_type is not None and found is not None:
        check_leaf_cell_type(gpu_type, found.cluster)
    return Submission(
        user=user,
        virtual_cluster=vc,
        priority=None if priority is None else parse_priority(priority),
        scheduler_name=scheduler_name,
        cluster=found.cluster if found is not None else None,
        namespace=namespace,
        leaf_cell_type=gpu_type,
    )


def _planned(
    documents: Sequence[Document], submission: Submission, served: Served | None, found: Configuration | None
) -> tuple[list[PlannedJob], list[str]]:
    """The jobs of all documents, and warnings about them. Raises UserError for one that no API server takes."""
    jobs, warnings = plan_documents(documents, submission, served)
    for job in jobs:
        refuse_resources(job)
        warnings += [f"{job.name or job.pods[0].name}: {said}" for said in near_devices(job, found)] if found else ()
    return jobs, warnings


def _check_watched(jobs: Sequence[PlannedJob]) -> None:
    """Say which pods --watch does not wait for. Raises UserError if it would wait for nothing at all."""
    unwatched = [job for job in jobs if job.document is None and not ends(job)]
    if len(unwatched) == len(jobs):
        raise UserError(
            "--watch waits for the ends of jobs, and plain pods and services have none that it could "
            "wait for: nothing was created. Submit them without --watch, and follow them with hived get jobs --watch"
        )
    if pods := [pod.name for job in unwatched for pod in job.own_pods()]:
        click.echo(f"--watch does not wait for pods without policies: {listed(pods)}", err=True)
    if services := [job.name for job in unwatched if job.is_object]:
        click.echo(f"--watch does not wait for what has no end that hived knows: {listed(services)}", err=True)


def _watch(kube: KubeClient, jobs: Sequence[PlannedJob]) -> None:
    """Wait until all jobs that end have ended. Raises UserError unless all have succeeded."""
    watched = [job for job in jobs if job.document and not job.is_suspended]
    watch_jobs(kube, {(job.namespace, job.name): job.full_name for job in watched})
    watch_objects(kube, [job.objects[-1] for job in jobs if ends(job)])


def watch_jobs(kube: KubeClient, jobs: Mapping[tuple[str, str], str]) -> None:
    """Run the policies of these jobs until they have ended; by namespace and name, what people call them.

    Raises UserError unless all are complete.
    """
    with JobController(kube, jobs, _echo) as controller:
        phases = {key: controller.wait_ended(key) for key in jobs}
    for key, phase in phases.items():
        if phase is not Phase.COMPLETED:
            raise UserError(f"job {key[0]}/{jobs[key]} is {phase.value if phase else 'gone'}, not Completed")


def watch_objects(kube: KubeClient, manifests: Sequence[Manifest]) -> None:
    """Wait until these job objects have ended. Raises UserError unless all have succeeded."""
    states = [(one["metadata"], wait_ended(kube, one)) for one in manifests]
    for metadata, state in states:
        if state is not JobState.SUCCEEDED:
            found = "gone" if state is None else "Failed"
            raise UserError(f"job {metadata['namespace']}/{metadata['name']} is {found}, not Completed")


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


def _tell_of(job: PlannedJob, found: Configuration | None, is_alone: bool) -> None:
    """Print what hived reads of a job and what happens to it; `is_alone`: no controller runs its policies."""
    if job.document is None:
        return
    name = job.full_name
    shown = name if job.namespace == "default" else f"{job.namespace}/{name}"
    if job.is_suspended:
        click.echo(f"job {name} is suspended, no pod was created: hived release {typed(name, job.namespace)}")
    else:
        click.echo(f"job {name}: {reading(job, found)}; follow it with hived why {shown}")
    if job.rules.policies:
        click.echo(f"job {name}: {summary(job.rules.policies)}")
    if is_alone and not job.is_suspended:
        click.echo(
            f"job {name}: its pods are not replaced until you run hived resume {typed(name, job.namespace)} --watch"
        )


def _pods(jobs: Sequence[PlannedJob]) -> list[PlannedPod]:
    return [pod for job in jobs for pod in job.own_pods()]


def _objects(jobs: Sequence[PlannedJob]) -> list[Manifest]:
    pods = _pods(jobs)
    others = [each for job in jobs if job.is_object or not job.is_suspended for each in job.objects]
    classes = priority_classes([pod for job in jobs for pod in job.first_pods()])
    return [*classes, *others, *(pod.manifest for pod in pods)]


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
@asks_service
def resume(*, name: str, namespace: str, watch: bool, connect: Callable[[], KubeClient], inspector: Inspector) -> None:
    """Start a job that is suspended, or that was aborted.

    NAME is the job's, as its file has it or with its namespace. Of a job object, such as a Job or PyTorchJob, the field
    that suspends it is set to false. One that waits in a queue is released, as by hived release --now, and starts when
    its turn comes. Of a job whose pods hived makes, the pods are created, as they were submitted.
    hived release does the same for several jobs, in any namespace. With --watch this command follows the job, also one
    that runs already; an embedded cluster does so by itself.

    \b
    Examples:
      hived resume train
      hived resume train -n research
      hived resume train --watch
      hived resume me~train --watch
    """
    kube = connect()
    namespace, name = submitted_as(name, namespace)
    if find_named(kube, namespace, name) is None and (found := find_object(kube, namespace, name)) is not None:
        _resume_object(kube, inspector, found, watch=watch)
        return
    record = read_named(kube, namespace, name)
    if record.state.phase.is_resumable or not watch:
        print_created(resume_job(kube, record))
        click.echo(f"job {record.full_name} resumed")
    if watch:
        watch_jobs(kube, {(namespace, record.name): record.full_name})


def _resume_object(kube: KubeClient, inspector: Inspector, manifest: Manifest, *, watch: bool) -> None:
    """Set the field that suspends a job object to false. One in a queue is released instead.

    Raises UserError unless it is suspended.
    """
    job = read(manifest)
    is_suspended = job.state in (JobState.HELD, JobState.LEAVING)
    if not is_suspended and not watch:
        raise UserError(f"{job.ref} is not suspended: only a suspended job can be resumed")
    if is_suspended and _waits_in_queue(inspector, job.ref):
        tell(change(inspector, str(job.ref), "release", to=NOW))
        click.echo("hived starts it when its turn comes")
    elif is_suspended:
        if not has_switch(job.ref):
            raise UserError(f"{job.ref} has no field that suspends it: its own controller resumes it")
        for write in resume_object(job.ref):
            kube.patch(write.path, write.body)
        click.echo(f"job {job.ref.name} resumed")
    if watch:
        watch_objects(kube, [manifest])


def _waits_in_queue(inspector: Inspector, job: JobRef) -> bool:
    """False as well if there are no queues, or the service does not answer."""
    with suppress(UserError):
        queued = inspector.queued_job(str(job))
        return queued is not None and queued.state in ("Waiting", "Held")
    return False
