"""`hived get groups`: a row per affinity group."""

from datetime import UTC, datetime

import click

from hived_cli.helpers.forms import output_option
from hived_cli.helpers.tables import table
from hived_cli.helpers.waits import priority
from hived_cli.helpers.watching import Show, watches
from hived_extender.api.cells import AffinityGroup, GroupStatus
from hived_extender.api.paths import GROUPS_PATH, group_path
from hived_extender.client.inspection import Inspector

STATE_COLORS = {"Allocated": "green", "Preempting": "yellow", "BeingPreempted": "yellow"}


@click.command("groups")
@click.argument("name", required=False)
@watches
@output_option
def command(*, inspector: Inspector, show: Show, name: str | None, output: str) -> None:
    """Show the affinity groups (gangs) that hold or await cells.

    A row `_moving:...` is no gang: its cells are held for a group that is being moved, see hived defrag status.

    LOSS is the work that is lost if the group has to leave now: since its start, or its last checkpoint. It is in hours
    of one leaf cell: 48.0 A100-h are 6 hours of 8 A100.

    Each pod of a gang of another dialect, such as a PyTorchJob, is a group of one pod once it runs. Its name is
    NAMESPACE/POD.

    \b
    Examples:
      hived get groups
      hived get groups team-a:train
      hived get groups -o wide
      hived get groups --watch -o json
    """
    path = group_path(name) if name else GROUPS_PATH
    show(lambda: inspector.fetch(path) if output == "json" else _drawn(inspector, name, output == "wide"))


def _drawn(inspector: Inspector, name: str | None, is_wide: bool) -> str:
    found = [inspector.group(name)] if name else sorted(inspector.groups(), key=lambda group: group.name)
    with_devices = is_wide or name is not None
    rows, now = [], datetime.now(UTC)
    for group in found:
        status = group.status
        pods = "-" if status.held_for else f"{len(status.allocated_pods)}"
        if status.preempting_pods:
            pods += f" +{len(status.preempting_pods)} waiting"
        rows.append(
            [
                group.name,
                status.vc,
                priority(status.priority),
                _state(status),
                pods,
                *([", ".join(status.leaf_cell_types) or "-"] if with_devices else []),
                _placement(group, with_devices),
                *([_loss(group, now)] if with_devices else []),
                _preemptor(group),
            ]
        )
    places = ["TYPE", "PLACEMENT", ">LOSS"] if with_devices else ["NODES"]
    headers = ["GROUP", "VC", ">PRIORITY", "STATE", "PODS", *places, "LAZILY PREEMPTED BY"]
    return table(headers, rows) if rows else "No group holds or awaits cells."


def _state(status: GroupStatus) -> str:
    shown = f"held for {status.held_for}" if status.held_for else status.state
    return click.style(shown, fg="yellow" if status.held_for else STATE_COLORS.get(status.state))


def _loss(group: AffinityGroup, now: datetime) -> str:
    """The hours of leaf cells that are lost if the group leaves now, "-" if its start is unknown."""
    work, types = group.status.work, group.status.leaf_cell_types
    if work is None:
        return "-"
    hours = max((now - datetime.fromisoformat(work.since)).total_seconds(), 0) / 3600
    return f"{work.leaf_cells * hours:.1f} {types[0] if len(types) == 1 else 'cell'}-h"


def _preemptor(group: AffinityGroup) -> str:
    """The group that has its place in its VC, and since when; a group names itself if nobody knows the other."""
    lazy = group.status.lazy_preemption_status
    if lazy is None:
        return "-"
    who = "nobody known, its VC has no place for it" if lazy.preemptor == group.name else lazy.preemptor
    return f"{who} {lazy.preemption_time}"


def _placement(group: AffinityGroup, with_devices: bool) -> str:
    placement = sorted(group.status.physical_placement.items())
    if with_devices:
        return " ".join(f"{node}[{','.join(map(str, sorted(devices)))}]" for node, devices in placement) or "-"
    return ", ".join(node for node, _ in placement) or "-"
