"""The `hived` command: one file per command, each loaded only when it is asked for.

`hived --help` and shell completion must answer at once, so the list of commands with its one-line summaries stands here
and a command's module is imported when the command runs. A mistake of the user's and a refusal of a server, wherever
they were found, end every command the same way: one clear message on stderr, exit code 1. A bug of ours is not hidden.
"""

import os
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from hived import __version__
from hived.errors import HivedError, InvariantError

SUMMARIES = {
    "serve": "Run the scheduler extender, or a whole embedded cluster.",
    "demo": "Run the lab: HiveD's guarantees, shown and checked on an embedded cluster.",
    "submit": "Turn jobs and pod manifests into pods and create them.",
    "resume": "Create the pods of a job that was submitted suspended, or that was aborted.",
    "get": "Show the cluster, the virtual clusters or the affinity groups.",
    "config": "Check configuration files.",
    "certificates": "Make certificates for TLS between kube-scheduler and the extender.",
    "manifests": "Print the manifests that install hived in a cluster, with your configuration.",
    "replay": "Feed a log of operations to the scheduler core and write one record per operation.",
    "version": "Show the version of hived and of what it runs on.",
    "completion": "Print the script that completes hived in your shell.",
}


class LazyGroup(click.Group):
    """A click group whose commands live in modules of this package, named as the command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of `SUMMARIES`."""
        return list(SUMMARIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now; None if there is none."""
        if cmd_name not in SUMMARIES:
            return None
        command: click.Command = import_module(f"{__name__}.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name from `SUMMARIES`, or an option of `hived` itself."""
        names = [CompletionItem(name, help=SUMMARIES[name]) for name in SUMMARIES if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; an expected error becomes a message on stderr and exit code 1."""
        try:
            return super().invoke(ctx)
        except InvariantError:
            raise
        except HivedError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="hived", message="%(prog)s %(version)s")
@click.pass_context
def main(ctx: click.Context) -> None:
    """HiveD: guaranteed GPU cells for every team that shares a Kubernetes cluster.

    \b
    Examples:
      hived demo                                  see the guarantees at work, no Kubernetes needed
      hived serve --embedded hivedscheduler.yaml  a whole cluster on this machine
      hived submit job.yaml --vc research         create the pods of a job
      hived get cluster                           who uses which GPU
      hived COMMAND --help                        options and examples of one command
    """
    if os.environ.get("NO_COLOR"):
        ctx.color = False
