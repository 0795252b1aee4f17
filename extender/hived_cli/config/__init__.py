"""`hived config`: subcommands, whose modules are loaded only when one is asked for."""

import click

from hived_cli.helpers.lazy import LazyGroup

SUMMARIES = {
    "validate": "List every mistake in scheduler configurations, each with its place and what was expected.",
    "plan": "Show what a configuration would do to whom, and change nothing.",
    "push": "Bring a configuration into force: check it, show what it would do, ask, and wait until it is.",
    "pull": "Print the configuration in force, as it was pushed, or write it to a file.",
    "diff": "Show how a configuration differs, line by line, from the one in force; or two versions from each other.",
    "history": "List the versions of the configuration that are kept, newest first: when, who and why.",
    "rollback": "Bring an earlier version into force again, by default the one before.",
    "get-id": "Print the id of the cluster.",
    "explain": "Draw the cell chains, and how the virtual clusters divide them.",
    "set-vc": "Set how many cells a virtual cluster is promised.",
    "move": "Give cells of one virtual cluster to another one.",
    "remove-vc": "Remove a virtual cluster.",
    "schema": "Print the JSON schema of configurations, for editors that check and complete YAML.",
    "generate": "Write a configuration from a cluster's nodes, OpenPAI's layout.yaml or `nvidia-smi topo -m`.",
    "suggest": "Suggest sizes and shapes of virtual clusters for a trace of jobs, with their simulated effect.",
    "sync": "Bring the nodes of a configuration up to date, and leave everything else in it as it is.",
}


PLACES = {
    name: module
    for module, names in {
        "checking": ("validate", "schema"),
        "plan": ("plan",),
        "pushing": ("push", "rollback"),
        "versions": ("pull", "diff", "history", "get-id"),
        "editing": ("set-vc", "move", "remove-vc"),
        "generating": ("generate", "sync"),
    }.items()
    for name in names
}
"""The module of each command; one that is not here has a module of its own."""


@click.group(cls=LazyGroup, package=__name__, summaries=SUMMARIES, places=PLACES)
def command() -> None:
    """Check, explain and change configurations.

    \b
    Examples:
      hived config validate hivedscheduler.yaml
      hived config plan hivedscheduler.yaml
      hived config push -p /cluster-configuration -m service
      hived config rollback
      hived config explain
      hived config move 2 NODE from research to training
      hived config generate --vc research=60% --vc prod=40% -o hivedscheduler.yaml
      hived config sync
      hived config suggest --trace jobs.csv --goal delay --config hivedscheduler.yaml
    """
