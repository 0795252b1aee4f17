"""Cells and groups as people look at them, so that nobody else waits for a long answer."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from hived import status
from hived.errors import UserError
from hived.status import CellStatus
from hived_extender.service.core import Core
from hived_extender.service.gangs.plans import listed


class Reader:
    """Reads the present term's state; thread-safe.

    `open_core` takes the lock and gives the core; it raises UserError (503) on a replica that does not lead.
    """

    def __init__(self, open_core: Callable[[], AbstractContextManager[Core]]) -> None:
        self._open_core = open_core
        self._process = secrets.token_hex(4)

    def affinity_groups(self) -> Iterator[dict[str, Any]]:
        """All groups by name, one at a time; others are served in between."""
        with self._open_core() as core:
            names = sorted(core.state.groups)
        for name in names:
            with self._open_core() as core:
                if name not in core.state.groups:
                    continue
                group = _group(core, name)
            yield group

    def affinity_group(self, name: str) -> dict[str, Any]:
        """One group, by its name or by what its pods call it, if groups of one namespace alone do.

        Raises UserError if it is not known, or if several namespaces have one of that name.
        """
        with self._open_core() as core:
            groups = core.state.groups
            meant = [] if name in groups else sorted(group for group in groups if group.partition(":")[2] == name)
            if len(meant) > 1:
                raise UserError(f"Affinity group {name} is in several namespaces: {listed(meant)}")
            return _group(core, meant[0] if meant else name)

    def version(self) -> str:
        """Another text after every change of the state, in every term and in every process."""
        with self._open_core() as core:
            return self._version_of(core)

    def cells(self) -> CellStatus:
        """All cells as they are now. Others wait for a millisecond or two in a cluster of 16,384 nodes."""
        with self._open_core() as core:
            return status.copy_cells(core.state)

    def versioned_cells(self) -> tuple[str, CellStatus]:
        """The version, and all cells as they are then."""
        with self._open_core() as core:
            return self._version_of(core), status.copy_cells(core.state)

    def _version_of(self, core: Core) -> str:
        return f"{self._process}-{core.number}-{core.version}"

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Cells and groups that differ from their defaults: equal for equal states (`status.snapshot`)."""
        with self._open_core() as core:
            return status.snapshot(core.state)


def _group(core: Core, name: str) -> dict[str, Any]:
    """One group, with the preemptor that only the core still knows."""
    group = status.affinity_group(core.state, name, core.lazy_times)
    preemptor = core.lazy_preemptor(name)
    if preemptor is not None:
        time = core.lazy_times.get(name, "")
        group["status"]["lazyPreemptionStatus"] = {"preemptor": preemptor, "preemptionTime": time}
    return group
