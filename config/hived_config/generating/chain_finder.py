"""Which chains of a configuration a machine can be in, and in which of their groups."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from hived_config.chains import Chain
from hived_config.generating.machines import NVIDIA_GPU, Machine
from hived_config.generating.naming import full_name, short_name
from hived_config.generating.node_places import NodePlace
from hived_config.loader import Configuration


class ChainFinder:
    """Facts about the chains of a file: from its SKU types, and from the machines that it has already."""

    def __init__(
        self, configuration: Configuration, places: Iterable[NodePlace], machines: Mapping[str, Sequence[Machine]]
    ) -> None:
        self._rules = configuration.rules
        self._skus = configuration.cluster.sku_types
        self._chains: dict[str, Chain] = {}
        self._learnt: dict[tuple[str, str], set[str]] = {}
        self._machines = machines
        self._devices: Counter[tuple[str, str]] = Counter()
        places = list(places)
        for place in places:
            key = place.name, self._resource(place.chain.types[-1])
            self._devices[key] += place.chain.leaf_counts[place.chain.node_depth]
        for place in places:
            self._chains.setdefault(place.chain.name, place.chain)
            machine = self.machine_at(place)
            if machine is not None and not self.is_different(place, machine):
                leaf = place.chain.types[-1]
                self._learnt.setdefault((machine.product, machine.resource), set()).add(leaf)

    def machine_at(self, place: NodePlace) -> Machine | None:
        """The machine that has the devices of a place, None where there is none; CPUs beside devices are no machine."""
        resource = self._resource(place.chain.types[-1])
        return next((each for each in self._machines.get(place.name, ()) if each.resource == resource), None)

    def is_different(self, place: NodePlace, machine: Machine) -> bool:
        """Whether a machine has not as many devices of its resource as its places together."""
        if not machine.resource:
            return machine.device_count != place.chain.leaf_counts[place.chain.node_depth]
        return machine.device_count != self._devices[place.name, machine.resource]

    def chains_for(self, machine: Machine, labels: Mapping[str, str]) -> tuple[list[Chain], bool]:
        """The chains whose nodes are machines of this kind, in file order, and whether they are no answer: there are
        none, or they are of several leaf cell types.
        """
        fitting = [
            chain
            for chain in self._chains.values()
            if chain.leaf_counts[chain.node_depth] == machine.device_count
            and self._resource(chain.types[-1]) == machine.resource
        ]
        by_labels = [chain for chain in fitting if self._is_labelled(chain.types[-1], labels)]
        others = [chain for chain in fitting if not self._rules.node_labels.get(chain.types[-1])]
        learnt = self._learnt.get((machine.product, machine.resource), set())
        by_machines = [chain for chain in others if chain.types[-1] in learnt]
        names = {machine.product.lower(), full_name(machine.product).lower(), short_name(machine.product).lower()}
        by_name = [chain for chain in others if chain.types[-1].lower() in names]
        chains = by_labels or by_machines or by_name
        return chains, len({chain.types[-1] for chain in chains}) != 1

    def _is_labelled(self, leaf: str, labels: Mapping[str, str]) -> bool:
        wanted = self._rules.node_labels.get(leaf, {})
        return bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())

    def _resource(self, leaf: str) -> str:
        """The resource of leaf cells, "" of CPUs."""
        if leaf in self._skus and not self._skus[leaf].gpu:
            return ""
        return self._rules.resources.get(leaf, NVIDIA_GPU)


def aligned(chain: Chain, machine: Machine) -> tuple[str, ...] | None:
    """The groups of a machine, one for each level of a chain above the nodes, outermost first.

    () if there are no such levels, or no groups were read; None if it has too few.
    """
    if not machine.groups or not chain.node_depth:
        return ()
    groups = tuple(filter(None, machine.groups))
    return groups[-chain.node_depth :] if len(groups) >= chain.node_depth else None
