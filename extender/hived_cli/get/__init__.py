"""`hived get`: what the service knows, as tables; one file per subcommand, each loaded only when it is asked for."""

import click

from hived_cli.helpers.lazy import LazyGroup

SUMMARIES = {
    "cluster": "Show every node: health, use, and one character per leaf cell.",
    "vc": "Show what virtual clusters are promised and where those cells are now.",
    "groups": "Show the affinity groups (gangs) that hold or await cells.",
    "jobs": "Show jobs: why waiting ones do not start, and when they do.",
    "nodes": "Show nodes: which are bad, why and since when, and what runs on them.",
    "queue": "Show queues, and the jobs in them with their places and reasons.",
    "free": "Show how many cells of each size virtual clusters could start jobs on now.",
}


@click.group(cls=LazyGroup, package=__name__, summaries=SUMMARIES)
def command() -> None:
    """Show the cluster, virtual clusters, jobs, nodes or affinity groups.

    Asks a running service. Tables are plain text when the output is not a terminal or NO_COLOR is set. With --watch an
    answer is shown anew whenever it changes, until Ctrl-C (exit code 130); with -o json as one line each.

    \b
    Examples:
      hived get cluster                      every node, one character per GPU
      hived get vc research                  what research is promised, and where it is
      hived get jobs --waiting --vc research why its jobs wait, and when they start
      hived get nodes --bad                  bad nodes, why and since when
      hived get queue                        how many jobs wait and run in each queue
      hived get free                         how many cells of each size could start a job now
      hived get groups -o wide               every gang with its nodes and devices
      hived get groups team-a:train          one gang
      hived get cluster --watch              again whenever it changes
      hived get cluster -o json | jq .       as served by the inspect paths
      HIVED_SERVER=http://10.0.0.7:9096 hived get groups
      hived get groups --server https://10.0.0.7:9096 --certificate-authority ca.crt --token-file token
    """
