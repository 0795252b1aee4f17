"""Which machines a configuration describes: node names and what each node has to offer."""

from collections.abc import Mapping
from dataclasses import dataclass

from hived.layout import build_topology
from hived.specs import ClusterSpec, SkuTypeSpec
from hived.topology import Topology
from hived_config.generating.cells import PLACEHOLDER
from hived_extender.wire import ENABLE_LIMIT

GPU_RESOURCE = "nvidia.com/gpu"
POD_LIMIT = 110
# The limit that marks our pods is no scarce resource: every node has more of it than pods can ask for.
ENABLE_CAPACITY = 1_000_000
_UNSTATED_CPU = 64.0
_UNSTATED_MEMORY_MIB = 256 * 1024.0


@dataclass(frozen=True, slots=True)
class Machine:
    """A node to be: its name and its capacity by Kubernetes resource name."""

    name: str
    capacity: Mapping[str, str]


def machines_of(spec: ClusterSpec) -> list[Machine]:
    """Return a machine for every node of the configuration, ascending by name.

    Placeholders stand for nodes to come, and have none. A node offers the sum of its leaf cells' SKUs; without SKUs in
    the configuration every leaf cell counts as one GPU.
    Raises UserError as `build_topology` does.
    """
    topology = build_topology(spec)
    names = topology.node_names
    return [_machine(spec, topology, node) for node in range(len(names)) if not names[node].startswith(PLACEHOLDER)]


def _machine(spec: ClusterSpec, topology: Topology, node: int) -> Machine:
    arrays = topology.arrays
    leaves = arrays.node_leaf[arrays.node_leaf_start[node] : arrays.node_leaf_start[node + 1]]
    bare = SkuTypeSpec() if spec.sku_types else SkuTypeSpec(gpu=1)
    skus = [spec.sku_types.get(topology.cell_type(int(leaf)), bare) for leaf in leaves]
    gpu_count = sum(sku.gpu for sku in skus)
    cpu = sum(sku.cpu for sku in skus) or _UNSTATED_CPU
    memory_mib = sum(sku.memory_mib for sku in skus) or _UNSTATED_MEMORY_MIB
    capacity = {
        "cpu": f"{round(cpu * 1000)}m",
        "memory": f"{round(memory_mib)}Mi",
        "pods": str(POD_LIMIT),
        ENABLE_LIMIT: str(ENABLE_CAPACITY),
    }
    if gpu_count:
        capacity[GPU_RESOURCE] = str(gpu_count)
    return Machine(topology.node_names[node], capacity)
