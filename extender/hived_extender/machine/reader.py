"""Cells and groups for viewers, read so that long answers block no other caller."""

import re
import secrets
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from hived.cells.state import NO_TIME
from hived.cells.topology import NO_CELL
from hived.life import status
from hived.life.status import CellStatus
from hived.values.errors import UserError
from hived.values.specs import Rules
from hived_extender.api.waiting import MASKED
from hived_extender.jobs.progress import write_time
from hived_extender.machine.core import Core
from hived_extender.machine.gangs.plans import listed
from hived_extender.machine.recording.operations import STAND_IN, held_for
from hived_extender.machine.runner import BusyError

Seen = Collection[str] | None
"""Namespaces whose jobs a caller may see; None for all."""

WAIT_S = 0.002
"""For the lock, before others are served."""


class OpenCore(Protocol):
    """Takes the lock and gives the core; raises BusyError after `wait_s`."""

    def __call__(self, wait_s: float | None = None) -> AbstractContextManager[Core]:
        """Open the core. Raises UserError (503) on a replica that does not lead."""


class Reader:
    """Reads the present term's state; thread-safe."""

    def __init__(self, open_core: OpenCore) -> None:
        self._open_core = open_core
        self._process = secrets.token_hex(4)

    def affinity_groups(self) -> Iterator[dict[str, Any]]:
        """All groups by name, one at a time; the lock is free in between."""
        return (group for group in self.sliced_affinity_groups() if group is not None)

    def sliced_affinity_groups(self, seen: Seen = None) -> Iterator[dict[str, Any] | None]:
        """As `affinity_groups`, for a caller that must not wait: None while the lock is taken."""
        with self._open_core() as core:
            names = sorted(core.state.groups)
        return self._groups(names, seen)

    def namespaces(self) -> list[str]:
        """The namespaces of all groups, ascending."""
        with self._open_core() as core:
            return sorted({namespace for name in core.state.groups for namespace in _namespaces(core, name)})

    def _groups(self, names: Iterable[str], seen: Seen = None) -> Iterator[dict[str, Any] | None]:
        for name in names:
            while True:
                try:
                    with self._open_core(wait_s=WAIT_S) as core:
                        group = _group(core, name, seen) if name in core.state.groups else None
                    break
                except BusyError:
                    yield None
            if group is not None:
                yield group

    def affinity_group(self, name: str, seen: Seen = None) -> dict[str, Any]:
        """One group, by its name or its pods' name for it, if only groups of one namespace have that name.

        Raises UserError if it is unknown or hidden, or if several namespaces have one of that name.
        """
        with self._open_core() as core:
            groups = core.state.groups
            is_shown = name in groups and not _is_hidden(core, name, seen)
            called = [] if is_shown else [group for group in sorted(groups) if group.partition(":")[2] == name]
            meant = [group for group in called if not _is_hidden(core, group, seen)]
            if not is_shown and not meant:
                raise UserError(f"Affinity group {name} does not exist since it is not allocated or preempting")
            if len(meant) > 1:
                raise UserError(f"Affinity group {name} is in several namespaces: {listed(meant)}")
            return _group(core, meant[0] if meant else name, seen)

    def version(self, vc: str | None = None) -> str:
        """A text that changes with the state, and is unique among terms and processes.

        Raises UserError for an unknown `vc`.
        """
        with self._open_core() as core:
            if vc is not None and vc not in core.state.topology.vc_index:
                raise UserError(f"VC {vc} not found")
            return self._version_of(core)

    def cells(self) -> CellStatus:
        """All present cells. Takes the lock for a millisecond or two in a cluster of 16,384 nodes."""
        return self.versioned_cells()[1]

    def versioned_cells(self) -> tuple[str, CellStatus]:
        """The version, and all cells of it.

        They are copied twice. The first copy, without the lock, pays for new memory; the second, with it, replaces any
        changes meanwhile.
        """
        with self._open_core() as core:
            state = core.state
        room = status.copy_cells(state)
        with self._open_core() as core:
            return self._version_of(core), status.copy_cells(core.state, room)

    def _version_of(self, core: Core) -> str:
        return f"{self._process}-{core.number}-{core.version}"

    def rules(self) -> Rules:
        """The rules of decisions of the present state (rule 18.1)."""
        with self._open_core() as core:
            return core.state.spec.rules

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """Cells and groups that differ from their defaults: equal for equal states (`status.snapshot`)."""
        with self._open_core() as core:
            return status.snapshot(core.state)


def _namespaces(core: Core, name: str) -> set[str]:
    group = core.state.groups[name]
    return {pod.namespace for pod in group.holders if pod is not None} | {
        pod.namespace for pod in group.preempting_pods.values()
    }


def _is_hidden(core: Core, name: str, seen: Seen) -> bool:
    """True if the caller may see no pod of a group; also for an unknown group."""
    if seen is None:
        return False
    if name in core.state.groups:
        namespaces = _namespaces(core, name)
        return not namespaces or not namespaces <= {*seen}
    return re.split("[/:]", name, maxsplit=1)[0] not in seen


def _group(core: Core, name: str, seen: Seen = None) -> dict[str, Any]:
    """One group for a caller: a hidden one shows its VC, priority, state and cells only."""
    group = _whole_group(core, name)
    if seen is None:
        return group
    shown = group["status"]
    if _is_hidden(core, name, seen):
        named = ("allocatedPods", "preemptingPods", "lazyPreemptionStatus", "heldFor")
        return {"metadata": {"name": MASKED}, "status": {key: shown[key] for key in shown if key not in named}}
    lazy = shown.get("lazyPreemptionStatus")
    if lazy is not None and _is_hidden(core, lazy["preemptor"], seen):
        shown = {**shown, "lazyPreemptionStatus": {**lazy, "preemptor": MASKED}}
    return {**group, "status": shown}


def _whole_group(core: Core, name: str) -> dict[str, Any]:
    """One group, with the preemptor that only the core remembers."""
    group = status.affinity_group(core.state, name, core.lazy_times)
    preemptor = core.lazy_preemptor(name)
    if preemptor is not None:
        time = core.lazy_times.get(name, "")
        group["status"]["lazyPreemptionStatus"] = {"preemptor": preemptor, "preemptionTime": time}
    if types := _leaf_types(core, name):
        group["status"] |= {"leafCellTypes": types}
    if name.startswith(STAND_IN):
        group["status"] |= {"heldFor": held_for(name)}
    work = _work(core, name)
    return group | {"status": group["status"] | {"work": work}} if work else group


def _leaf_types(core: Core, name: str) -> list[str]:
    topology, leaves = core.state.topology, core.state.groups[name].physical
    held = leaves[leaves != NO_CELL]
    _, firsts = np.unique(topology.arrays.chain_level[held], return_index=True)
    return sorted({topology.chain_of(leaf).types[0] for leaf in held[firsts].tolist()})


def _work(core: Core, name: str) -> dict[str, Any]:
    """The times of a group as `api.cells.GroupWork`; empty if its start is unknown (rule 8.12)."""
    group = core.state.groups[name]
    if group.since_ms == NO_TIME:
        return {}
    saves = [times.saved_s for times in group.times.values() if times.saved_s is not None]
    return {
        "startedAt": write_time(min(times.started_s for times in group.times.values() if times.started_s is not None)),
        "since": write_time(group.since_ms / 1000),
        "leafCells": int((group.physical != NO_CELL).sum()),
        **({"checkpointedAt": write_time(max(saves))} if saves else {}),
    }
