"""Which machines a configuration describes: node names and what each node has to offer."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hived.layout import build_topology
from hived.specs import ClusterSpec, SkuTypeSpec
from hived.topology import Topology
from hived_config.node_names import PLACEHOLDER
from hived_config.rules import PodRules
from hived_config.skus import GPU_RESOURCE
from hived_extender.pods.wire import ENABLE_LIMIT

POD_LIMIT = 110
# The limit that marks our pods is no scarce resource: every node has more of it than pods can ask for.
ENABLE_CAPACITY = 1_000_000
_UNSTATED_CPU = 64.0
_UNSTATED_MEMORY_MIB = 256 * 1024.0
NO_RULES = PodRules()


@dataclass(frozen=True, slots=True)
class Machine:
    """A node to be: its name, its capacity by Kubernetes resource name, and labels besides those of every node."""

    name: str
    capacity: Mapping[str, str]
    labels: Mapping[str, str] = field(default_factory=dict)


def machines_of(spec: ClusterSpec, rules: PodRules = NO_RULES) -> list[Machine]:
    """Return a machine for every node of the configuration, ascending by name.

    Placeholders stand for nodes to come, and have none. A node offers the sum of its leaf cells' SKUs, and has the
    labels that pods choose them by; without SKUs in the configuration every leaf cell counts as one GPU.
    Raises UserError as `build_topology` does.
    """
    topology = build_topology(spec)
    names = topology.node_names
    nodes = [node for node, name in enumerate(names) if not name.startswith(PLACEHOLDER)]
    return [_machine(spec, rules, topology, node) for node in nodes]


def _machine(spec: ClusterSpec, rules: PodRules, topology: Topology, node: int) -> Machine:
    arrays = topology.arrays
    leaves = arrays.node_leaf[arrays.node_leaf_start[node] : arrays.node_leaf_start[node + 1]]
    bare = SkuTypeSpec() if spec.sku_types else SkuTypeSpec(gpu=1)
    types = [topology.cell_type(int(leaf)) for leaf in leaves]
    skus = [spec.sku_types.get(each, bare) for each in types]
    cpu = sum(sku.cpu for sku in skus) or _UNSTATED_CPU
    memory_mib = sum(sku.memory_mib for sku in skus) or _UNSTATED_MEMORY_MIB
    capacity = {
        "cpu": f"{round(cpu * 1000)}m",
        "memory": f"{round(memory_mib)}Mi",
        "pods": str(POD_LIMIT),
        ENABLE_LIMIT: str(ENABLE_CAPACITY),
    }
    devices: Counter[str] = Counter()
    for each, sku in zip(types, skus, strict=True):
        devices[rules.resources.get(each, GPU_RESOURCE)] += sku.gpu
    capacity |= {resource: str(count) for resource, count in devices.items() if count}
    labels = {key: value for each in dict.fromkeys(types) for key, value in rules.node_labels.get(each, {}).items()}
    return Machine(topology.node_names[node], capacity, labels)
