"""The cluster over time: a row at the start and each `every_s` seconds of virtual time after it."""

from dataclasses import dataclass, field
from typing import NamedTuple

from hived_simulator.clusters import Cluster
from hived_simulator.tasks import Cause


@dataclass(slots=True)
class Now:
    """The moment, and counts of it: tasks waiting by cause, leaf cells in use, of these lent ones."""

    at_s: float = 0.0
    waiting: list[int] = field(default_factory=lambda: [0] * len(Cause))
    used_count: int = 0
    lent_count: int = 0
    open_count: int = 0


class Row(NamedTuple):
    """Leaf cells and waiting tasks at one moment; see `Room`. `waiting` is by cause."""

    at_s: float
    leaf_count: int
    used_count: int
    lent_count: int
    idle_count: int
    bad_count: int
    free_cells: tuple[tuple[str, int], ...]
    waiting: tuple[int, ...]


class Series:
    """See the module. Nothing happens between two events, so a row shows the state after all events up to it.

    `every_s` of 0: no rows.
    """

    def __init__(self, every_s: float) -> None:
        self.rows: list[Row] = []
        self._every_s = every_s

    def catch_up(self, until_s: float, now: Now, cluster: Cluster) -> None:
        """Write the rows before `until_s`, the next event. Cost O(cells) if there are any."""
        if not self._every_s or len(self.rows) * self._every_s >= until_s:
            return
        room = cluster.measure()
        while (at_s := len(self.rows) * self._every_s) < until_s:
            self.rows.append(
                Row(
                    at_s, room.leaf_count, now.used_count, now.lent_count, room.idle_count, room.bad_count,
                    tuple(room.free_cells.items()), tuple(now.waiting),
                )
            )  # fmt: skip
