"""Counts the promises of virtual clusters by cell type and level, and resolves cell types as users write them."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec, PhysicalCellSpec
from hived_config.chains import Chain, chain_below, split_by_pins
from hived_config.reader import closest


class PinnedCell(msgspec.Struct, frozen=True):
    """A pinned cell: its place in a chain (depth 0 is the top), its full address, and the VC that has it or ""."""

    pin_id: str
    chain: str
    depth: int
    position: tuple[int, ...]
    address: str
    vc: str


class DividedLevel(msgspec.Struct, frozen=True):
    """One level of a chain; a leaf cell is level 1.

    Attributes
    ----------
    cell_count : the physical cells of the level, parts of promised ones included
    leaf_count : the leaf cells below each
    promised, pinned : by VC, the preassigned cells of this level that are not pinned, and the pinned ones
    spare : cells of this level left whole when every VC has its promise; of the level above, as few as possible are
        split
    """

    level: int
    cell_type: str
    cell_count: int
    leaf_count: int
    is_node_level: bool
    promised: Mapping[str, int]
    pinned: Mapping[str, int]
    spare: int


class DividedChain(msgspec.Struct, frozen=True):
    """A chain: its levels from the top down, the addresses of its top-level cells, and its pinned cells."""

    name: str
    levels: tuple[DividedLevel, ...]
    tops: tuple[str, ...]
    pinned_cells: tuple[PinnedCell, ...]

    @property
    def leaf_count(self) -> int:
        """The leaf cells of the chain."""
        return self.levels[-1].cell_count

    @property
    def node_count(self) -> int:
        """The nodes of the chain."""
        return next(level.cell_count for level in self.levels if level.is_node_level)

    @property
    def spare_leaf_count(self) -> int:
        """leaf_count == spare_leaf_count + sum of leaves_of(vc) over all VCs"""
        return sum(level.spare * level.leaf_count for level in self.levels)

    def leaves_of(self, vc: str) -> int:
        """The leaf cells that a VC is promised."""
        counts = ((level.promised.get(vc, 0) + level.pinned.get(vc, 0)) * level.leaf_count for level in self.levels)
        return sum(counts)


class _Claims(msgspec.Struct):
    """The VCs' claims on one chain: by depth and VC, the number of cells."""

    promised: list[dict[str, int]]
    pinned: list[dict[str, int]]
    pins: list[PinnedCell] = msgspec.field(default_factory=list)


def chains_of(cluster: ClusterSpec) -> dict[str, Chain]:
    """The chains that a sound cluster has cells of, by name, in file order."""
    tops = dict.fromkeys(cell.cell_type for cell in cluster.physical_cells)
    return {top: chain_below(cluster.cell_types, top)[0] for top in tops}


def depth_of(chain: Chain, path: str) -> int:
    """The depth of the cells that a dotted path down a chain names."""
    return chain.types.index(path.rsplit(".", 1)[-1])


def divide(cluster: ClusterSpec) -> tuple[DividedChain, ...]:
    """The chains of a sound cluster, in file order. Cost O(entries of the file)."""
    chains = chains_of(cluster)
    claims = {name: _Claims([{} for _ in chain.types], [{} for _ in chain.types]) for name, chain in chains.items()}
    for vc in cluster.virtual_clusters.values():
        for cell in vc.virtual_cells:
            name = cell.cell_type.split(".", 1)[0]
            promised = claims[name].promised[depth_of(chains[name], cell.cell_type)]
            promised[vc.name] = promised.get(vc.name, 0) + cell.cell_count
    vc_of_pin = {pin_id: vc.name for vc in cluster.virtual_clusters.values() for pin_id in vc.pinned_cell_ids}
    tops: dict[str, list[str]] = {name: [] for name in chains}
    for index, top in enumerate(cluster.physical_cells):
        tops[top.cell_type].append(top.address or str(index))
        for pin in _pins(chains[top.cell_type], top, (index,), index, "", vc_of_pin):
            claims[pin.chain].pins.append(pin)
            if pin.vc:
                pinned = claims[pin.chain].pinned[pin.depth]
                pinned[pin.vc] = pinned.get(pin.vc, 0) + 1
    return tuple(_divide(chain, claims[name], tuple(tops[name])) for name, chain in chains.items())


def _pins(
    chain: Chain,
    cell: PhysicalCellSpec,
    position: tuple[int, ...],
    index: int,
    above: str,
    vc_of_pin: Mapping[str, str],
) -> Iterator[PinnedCell]:
    """The pinned cells at and below one that is written; `index` is its running index, `above` its parent's address."""
    depth = len(position) - 1
    address = f"{above}{cell.address or index}"
    if cell.pinned_cell_id:
        vc = vc_of_pin.get(cell.pinned_cell_id, "")
        yield PinnedCell(cell.pinned_cell_id, chain.name, depth, position, address, vc)
    first = 0 if depth == chain.node_depth else index * chain.fan_out[depth]
    for i, child in enumerate(cell.children):
        if child.children or child.pinned_cell_id:
            yield from _pins(chain, child, (*position, i), first + i, f"{address}/", vc_of_pin)


def _divide(chain: Chain, claims: _Claims, tops: tuple[str, ...]) -> DividedChain:
    used = [pin for pin in claims.pins if pin.vc]
    needed = [
        sum(promised.values()) + sum(pinned.values())
        for promised, pinned in zip(claims.promised, claims.pinned, strict=True)
    ]
    split = _split_counts(chain, needed, used)
    levels = []
    for depth, cell_type in enumerate(chain.types):
        whole = len(tops) if depth == 0 else split[depth - 1] * chain.fan_out[depth - 1]
        levels.append(
            DividedLevel(
                chain.level(depth),
                cell_type,
                len(tops) * chain.leaf_counts[0] // chain.leaf_counts[depth],
                chain.leaf_counts[depth],
                depth == chain.node_depth,
                claims.promised[depth],
                claims.pinned[depth],
                whole - needed[depth] - split[depth],
            )
        )
    return DividedChain(chain.name, tuple(levels), tops, tuple(claims.pins))


def _split_counts(chain: Chain, needed: list[int], pins: list[PinnedCell]) -> list[int]:
    """The fewest cells to split, by depth: all above pinned cells, others only where cells below are needed."""
    split = split_by_pins(chain, [pin.position for pin in pins])
    for depth in range(chain.leaf_depth - 1, -1, -1):
        below = needed[depth + 1] + split[depth + 1]
        split[depth] = max(split[depth], -(-below // chain.fan_out[depth]))
    return split


CellTypePlace = tuple[str, int]
"""A chain and a depth in it: one cell type, however its path is written."""


class Promise(msgspec.Struct, frozen=True):
    """`count` cells of the type at a place; `path` is how the type is written."""

    place: CellTypePlace
    path: str
    count: int


def place_of(chains: Mapping[str, Chain], path: str) -> CellTypePlace:
    """The place of a sound dotted path."""
    name = path.split(".", 1)[0]
    return name, depth_of(chains[name], path)


def counts_of(cluster: ClusterSpec, vc: str) -> dict[CellTypePlace, int]:
    """The cells that a VC is promised at each place, without pinned ones; none for a VC that does not exist."""
    chains = chains_of(cluster)
    counts: dict[CellTypePlace, int] = {}
    for cell in cluster.virtual_clusters[vc].virtual_cells if vc in cluster.virtual_clusters else ():
        place = place_of(chains, cell.cell_type)
        counts[place] = counts.get(place, 0) + cell.cell_count
    return counts


def resolve(cluster: ClusterSpec, cell_type: str) -> Promise:
    """Resolve a path, or its last part alone, to its cell type; the promise is of 0 cells.

    Raises UserError for a type that is unknown, or of several chains.
    """
    chains = chains_of(cluster)
    chain_name, *below = cell_type.split(".")
    if chain_name in chains:
        chain = chains[chain_name]
        depth = 0
        for part in below:
            if part not in chain.types[depth + 1 :]:
                path = ".".join(chain.types)
                raise UserError(
                    f"cell type {cell_type}: {part} is not below {chain.types[depth]}; expected part of {path}"
                )
            depth = chain.types.index(part)
        return Promise((chain_name, depth), cell_type, 0)
    found = [chain for chain in chains.values() if cell_type in chain.types]
    if not found:
        types = dict.fromkeys(name for chain in chains.values() for name in chain.types)
        raise UserError(f"there is no cell type {cell_type!r} in a chain; {suggest(cell_type, types)}")
    depths = [chain.types.index(cell_type) for chain in found]
    paths = [".".join(chain.types[: depth + 1]) for chain, depth in zip(found, depths, strict=True)]
    if len(found) > 1:
        raise UserError(f"cell type {cell_type} is in several chains; name one of {', '.join(paths)}")
    return Promise((found[0].name, depths[0]), paths[0], 0)


def suggest(name: str, known: Collection[str]) -> str:
    """The known names, for a message about an unknown one."""
    meant = closest(name, known)
    there = ", ".join(known) or "none"
    return f"there are: {there}" + (f" (did you mean {meant}?)" if meant else "")
