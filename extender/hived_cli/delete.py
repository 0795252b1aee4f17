"""`hived delete`: the pods of a job, gang or group, and the record of a job."""

from collections.abc import Callable

import click

from hived.values.errors import UserError
from hived_cli.config.asking import ask
from hived_cli.helpers.answers import as_json, output_option
from hived_cli.helpers.connecting import asks_api_server, asks_service
from hived_cli.helpers.names import GANG, complete_jobs, find_jobs, find_queued, submitted_as
from hived_cli.helpers.waits import listed
from hived_config.reader import printable
from hived_extender.api.inspection import Inspector, NoAnswerError
from hived_extender.api.waiting import Job
from hived_extender.kube.client import KubeClient
from hived_jobs.deletion import Deletion, carry_out, of_job, of_openpai_job, of_pods, of_queued_job, of_single_pod

SHOWN = 16


@click.command("delete")
@click.argument("name", metavar="JOB", shell_complete=complete_jobs)
@click.option("-n", "--namespace", default="", help="Namespace of the job.  [default: in its name, else default]")
@click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Delete nothing; say what would be deleted.")
@output_option
@asks_api_server
@asks_service
def command(
    *, inspector: Inspector, connect: Callable[[], KubeClient], name: str, namespace: str, is_sure: bool, dry_run: bool,
    output: str,
) -> None:  # fmt: skip
    """Delete the pods of a job, gang or group, and the record of a submitted job.

    JOB is the name of a submitted job, of a job of a queue (KIND/NAMESPACE/NAME), whose object is deleted, of a gang
    (podgroup/NAMESPACE/NAME), of an affinity group (NAMESPACE:NAME), or of a pod that belongs to none of these. The API
    server deletes the pods. It also says which pods a submitted job has; the service says which a gang or group has,
    and is asked once more after 2 seconds if it does not know the name yet. The record goes with the last pod of its
    job, and all that was made for the job goes with the record. You are told what will be deleted, and asked. Pods of
    other controllers may be created again by them; you are told so.

    The exit code is 0 if all is deleted, with --dry-run if it could be; 1 if nothing was deleted, or not all.

    \b
    Examples:
      hived delete train
      hived delete train -n research --yes
      hived delete podgroup/default/gang --dry-run
      hived delete me~train/default -o json --yes
    """
    kube = connect()
    found, title = _find(kube, inspector, name, namespace)
    is_json = output == "json"
    if not is_json:
        _tell(found, title)
    for maker, count in found.makers:
        click.echo(f"Warning: {count} of these pods may be created again; delete that instead: kubectl delete {maker}",
                   err=True)  # fmt: skip
    if not dry_run:
        if not is_sure:
            ask(f"Delete {title}?", "deleted", is_json)
        carry_out(kube, found, lambda line: click.echo(line, err=is_json))
    if is_json:
        told = {"pods": found.pod_names, "jobs": found.record_names, "deleted": not dry_run}
        click.echo(as_json(told))


def _find(kube: KubeClient, inspector: Inspector, name: str, namespace: str) -> tuple[Deletion, str]:
    """The pods and the record that the name stands for, and how to call them."""
    if not name.startswith(GANG) and ":" not in name:
        where, short = submitted_as(name, namespace)
        found = of_job(kube, where, short)
        if found is not None:
            return found, f"job {where}/{short}, with {_count(found)} and its record"
        found = of_openpai_job(kube, where, short) or of_single_pod(kube, where, short)
        if found is not None:
            return found, f"{_count(found)} of {where}/{short}"
    try:
        queued = find_queued(inspector, name, namespace)
        found = of_queued_job(kube, queued) if queued is not None else None
        if queued is not None and found is not None:
            return found, f"{printable(queued.name)}, which goes with its pods"
        jobs = find_jobs(inspector, name, namespace)
    except NoAnswerError as error:
        raise UserError(f"{error}; it knows the pods of gangs and groups, and no job {name!r} was submitted") from error
    job = _one(jobs, name)
    if len(job.pods) > 1 and name in (*job.pods, *(pod.partition("/")[2] for pod in job.pods)):
        raise UserError(
            f"{name} is one of {len(job.pods)} pods of {job.name}, which start together: name that to delete them all, "
            "or delete the pod alone with kubectl"
        )
    deletion = of_pods(kube, job.pods)
    if not deletion.pods:
        raise UserError(f"{job.name} has no pods any more", 404)
    records = f" and the record of {listed(deletion.record_names)}" if deletion.records else ""
    return deletion, f"{_count(deletion)} of {printable(job.name)}{records}"


def _one(found: list[Job], name: str) -> Job:
    if len(found) > 1:
        raise UserError(
            f"{name} is part of {len(found)} names: {listed([job.name for job in found])}; give one of them"
        )
    return found[0]


def _count(deletion: Deletion) -> str:
    count = len(deletion.pods)
    return f"{count} pod{'s' * (count != 1)}"


def _tell(deletion: Deletion, title: str) -> None:
    click.echo(title)
    if deletion.pods:
        click.echo(f"  {listed(deletion.pod_names, most=SHOWN)}")
