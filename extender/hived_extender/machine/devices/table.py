"""Facts about devices of nodes from Kubernetes: devices that nodes offer, and devices that pods and claims use.

Facts may come in any order and more than once; equal facts make equal tables. `nodes[name]` is replaced on each change
of that node and never changed in place, so a shallow copy is a snapshot. `Layout` has the leaf cells of each configured
node and the devices behind them.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from math import ceil

import msgspec
import numpy as np
from msgspec.structs import replace

from hived.cells.topology import IntArray, Topology
from hived.values.specs import ClusterSpec
from hived_config.quantities import amount
from hived_config.rules import Foreign, PodRules
from hived_extender.jobs.amounts import all_requested
from hived_extender.jobs.annotations import MAX_COUNT, PREFIX
from hived_extender.jobs.device_words import is_numbered
from hived_extender.jobs.wire import Node, Pod
from hived_extender.machine.pods import PodName


class PodUse(PodName, frozen=True):
    """A running bound pod, and its number of devices of each resource."""

    requests: Mapping[str, int]


class Allocated(msgspec.Struct, frozen=True):
    """A device of a claim, and its requested DeviceClass. `index` is read from its name, or -1."""

    device_class: str
    driver: str
    pool: str
    name: str
    index: int = -1


class ClaimUse(msgspec.Struct, frozen=True):
    """An allocated ResourceClaim; `pods` are its users (uid, name), of its own namespace."""

    namespace: str
    name: str
    devices: tuple[Allocated, ...]
    pods: tuple[tuple[str, str], ...] = ()


class Published(msgspec.Struct, frozen=True):
    """A device in a ResourceSlice. `index` is the node's number for it, -1 if unknown; `kind` is the driver's word for
    its type, "" for none.
    """

    name: str
    index: int = -1
    kind: str = ""
    is_healthy: bool = True


class Slice(msgspec.Struct, frozen=True):
    """A ResourceSlice of one node; a pool's slices of older generations are obsolete."""

    driver: str
    pool: str
    generation: int
    slice_count: int
    devices: tuple[Published, ...]


class Selector(msgspec.Struct, frozen=True):
    """The devices of a DeviceClass: those of a driver, of one kind unless that is "".

    A class with other selectors has no driver, and selects nothing here.
    """

    driver: str = ""
    kind: str = ""


class NodeDevices(msgspec.Struct, frozen=True):
    """The facts about one node. `allocatable` has its extended resources, None before it reports any resource."""

    allocatable: Mapping[str, int] | None = None
    pods: Mapping[str, PodUse] = msgspec.field(default_factory=dict)
    claims: Mapping[str, ClaimUse] = msgspec.field(default_factory=dict)
    slices: Mapping[str, Slice] = msgspec.field(default_factory=dict)


class Part(Enum):
    """Kinds of facts of a node; the values are the fields of `NodeDevices`."""

    PODS = "pods"
    CLAIMS = "claims"
    SLICES = "slices"


NOTHING = NodeDevices()


class DeviceTable:
    """Facts by node. `changed` has the nodes whose facts changed since it was emptied, in order."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeDevices] = {}
        self.classes: dict[str, Selector] = {}
        self.changed: dict[str, None] = {}
        self._places: dict[Part, dict[str, str]] = {part: {} for part in Part}

    def put_node(self, name: str, allocatable: Mapping[str, int] | None) -> None:
        """Set the resources of a node; None if it has reported none, or is gone."""
        self._put(name, replace(self.nodes.get(name, NOTHING), allocatable=allocatable))

    def put_pod(self, use: PodUse, node: str) -> None:
        """Add a pod's devices of a node."""
        self._set(Part.PODS, use.uid, node, use)

    def put_claim(self, key: str, node: str, use: ClaimUse) -> None:
        """Add the devices of a node that a claim, by `namespace/name`, has."""
        self._set(Part.CLAIMS, key, node, use)

    def put_slice(self, key: str, node: str, devices: Slice) -> None:
        """Add the devices of a node in a ResourceSlice."""
        self._set(Part.SLICES, key, node, devices)

    def put_class(self, name: str, selector: Selector | None) -> None:
        """Set the devices of a DeviceClass; None if it is gone."""
        if self.classes.get(name) == selector:
            return
        self.classes = {key: value for key, value in self.classes.items() if key != name}
        if selector is not None:
            self.classes[name] = selector
        self.changed.update(dict.fromkeys(name for name, facts in self.nodes.items() if facts.slices or facts.claims))

    def drop(self, part: Part, key: str) -> None:
        """Remove a pod, by its uid, a claim or a slice."""
        node = self._places[part].pop(key, None)
        if node is not None:
            known = self.nodes[node]
            rest = {each: value for each, value in getattr(known, part.value).items() if each != key}
            self._put(node, replace(known, **{part.value: rest}))

    def keys(self, part: Part) -> tuple[str, ...]:
        """Every pod, claim or slice with devices."""
        return tuple(self._places[part])

    def look_again(self, node: str) -> None:
        """Mark a node as changed: its pods may have got or freed cells."""
        if node in self.nodes:
            self.changed[node] = None

    def _set(self, part: Part, key: str, node: str, value: object) -> None:
        if self._places[part].get(key, node) != node:
            self.drop(part, key)
        self._places[part][key] = node
        known = self.nodes.get(node, NOTHING)
        self._put(node, replace(known, **{part.value: {**getattr(known, part.value), key: value}}))

    def _put(self, name: str, facts: NodeDevices) -> None:
        if self.nodes.get(name, NOTHING) == facts:
            return
        self.changed[name] = None
        if facts == NOTHING:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = facts


_NO_DEVICES = ("kubernetes.io/", PREFIX)


def allocatable_of(node: Node) -> Mapping[str, int] | None:
    """A node's amount of each extended resource; None before it reports any resource."""
    allocatable = node.status.allocatable if node.status is not None else None
    if not allocatable:
        return None
    return {
        name: int(min(amount(quantity), MAX_COUNT)) for name, quantity in allocatable.items() if _may_be_device(name)
    }


def use_of(pod: Pod) -> PodUse | None:
    """A pod's devices of any resource on its node; None without a node or devices, or after its end.

    Cost for a pod without extended resources: a look at the names of its resources.
    """
    spec = pod.spec
    if spec is None or not spec.node_name or pod.has_completed:
        return None
    names: set[str] = set()
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        resources = container.resources
        if resources is not None:
            names.update(filter(_may_be_device, (*(resources.limits or ()), *(resources.requests or ()))))
    if not names:
        return None
    found = sorted(all_requested(pod, names).items())
    requests = {name: ceil(min(count, MAX_COUNT)) for name, count in found if count}
    meta = pod.metadata
    return PodUse(meta.uid, meta.namespace, meta.name, requests) if requests else None


def _may_be_device(resource: str) -> bool:
    return "/" in resource and not resource.startswith(_NO_DEVICES)


class LeafKind(msgspec.Struct, frozen=True):
    """A leaf cell type of devices: `per_leaf` for each leaf cell, of a resource and of a DeviceClass ("" for none)."""

    leaf_type: str
    resource: str
    device_class: str
    per_leaf: int
    foreign: Foreign


Kinds = tuple[tuple[LeafKind, int], ...]
"""Kinds of leaf cells, and how many of each."""


class Layout:
    """Leaf cells by node and type, with their devices. Cost to make: O(leaf cells), in numpy."""

    def __init__(self, topology: Topology, cluster: ClusterSpec, rules: PodRules) -> None:
        self._topology = topology
        classes = rules.device_classes_in(cluster)
        counts = leaves_by_type(topology)
        self._counts: dict[str, list[int]] = {}
        self._known: dict[tuple[int, ...], Kinds] = {}  # nodes are alike
        kinds = []
        for leaf_type, resource in rules.resources_in(cluster).items():
            if leaf_type in counts:
                sku = cluster.sku_types.get(leaf_type)
                per_leaf = sku.gpu if sku is not None else 1
                kinds.append(
                    LeafKind(leaf_type, resource, classes.get(leaf_type, ""), per_leaf, rules.foreign(resource))
                )
                self._counts[leaf_type] = counts[leaf_type].tolist()
        self.kinds = tuple(kinds)

    def kinds_of(self, node: str) -> Kinds:
        """The kinds and numbers of a node's leaf cells; none if it is not configured."""
        index = self._topology.node_index.get(node)
        if index is None:
            return ()
        counts = tuple([column[index] for column in self._counts.values()])
        known = self._known.get(counts)
        if known is None:
            known = tuple((kind, count) for kind, count in zip(self.kinds, counts, strict=True) if count)
            self._known[counts] = known
        return known

    def nodes_of(self, leaf_type: str) -> Iterator[str]:
        """The nodes that have leaf cells of this type."""
        names = self._topology.node_names
        return (name for name, count in zip(names, self._counts[leaf_type], strict=True) if count)

    def is_misread(self, node: str, chain: str) -> bool:
        """True if a container runtime would read the numbers of a chain's cells as other cells' devices."""
        kinds, at = self.kinds_of(node), self._topology.chain_index.get(chain)
        leaf_type = "" if at is None else self._topology.chains[at].types[0]
        numbered = {kind.leaf_type for kind, _ in kinds if is_numbered(kind.resource)}
        return bool(numbered) and leaf_type not in numbered

    def indices(self, node: str, leaf_type: str) -> set[int]:
        """The device indices of a node's leaf cells of this type."""
        topology = self._topology
        leaves = topology.leaves_of(topology.node_index[node])
        return {int(topology.arrays.device[leaf]) for leaf in leaves if topology.cell_type(int(leaf)) == leaf_type}


def leaves_by_type(topology: Topology) -> dict[str, IntArray]:
    """By leaf cell type, how many leaf cells of it each node has: int, shape (nodes,)."""
    counts: dict[str, IntArray] = {}
    for number, chain in enumerate(topology.chains):
        forest = topology.forests[number]
        first = forest.bases[1]
        nodes = topology.arrays.node[first : first + forest.tree_count * chain.leaf_count(chain.top_level)]
        found = np.bincount(nodes, minlength=len(topology.node_names)).astype(np.int32)
        known = counts.get(chain.types[0])
        counts[chain.types[0]] = found if known is None else known + found
    return counts
