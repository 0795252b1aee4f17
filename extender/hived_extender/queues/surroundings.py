"""Work and hardware beside the queues: guaranteed pods of no queued job, and the health of nodes.

Both bear on the schedule that a virtual cluster would have alone. They are read off the core under the lock, and told
to the queues as differences. Not thread-safe.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np

from hived.cells.state import GroupState
from hived.life.groups import bind_info_of_slot
from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, BindInfo, PodSpec
from hived_extender.machine.core import Core
from hived_extender.machine.pods import PodRecord
from hived_extender.queues.queues import Queues
from hived_extender.recording.operations import STAND_IN

log = logging.getLogger(__name__)


class Differences(msgspec.Struct, frozen=True):
    """New groups, groups that are gone, and nodes with their health."""

    new: Mapping[str, tuple[PodSpec, BindInfo]]
    gone: Sequence[str]
    nodes: Sequence[tuple[str, bool]]


class Surroundings:
    """What the queues have been told of one core."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._version = -1
        self._queued: Collection[str] = ()
        self._groups: dict[str, bytes] = {}  # with their virtual leaves
        self._refused: dict[str, None] = {}
        self._bad: np.ndarray[tuple[int], np.dtype[np.bool_]] | None = None

    def look(self, core: Core, queued: Collection[str]) -> Differences | None:
        """The differences since the last look, None if nothing has changed.

        `queued` are groups of queued jobs: others may be among them from one look to the next, though the core is as it
        was. A group that was refused is new in the next differences. To be called under the lock; cost O(groups).
        """
        if core.version == self._version and queued == self._queued:
            return None
        self._version, self._queued = core.version, queued
        state = core.state
        there = {
            name: group
            for name, group in state.groups.items()
            if group.state is GroupState.ALLOCATED
            and group.virtual is not None
            and group.spec.priority >= MIN_GUARANTEED_PRIORITY
            and name not in queued
            and not name.startswith(STAND_IN)
        }
        leaves = {name: b"" if group.virtual is None else group.virtual.tobytes() for name, group in there.items()}
        new = {
            name: (group.spec, bind_info_of_slot(state, group, 0))
            for name, group in there.items()
            if self._groups.get(name) != leaves[name]
        }
        gone = [name for name, before in self._groups.items() if leaves.get(name) != before]
        self._groups = leaves
        bad = np.array(state.cells.node_bad, np.bool_)
        was = self._bad if self._bad is not None else np.zeros_like(bad)  # queues begin with healthy nodes
        nodes = [(core.node_names[node], not bad[node]) for node in np.flatnonzero(bad != was).tolist()]
        self._bad = bad
        return Differences(new, gone, nodes)

    def tell(self, found: Differences) -> None:
        """Tell the queues; without the lock."""
        for node, is_healthy in found.nodes:
            self._queues.health(node, is_healthy)
        for name in found.gone:
            self._queues.told_gone(name)
        for name, (spec, info) in found.new.items():
            try:
                self._queues.told_running(name, spec, info)
                self._refused.pop(name, None)
            except UserError as error:
                self._refuse(name, error)
        self._queues.room_made()

    def _refuse(self, name: str, error: UserError) -> None:
        """A group has no place in the own schedules yet, as a job that is about to leave them has its cells there."""
        del self._groups[name]
        if name not in self._refused:
            self._refused[name] = None
            log.warning("work of no queue counts nothing", extra={"fields": {"group": name, "reason": error.message}})


def groups_within(pods: Iterable[PodRecord], leaf_count: float) -> set[str]:
    """The groups of a job's pods, of the first ones that have so many leaf cells together.

    Anybody may add pods to a job, and some kinds grow by themselves. Those beyond its size are work of no queue.
    """
    found: set[str] = set()
    for request in (one.request for one in pods if one.is_in_core):
        if request is not None and (request.spec.group.name in found or leaf_count > 0):
            found.add(request.spec.group.name)
            leaf_count -= request.spec.leaf_cell_count
    return found
