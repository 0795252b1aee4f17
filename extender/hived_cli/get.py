"""`hived get`: the service's inspect paths as tables; one row per cell, virtual cluster or group."""

from collections import Counter
from datetime import UTC, datetime
from itertools import groupby

import click

from hived_cli.helpers.answers import as_json
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.tables import table
from hived_extender.api.cells import AffinityGroup, Cell, GroupStatus, LostDevices
from hived_extender.api.paths import (
    GROUPS_PATH,
    PHYSICAL_CLUSTER_PATH,
    VIRTUAL_CLUSTERS_PATH,
    group_path,
    virtual_cluster_path,
)
from hived_extender.client.inspection import Inspector
from hived_extender.client.pictures import BAD, FREE, RESERVED, cell_picture, health, legend, letters

STATE_COLORS = {"Allocated": "green", "Preempting": "yellow", "BeingPreempted": "yellow"}
SIGN_COLORS = {BAD: "red", RESERVED: "yellow", FREE: "bright_black"}
VC_COLORS = ("cyan", "green", "magenta", "blue", "yellow")


@click.group("get")
def command() -> None:
    """Show the cluster, the virtual clusters or the affinity groups.

    Asks a running service. Tables are plain text when the output is not a terminal or NO_COLOR is set.

    \b
    Examples:
      hived get cluster                      every node, one character per GPU
      hived get vc research                  what research is promised, and where it is
      hived get groups -o wide               every gang with its nodes and devices
      hived get groups team-a:train          one gang
      hived get cluster -o json | jq .       as served by the inspect paths
      HIVED_SERVER=http://10.0.0.7:9096 hived get groups
      hived get groups --server https://10.0.0.7:9096 --certificate-authority ca.crt --token-file token
    """


output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json"]), default="table", help="Form of the answer."
)


@command.command()
@asks_service
@output_option
def cluster(inspector: Inspector, output: str) -> None:
    """Show every node: health, use, and one character per leaf cell.

    The last line names the rules of decisions, if they are others than HiveD's.

    \b
    Examples:
      hived get cluster
      hived get cluster -o wide   with the groups on each node
    """
    if output == "json":
        return _print_json(inspector, PHYSICAL_CLUSTER_PATH)
    is_wide = output == "wide"
    tenants = _groups_by_node(inspector.groups()) if is_wide else {}
    reasons = _reasons_by_node(inspector.lost_devices())
    cells = inspector.physical_cluster()
    letter_of = letters(sorted({leaf.vc for cell in cells for leaf in cell.leaves() if leaf.vc}))
    rows = []
    for top in cells:
        nodes = top.nodes()
        if nodes != [top]:
            rows.append([top.cell_address, top.cell_type, _health(top), _use(top), "", "", ""])
        for node in nodes:
            address = (
                node.cell_address if node is top else "  " + node.cell_address.removeprefix(top.cell_address + "/")
            )
            picture = _colored(cell_picture(node, letter_of), letter_of)
            on_node = ", ".join(tenants.get(node.name, ()))
            reason = reasons.get(node.name, "")
            rows.append([address, node.cell_type, _health(node), _use(node), picture, on_node, reason])
    headers = ["CELL", "TYPE", "HEALTH", ">USED", "CELLS", "GROUPS" if is_wide else "", "DEVICES" if reasons else ""]
    columns = [i for i, header in enumerate(headers) if header]
    shown = table([headers[i] for i in columns], [[row[i] for i in columns] for row in rows])
    _show(shown, legend(letter_of))
    rules = inspector.rules()
    if rules != "hived":
        click.echo(click.style(f"rules: {rules}", dim=True))


@command.command()
@click.argument("name", required=False)
@asks_service
@output_option
def vc(inspector: Inspector, name: str | None, output: str) -> None:
    """Show what virtual clusters are promised and where those cells are now.

    \b
    Examples:
      hived get vc
      hived get vc research
      hived get vc -o json
    """
    if output == "json":
        path = virtual_cluster_path(name) if name else VIRTUAL_CLUSTERS_PATH
        return _print_json(inspector, path)
    clusters = {name: inspector.virtual_cluster(name)} if name else inspector.virtual_clusters()
    found = inspector.groups()
    reasons = _reasons_by_node(inspector.lost_devices())
    short: list[str] = []
    rows = []
    for vc_name, cells in clusters.items():
        title = vc_name
        short += _shortage(vc_name, cells, reasons)
        borrowed = [cell for cell in cells if _is_opportunistic_entry(cell)]
        for cell in cells:
            if _is_opportunistic_entry(cell):
                continue
            bound = cell.physical_cell.cell_address if cell.physical_cell else "-"
            picture = _colored(cell_picture(cell, {}), {})
            rows.append([title, cell.cell_address, cell.cell_type, _health(cell), _use(cell), picture, bound])
            title = ""
        if borrowed or title:
            nodes = _opportunistic_nodes(vc_name, found)
            rows.append([title, "(opportunistic)", "", "", str(len(borrowed)), "o" * len(borrowed), nodes])
    for shared in inspector.shortages():
        if not clusters.keys().isdisjoint(shared.virtual_clusters):
            short += [click.style(shared.message, fg="red"), *(f"  {reason}" for reason in shared.reasons)]
    headers = ["VC", "CELL", "TYPE", "HEALTH", ">USED", "CELLS", "BOUND TO"]
    shown = "\n".join([table(headers, rows), *([""] if short else []), *short])
    _show(shown, "# in use   o in use beyond the promise   . free   x bad   ~ reserved")


@command.command()
@click.argument("name", required=False)
@asks_service
@output_option
def groups(inspector: Inspector, name: str | None, output: str) -> None:
    """Show the affinity groups (gangs) that hold or await cells.

    A row `_moving:...` is no gang: its cells are held for a group that is being moved, see hived defrag status.

    LOSS is the work in GPU-hours that is lost if the group has to leave now: since its start, or its last checkpoint.

    Each pod of a gang of another dialect, such as a PyTorchJob, is a group of one pod once it runs. Its name is
    NAMESPACE/POD.

    \b
    Examples:
      hived get groups
      hived get groups team-a:train
      hived get groups -o wide
    """
    if output == "json":
        return _print_json(inspector, group_path(name) if name else GROUPS_PATH)
    found = [inspector.group(name)] if name else sorted(inspector.groups(), key=lambda group: group.name)
    with_devices = output == "wide" or name is not None
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
                "opportunistic" if status.priority < 0 else str(status.priority),
                _state(status),
                pods,
                _placement(group, with_devices),
                *([_loss(group, now)] if with_devices else []),
                _preemptor(group),
            ]
        )
    places = ["PLACEMENT", ">LOSS"] if with_devices else ["NODES"]
    headers = ["GROUP", "VC", ">PRIORITY", "STATE", "PODS", *places, "LAZILY PREEMPTED BY"]
    click.echo(table(headers, rows) if rows else "No group holds or awaits cells.")


def _print_json(inspector: Inspector, path: str) -> None:
    click.echo(as_json(inspector.fetch(path)))


def _show(rows: str, note: str) -> None:
    click.echo(rows)
    click.echo("\n" + click.style(note, dim=True))


def _health(cell: Cell) -> str:
    return click.style(health(cell), fg="red" if cell.is_bad else "green")


def _use(cell: Cell) -> str:
    leaves = cell.leaves()
    return f"{sum(leaf.is_used for leaf in leaves)}/{len(leaves)}"


def _colored(picture: str, letter_of: dict[str, str]) -> str:
    """The picture with each run of equal characters in its colour."""
    colors = SIGN_COLORS | {letter: VC_COLORS[i % len(VC_COLORS)] for i, letter in enumerate(letter_of.values())}
    runs = ("".join(run) for _, run in groupby(picture))
    return "".join(click.style(run, fg=colors.get(run[0].upper(), colors.get(run[0]))) for run in runs)


def _is_opportunistic_entry(cell: Cell) -> bool:
    return cell.cell_address.endswith("-opp")


def _opportunistic_nodes(vc_name: str, found: list[AffinityGroup]) -> str:
    """The nodes on which groups of a virtual cluster run without a claim to stay."""
    borrowers = [group.status for group in found if group.status.vc == vc_name and not group.status.virtual_placement]
    return ", ".join(sorted({node for status in borrowers for node in status.physical_placement})) or "-"


def _reasons_by_node(lost: list[LostDevices]) -> dict[str, str]:
    """Why leaf cells of a node cannot be had, by its name."""
    reasons: dict[str, str] = {}
    for each in lost:
        reasons[each.node] = "; ".join(filter(None, (reasons.get(each.node, ""), each.reason)))
    return reasons


def _shortage(vc_name: str, cells: list[Cell], reasons: dict[str, str]) -> list[str]:
    """Which of the cells that a virtual cluster is promised lack leaf cells now, and why."""
    promised = [cell for cell in cells if not _is_opportunistic_entry(cell)]
    lines = []
    short_count = 0
    for cell in promised:
        bad = [leaf.physical_cell for leaf in cell.leaves() if leaf.is_bad and leaf.physical_cell is not None]
        counts = Counter(node for leaf in bad for node in leaf.cell_address.split("/") if node in reasons)
        short_count += bool(counts)
        lines += [f"  {cell.cell_address} is short of {n} on {node}: {reasons[node]}" for node, n in counts.items()]
    if not lines:
        return []
    title = f"{vc_name}: {short_count} of {len(promised)} promised cells lack leaf cells"
    return [click.style(title, fg="red"), *lines]


def _groups_by_node(found: list[AffinityGroup]) -> dict[str, list[str]]:
    by_node: dict[str, list[str]] = {}
    for group in sorted(found, key=lambda one: one.name):
        for node in group.status.physical_placement:
            by_node.setdefault(node, []).append(group.name)
    return by_node


def _state(status: GroupStatus) -> str:
    shown = f"held for {status.held_for}" if status.held_for else status.state
    return click.style(shown, fg="yellow" if status.held_for else STATE_COLORS.get(status.state))


def _loss(group: AffinityGroup, now: datetime) -> str:
    """The GPU-hours that are lost if the group leaves now, "-" if its start is unknown."""
    work = group.status.work
    if work is None:
        return "-"
    hours = max((now - datetime.fromisoformat(work.since)).total_seconds(), 0) / 3600
    return f"{work.leaf_cells * hours:.1f} GPU-h"


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
