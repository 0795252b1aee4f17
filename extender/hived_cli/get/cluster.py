"""`hived get cluster`: a row per node, with a picture of its leaf cells."""

import click

from hived_cli.helpers.cells import colored, health, reasons_by_node, use
from hived_cli.helpers.forms import output_option, with_note
from hived_cli.helpers.tables import table
from hived_cli.helpers.watching import Show, watches
from hived_extender.api.cells import AffinityGroup
from hived_extender.api.paths import PHYSICAL_CLUSTER_PATH
from hived_extender.client.inspection import Inspector
from hived_extender.client.pictures import cell_picture, legend, letters


@click.command("cluster")
@watches
@output_option
def command(*, inspector: Inspector, show: Show, output: str) -> None:
    """Show every node: health, use, and one character per leaf cell.

    The last line names the rules of decisions, if they are others than HiveD's.

    \b
    Examples:
      hived get cluster
      hived get cluster -o wide   with the groups on each node
      hived get cluster --watch   again whenever it changes
    """
    show(lambda: inspector.fetch(PHYSICAL_CLUSTER_PATH) if output == "json" else _drawn(inspector, output == "wide"))


def _drawn(inspector: Inspector, is_wide: bool) -> str:
    tenants = _groups_by_node(inspector.groups()) if is_wide else {}
    reasons = reasons_by_node(inspector.lost_devices())
    cells = inspector.physical_cluster()
    letter_of = letters(sorted({leaf.vc for cell in cells for leaf in cell.leaves() if leaf.vc}))
    rows = []
    for top in cells:
        nodes = top.nodes()
        if nodes != [top]:
            rows.append([top.cell_address, top.cell_type, health(top), use(top), "", "", ""])
        for node in nodes:
            address = (
                node.cell_address if node is top else "  " + node.cell_address.removeprefix(top.cell_address + "/")
            )
            picture = colored(cell_picture(node, letter_of), letter_of)
            on_node = ", ".join(tenants.get(node.name, ()))
            reason = reasons.get(node.name, "")
            rows.append([address, node.cell_type, health(node), use(node), picture, on_node, reason])
    headers = ["CELL", "TYPE", "HEALTH", ">USED", "CELLS", "GROUPS" if is_wide else "", "DEVICES" if reasons else ""]
    columns = [i for i, header in enumerate(headers) if header]
    shown = table([headers[i] for i in columns], [[row[i] for i in columns] for row in rows])
    rules = inspector.rules()
    named = "" if rules == "hived" else "\n" + click.style(f"rules: {rules}", dim=True)
    return with_note(shown, legend(letter_of)) + named


def _groups_by_node(found: list[AffinityGroup]) -> dict[str, list[str]]:
    by_node: dict[str, list[str]] = {}
    for group in sorted(found, key=lambda one: one.name):
        for node in group.status.physical_placement:
            by_node.setdefault(node, []).append(group.name)
    return by_node
