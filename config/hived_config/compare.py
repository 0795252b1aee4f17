"""Compares two configurations, in the words of the file and of the field."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec.structs import astuple

from hived.cells.layout import build_topology
from hived.cells.topology import NO_CELL, Chain, IntArray, Topology
from hived.values.specs import MAX_GUARANTEED_PRIORITY, CellTypeSpec, SkuTypeSpec
from hived_config.access import AccessRules, VirtualClusterAccess
from hived_config.changes import CellCount, CellTypeChange, Changes, NamedChanges, NodeChange, SettingChange, Shape
from hived_config.loader import Configuration
from hived_config.reader import as_written, path_to
from hived_config.rules import DEFRAG, LENT_KEY, PREEMPTED_KEY, QUEUE_OF_VC, QUEUES
from hived_config.settings import CERTIFY, SETTING_KEYS, value_of
from hived_config.virtual import Placement
from hived_config.words import counted


class NodeCell(NamedTuple):
    """A cell at node level. A node that is in several chains has several.

    `above` is the address of the cell above it, "" for none; `types` and `fan_out` go from its own type to the leaf
    type; `devices` are of its leaves, in tree order, as bytes of int32; `inner` are the addresses, within the node, of
    the cells between.
    """

    chain: str
    above: str
    types: tuple[str, ...]
    fan_out: tuple[int, ...]
    devices: bytes
    inner: tuple[str, ...]


class Nodes(msgspec.Struct, frozen=True):
    """`cells` of each node; `order` has (chain, node) of each of them, chains ascending, then as in the file."""

    cells: dict[str, list[NodeCell]]
    order: list[tuple[str, str]]


def read_nodes(topology: Topology) -> Nodes:
    """The node-level cells of a topology. Cost O(cells above the leaves)."""
    nodes = Nodes({}, [])
    for chain in topology.chains:
        for name, cell in _read_chain(topology, chain):
            nodes.cells.setdefault(name, []).append(cell)
            nodes.order.append((chain.name, name))
    return nodes


def _read_chain(topology: Topology, chain: Chain) -> list[tuple[str, NodeCell]]:
    arrays, level = topology.arrays, chain.node_level
    first, size = _level(topology, chain, level)
    cells = slice(first, first + size)
    above = [topology.address(parent) if parent != NO_CELL else "" for parent in arrays.parent[cells].tolist()]
    names = [topology.node_names[node] for node in arrays.node[cells].tolist()]
    leaf, _ = _level(topology, chain, 1)
    per_node = chain.leaf_count(level)
    devices: IntArray = arrays.device[leaf : leaf + size * per_node].reshape(size, per_node)
    inner = _inner_addresses(topology, chain, size)
    types, fan_out = chain.types[level - 1 :: -1], chain.child_counts[level - 1 :: -1]
    rows = zip(names, above, devices, inner, strict=True)
    return [(name, NodeCell(chain.name, up, types, fan_out, row.tobytes(), within)) for name, up, row, within in rows]


def _inner_addresses(topology: Topology, chain: Chain, size: int) -> list[tuple[str, ...]]:
    """Of each node-level cell, the last address parts of the cells below it and above the leaves, level by level."""
    parts: list[list[str]] = [[] for _ in range(size)]
    for level in range(chain.node_level - 1, 1, -1):
        first, count = _level(topology, chain, level)
        per_node = count // size
        for position in range(count):
            parts[position // per_node].append(topology.address(first + position).rpartition("/")[2])
    return [tuple(each) for each in parts]


def _level(topology: Topology, chain: Chain, level: int) -> tuple[int, int]:
    """(first physical cell, number of physical cells) of a level."""
    arrays = topology.arrays
    slot = int(arrays.level_offset[topology.chain_index[chain.name]]) + level
    return int(arrays.level_base[slot]), int(arrays.level_size[slot])


def compare_nodes(old: Nodes, new: Nodes) -> NamedChanges[NodeChange]:
    """List the added, removed and changed nodes by name."""
    before, after = old.cells, new.cells
    differing = sorted(name for name in before.keys() & after.keys() if before[name] != after[name])
    renamed = _renamed_cells(before, after, differing)
    return NamedChanges(
        added=tuple(sorted(after.keys() - before.keys())),
        removed=tuple(sorted(before.keys() - after.keys())),
        changed=tuple(NodeChange(name, _explain(before[name], after[name], renamed)) for name in differing),
    )


def is_reordered(old: Nodes, new: Nodes) -> bool:
    """True if unchanged nodes stand in another order, by which ties are broken."""
    same = {name for name in old.cells.keys() & new.cells.keys() if old.cells[name] == new.cells[name]}
    before, after = ([each for each in nodes.order if each[1] in same] for nodes in (old, new))
    return before != after


def _renamed_cells(
    old: dict[str, list[NodeCell]], new: dict[str, list[NodeCell]], differing: Sequence[str]
) -> dict[tuple[str, str], str]:
    """Map (chain, address above nodes) to its new address, if most of the nodes below it are now below that one.

    Cells without an address are numbered, and another number is not another place.
    """
    common: Counter[tuple[str, str, str]] = Counter()
    for name in differing:
        for was, now in zip(old[name], new[name], strict=False):
            if was.chain == now.chain and was.above and now.above:
                common[was.chain, was.above, now.above] += 1
    total = Counter((cell.chain, cell.above) for name, cells in old.items() if name in new for cell in cells)
    return {
        (chain, above): now for (chain, above, now), count in sorted(common.items()) if 2 * count > total[chain, above]
    }


def _explain(old: Sequence[NodeCell], new: Sequence[NodeCell], renamed: dict[tuple[str, str], str]) -> str:
    """Describe the changes of a node, a clause for each of its chains, old and new."""
    if len(old) == len(new) == 1:
        return ", ".join(_explain_cell(old[0], new[0], renamed))
    clauses = []
    for chain in dict.fromkeys(cell.chain for cell in (*old, *new)):
        was, now = ([cell for cell in cells if cell.chain == chain] for cells in (old, new))
        if not was or not now:
            clauses.append(f"{'also' if now else 'no longer'} in chain {chain}")
        elif len(was) == len(now) == 1 and was != now:
            clauses.append(f"in chain {chain}: {', '.join(_explain_cell(was[0], now[0], renamed))}")
        elif was != now:
            became = f"{counted(len(was), 'cell')} become {counted(len(now), 'cell')}"
            clauses.append(f"in chain {chain}: {became}, or are divided otherwise")
    return "; ".join(clauses) or "its cells stand in another order"


def _explain_cell(old: NodeCell, new: NodeCell, renamed: dict[tuple[str, str], str]) -> list[str]:
    what = []
    if old.chain != new.chain:
        what.append(f"in chain {new.chain}, formerly {old.chain}")
    if old.above != new.above:
        what.append(_explain_move(old, new, renamed))
    if old.types[-1] != new.types[-1]:
        what.append(f"leaf cell type {new.types[-1]}, formerly {old.types[-1]}")
    if old.types[0] != new.types[0]:
        what.append(f"cell type {new.types[0]}, formerly {old.types[0]}")
    if old.devices != new.devices:
        what.append(f"devices {_devices(new)}, formerly {_devices(old)}")
    if (old.types[1:-1], old.fan_out) != (new.types[1:-1], new.fan_out) and len(old.devices) == len(new.devices):
        what.append("its devices are divided otherwise")
    if old.inner != new.inner and not what:
        what.append("other addresses of cells inside it")
    return what


def _explain_move(old: NodeCell, new: NodeCell, renamed: dict[tuple[str, str], str]) -> str:
    if not new.above:
        return f"a top-level cell, formerly in {old.above}"
    if not old.above:
        return f"moved to {new.above}, formerly a top-level cell"
    is_renamed = old.chain == new.chain and renamed.get((old.chain, old.above)) == new.above
    verb = "the cell above it is now called" if is_renamed else "moved to"
    return f"{verb} {new.above}, formerly {old.above}"


def _devices(cell: NodeCell) -> str:
    """`0-3,6`, in tree order."""
    indices = np.frombuffer(cell.devices, np.int32).tolist()
    runs = [list(run) for _, run in groupby(enumerate(indices), key=lambda each: each[1] - each[0])]
    return ",".join(f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else f"{run[0][1]}" for run in runs)


__all__ = ["NEED_RESTART", "Changes", "compare"]

K = TypeVar("K")

NEED_RESTART = frozenset({"webServerAddress", "kubeApiServerAddress", "kubeConfigFilePath", "historyFile"})
"""Settings that a running service does not take up."""


def compare(
    old: Configuration, new: Configuration, old_topology: Topology | None = None, new_topology: Topology | None = None
) -> Changes:
    """Compare two configurations.

    Parameters
    ----------
    old, new : two sound configurations
    old_topology, new_topology : `build_topology` of their clusters, where the caller has them; else they are built

    `shapes` counts the cells of each shape that a VC is guaranteed at once: for each level at or below a promised cell.
    A rack of four nodes counts as one rack, four nodes and all their leaves. Pinned cells count with the others.

    The order in which cells stand in a file matters too, as ties are broken by it: where only that differs, `settings`
    says so. Cost O(cells above the leaves), besides building.
    """
    old_topology = old_topology or build_topology(old.cluster)
    new_topology = new_topology or build_topology(new.cluster)
    old_nodes, new_nodes = read_nodes(old_topology), read_nodes(new_topology)
    return Changes(
        compare_nodes(old_nodes, new_nodes),
        _compare_cell_types(old.cluster.cell_types, new.cluster.cell_types),
        tuple(CellCount(*each) for each in _counts(_cell_counts(old_topology), _cell_counts(new_topology))),
        _compare_named(_pinned_cells(old_topology), _pinned_cells(new_topology)),
        _compare_named(_virtual_clusters(old, old_topology), _virtual_clusters(new, new_topology)),
        tuple(Shape(*key, was, now) for key, was, now in _counts(_shapes(old_topology), _shapes(new_topology))),
        (
            *_compare_settings(old, new),
            *_compare_keys(old, new),
            *_compare_order(old_nodes, new_nodes),
            *_compare_listing(old, new),
        ),
    )


def _compare_named(old: Mapping[str, Any], new: Mapping[str, Any]) -> NamedChanges[str]:
    return NamedChanges(
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(old.keys() - new.keys())),
        tuple(sorted(name for name in old.keys() & new.keys() if old[name] != new[name])),
    )


def _counts(old: dict[K, int], new: dict[K, int]) -> list[tuple[K, int, int]]:
    """(key, old count, new count) where they differ; new keys first, in their order."""
    keys = dict.fromkeys((*new, *old))
    return [(key, old.get(key, 0), new.get(key, 0)) for key in keys if old.get(key, 0) != new.get(key, 0)]


# ---- cells


def _compare_cell_types(
    old: Mapping[str, CellTypeSpec], new: Mapping[str, CellTypeSpec]
) -> NamedChanges[CellTypeChange]:
    named = _compare_named(old, new)
    changed = (CellTypeChange(name, ", ".join(_explain_cell_type(old[name], new[name]))) for name in named.changed)
    return NamedChanges(named.added, named.removed, tuple(changed))


def _explain_cell_type(old: CellTypeSpec, new: CellTypeSpec) -> Iterable[str]:
    if old.child_type != new.child_type:
        yield f"childCellType {new.child_type}, formerly {old.child_type}"
    if old.child_count != new.child_count:
        yield f"childCellNumber {new.child_count}, formerly {old.child_count}"
    if old.is_node_level != new.is_node_level:
        yield "now the node level" if new.is_node_level else "no longer the node level"


def _cell_counts(topology: Topology) -> dict[str, int]:
    """Map each cell type to its number of physical cells; chains ascending, each from the top downwards."""
    counts: dict[str, int] = {}
    for chain, forest in zip(topology.chains, topology.forests, strict=False):
        for level in range(chain.top_level, 0, -1):
            count = forest.tree_count * chain.leaf_count(chain.top_level) // chain.leaf_count(level)
            counts[chain.types[level - 1]] = counts.get(chain.types[level - 1], 0) + count
    return counts


def _pinned_cells(topology: Topology) -> dict[str, tuple[object, ...]]:
    """Map each pinned cell id to its hardware: chain, type, its leaves' nodes and devices. Addresses do not count."""
    arrays = topology.arrays
    pinned: dict[str, tuple[object, ...]] = {}
    for pinned_id, cell in topology.pinned_cells.items():
        chain = topology.chain_of(cell)
        first = int(arrays.first_leaf[cell])
        leaves = slice(first, first + chain.leaf_count(int(arrays.level[cell])))
        nodes = [topology.node_names[node] for node, _ in groupby(arrays.node[leaves].tolist())]
        pinned[pinned_id] = (chain.name, topology.cell_type(cell), tuple(nodes), arrays.device[leaves].tobytes())
    return pinned


# ---- virtual clusters


def _virtual_clusters(configuration: Configuration, topology: Topology) -> dict[str, tuple[object, ...]]:
    """Map each VC to its whole configuration: preassigned cells in file order, pins, other keys."""
    types = topology.arrays.chain_level
    clusters: dict[str, tuple[object, ...]] = {}
    for name, vc in topology.vc_index.items():
        spec = configuration.cluster.virtual_clusters[name]
        count = len(topology.preassigned[vc]) - len(spec.pinned_cell_ids)
        cells = [_type_of_level(topology, slot) for slot in types[list(topology.preassigned[vc][:count])].tolist()]
        clusters[name] = (cells, spec.pinned_cell_ids, _keys_of(configuration, name))
    return clusters


def _type_of_level(topology: Topology, chain_level: int) -> str:
    """`CHAIN` or `CHAIN.TYPE`, as a file spells it."""
    chain = topology.chains[int(topology.arrays.chain_of_level[chain_level])].name
    cell_type = topology.level_types[chain_level]
    return chain if cell_type == chain else f"{chain}.{cell_type}"


def _shapes(topology: Topology) -> dict[tuple[str, str], int]:
    """Map (VC, dotted type) to the number of guaranteed cells of the type; VCs and chains ascending, then downwards."""
    found: dict[tuple[int, int, int], int] = {}
    for forest in topology.forests:
        if forest.vc == NO_CELL:
            continue
        chain = topology.chains[forest.chain]
        for level in range(forest.top_level, 0, -1):
            count = forest.tree_count * chain.leaf_count(forest.top_level) // chain.leaf_count(level)
            key = (forest.vc, forest.chain, -level)
            found[key] = found.get(key, 0) + count
    offsets = topology.arrays.level_offset
    return {
        (topology.vc_names[vc], _type_of_level(topology, int(offsets[chain]) - level)): count
        for (vc, chain, level), count in sorted(found.items())
    }


# ---- everything else


def _compare_settings(old: Configuration, new: Configuration) -> list[SettingChange]:
    before, after = _values(old), _values(new)
    return [
        SettingChange(key, before.get(key), after.get(key), key in NEED_RESTART)
        for key in dict.fromkeys((*after, *before))
        if before.get(key) != after.get(key)
    ]


def _compare_keys(old: Configuration, new: Configuration) -> list[SettingChange]:
    """Compare the keys beside cells of the VCs that both configurations have; VCs ascending."""
    changes = []
    for vc in sorted(old.cluster.virtual_clusters.keys() & new.cluster.virtual_clusters.keys()):
        before, after = _keys_of(old, vc), _keys_of(new, vc)
        path = path_to(vc, "virtualClusters")
        changes += [
            SettingChange(f"{path}.{key}", before[key], after[key]) for key in after if before[key] != after[key]
        ]
    return changes


def _keys_of(configuration: Configuration, vc: str) -> dict[str, Any]:
    """The keys of a VC beside its cells, as a file could have them; None where one is absent and has no default."""
    spec, rules = configuration.cluster.virtual_clusters[vc], configuration.rules
    own = rules.access.virtual_clusters.get(vc, VirtualClusterAccess())
    is_movable, budget = rules.moving.of(vc)
    packed = Placement.PACKED.value if vc in rules.packed else None
    return {
        "namespaces": [each.as_json() for each in sorted(own.namespaces, key=repr)] or None,
        "maxPriority": None if own.max_priority == MAX_GUARANTEED_PRIORITY else own.max_priority,
        "placement": Placement.TOPOLOGY.value if spec.packs_by_topology else packed,
        "combine": spec.combines,
        "sparing": spec.spares,
        "movable": is_movable,
        "defrag": None if budget is None else DEFRAG.written(budget),
        LENT_KEY: rules.grace.lent_of_vc.get(vc),
        "queue": QUEUE_OF_VC.written(rules.queueing.of(vc)) if vc in rules.queueing.virtual_clusters else None,
    }


def _compare_order(old: Nodes, new: Nodes) -> list[SettingChange]:
    if not is_reordered(old, new):
        return []
    return [SettingChange("physicalCluster.physicalCells", "in one order", "in another order")]


def _compare_listing(old: Configuration, new: Configuration) -> list[SettingChange]:
    """A change of the order of virtual clusters, where it may change the default of a namespace."""
    before, after = old.rules.access, new.rules.access
    both = before.virtual_clusters.keys() & after.virtual_clusters.keys()
    if not (before.is_ordered or after.is_ordered) or _order(before, both) == _order(after, both):
        return []
    return [SettingChange("virtualClusters", "in one order", "in another order")]


def _order(rules: AccessRules, names: Set[str]) -> list[str]:
    """The given virtual clusters that list namespaces, in the order of the file."""
    return [vc for vc, own in rules.virtual_clusters.items() if own.namespaces and vc in names]


def _opportunistic(rules: AccessRules) -> dict[str, Any]:
    """The rule for opportunistic pods as a setting; nothing if there is none."""
    if rules.opportunistic is None:
        return {}
    return {"opportunistic.namespaces": [each.as_json() for each in sorted(rules.opportunistic, key=repr)]}


def _values(configuration: Configuration) -> dict[str, Any]:
    """Every setting, rule and SKU type under the key that it has in a file."""
    settings, rules = configuration.settings, configuration.rules
    skus = configuration.cluster.sku_types
    by_name: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("priorityClasses", rules.priority_classes),
        ("topologyLevels", rules.topology_levels),
        ("foreignDevices", rules.foreign_devices),
    )
    return {
        "rules": value_of(configuration.cluster.rules),
        **({} if configuration.certify is None else {"certify": CERTIFY.written(configuration.certify)}),
        **{key.name: key.kind.written(value) for key, value in zip(SETTING_KEYS, astuple(settings), strict=True)},
        **{f"queues.{key}": value for key, value in QUEUES.written(rules.queueing).items()},
        "schedulerNames": list(rules.scheduler_names),
        LENT_KEY: rules.grace.lent_s,
        PREEMPTED_KEY: rules.grace.preempted_s,
        **{f"{key}.{name}": as_written(value) for key, values in by_name for name, value in sorted(values.items())},
        "access": rules.access.access.value,
        "rights": rules.access.rights.value,
        **_opportunistic(rules.access),
        **{f"physicalCluster.skuTypes.{name}": _sku_type(configuration, name, skus[name]) for name in sorted(skus)},
    }


def _sku_type(configuration: Configuration, name: str, sku: SkuTypeSpec) -> dict[str, Any]:
    """A SKU type as a file could have it."""
    rules = configuration.rules
    values: dict[str, Any] = {"gpu": sku.gpu, "cpu": sku.cpu, "memory": f"{sku.memory_mib:.15g}Mi"}
    if name in rules.resources:
        values["resource"] = rules.resources[name]
    if name in rules.device_classes:
        values["deviceClass"] = rules.device_classes[name]
    if name in rules.node_labels:
        values["nodeLabels"] = dict(sorted(rules.node_labels[name].items()))
    return values
