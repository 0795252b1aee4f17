"""`hived get vc`: a row per preassigned cell of virtual clusters, and what they use beyond."""

from collections import Counter

import click

from hived_cli.helpers.cells import colored, health, reasons_by_node, use
from hived_cli.helpers.completing import complete_vcs
from hived_cli.helpers.forms import output_option, with_note
from hived_cli.helpers.tables import table
from hived_cli.helpers.watching import Show, watches
from hived_extender.api.cells import AffinityGroup, Cell
from hived_extender.api.paths import VIRTUAL_CLUSTERS_PATH, virtual_cluster_path
from hived_extender.client.inspection import Inspector
from hived_extender.client.pictures import cell_picture


@click.command("vc")
@click.argument("name", required=False, shell_complete=complete_vcs)
@watches
@output_option
def command(*, inspector: Inspector, show: Show, name: str | None, output: str) -> None:
    """Show what virtual clusters are promised and where those cells are now.

    \b
    Examples:
      hived get vc
      hived get vc research
      hived get vc research --watch
      hived get vc -o json
    """
    path = virtual_cluster_path(name) if name else VIRTUAL_CLUSTERS_PATH
    show(lambda: inspector.fetch(path) if output == "json" else _drawn(inspector, name))


def _drawn(inspector: Inspector, name: str | None) -> str:
    clusters = {name: inspector.virtual_cluster(name)} if name else inspector.virtual_clusters()
    found = inspector.groups()
    reasons = reasons_by_node(inspector.lost_devices())
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
            picture = colored(cell_picture(cell, {}), {})
            rows.append([title, cell.cell_address, cell.cell_type, health(cell), use(cell), picture, bound])
            title = ""
        if borrowed or title:
            nodes = _opportunistic_nodes(vc_name, found)
            rows.append([title, "(opportunistic)", "", "", str(len(borrowed)), "o" * len(borrowed), nodes])
    for shared in inspector.shortages():
        if not clusters.keys().isdisjoint(shared.virtual_clusters):
            short += [click.style(shared.message, fg="red"), *(f"  {reason}" for reason in shared.reasons)]
    headers = ["VC", "CELL", "TYPE", "HEALTH", ">USED", "CELLS", "BOUND TO"]
    shown = "\n".join([table(headers, rows), *([""] if short else []), *short])
    return with_note(shown, "# in use   o in use beyond the promise   . free   x bad, not in use   ~ reserved")


def _is_opportunistic_entry(cell: Cell) -> bool:
    return cell.cell_address.endswith("-opp")


def _opportunistic_nodes(vc_name: str, found: list[AffinityGroup]) -> str:
    """The nodes on which groups of a virtual cluster run without a claim to stay."""
    borrowers = [group.status for group in found if group.status.vc == vc_name and not group.status.virtual_placement]
    return ", ".join(sorted({node for status in borrowers for node in status.physical_placement})) or "-"


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
