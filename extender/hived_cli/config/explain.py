"""`hived config explain`: the chains of a cluster, how virtual clusters divide them, and who may use these."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from hived.values.specs import MAX_GUARANTEED_PRIORITY, ClusterSpec, Rules
from hived_cli.config.given import find_file, takes_file
from hived_cli.helpers.answers import as_json, format_option
from hived_cli.helpers.connecting import asks_service
from hived_cli.helpers.tables import GAP, table
from hived_config.access import Access, AccessRules, NamespaceEntry, VirtualClusterAccess
from hived_config.division import DividedChain, DividedLevel, divide
from hived_config.document import read_text
from hived_config.loader import load_text
from hived_config.reader import printable
from hived_config.rules import QUEUE_OF_VC, QUEUES, Queueing, QueueOfVc
from hived_config.selectors import Requirement
from hived_config.settings import value_of
from hived_config.words import counted
from hived_extender.api.inspection import ConfigClient, Inspector
from hived_extender.api.pictures import FREE, letters

WIDTH = 100
BAR_WIDTH = 64
NOTHING = "."

_HEADERS = ("LEVEL", "CELL TYPE", ">CELLS", ">LEAVES EACH")
_INDENT = "  "


def draw(chains: Sequence[DividedChain], vcs: Sequence[str]) -> str:
    """All chains, with what the virtual clusters `vcs` have of them."""
    letter_of = letters(vcs)
    return "\n\n".join("\n".join(_draw_chain(chain, letter_of)) for chain in chains)


def _draw_chain(chain: DividedChain, letter_of: dict[str, str]) -> Iterator[str]:
    leaf_type = chain.levels[-1].cell_type
    size = f"{counted(len(chain.tops), 'top-level cell')}, {counted(chain.node_count, 'node')}, "
    yield click.style(chain.name, bold=True) + f"   {size}{counted(chain.leaf_count, leaf_type)}"
    yield f"{_INDENT}cells: {_enumerate(chain.tops)}"
    having = [vc for vc in letter_of if chain.leaves_of(vc)]
    for block in _blocks(chain, having):
        yield ""
        headers = [*_HEADERS, *(f">{_title(vc)}" for vc in block)]
        yield "\n".join(_INDENT + line for line in table(headers, _rows(chain, block)).splitlines())
    yield ""
    legend = [f"{letter_of[vc]} {vc}" for vc in having]
    yield f"{_INDENT}[{_bar(chain, {vc: letter_of[vc] for vc in having})}]"
    yield from _wrapped([*legend, f"{FREE} spare"])
    for pin in chain.pinned_cells:
        owner = f"pinned by {pin.vc}" if pin.vc else "of no virtual cluster"
        yield f"{_INDENT}* pinned cell {pin.pin_id}: {pin.cell_type} {pin.address}, {owner}"
    if none := [vc for vc in letter_of if vc not in having]:
        yield from _wrapped([f"nothing of this chain: {none[0]}", *none[1:]], ", ")


def _title(vc: str | None) -> str:
    return "SPARE" if vc is None else vc


def _blocks(chain: DividedChain, vcs: Sequence[str]) -> list[list[str | None]]:
    """Columns in blocks no wider than a terminal: the virtual clusters, then None for spare cells."""
    fixed = table(_HEADERS, [row[: len(_HEADERS)] for row in _rows(chain, [])]).splitlines()
    left = WIDTH - len(_INDENT) - max(map(len, map(click.unstyle, fixed)))
    blocks: list[list[str | None]] = [[]]
    room = left
    for vc in [*vcs, None]:
        width = len(GAP) + max(len(cell) for cell in (_title(vc), *_column(chain, vc)))
        if width > room and blocks[-1]:
            blocks.append([])
            room = left
        blocks[-1].append(vc)
        room -= width
    return blocks


def _rows(chain: DividedChain, vcs: Sequence[str | None]) -> list[list[str]]:
    columns = [_column(chain, vc) for vc in vcs]
    rows = [
        [str(level.level), f"{' ' * depth}{_type(level)}", str(level.cell_count), str(level.leaf_count)]
        for depth, level in enumerate(chain.levels)
    ]
    rows += [["", "all leaves", str(chain.leaf_count), ""], ["", "share", "100.0%", ""]]
    return [[*row, *(column[i] for column in columns)] for i, row in enumerate(rows)]


def _type(level: DividedLevel) -> str:
    return f"{level.cell_type} (node)" if level.is_node_level else level.cell_type


def _column(chain: DividedChain, vc: str | None) -> list[str]:
    """The cells of one virtual cluster at each level, or the spare ones, then leaves and share."""
    if vc is None:
        cells = [str(level.spare or NOTHING) for level in chain.levels]
        leaves = chain.spare_leaf_count
    else:
        cells = [_promise(level.promised.get(vc, 0), level.pinned.get(vc, 0)) for level in chain.levels]
        leaves = chain.leaves_of(vc)
    return [*cells, str(leaves), f"{100 * leaves / chain.leaf_count:.1f}%"]


def _promise(promised: int, pinned: int) -> str:
    """Cells of one level; those marked * are pinned."""
    return "+".join([*([str(promised)] if promised else []), *([f"{pinned}*"] if pinned else [])]) or NOTHING


def _bar(chain: DividedChain, letter_of: dict[str, str]) -> str:
    """The leaves of a chain as one line, each virtual cluster with its share of it."""
    bar, leaves = "", 0
    for vc, letter in letter_of.items():
        leaves += chain.leaves_of(vc)
        bar += letter * (round(BAR_WIDTH * leaves / chain.leaf_count) - len(bar))
    return bar.ljust(BAR_WIDTH, FREE)


def _enumerate(names: Sequence[str]) -> str:
    """All names, or the first ones and the last one if they do not fit on a line."""
    room = WIDTH - len(_INDENT) - len("cells: ")
    if len(", ".join(names)) <= room:
        return ", ".join(names)
    return f"{', '.join(names[:3])}, ... {names[-1]}"


def _wrapped(words: Sequence[str], separator: str = "   ") -> Iterator[str]:
    """Words on as many lines as they need."""
    line = ""
    for i, word in enumerate(words):
        piece = word + (separator if i + 1 < len(words) else "")
        if line and len(_INDENT + line + piece.rstrip()) > WIDTH:
            yield (_INDENT + line).rstrip()
            line = ""
        line += piece
    yield (_INDENT + line).rstrip()


_NOBODY = "(none)"


def draw_access(rules: AccessRules, vcs: Sequence[str]) -> str:
    """A row for each virtual cluster, then who may run opportunistically; one line where no rule is written."""
    lines = [f"access: {rules.access.value}"]
    if rules.is_unrestricted and not any(own.namespaces for _, own in _all(rules, vcs)):
        return lines[0]
    rows = [[vc, str(own.max_priority), _namespaces(own.namespaces)] for vc, own in _all(rules, vcs)]
    if rows:
        header = "NAMESPACES" if rules.access is Access.NAMESPACES else "DEFAULT OF NAMESPACES"
        lines += ["  " + line for line in table(["VIRTUAL CLUSTER", ">MAX PRIORITY", header], rows).splitlines()]
    opportunists = "every namespace" if rules.opportunistic is None else _namespaces(rules.opportunistic)
    return "\n".join([*lines, f"opportunistic: {opportunists}"])


def access_as_json(rules: AccessRules, vcs: Sequence[str]) -> dict[str, Any]:
    """The same, in the words of the file."""
    return {
        "access": rules.access.value,
        "virtualClusters": {
            vc: {"maxPriority": own.max_priority, "namespaces": [each.as_json() for each in own.namespaces]}
            for vc, own in _all(rules, vcs)
        },
        "opportunistic": None
        if rules.opportunistic is None
        else {"namespaces": [each.as_json() for each in rules.opportunistic]},
    }


def _all(rules: AccessRules, vcs: Sequence[str]) -> list[tuple[str, VirtualClusterAccess]]:
    return [(vc, rules.virtual_clusters.get(vc, VirtualClusterAccess())) for vc in vcs]


def _namespaces(entries: Iterable[NamespaceEntry]) -> str:
    return ", ".join(map(_entry, entries)) or _NOBODY


def _entry(entry: NamespaceEntry) -> str:
    chosen = entry.name or " and ".join(map(_requirement, entry.requirements))
    return chosen if entry.max_priority == MAX_GUARANTEED_PRIORITY else f"{chosen} (up to {entry.max_priority})"


def _requirement(requirement: Requirement) -> str:
    """As kubectl's option -l has it."""
    values = ",".join(requirement.values)
    match requirement.operator:
        case "In":
            is_one = len(requirement.values) == 1
            return f"{requirement.key}={values}" if is_one else f"{requirement.key} in ({values})"
        case "NotIn":
            return f"{requirement.key} notin ({values})"
        case "Exists":
            return requirement.key
    return f"!{requirement.key}"


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
    own = {vc: QUEUE_OF_VC.written(queueing.of(vc)) for vc in vcs} if queueing.is_enabled else {}
    return {**QUEUES.written(queueing), "virtualClusters": own}


def _draw_queues(queueing: Queueing, vcs: list[str]) -> str:
    """The rules of queues, and a line for each virtual cluster."""
    minutes = queueing.half_life_s / 60
    half_life = f", past use counts half after {minutes:g} minute{'s' * (minutes != 1)}" if minutes else ""
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
        **msgspec.to_builtins(chain),
        "virtualClusters": {vc: share(chain.leaves_of(vc)) for vc in vcs},
        "spare": share(chain.spare_leaf_count),
    }
