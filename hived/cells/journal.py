"""The journal: takes back every write to the mutable arrays.

While the journal records, `put` notes (position in memory, old value) before it writes; `undo_to(mark)` writes the old
values back in reverse. Groups are Python objects: their changes are taken back by callables in `State.undo_steps`. A
full journal raises `JournalFull`; the caller undoes everything, doubles it and starts over.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from hived.cells.state import Cells, State
from hived.cells.topology import IntArray
from hived.kernels.jit import entry_kernel, kernel
from hived.values.errors import HivedError

Mark = tuple[int, int]  # length of the journal of writes, number of undo steps of groups


class JournalFull(HivedError):
    """The journal has no room for another write; nothing is lost, see `scheduler.handle`."""


@kernel
def put(s: Cells, array: IntArray, position: int, value: int) -> None:
    """`array[position] = value` for an array in `Cells.memory`, which kernels write in no other way. Cost O(1)."""
    if s.journal_control[0] == 1:
        length = s.journal_control[1]
        if length == len(s.journal_position):
            raise JournalFull("journal is full")
        s.journal_position[length] = (array.ctypes.data - s.memory.ctypes.data) // 4 + position
        s.journal_value[length] = array[position]
        s.journal_control[1] = length + 1
    array[position] = value


def write(state: State, array: IntArray, position: int, value: int) -> None:
    """`put` for Python, for rare and small changes."""
    put(state.cells, array, position, value)


@kernel
def undo_writes(s: Cells, mark: int) -> None:
    """Take back every write since the journal had length `mark`."""
    for entry in range(s.journal_control[1] - 1, mark - 1, -1):
        s.memory[s.journal_position[entry]] = s.journal_value[entry]
    s.journal_control[1] = mark


@entry_kernel
def undo_to(s: Cells, mark: int) -> None:
    """`undo_writes` for Python. Cost O(writes taken back)."""
    undo_writes(s, mark)


def start_recording(state: State) -> None:
    """Record every change from now on, starting with an empty journal."""
    state.cells.journal_control[0] = 1
    state.cells.journal_control[1] = 0
    state.undo_steps.clear()


def remember(state: State, step: Callable[..., None], *arguments: Any) -> None:
    """Record how to take back a change to a group, if the journal records: a call of `step` with these arguments."""
    if state.cells.journal_control[0] == 1:
        state.undo_steps.append(partial(step, *arguments) if arguments else step)


def mark(state: State) -> Mark:
    """The present position of the journal, for `undo_changes`."""
    return int(state.cells.journal_control[1]), len(state.undo_steps)


def undo_changes(state: State, to: Mark) -> None:
    """Take back all changes to arrays and groups made since `to`. Cost O(changes)."""
    undo_to(state.cells, to[0])
    while len(state.undo_steps) > to[1]:
        state.undo_steps.pop()()


def stop_recording(state: State) -> None:
    """Keep the writes not taken back and record no more."""
    state.cells.journal_control[0] = 0
    state.cells.journal_control[1] = 0
    state.undo_steps.clear()


def grow_journal(state: State) -> None:
    """Double the journal's capacity; its content is dropped."""
    capacity = 2 * len(state.cells.journal_position)
    state.cells = state.cells.with_arrays(
        journal_position=np.empty(capacity, np.int64), journal_value=np.empty(capacity, np.int32)
    )
