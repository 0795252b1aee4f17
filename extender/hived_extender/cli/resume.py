"""`hived resume`: the pods of a job that was submitted suspended, or that was aborted."""

from collections.abc import Callable

import click

from hived_extender.cli.connecting import asks_api_server
from hived_extender.cli.submit import print_created
from hived_extender.jobs.creation import resume_job
from hived_extender.jobs.records import read_record
from hived_extender.kube import KubeClient


@click.command()
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the job.")
@asks_api_server
def command(*, name: str, namespace: str, connect: Callable[[], KubeClient]) -> None:
    """Create the pods of a job that was submitted suspended, or that was aborted.

    NAME is the job's, as its file has it; it is resumed as it was submitted.

    \b
    Examples:
      hived resume train
      hived resume train -n research
    """
    kube = connect()
    print_created(resume_job(kube, read_record(kube, namespace, name)))
    click.echo(f"job {name} resumed")
