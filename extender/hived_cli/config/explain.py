"""`hived config explain`: the chains of a cluster, and how the virtual clusters divide them."""

from pathlib import Path
from typing import Any

import click

from hived.values.specs import ClusterSpec, Rules
from hived_cli.config.helpers.access_tables import access_as_json, draw_access
from hived_cli.config.helpers.division_tables import draw
from hived_cli.config.helpers.files import find_file
from hived_cli.config.helpers.given_files import takes_file
from hived_cli.helpers.answers import as_json, format_option
from hived_cli.helpers.connecting import asks_service
from hived_config.division import DividedChain, divide
from hived_config.document import read_text
from hived_config.loader import load_text
from hived_config.reader import printable
from hived_config.rules import Queueing, QueueOfVc
from hived_config.settings import value_of
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector


@click.command("explain")
@takes_file
@asks_service
@format_option
def command(path: Path | None, inspector: Inspector, form: str) -> None:
    """Draw the cell chains, and how the virtual clusters divide them.

    Every level of a chain shows how many cells there are, the leaves below each, and how many whole cells are spare. It
    also shows how many cells each virtual cluster is promised (with * pinned ones). A list of who may use each virtual
    cluster follows, the rules of decisions if they are others than HiveD's, and those of queues if jobs wait in some. A
    FILE is a configuration, a DIR one of OpenPAI's with a services-configuration.yaml; without either, the
    configuration of the running service is drawn.

    \b
    Examples:
      hived config explain hivedscheduler.yaml
      hived config explain
      hived config explain --format json | jq '.chains[].virtualClusters'
    """
    name, text = _read(path, inspector)
    configuration = load_text(text, name, lenient=True)
    for warning in configuration.warnings:
        click.echo(str(warning), err=True)
    chains = divide(configuration.cluster)
    vcs = list(configuration.cluster.virtual_clusters)
    if form == "json":
        answer = {
            "source": name,
            "rules": value_of(configuration.cluster.rules),
            "chains": [_as_json(chain, vcs) for chain in chains],
            "access": access_as_json(configuration.rules.access, vcs),
            "queues": _queues_as_json(configuration.rules.queueing, vcs),
        }
        click.echo(as_json(answer))
    else:
        click.echo(draw(chains, vcs))
        click.echo("\n" + draw_access(configuration.rules.access, vcs))
        if configuration.cluster.rules is not Rules.HIVED:
            click.echo("\n" + _draw_rules(configuration.cluster))
        if configuration.rules.queueing.is_enabled:
            click.echo("\n" + _draw_queues(configuration.rules.queueing, vcs))


def _draw_rules(cluster: ClusterSpec) -> str:
    """The rules, and the virtual clusters that have the keys of these."""
    vcs = cluster.virtual_clusters.values()
    named = {"combine": [vc.name for vc in vcs if vc.combines], "sparing": [vc.name for vc in vcs if vc.spares]}
    keys = [f"  {key}: {', '.join(names)}" for key, names in named.items() if names]
    return "\n".join([f"rules: {value_of(cluster.rules)}", *keys])


def _queues_as_json(queueing: Queueing, vcs: list[str]) -> dict[str, Any]:
    own = {vc: queueing.of(vc).as_json() for vc in vcs} if queueing.is_enabled else {}
    return {**queueing.as_json(), "virtualClusters": own}


def _draw_queues(queueing: Queueing, vcs: list[str]) -> str:
    """The rules of queues, and a line for each virtual cluster."""
    half_life = f", past use counts half after {queueing.half_life_s / 60:g} minutes" if queueing.half_life_s else ""
    return "\n".join(
        [f"queues: policy {queueing.policy.value}{half_life}", *(_queue(vc, queueing.of(vc)) for vc in vcs)]
    )


def _queue(vc: str, own: QueueOfVc) -> str:
    words = [f"borrows idle cells by weight {own.weight:g}" if own.borrows else "does not borrow"]
    words += [] if own.most_running is None else [f"at most {own.most_running} running per user"]
    words += [] if own.most_waiting is None else [f"at most {own.most_waiting} waiting per user"]
    return f"  {printable(vc)}: {', '.join(words)}"


def _read(path: Path | None, inspector: Inspector) -> tuple[str, str]:
    """The name of the configuration in messages, and its text."""
    if path is None:
        current = ConfigClient(inspector).current()
        return current.source, current.text
    file = find_file(path)
    name = click.format_filename(file)
    return name, read_text(file, name)


def _as_json(chain: DividedChain, vcs: list[str]) -> dict[str, Any]:
    def share(leaves: int) -> dict[str, Any]:
        return {"leafCells": leaves, "share": round(leaves / chain.leaf_count, 6)}

    return {
        "chain": chain.name,
        "nodes": chain.node_count,
        "leafCells": chain.leaf_count,
        "cells": list(chain.tops),
        "levels": [
            {
                "level": level.level,
                "cellType": level.cell_type,
                "cells": level.cell_count,
                "leafCellsEach": level.leaf_count,
                "isNodeLevel": level.is_node_level,
                "virtualCells": dict(level.promised),
                "pinnedCells": dict(level.pinned),
                "spare": level.spare,
            }
            for level in chain.levels
        ],
        "pinnedCells": [
            {
                "pinnedCellId": pin.pin_id,
                "cellType": chain.levels[pin.depth].cell_type,
                "cellAddress": pin.address,
                "vc": pin.vc,
            }
            for pin in chain.pinned_cells
        ],
        "virtualClusters": {vc: share(chain.leaves_of(vc)) for vc in vcs},
        "spare": share(chain.spare_leaf_count),
    }
