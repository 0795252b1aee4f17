"""The `hived` command: one file per command, each loaded only when it is asked for.

`hived --help` and shell completion must answer at once. So the list of commands with its one-line summaries stands
here, and a command's module is imported when the command runs. A mistake of the user and a refusal of a server end
every command the same way: one clear message on stderr, exit code 1. A bug of ours is not hidden.
"""

import os
import time
from collections.abc import Mapping

import click

from hived import __version__
from hived.kernels.linked import VARIABLE, Way
from hived.values.errors import HivedError, InvariantError, UserError
from hived_cli.helpers.lazy import LazyGroup

BEGAN_S = time.monotonic()
"""When the program began: nearly all that it imports comes later."""

SUMMARIES = {
    "serve": "Run the scheduler extender, or a whole embedded cluster.",
    "demo": "Run the lab: HiveD's guarantees, shown and checked on an embedded cluster.",
    "submit": "Create the jobs of files.",
    "resume": "Start a job that is suspended, or that was aborted.",
    "get": "Show the cluster, virtual clusters, jobs, nodes or affinity groups.",
    "why": "Say why a job does not start, who has its cells, what would help, and when it starts.",
    "status": "Show the state of the service: who leads, what it recovered, what is short, and what to do.",
    "top": "Show the virtual clusters, the bad nodes and the jobs that wait, live.",
    "hold": "Hold jobs: in a queue one that runs goes on; without queues its pods are deleted, after a question.",
    "release": "Let jobs that were held take their turn, or start.",
    "move": "Give a job another place in its queue.",
    "delete": "Delete jobs, gangs or groups, with their pods.",
    "config": "Check, explain and change configurations.",
    "migrate": "Turn the objects of another scheduler into files of hived.",
    "service": "Take the words with which scripts of paictl stop and start services around a push.",
    "defrag": "Make room in a virtual cluster whose free cells are scattered, by moving groups that allow it.",
    "certificates": "Make certificates for TLS between kube-scheduler and the extender.",
    "manifests": "Print the manifests that install hived in a cluster, with your configuration.",
    "simulate": "Run a trace of jobs on the scheduler in virtual time, and on others for comparison.",
    "trace": "Describe, convert, cut and scale traces of jobs.",
    "replay": "Feed a log of operations to the scheduler core and write one record per operation.",
    "version": "Show the version of hived and of what it runs on.",
    "completion": "Print the script that completes hived in your shell.",
}
PLACES = {"resume": "submit", "hold": "queueing", "release": "queueing", "move": "queueing"}
"""Modules of commands that share one."""

VARIANTS = ("avx512", "avx2", "baseline")
"""Kernels that a library may have; the one of this machine need not have each."""


def check_wanted(environ: Mapping[str, str]) -> None:
    """Raise UserError if the environment asks for kernels that there are nowhere: others would run in silence."""
    wanted, known = environ.get(VARIABLE, ""), [*VARIANTS, *(way.value for way in Way)]
    if wanted and wanted not in known:
        raise UserError(f"{VARIABLE}={wanted}: expected {', '.join(known[:-1])} or {known[-1]}")


class Main(LazyGroup):
    """The group of all commands, which tells users what went wrong."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an expected error becomes a message on stderr and exit code 1."""
        try:
            check_wanted(os.environ)
            return super().invoke(ctx)
        except InvariantError:
            raise
        except HivedError as error:
            raise click.ClickException(str(error)) from error
        except ModuleNotFoundError as error:
            from hived_extender.kube.packages import missing  # noqa: PLC0415  # help does without

            told = missing(error)
            if told is None:
                raise
            raise click.ClickException(str(told)) from error


@click.group(
    cls=Main,
    package=__name__,
    summaries=SUMMARIES,
    places=PLACES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Words such as cell, gang and borrow: docs/glossary.md, or /page/glossary of a running service.",
)
@click.version_option(__version__, "-V", "--version", prog_name="hived", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """HiveD: guaranteed GPU cells for every team that shares a Kubernetes cluster.

    \b
    Examples:
      hived demo                                  see the guarantees at work, no Kubernetes needed
      hived serve --embedded hivedscheduler.yaml  a whole cluster on this machine
      hived submit job.yaml --vc research         create a job
      hived get cluster                           who uses which GPU
      hived why default/train-0                   why it waits, what would help, and when it starts
      hived top                                   the cluster, live
      hived COMMAND --help                        options and examples of one command
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
