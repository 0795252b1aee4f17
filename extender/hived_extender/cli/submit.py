"""`hived submit`: jobs and pod manifests become pods of the cluster."""

import getpass
import os
import re

import click
import msgspec
from click.core import ParameterSource

from hived.errors import UserError
from hived.specs import ClusterSpec
from hived_extender.cli.documents import as_yaml
from hived_extender.jobs import plan_file
from hived_extender.jobs.configuration import find_cluster
from hived_extender.jobs.creation import create_pods
from hived_extender.jobs.submission import Manifest, PlannedPod, Submission, parse_priority, priority_classes
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
@click.option(
    "--kubeconfig",
    envvar="KUBECONFIG",
    show_envvar=True,
    default="",
    help="How to reach the API server.  [default: ~/.kube/config, else the pod's own account]",
)
@click.option(
    "--api-server", envvar="KUBE_APISERVER_ADDRESS", show_envvar=True, default="", help="Address of the API server."
)
@click.option("--dry-run", is_flag=True, help="Print the objects instead of creating them.")
@click.option("-o", "--output", type=click.Choice(["text", "yaml", "json"]), default="text", help="Form of the answer.")
@click.pass_context
def command(
    context: click.Context,
    *,
    files: tuple[str, ...],
    vc: str | None,
    priority: str | None,
    user: str,
    namespace: str,
    scheduler_name: str | None,
    config: str,
    kubeconfig: str,
    api_server: str,
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
    is_inherited = context.get_parameter_source("kubeconfig") is ParameterSource.ENVIRONMENT
    if api_server and is_inherited and not any(map(os.path.isfile, kubeconfig.split(os.pathsep))):
        kubeconfig = ""  # left over from a cluster that is gone; the address is enough
    kube = _connect(api_server, kubeconfig, may_fail=dry_run)
    submission = Submission(
        user=user,
        virtual_cluster=vc,
        priority=None if priority is None else parse_priority(priority),
        scheduler_name=scheduler_name,
        cluster=_find_cluster(config, kube, may_fail=dry_run),
    )
    pods: list[PlannedPod] = []
    for file in files:
        planned, warnings = plan_file(file, submission)
        pods += planned
        for warning in warnings:
            click.echo(f"Warning: {warning}", err=True)
    if kube is None or dry_run:
        objects = [*priority_classes(pods), *(pod.manifest for pod in pods)]
        click.echo(_as_json(objects) if output == "json" else as_yaml(objects))
        return
    created = create_pods(kube, namespace, pods)
    if output == "text":
        for pod in created:
            click.echo(f"pod/{pod['metadata']['name']} created")
    else:
        click.echo(_as_json(created) if output == "json" else as_yaml(created))


def _connect(api_server: str, kubeconfig: str, may_fail: bool) -> KubeClient | None:
    try:
        return KubeClient.connect(api_server, kubeconfig)
    except KubeError as error:
        if may_fail:
            return None
        reason = error.message.rstrip(".")
        raise UserError(f"{reason}; give --kubeconfig FILE or --api-server URL, or --dry-run") from error


def _find_cluster(config: str, kube: KubeClient | None, may_fail: bool) -> ClusterSpec | None:
    try:
        return find_cluster(config, kube)
    except KubeError:
        if not may_fail:
            raise
        return find_cluster(config, None)


def _as_json(objects: list[Manifest]) -> str:
    listing = {"apiVersion": "v1", "kind": "List", "items": objects}
    return msgspec.json.format(msgspec.json.encode(listing)).decode()
