"""What people may look at: cells and groups, piece by piece, so that nobody else waits for a long answer."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from hived import status
from hived_extender.ledger import Ledger


class Reader:
    """Reads the present term's state; thread-safe.

    `open_ledger` takes `lock` and gives the ledger; it raises UserError (503) on a replica that does not lead. A dump
    that is under way when a term ends goes on with what that term had.
    """

    def __init__(
        self, lock: AbstractContextManager[object], open_ledger: Callable[[], AbstractContextManager[Ledger]]
    ) -> None:
        self._lock = lock
        self._open_ledger = open_ledger

    def affinity_groups(self) -> Iterator[dict[str, Any]]:
        """All groups by name, one at a time; others are served in between."""
        with self._open_ledger() as ledger:
            names = sorted(ledger.state.groups)
        for name in names:
            with self._open_ledger() as ledger:
                if name not in ledger.state.groups:
                    continue
                group = status.affinity_group(ledger.state, name, ledger.lazy_times)
            yield group

    def affinity_group(self, name: str) -> dict[str, Any]:
        """One group. Raises UserError if it is not known."""
        with self._open_ledger() as ledger:
            return status.affinity_group(ledger.state, name, ledger.lazy_times)

    def virtual_cluster_names(self) -> tuple[str, ...]:
        """All virtual clusters, ascending."""
        with self._open_ledger() as ledger:
            return ledger.state.topology.vc_names

    def physical_cells(self) -> Iterator[dict[str, Any]]:
        """The physical cluster, one top cell at a time; others are served in between."""
        with self._open_ledger() as ledger:
            cells = status.iter_physical_cluster(ledger.state)
        return self._step_by_step(cells)

    def virtual_cells(self, vc: str) -> Iterator[dict[str, Any]]:
        """One virtual cluster, one preassigned cell at a time. Raises UserError if it is not known."""
        with self._open_ledger() as ledger:
            cells = status.iter_virtual_cluster(ledger.state, vc)
        return self._step_by_step(cells)

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Cells and groups that differ from their defaults: equal for equal states (`status.snapshot`)."""
        with self._open_ledger() as ledger:
            return status.snapshot(ledger.state)

    def _step_by_step(self, cells: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        while True:
            with self._lock:
                cell = next(cells, None)
            if cell is None:
                return
            yield cell
