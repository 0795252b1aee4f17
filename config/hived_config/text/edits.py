"""Changes of promises, made in the text of a configuration: comments and layout stay.

Every function takes the text of a sound file, plain or OpenPAI's. It returns the text of a sound file that differs only
in the virtual clusters named, which is checked first. An impossible change raises UserError, which names the possible
ones. A file that is not sound, before or after, raises ConfigError with places.
"""

from collections.abc import Mapping

from hived.errors import UserError
from hived.specs import ClusterSpec
from hived_config.division import chains_of
from hived_config.document import gc_paused
from hived_config.loader import load_text
from hived_config.promises import CellTypePlace, Promise, counts_of, resolve, suggest
from hived_config.text.edit_checks import check_edit
from hived_config.text.vc_text import VcText
from hived_config.virtual import VC_NAME

FILE = "the configuration"


@gc_paused()
def set_vc(text: str, name: str, cells: Mapping[str, int], file: str = FILE) -> str:
    """The text with other numbers of cells for one virtual cluster, which is added if there is none of that name.

    Parameters
    ----------
    text : the configuration
    name : the virtual cluster
    cells : by cell type, how many cells it is promised, 0 for none; a type not named stays as it is. A type is a path
        such as RACK.NODE, or its last part where no other chain has one of that name
    file : the name of the text in messages
    """
    cluster = _load(text, file)
    promises = _resolve_all(cluster, cells)
    edited = VcText(text, file, chains_of(cluster))
    if name in cluster.virtual_clusters:
        for promise in promises.values():
            edited.set(name, promise)
    else:
        _check_new(cluster, name, cells)
        edited.add(name, [promise for promise in promises.values() if promise.count])
    wanted = counts_of(cluster, name) | {place: promise.count for place, promise in promises.items()}
    check_edit(text, edited.whole, file, {name: wanted})
    return edited.whole


@gc_paused()
def move_cells(text: str, count: int, cell_type: str, from_vc: str, to_vc: str, file: str = FILE) -> str:
    """The text with `count` cells of one virtual cluster given to another one; see `set_vc`. Pinned cells stay."""
    cluster = _load(text, file)
    for vc in (from_vc, to_vc):
        _refuse_unknown(cluster, vc)
    if from_vc == to_vc:
        raise UserError(f"cells were to move from {from_vc} to {to_vc}; expected two virtual clusters")
    if count < 1:
        raise UserError(f"{count} cells were to move, expected at least 1")
    meant = resolve(cluster, cell_type)
    has, gets = counts_of(cluster, from_vc), counts_of(cluster, to_vc)
    present = has.get(meant.place, 0)
    if present < count:
        raise UserError(
            f"{count} {meant.path} cells were to move from {from_vc}, which is promised {present} of them besides "
            f"pinned ones; it has: {_listed(cluster, from_vc)}"
        )
    wanted = {
        from_vc: has | {meant.place: present - count},
        to_vc: gets | {meant.place: gets.get(meant.place, 0) + count},
    }
    edited = VcText(text, file, chains_of(cluster))
    for vc, counts in wanted.items():
        edited.set(vc, Promise(meant.place, meant.path, counts[meant.place]))
    check_edit(text, edited.whole, file, wanted)
    return edited.whole


@gc_paused()
def remove_vc(text: str, name: str, file: str = FILE) -> str:
    """The text without a virtual cluster."""
    cluster = _load(text, file)
    _refuse_unknown(cluster, name)
    edited = VcText(text, file, chains_of(cluster))
    edited.remove(name)
    check_edit(text, edited.whole, file, {name: None})
    return edited.whole


def _load(text: str, file: str) -> ClusterSpec:
    return load_text(text, file, lenient=True, environ={}).cluster


def _resolve_all(cluster: ClusterSpec, cells: Mapping[str, int]) -> dict[CellTypePlace, Promise]:
    promises: dict[CellTypePlace, Promise] = {}
    for cell_type, count in cells.items():
        meant = resolve(cluster, cell_type)
        if count < 0:
            raise UserError(f"{cell_type}: {count} cells, expected at least 0")
        if meant.place in promises:
            raise UserError(f"cells of type {meant.path} are given twice")
        promises[meant.place] = Promise(meant.place, meant.path, count)
    return promises


def _check_new(cluster: ClusterSpec, name: str, cells: Mapping[str, int]) -> None:
    if not VC_NAME.fits(name) or name == "<<":
        raise UserError(f"virtual cluster {name!r}: expected {VC_NAME.what}")
    if cells and not any(cells.values()):
        _refuse_unknown(cluster, name)


def _refuse_unknown(cluster: ClusterSpec, name: str) -> None:
    if name not in cluster.virtual_clusters:
        raise UserError(f"there is no virtual cluster {name!r}; {suggest(name, cluster.virtual_clusters)}")


def _listed(cluster: ClusterSpec, vc: str) -> str:
    cells = cluster.virtual_clusters[vc].virtual_cells
    return ", ".join(f"{cell.cell_count} {cell.cell_type}" for cell in cells) or "none"
