"""`hived delete`: a job object, or the pods of a job, gang or group with its record, by the API server (rule 34.3)."""

import getpass
import shlex
from collections.abc import Callable
from http import HTTPStatus

import click

from hived.values.errors import UserError
from hived_cli.get import check_user, me_option, user_option
from hived_cli.helpers.answers import as_json, ask, output_option, yes_option
from hived_cli.helpers.connecting import asks_api_server, asks_service, unwatched_jobs
from hived_cli.helpers.listing import selector_option
from hived_cli.helpers.names import (
    complete_jobs,
    find_alone,
    find_ended,
    find_jobs,
    namespace_option,
    one_of,
    record_of,
    renew_lists,
    submitted_as,
)
from hived_cli.helpers.waits import has_ended, listed
from hived_config.reader import printable
from hived_config.words import counted
from hived_extender.api.inspection import Inspector, NoAnswerError
from hived_extender.api.names import DEFAULT_NAMESPACE, GANG, is_called, namespaces_in, without_kind
from hived_extender.api.waiting import MASKED, with_records
from hived_extender.kube.client import KubeClient
from hived_jobs.deletion import (
    Deletion,
    carry_out,
    find_maker,
    of_ended,
    of_found_maker,
    of_maker,
    of_object,
    of_openpai_job,
    of_pods,
    of_record,
    of_single_pod,
)
from hived_jobs.records import find_named

SHOWN = 16

QUEUED = "100000"
"""So many jobs that wait in queues are looked through: all."""


@click.command("delete")
@click.argument("names", metavar="JOB...", nargs=-1, shell_complete=complete_jobs)
@user_option
@me_option
@selector_option
@namespace_option
@yes_option
@click.option("--dry-run", is_flag=True, help="Delete nothing; say what would be deleted.")
@output_option
@asks_api_server
@asks_service
def command(
    *, inspector: Inspector, connect: Callable[[], KubeClient], names: tuple[str, ...], user: str, is_mine: bool,
    selector: str, namespace: str, yes: bool, dry_run: bool, output: str,
) -> None:  # fmt: skip
    """Delete jobs, gangs or groups, with their pods.

    JOB is the name of a submitted job (USER~JOB of OpenPAI), of an object of any kind (KIND/NAMESPACE/NAME), which is
    deleted itself, of a gang (podgroup/NAMESPACE/NAME), of an affinity group (NAMESPACE:NAME), or of a pod that
    belongs to none of these. The API server deletes them. It also says which pods a submitted job has; the
    service says which a gang or group has, and is asked once more after 2 seconds if it does not know the name yet.
    The record goes with the last pod of its job, and all that was made for the job goes with the record. The command
    shows what it will delete, and asks. Of a job that has ended it deletes the object, or the pods that are left. Where
    it deletes pods that their controller may create again, it says so. A NAME alone is looked for in all namespaces
    that you may read; with --yes a job of another one than `default` is deleted only if its namespace was given.

    Of several names nothing is deleted if one is unknown, or means several jobs. With --me, --user or --selector all
    jobs go that hived get jobs has with it and that wait or run.

    The exit code is 0 if all is deleted, with --dry-run if it could be; 1 if nothing was deleted, or not all.

    \b
    Examples:
      hived delete train
      hived delete train -n research --yes
      hived delete train other --dry-run
      hived delete --me -l team=nlp
      hived delete me~train
      hived delete Job/default/other
      hived delete podgroup/default/gang --dry-run
      hived delete me~train/default -o json --yes
    """
    kube = connect()
    check_user(user, is_mine=is_mine)
    is_chosen = bool(user or is_mine or selector)
    if is_chosen == bool(names):
        raise click.UsageError("give either names of jobs, or some of --me, --user and --selector")
    if is_chosen:
        names = tuple(_chosen(inspector, kube, user, selector, namespace, is_mine=is_mine))
        if not names:
            raise UserError(
                "no job that waits or runs is of these; hived get jobs with the same options shows them", 404
            )
    all_found: dict[str, Deletion] = {}
    for name in dict.fromkeys(names):
        found, title, where = _find(kube, inspector, name, namespace)
        if yes and not dry_run and where not in (DEFAULT_NAMESPACE, namespace, *namespaces_in(name)):
            raise UserError(
                f"{title}: it is in namespace {where}, which was not given, so --yes deletes nothing: say "
                f"hived delete {shlex.quote(name)} -n {where} --yes"
            )
        all_found[title] = found
    is_json = output == "json"
    for title, found in all_found.items():
        if not is_json:
            _tell(found, title)
        for maker, count in found.makers:
            click.echo(f"Warning: {count} of these pods may be created again; delete that instead: kubectl delete "
                       f"{maker}", err=True)  # fmt: skip
    if not dry_run:
        if not yes:
            what = next(iter(all_found)) if len(all_found) == 1 else f"these {len(all_found)}"
            ask(f"Delete {what}?", "deleted", is_json)
        for found in all_found.values():
            carry_out(kube, found, lambda line: click.echo(line, err=is_json))
        renew_lists(inspector)
    if is_json:
        pods = [name for found in all_found.values() for name in found.pod_names]
        jobs = [name for found in all_found.values() for name in found.record_names]
        click.echo(as_json({"pods": pods, "jobs": jobs, "deleted": not dry_run}))


def _chosen(
    inspector: Inspector, kube: KubeClient, user: str, selector: str, namespace: str, *, is_mine: bool
) -> list[str]:
    """The names of the jobs that wait or run which these options choose. Records have no labels."""
    login = getpass.getuser() if is_mine else ""
    given = {"user": user, "me": login, "selector": selector, "namespace": namespace, "queued": QUEUED}
    found = inspector.jobs({key: (value,) for key, value in given.items() if value})
    if not selector:
        held = unwatched_jobs(lambda **_: kube, namespace)
        found = with_records(found, [job for job in held if job.user in {user, login} - {""}])
    return [job.name for job in found if not has_ended(job) and job.name != MASKED]


def _find(kube: KubeClient, inspector: Inspector, name: str, namespace: str) -> tuple[Deletion, str, str]:
    """The pods and the record that the name stands for, how to call them, and their namespace."""
    if not name.startswith(GANG) and ":" not in name:
        where, short = submitted_as(name, namespace)
        record = find_named(kube, where, short)
        if record is not None:
            return *_recorded(of_record(kube, record)), where
        found = of_openpai_job(kube, where, short) or of_single_pod(kube, where, short)
        if found is not None:
            return found, f"{_count(found)} of {where}/{short}", where
    try:
        queued = find_alone(inspector, name, namespace)
        if queued is not None and not is_called(queued.name, name):
            made = find_maker(kube, queued.namespace, name)
            if made is not None:
                return *_made(kube, made), queued.namespace
        found = of_object(kube, queued) if queued is not None else None
        if queued is not None and found is not None:
            return found, f"{printable(queued.name)}, which goes with its pods", queued.namespace
        unwatched = unwatched_jobs(lambda **_: kube, namespace)
        try:
            jobs = find_jobs(inspector, name, namespace, unwatched)
        except NoAnswerError:
            raise
        except UserError as error:
            made = (
                find_maker(kube, namespace or DEFAULT_NAMESPACE, name) if error.code == HTTPStatus.NOT_FOUND else None
            )
            if made is not None:
                return *_made(kube, made), made[0].split("/")[1]
            latest = {job.name: job for job in reversed(find_ended(inspector, name, namespace))}
            over = [(job, found) for job in latest.values() if (found := of_ended(kube, job)) is not None]
            if not over:
                raise
            job, found = one_of([job for job, _ in over], name), over[0][1]
            is_pod = found.pod_names == [job.name.partition("/")[2]]  # a plain pod, that queued as a gang of one
            whole = found.pod_names[0] if is_pod else job.name
            return found, f"what is left of {printable(whole)}, which has ended", job.namespace
    except NoAnswerError as error:
        raise UserError(f"{error}; it knows the pods of gangs and groups, and no job {name!r} was submitted") from error
    makers = {(job.namespace, job.made_by) for job in jobs}
    if len(makers) == 1 and is_called(jobs[0].made_by, name):
        made = find_maker(kube, jobs[0].namespace, jobs[0].made_by)
        if made is not None:
            return *_made(kube, made), jobs[0].namespace
    job = one_of(jobs, name)
    if job in unwatched:
        if (record := record_of(kube, job)) is not None:
            return *_recorded(of_record(kube, record)), job.namespace
        if (made := find_maker(kube, job.namespace, job.name)) is not None:
            return *_made(kube, made), job.namespace
    pods = [pod for pod in job.pods if without_kind(name) in (pod, pod.partition("/")[2])]
    count = max(len(job.pods), job.counts.wanted)
    if pods and count > 1 and not job.is_elastic:
        raise UserError(
            f"{name} is one of {count} pods of {job.name}, which start together: name that to delete them all, "
            "or delete the pod alone with kubectl"
        )
    found = None if pods else of_object(kube, job) or of_maker(kube, job)
    if found is not None:
        return found, f"{printable(job.name)}, which goes with its pods", job.namespace
    deletion = of_pods(kube, pods if job.is_elastic and pods else job.pods)
    if not deletion.pods:
        raise UserError(f"{job.name} has no pods any more", 404)
    records = f" and the record of {listed(deletion.record_names)}" if deletion.records else ""
    return deletion, f"{_count(deletion)} of {printable(job.name)}{records}", job.namespace


def _recorded(deletion: Deletion) -> tuple[Deletion, str]:
    """The deletion of a submitted job, and how to call it."""
    return deletion, f"job {deletion.record_names[0]}, with {_count(deletion)} and its record"


def _made(kube: KubeClient, maker: tuple[str, str, str]) -> tuple[Deletion, str]:
    """The deletion of an object that makes jobs or pods, and how to call it."""
    found = of_found_maker(kube, maker)
    runs = f"with its {counted(len(found.runs), 'run')} and " if found.runs else "with its "
    return found, f"{printable(maker[0])}, which goes {runs}pods"


def _count(deletion: Deletion) -> str:
    return counted(len(deletion.pods), "pod")


def _tell(deletion: Deletion, title: str) -> None:
    click.echo(title)
    if deletion.pods:
        click.echo(f"  {listed(deletion.pod_names, most=SHOWN)}")
    if deletion.runs:
        click.echo(f"  {listed(list(deletion.runs), most=SHOWN)}")
