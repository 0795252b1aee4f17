"""`hived config`: one file per subcommand, each loaded only when it is asked for."""

import click

from hived_extender.cli.lazy import LazyGroup

SUMMARIES = {
    "validate": "List every mistake in scheduler configurations, each with its place and what was expected.",
    "plan": "Show what a configuration would do to whom, and change nothing.",
}


@click.group(cls=LazyGroup, package=__name__, summaries=SUMMARIES)
def command() -> None:
    """Check, explain and change configurations.

    \b
    Examples:
      hived config validate hivedscheduler.yaml
      hived config plan hivedscheduler.yaml
    """
