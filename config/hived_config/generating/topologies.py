"""The insides of machines, as topology files describe them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import msgspec

from hived.errors import UserError
from hived_config.generating.inner import inner_of
from hived_config.generating.machines import MIG_PREFIX, DeviceGroups, FoundMachines, Machine, counted, in_order, listed
from hived_config.generating.matrix import parse_matrix


class Topology(msgspec.Struct, frozen=True):
    """The inside of the machines that `pattern` names: nodes (`dgx-*`), or a product; "" for all."""

    pattern: str
    file: str
    inner: DeviceGroups
    device_count: int
    notes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, pattern: str, text: str, file: str) -> "Topology":
        """From the output of `nvidia-smi topo -m`; raises ConfigError if it is something else."""
        matrix = parse_matrix(text, file)
        inner, notes = inner_of(matrix)
        return cls(pattern, file, inner, len(matrix.links), tuple(f"{file}: {note}" for note in notes))

    def covers(self, machine: Machine) -> bool:
        """Whether the pattern names the machine, and its devices are whole GPUs as in the file."""
        if not machine.resource or machine.resource.startswith(MIG_PREFIX):
            return False
        return not self.pattern or self.pattern == machine.product or fnmatchcase(machine.name, self.pattern)


def with_topologies(machines: Iterable[Machine], topologies: Sequence[Topology]) -> FoundMachines:
    """The machines with their insides; of several topologies for one machine the last counts.

    A topology with another number of GPUs than the machine has devices does not apply to it.
    """
    notes = [note for topology in topologies for note in topology.notes]
    inner: dict[tuple[str, str], DeviceGroups] = {}
    ordered = in_order(machines)
    for topology in topologies:
        covered = [machine for machine in ordered if topology.covers(machine)]
        other = [machine.name for machine in covered if machine.device_count != topology.device_count]
        fitting = [machine for machine in covered if machine.device_count == topology.device_count]
        inner |= {(machine.name, machine.resource): topology.inner for machine in fitting}
        if not covered:
            notes.append(f"{topology.file}: no machine and no product is called {topology.pattern or 'so'}")
        elif other:
            devices = counted(topology.device_count, "GPU")
            notes.append(f"{topology.file}: {devices}, so it does not apply to {listed(other)}")
    made = (replace(each, inner=inner.get((each.name, each.resource), each.inner)) for each in ordered)
    return FoundMachines(tuple(made), tuple(notes))


def machines_of_topologies(topologies: Sequence[Topology], product: str) -> FoundMachines:
    """The machines that topologies name, if there is nothing else to learn of them from. Raises UserError."""
    for topology in topologies:
        if not topology.pattern or set("*?[") & set(topology.pattern):
            found = topology.pattern or "no name"
            raise UserError(
                f"--topology {topology.file}: found {found}, expected NODE=FILE to say which machine it is of"
            )
    machines = [Machine(topology.pattern, product, topology.device_count) for topology in topologies]
    return with_topologies(machines, topologies)
