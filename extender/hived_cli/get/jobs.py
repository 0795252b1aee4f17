"""`hived get jobs`: a row per job; why waiting ones do not start, and when they do."""

from datetime import UTC, datetime
from typing import get_args, get_type_hints

import click

from hived_cli.helpers.completing import complete_vcs
from hived_cli.helpers.forms import output_option
from hived_cli.helpers.job_tables import job_table
from hived_cli.helpers.names import of_vc
from hived_cli.helpers.waits import WAITING_STATES
from hived_cli.helpers.watching import Answer, Show, watches
from hived_extender.api.waiting import Job, Jobs
from hived_extender.client.inspection import Inspector, jobs_path

QUEUED = "500"
"""Jobs of queues that are shown, first ones first."""

STATES = get_args(get_type_hints(Job)["state"])


@click.command("jobs")
@click.option("--vc", default="", metavar="NAME", help="Jobs of this virtual cluster.", shell_complete=complete_vcs)
@click.option("--waiting", "is_waiting", is_flag=True, help="Jobs that have no cells yet.")
@click.option(
    "--state", "wanted_state", type=click.Choice(STATES, case_sensitive=False), help="Jobs in this state."
)  # fmt: skip
@click.option("--user", default="", metavar="NAME", help="Jobs of this user.")
@click.option("-n", "--namespace", default="", help="Jobs with pods in this namespace.")
@click.option("--node", default="", metavar="NAME", help="Jobs on this node.")
@watches
@output_option
def command(
    *, inspector: Inspector, show: Show, is_waiting: bool, wanted_state: str | None, output: str, **wanted: str
) -> None:
    """Show jobs: why waiting ones do not start, and when they do.

    Waiting jobs come first, in the order in which they are served; then those that wait in queues, without pods, as
    `hived get queue` has them. A job is a gang, an affinity group or a single pod,
    by the name that `hived why` takes. WHEN has its kind: certain, bounded by what the holders declared, estimated from
    earlier jobs, or unknown. On a narrow terminal the reason stands below its job; -o wide shows all on one line, with
    users, priorities and nodes.

    \b
    Examples:
      hived get jobs
      hived get jobs --waiting --vc research
      hived get jobs --user me --watch
      hived get jobs --state running --node gpu-7 -o wide
      hived get jobs --waiting -o json | jq -r '.items[].name'
    """
    if is_waiting and wanted_state:
        raise click.UsageError("--waiting and --state exclude each other")
    states = WAITING_STATES if is_waiting else (wanted_state or "",)
    path = jobs_path({**{name: (value,) for name, value in wanted.items()}, "state": states, "queued": (QUEUED,)})

    def answer() -> Answer:
        told = inspector.fetch_new(path)
        if output == "json":
            return told
        jobs = inspector.decode(path, Jobs, told).items
        if not jobs and wanted["vc"]:
            of_vc(inspector.free_cells(), wanted["vc"])
        if not jobs:
            is_limited = any(states) or any(wanted.values())
            return "No such job waits or runs." if is_limited else "No job waits or runs."
        return job_table(jobs, datetime.now(UTC), is_wide=output == "wide")

    show(answer)
