"""The part that schedulers share which know only a configuration: its topology, and answers that it alone gives."""

from typing import Any

from hived.layout import build_topology
from hived.specs import ClusterSpec
from hived_simulator.hardware import level_name, nodes_below


class Configured:
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
        """See `Cluster`."""
        return self._spec

    def nodes_of(self, cell: str) -> list[str]:
        """See `Cluster`."""
        return nodes_below(self._topology, cell)

    def level_name(self, level: int) -> str:
        """See `Cluster`."""
        return level_name(self._topology, level)
