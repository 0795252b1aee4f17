"""The door between the event loop and a scheduler of any kind: questions and answers.

In answers, `cancelled` groups reserve cells no more, and `lent` ones go on as opportunistic ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from hived.cells.layout import build_topology
from hived.values.specs import ClusterSpec
from hived_simulator.hardware import level_name, nodes_below
from hived_simulator.tasks import Cause, Task


class Started(NamedTuple):
    """The task runs. `level` is that of the lowest cell which holds all its leaf cells; one above the top if none."""

    level: int
    cancelled: tuple[str, ...] = ()
    lent: tuple[str, ...] = ()


class Leaving(NamedTuple):
    """Cells are reserved; these groups have to leave them first."""

    victims: tuple[str, ...]
    cancelled: tuple[str, ...] = ()
    lent: tuple[str, ...] = ()


class Waits(NamedTuple):
    """No room now."""

    cause: Cause
    reason: str = ""
    cancelled: tuple[str, ...] = ()
    lent: tuple[str, ...] = ()


Answer = Started | Leaving | Waits


class Room(NamedTuple):
    """Leaf cells at one moment: all, bad ones, whether in use or not, and idle ones.

    idle_count : healthy ones that are neither used nor reserved
    free_cells : by cell type, cells of which every leaf is idle
    """

    leaf_count: int
    bad_count: int
    idle_count: int
    free_cells: Mapping[str, int]


class Displaced(NamedTuple):
    """Groups that a new configuration does not account for, and groups that it has no cells reserved for any more."""

    evicted: tuple[str, ...] = ()
    unreserved: tuple[str, ...] = ()
    lent: tuple[str, ...] = ()


class SimulatedCluster(Protocol):
    """A scheduler with its cluster. It knows tasks by `Task.group` and has no notion of time."""

    @property
    def spec(self) -> ClusterSpec:
        """The configuration in force."""
        ...

    def tell_time(self, now_s: float) -> None:
        """It is so late; told before anything that happens then."""
        ...

    def room(self, vc: str) -> int:
        """A number that grows whenever a task of this virtual cluster that was refused may fit."""
        ...

    def pool(self, vc: str) -> str:
        """Opportunistic tasks of virtual clusters with the same pool ask for the same cells."""
        ...

    def promised(self, vc: str) -> int:
        """Leaf cells that a virtual cluster is promised; 0 if it is unknown."""
        ...

    def can_ever_run(self, task: Task) -> Waits | None:
        """Return why a task cannot run in an empty, healthy cluster; None if it can."""
        ...

    def lacks_room(self, task: Task, priority: int) -> Cause | None:
        """A quick look before `ask`: why a task certainly has to wait; None if that takes a search to know."""
        ...

    def ask(self, task: Task, priority: int) -> Answer:
        """Start a task, or reserve cells for it; the same task asks again once its victims have left."""
        ...

    def release(self, task: Task) -> tuple[str, ...]:
        """A task's pods are gone, whether they held cells or reserved some; returns groups that reserve none now."""
        ...

    def set_health(self, node: str, is_healthy: bool) -> None:
        """A node turned healthy or bad. Nodes that are not configured are remembered for a configuration to come."""
        ...

    def groups_on(self, nodes: Sequence[str]) -> list[str]:
        """The groups that use leaf cells of these nodes, ascending by the time of their start."""
        ...

    def nodes_of(self, cell: str) -> list[str]:
        """The nodes of a physical cell by its address, or of a node by its name. UserError if there is none."""
        ...

    def reconfigure(self, spec: ClusterSpec) -> Displaced:
        """Go on under another configuration."""
        ...

    def measure(self) -> Room:
        """The leaf cells now. Cost O(cells)."""
        ...

    def best_level(self, task: Task) -> int:
        """The lowest level with a cell that could hold all of a task; one above the top if none could."""
        ...

    def level_name(self, level: int) -> str:
        """The cell type of a level, of the first cell chain that has it; `across` above the top."""
        ...


class Configured(SimulatedCluster):
    """A configuration with its topology, which is left out of checkpoints and built anew from the configuration."""

    def __init__(self, spec: ClusterSpec) -> None:
        """Cost O(cells)."""
        self._spec = spec
        self._topology = build_topology(spec)

    def __getstate__(self) -> dict[str, Any]:
        """All but the topology."""
        return {name: value for name, value in vars(self).items() if name != "_topology"}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        vars(self).update(kept)
        self._topology = build_topology(self._spec)

    @property
    def spec(self) -> ClusterSpec:
        return self._spec

    def nodes_of(self, cell: str) -> list[str]:
        return nodes_below(self._topology, cell)

    def level_name(self, level: int) -> str:
        return level_name(self._topology, level)
