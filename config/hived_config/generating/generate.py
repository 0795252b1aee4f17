"""The configuration of a cluster from its machines."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hived.errors import UserError
from hived.specs import ClusterSpec
from hived_config.generating.cells import names_of, trees_of
from hived_config.generating.machines import Machine, counted, in_order, listed
from hived_config.generating.naming import leaf_names, level_names
from hived_config.generating.shares import Shares, allotted
from hived_config.generating.writing import document
from hived_config.loader import load_text


class Generated(msgspec.Struct, frozen=True):
    """A configuration as text and as values, the number of its machines, and notes for people."""

    text: str
    cluster: ClusterSpec
    machine_count: int
    notes: tuple[str, ...]


def generated(
    machines: Iterable[Machine],
    levels: Sequence[str] = (),
    shares: Shares | None = None,
    pads: bool = False,
    names: Mapping[str, str] | None = None,
    prefix: str = "",
    source: str = "",
) -> Generated:
    """A configuration of these machines, the same whatever their order.

    Parameters
    ----------
    machines : each name once for a resource, with one group for each of the levels
    levels : the labels that the groups come from, outermost first
    shares : how much each virtual cluster gets
    pads : fill groups up with placeholders, so that all of one level are of one type
    names : by product, the name of its leaf cells
    prefix : the beginning of all names of cell types
    source : where the machines come from, for the comment at the top

    Raises UserError if there are no machines, or a name is given to several of them.
    """
    ordered = in_order(machines)
    if not ordered:
        raise UserError("no machine with devices: expected at least one (see --resource, --selector and --cpu)")
    twice = [name for (name, _), count in Counter((each.name, each.resource) for each in ordered).items() if count > 1]
    if twice:
        raise UserError(f"machines given twice: {listed(twice)}; expected each once")
    types = leaf_names((machine.product for machine in ordered), names or {}, prefix)
    tops = trees_of(ordered, level_names(levels), pads)
    named = names_of(tops, types)
    shared, notes = allotted(tops, shares or Shares())
    notes += _about_labels(ordered, levels)
    if not pads:
        notes += _about_chains(ordered, [named.cells[top.shape] for top in tops])
    count = len({machine.name for machine in ordered})
    text = document(_comment(count, levels, source), ordered, tops, named, shared)
    cluster = load_text(text, "the generated configuration", environ={}).cluster
    return Generated(text, cluster, count, tuple(notes))


def _comment(count: int, levels: Sequence[str], source: str) -> list[str]:
    machine_count = counted(count, "machine") + (source and f" of {source}")
    by_level = f", grouped by {', '.join(levels)}" if levels else ""
    return [
        f"Made by `hived config generate` from {machine_count}{by_level}.",
        "A virtual cluster is for the pods of its `namespaces`: write there who may use it.",
        "`hived config sync` keeps the nodes up to date; what virtual clusters are promised stays as written here.",
    ]


def _about_labels(machines: Sequence[Machine], levels: Sequence[str]) -> list[str]:
    """Notes on machines without a label of a level."""
    notes = []
    for depth, label in enumerate(levels):
        has_label = {machine.name: bool(machine.groups and machine.groups[depth]) for machine in machines}
        without = [name for name, has in has_label.items() if not has]
        if without:
            notes.append(f"{counted(len(without), 'machine')} without label {label}: {listed(without)}")
    return notes


def _about_chains(machines: Sequence[Machine], tops: Sequence[str]) -> list[str]:
    """A note if there are more chains than kinds of machines, as groups are not all alike."""
    chains = list(dict.fromkeys(tops))
    kinds = {(machine.product, machine.device_count, machine.inner.levels) for machine in machines}
    if len(chains) <= len(kinds):
        return []
    return [
        f"groups are not all alike, so there are {len(chains)} cell chains ({listed(chains, 8)}); no gang spans two of "
        "them. To have fewer, leave an outer level out, or fill groups up with placeholders (--pad)"
    ]
