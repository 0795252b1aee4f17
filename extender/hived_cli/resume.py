"""`hived resume`: the pods of a job that was submitted suspended, or that was aborted."""

from collections.abc import Callable

import click

from hived_cli.helpers.connecting import asks_api_server
from hived_cli.helpers.names import submitted_as
from hived_cli.submit import print_created, watch_jobs
from hived_extender.kube.client import KubeClient
from hived_jobs.creation import resume_job
from hived_jobs.records import read_record


@click.command()
@click.argument("name")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the job.")
@click.option("--watch", is_flag=True, help="Stay, and run the job's policies until it has ended; of any job.")
@asks_api_server
def command(*, name: str, namespace: str, watch: bool, connect: Callable[[], KubeClient]) -> None:
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
