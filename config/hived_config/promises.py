"""Promises of virtual clusters, counted by cell type; and cell types as people name them."""

from collections.abc import Collection, Mapping

import msgspec

from hived.errors import UserError
from hived.specs import ClusterSpec
from hived_config.chains import Chain
from hived_config.division import chains_of, depth_of
from hived_config.reader import closest

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
    """How many cells of each place a VC is promised, without its pinned cells; none for a VC that does not exist."""
    chains = chains_of(cluster)
    counts: dict[CellTypePlace, int] = {}
    for cell in cluster.virtual_clusters[vc].virtual_cells if vc in cluster.virtual_clusters else ():
        place = place_of(chains, cell.cell_type)
        counts[place] = counts.get(place, 0) + cell.cell_count
    return counts


def resolve(cluster: ClusterSpec, cell_type: str) -> Promise:
    """The cell type that somebody names, by its path or by its last part alone; the promise is of 0 cells.

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
