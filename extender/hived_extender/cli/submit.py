"""`hived submit`: jobs and pod manifests become pods of the cluster."""

import getpass
import re
from collections.abc import Callable, Sequence

import click
import msgspec

from hived.errors import UserError
from hived.specs import ClusterSpec
from hived_extender.cli.connecting import asks_api_server
from hived_extender.cli.documents import as_yaml
from hived_extender.jobs.configuration import find_cluster
from hived_extender.jobs.creation import Created, create_jobs
from hived_extender.jobs.kinds import plan_jobs
from hived_extender.jobs.policies import summary
from hived_extender.jobs.submission import Manifest, PlannedJob, Submission, parse_priority, priority_classes
from hived_extender.kube import KubeClient, KubeError

_USER = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("--vc", help="Virtual cluster; wins over the file's.")
@click.option(
    "--priority", metavar="PRIORITY", help="crit, prod, test, oppo or a number from -1 to 1000; wins over the file's."
)
@click.option("--user", default=getpass.getuser, show_default="your login name", help="Whose job it is.")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the pods.")
@click.option("--scheduler-name", help="schedulerName of the pods.  [default: hivedscheduler-ds-<vc>]")
@click.option(
    "--config",
    envvar="CONFIG",
    show_envvar=True,
    default="",
    help="The cluster's configuration, for SKU types and quotas.  [default: what an embedded cluster publishes, "
    "else ./hivedscheduler.yaml]",
)
@click.option("--dry-run", is_flag=True, help="Print the objects instead of creating them.")
@click.option("-o", "--output", type=click.Choice(["text", "yaml", "json"]), default="text", help="Form of the answer.")
@asks_api_server
def command(
    *,
    files: tuple[str, ...],
    vc: str | None,
    priority: str | None,
    user: str,
    namespace: str,
    scheduler_name: str | None,
    config: str,
    connect: Callable[..., KubeClient | None],
    dry_run: bool,
    output: str,
) -> None:
    """Turn jobs and pod manifests into pods and create them.

    Takes OpenPAI job files (protocol version 2) and plain Pod manifests, several documents to a file if you like; "-"
    reads standard input. All files are checked before the first pod is created. With --dry-run nothing is created and
    the objects are printed as YAML.

    \b
    Examples:
      hived submit job.yaml
      hived submit job.yaml --vc research --priority prod
      hived submit job.yaml --dry-run --config hivedscheduler.yaml
      hived submit notebook-pod.yaml --vc research --priority oppo
      hived submit *.yaml --kubeconfig ./kubeconfig -o json
    """
    if not _USER.fullmatch(user):
        raise UserError(f"user {user!r}: expected at most 63 letters, digits, '-', '_' and '.'")
    kube = connect(may_fail=dry_run)
    submission = Submission(
        user=user,
        virtual_cluster=vc,
        priority=None if priority is None else parse_priority(priority),
        scheduler_name=scheduler_name,
        cluster=_find_cluster(config, kube, may_fail=dry_run),
        namespace=namespace,
    )
    jobs: list[PlannedJob] = []
    for file in files:
        planned, warnings = plan_jobs(file, submission)
        jobs += planned
        for warning in warnings:
            click.echo(f"Warning: {warning}", err=True)
    if kube is None or dry_run:
        _print(_objects(jobs), "yaml" if output == "text" else output)
        return
    created = create_jobs(kube, submission, jobs)
    if output == "text":
        print_created(created)
        for job in jobs:
            _tell_of(job)
    else:
        _print([*created.others, *created.pods], output)


def print_created(created: Created) -> None:
    """A line for everything that was created, and for what was not."""
    for one in [*created.others, *created.pods]:
        click.echo(f"{one['kind'].lower()}/{one['metadata']['name']} created")
    for note in created.notes:
        click.echo(f"Warning: {note}", err=True)


def _tell_of(job: PlannedJob) -> None:
    """What happens to a job from now on."""
    if job.document is None:
        return
    where = "" if job.namespace == "default" else f" -n {job.namespace}"
    if job.is_suspended:
        click.echo(f"job {job.name} is suspended, no pod was created: hived resume {job.name}{where}")
    if job.rules.policies:
        click.echo(f"job {job.name}: {summary(job.rules.policies)}")


def _objects(jobs: Sequence[PlannedJob]) -> list[Manifest]:
    """Everything that would be created now, the jobs' records aside."""
    active = [job for job in jobs if not job.is_suspended]
    pods = [pod for job in active for pod in job.first_pods()]
    others = [each for job in active for each in job.objects]
    return [*priority_classes(pods), *others, *(pod.manifest for pod in pods)]


def _print(objects: Sequence[Manifest], output: str) -> None:
    click.echo(_as_json(objects) if output == "json" else as_yaml(objects))


def _find_cluster(config: str, kube: KubeClient | None, may_fail: bool) -> ClusterSpec | None:
    try:
        return find_cluster(config, kube)
    except KubeError:
        if not may_fail:
            raise
        return find_cluster(config, None)


def _as_json(objects: Sequence[Manifest]) -> str:
    listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return msgspec.json.format(msgspec.json.encode(listing)).decode()
