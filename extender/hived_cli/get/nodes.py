"""`hived get nodes`: a row per node; which are bad, why and since when."""

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from hived_cli.helpers.forms import fitted, output_option
from hived_cli.helpers.tables import table
from hived_cli.helpers.waits import UNKNOWN, age, listed
from hived_cli.helpers.watching import Show, watches
from hived_config.reader import printable
from hived_extender.api.waiting import NodeView
from hived_extender.client.inspection import Inspector, nodes_path


@click.command("nodes")
@click.option("--bad", "is_bad", is_flag=True, help="Bad nodes alone: not ready, cordoned, or with lost devices.")
@watches
@output_option
def command(*, inspector: Inspector, show: Show, is_bad: bool, output: str) -> None:
    """Show nodes: which are bad, why and since when, and what runs on them.

    \b
    Examples:
      hived get nodes
      hived get nodes --bad
      hived get nodes --bad --watch
      hived get nodes --bad -o json | jq -r '.[].node'
    """
    path = nodes_path(is_bad)
    show(
        lambda: (
            inspector.fetch_new(path) if output == "json" else _drawn(inspector.nodes(is_bad), is_bad, output == "wide")
        )
    )


def _count(one: NodeView, part: str) -> str:
    """Cells of a node, by leaf cell type where it has several."""
    if part == "lost" and not one.lost:
        return UNKNOWN
    by_type = [f"{getattr(counts, part)} {printable(name)}" for name, counts in one.by_type.items()]
    return ", ".join(by_type) or str(getattr(one, part))


def _drawn(nodes: Sequence[NodeView], is_bad: bool, is_wide: bool) -> str:
    if not nodes:
        return "No node is bad." if is_bad else "There is no node."
    now = datetime.now(UTC)
    rows = [
        [
            printable(one.node),
            click.style("Bad", fg="red") if one.is_bad else click.style("Healthy", fg="green"),
            age(one.since, now) if one.since else UNKNOWN,
            *(_count(one, part) for part in ("cells", "free", "lost")),
            printable(one.reason) or UNKNOWN,
            listed(one.groups, most=len(one.groups) if is_wide else 4) or UNKNOWN,
        ]
        for one in nodes
    ]
    headers = ["NODE", "HEALTH", ">FOR", ">CELLS", ">FREE", ">LOST", "REASON", "GROUPS"]
    return table(headers, rows) if is_wide else fitted(headers, rows)
