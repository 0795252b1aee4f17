"""A simulation on disk, to go on from: the same bytes come out as without the interruption.

Objects are pickled, except that a core's state is written as its configuration and its arrays: a topology is built
anew, and the arrays keep sharing one block. Between two events a state has no journal and no plan under way. A file is
read back only if its digest is right and it belongs to the same inputs. It may name only our classes and functions,
those of numpy's arrays, and plain containers.
"""

import hashlib
import io
import pickle
import zlib
from collections import Counter, defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hived.cells.state import State, empty_state
from hived.cells.topology import Topology
from hived.values.errors import UserError
from hived.values.specs import ClusterSpec
from hived_simulator.writing import write

FILE = "checkpoint.bin"
LEVEL = 1  # of compression: quick
_REBUILT = frozenset({"spec", "topology", "cells", "last_plan", "last_bind", "undo_steps"})
_CONTAINERS = {f"{kind.__module__}.{kind.__name__}": kind for kind in (set, frozenset, int, list, Counter, defaultdict)}
_NUMPY = frozenset({"_reconstruct", "_frombuffer", "ndarray", "dtype", "scalar"})


class Header(msgspec.Struct, frozen=True):
    """The first line: the simulation that the file belongs to, and the SHA-256 of what follows."""

    identity: str
    sha256: str


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, State):
            return _restored_state, (value.spec, _arrays(value), _rest(value))
        if isinstance(value, Topology):
            raise pickle.PicklingError("a topology is built anew, not written")
        return NotImplemented


def _arrays(state: State) -> dict[str, Any]:
    """All arrays that are not part of the block, and not of the journal."""
    cells = state.cells
    own = {name: getattr(cells, name) for name in cells.names if not name.startswith("journal_")}
    return {name: array for name, array in own.items() if name == "memory" or not np.shares_memory(array, cells.memory)}


def _rest(state: State) -> dict[str, Any]:
    return {field.name: getattr(state, field.name) for field in fields(state) if field.name not in _REBUILT}


def _restored_state(spec: ClusterSpec, arrays: dict[str, Any], rest: dict[str, Any]) -> State:
    state = empty_state(spec)
    for name, array in arrays.items():
        np.copyto(getattr(state.cells, name), array)
    for name, value in rest.items():
        setattr(state, name, value)
    return state


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        package = module.partition(".")[0]
        if f"{module}.{name}" in _CONTAINERS:
            return _CONTAINERS[f"{module}.{name}"]
        if module == __name__ and name == _restored_state.__name__:
            return _restored_state
        if package == "numpy" and name in _NUMPY:
            return super().find_class(module, name)
        if package in ("hived", "hived_simulator"):
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a checkpoint")


def save(folder: Path, identity: str, value: Any) -> None:
    """Write a checkpoint, in place of an earlier one. Cost O(tasks + cells)."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=5).dump(value)
    body = zlib.compress(buffer.getvalue(), LEVEL)
    header = Header(identity, hashlib.sha256(body).hexdigest())
    write(folder / FILE, msgspec.json.encode(header) + b"\n" + body)


def load(folder: Path, identity: str) -> Any:
    """The value of the checkpoint; None if there is none.

    UserError if it is damaged, or belongs to a simulation of other inputs, options or version.
    """
    path = folder / FILE
    try:
        line, _, body = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    remedy = f"delete {path} to begin anew, or name another folder with --out"
    try:
        header = msgspec.json.decode(line, type=Header)
    except msgspec.DecodeError as error:
        raise UserError(f"{path}: is no checkpoint of a simulation; {remedy}") from error
    if header.identity != identity:
        raise UserError(f"{path}: belongs to a simulation of other files, options or version; {remedy}")
    if hashlib.sha256(body).hexdigest() != header.sha256:
        raise UserError(f"{path}: is damaged; {remedy}")
    return _Unpickler(io.BytesIO(zlib.decompress(body))).load()


def discard(folder: Path) -> None:
    """The simulation is over."""
    (folder / FILE).unlink(missing_ok=True)
