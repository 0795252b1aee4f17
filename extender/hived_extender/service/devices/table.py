"""Facts about the devices of nodes, as Kubernetes tells them: what nodes offer, and what pods and claims use.

Facts may come in any order and more than once; equal facts make equal tables. `nodes[name]` is replaced whenever a fact
of that node changes and never changed in place, so a shallow copy is a snapshot.
"""

from collections.abc import Mapping
from enum import Enum

import msgspec
from msgspec.structs import replace


class PodUse(msgspec.Struct, frozen=True):
    """A bound pod that has not ended, and how many devices of each resource it requests."""

    uid: str
    namespace: str
    name: str
    requests: Mapping[str, int]

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Allocated(msgspec.Struct, frozen=True):
    """A device that a claim has, and the DeviceClass that it asked for. `index` as its name has it, or -1."""

    device_class: str
    driver: str
    pool: str
    name: str
    index: int = -1


class ClaimUse(msgspec.Struct, frozen=True):
    """An allocated ResourceClaim; `pods` are those that it is reserved for, (uid, name), of its own namespace."""

    namespace: str
    name: str
    devices: tuple[Allocated, ...]
    pods: tuple[tuple[str, str], ...] = ()


class Published(msgspec.Struct, frozen=True):
    """A device in a ResourceSlice. `index` is the number that the node calls it by, -1 if nothing says so; `kind` is
    the driver's word for what sort of device it is, "" for none.
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
    """The devices that a DeviceClass selects: those of a driver, of one kind unless that is "".

    A class with selectors that this cannot say has no driver, and selects nothing here.
    """

    driver: str = ""
    kind: str = ""


class NodeDevices(msgspec.Struct, frozen=True):
    """The facts about one node. `allocatable` has its extended resources, None if it has not reported any resource."""

    allocatable: Mapping[str, int] | None = None
    pods: Mapping[str, PodUse] = msgspec.field(default_factory=dict)
    claims: Mapping[str, ClaimUse] = msgspec.field(default_factory=dict)
    slices: Mapping[str, Slice] = msgspec.field(default_factory=dict)


class Part(Enum):
    """Of the facts of a node; the values are the fields of `NodeDevices`."""

    PODS = "pods"
    CLAIMS = "claims"
    SLICES = "slices"


NOTHING = NodeDevices()


class DeviceTable:
    """See the module. `changed` has the nodes of which other facts are known than before it was emptied, in order."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeDevices] = {}
        self.classes: dict[str, Selector] = {}
        self.changed: dict[str, None] = {}
        self._places: dict[Part, dict[str, str]] = {part: {} for part in Part}

    def put_node(self, name: str, allocatable: Mapping[str, int] | None) -> None:
        """A node offers this; None for one that has reported nothing, or is gone."""
        self._put(name, replace(self.nodes.get(name, NOTHING), allocatable=allocatable))

    def put_pod(self, use: PodUse, node: str) -> None:
        """A pod uses devices of a node."""
        self._set(Part.PODS, use.uid, node, use)

    def put_claim(self, key: str, node: str, use: ClaimUse) -> None:
        """A claim, by `namespace/name`, has devices of a node."""
        self._set(Part.CLAIMS, key, node, use)

    def put_slice(self, key: str, node: str, devices: Slice) -> None:
        """A ResourceSlice has devices of a node."""
        self._set(Part.SLICES, key, node, devices)

    def put_class(self, name: str, selector: Selector | None) -> None:
        """A DeviceClass selects these devices; None if it is gone."""
        if self.classes.get(name) == selector:
            return
        self.classes = {key: value for key, value in self.classes.items() if key != name}
        if selector is not None:
            self.classes[name] = selector
        self.changed.update(dict.fromkeys(name for name, facts in self.nodes.items() if facts.slices or facts.claims))

    def drop(self, part: Part, key: str) -> None:
        """A pod, by its uid, a claim or a slice uses or has no devices any more, or is gone."""
        node = self._places[part].pop(key, None)
        if node is not None:
            known = self.nodes[node]
            rest = {each: value for each, value in getattr(known, part.value).items() if each != key}
            self._put(node, replace(known, **{part.value: rest}))

    def keys(self, part: Part) -> tuple[str, ...]:
        """Every pod, claim or slice with devices."""
        return tuple(self._places[part])

    def look_again(self, node: str) -> None:
        """Pods of a node may have got cells for their devices, or lost them."""
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
