"""The public part of this folder: takes in facts about devices and tells the present core of losses.

Facts are stored at all times; between `begin` and `end` each is applied at once. Not thread-safe: the service calls it
under its lock.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hived.values.specs import ClusterSpec
from hived_config.rules import PodRules
from hived_extender.api.cells import LostDevices, Shortage
from hived_extender.jobs.wire import Node, Pod
from hived_extender.kube.answers import is_older
from hived_extender.machine.announcements import Announcements
from hived_extender.machine.core import Core
from hived_extender.machine.devices.dra import (
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
    read_claim,
    read_class,
    read_slice,
)
from hived_extender.machine.devices.guarantees import of_virtual_cluster, shared_shortages
from hived_extender.machine.devices.shortage import Holds, Loss, Losses, in_short, of_node, of_pod, reported
from hived_extender.machine.devices.table import DeviceTable, NodeDevices, Part, Selector, allocatable_of, use_of
from hived_extender.machine.notices import Reason
from hived_extender.machine.pods import PodName

SHORT = "short of devices"
"""The reason why a healthy node cannot be used wholly."""


class DeviceKeeper:
    """Turns facts about devices into losses of the core. `holds` is true of the uid of a pod with cells."""

    def __init__(self, announcements: Announcements, holds: Holds) -> None:
        self._announcements = announcements
        self._holds = holds
        self._table = DeviceTable()
        self._seen: dict[str, tuple[str, bool]] = {}  # the newest version of pods with devices, and do they hold cells
        self._core: Core | None = None
        self._losses: Losses | None = None
        self._told: set[str] = set()  # the uids of pods that know
        self._since: dict[str, float] = {}  # by node, from when on it has lost leaf cells, in seconds since 1970

    # Terms

    def begin(self, core: Core, cluster: ClusterSpec, rules: PodRules) -> None:
        """Tell losses to a core that knows all bound pods. Cost O(devices of all nodes)."""
        self._core = core
        self._losses = Losses(core.state.topology, cluster, rules)
        self._table.changed = dict.fromkeys(self._table.nodes)
        self._settle()

    def take_over(self, losses: Losses) -> None:
        """Take the losses that were told to a state of another configuration."""
        self._losses = losses
        self._table.changed.clear()

    def end(self) -> None:
        """Drop the core at the end of a term."""
        self._core = self._losses = None
        self._told.clear()
        self._since.clear()

    def inputs(self) -> tuple[Mapping[str, NodeDevices], Mapping[str, Selector]]:
        """The present facts about nodes and DeviceClasses. Cost O(nodes)."""
        return dict(self._table.nodes), self._table.classes

    # Nodes and pods

    def node_seen(self, node: Node) -> None:
        """Take in a node."""
        self._table.put_node(node.metadata.name, allocatable_of(node))
        self._settle()

    def node_gone(self, name: str) -> None:
        """Remove a node."""
        self._table.put_node(name, None)
        self._settle()

    def sync_nodes(self, names: Collection[str]) -> None:
        """Drop nodes that are not in a listing."""
        for name in sorted(self._table.nodes.keys() - set(names)):
            self.node_gone(name)

    def pod_seen(self, pod: Pod, *, is_listed: bool) -> None:
        """Take in a pod of any scheduler; the service knows its cells already."""
        uid, version = pod.metadata.uid, pod.metadata.version
        if not pod.node and uid not in self._seen:
            return
        known = self._seen.get(uid)
        if known is not None and is_older(version, known[0]) and not is_listed:
            return
        use = use_of(pod)
        if use is None:
            self.pod_gone(uid)
            if pod.spec is not None and pod.spec.resource_claims:
                self._table.look_again(pod.node)
                self._settle()
            return
        is_holder = self._holds(uid)
        self._seen[uid] = version, is_holder
        self._table.put_pod(use, pod.node)
        if known is None or known[1] != is_holder:
            self._table.look_again(pod.node)
        self._settle()

    def pod_gone(self, uid: str) -> None:
        """Free the devices of a pod."""
        if self._seen.pop(uid, None) is not None:
            self._table.drop(Part.PODS, uid)
            self._settle()
        if uid in self._told:
            self._told.discard(uid)
            self._announcements.forget(uid)

    def pods_moved(self, node: str) -> None:
        """Choose the lost leaf cells of a node again: its pods have got or freed cells."""
        if self._core is not None and self._losses is not None:
            self._losses.retell(self._core, node)

    def pods(self) -> tuple[str, ...]:
        """The uids of all pods with devices."""
        return tuple(self._seen)

    # Objects of dynamic resource allocation

    def slice_seen(self, item: ResourceSlice) -> None:
        """Take in a ResourceSlice."""
        found = read_slice(item)
        if found is None:
            self._table.drop(Part.SLICES, item.metadata.key)
        else:
            self._table.put_slice(item.metadata.key, *found)
        self._settle()

    def claim_seen(self, item: ResourceClaim) -> None:
        """Take in a ResourceClaim."""
        found = read_claim(item)
        if found is None:
            self._table.drop(Part.CLAIMS, item.metadata.key)
        else:
            self._table.put_claim(item.metadata.key, *found)
        self._settle()

    def class_seen(self, item: DeviceClass) -> None:
        """Take in a DeviceClass."""
        self._table.put_class(item.metadata.name, read_class(item))
        self._settle()

    def object_seen(self, item: ResourceSlice | ResourceClaim | DeviceClass, *, is_gone: bool = False) -> None:
        """Take in any of these objects, or its deletion."""
        if is_gone and isinstance(item, DeviceClass):
            self._table.put_class(item.metadata.name, None)
        elif is_gone:
            self._table.drop(Part.SLICES if isinstance(item, ResourceSlice) else Part.CLAIMS, item.metadata.key)
        elif isinstance(item, DeviceClass):
            self.class_seen(item)
        elif isinstance(item, ResourceSlice):
            self.slice_seen(item)
        else:
            self.claim_seen(item)
        self._settle()

    def sync_objects(self, kind: type[ResourceSlice | ResourceClaim | DeviceClass], items: Iterable[Any]) -> None:
        """Replace all objects of a kind."""
        if kind is DeviceClass:
            self.sync_classes(items)
        elif kind is ResourceSlice:
            self.sync_slices(items)
        else:
            self.sync_claims(items)

    def sync_slices(self, items: Iterable[ResourceSlice]) -> None:
        """Replace all ResourceSlices."""
        present = {item.metadata.key: item for item in items}
        self._drop_others(Part.SLICES, present)
        for item in present.values():
            self.slice_seen(item)

    def sync_claims(self, items: Iterable[ResourceClaim]) -> None:
        """Replace all ResourceClaims."""
        present = {item.metadata.key: item for item in items}
        self._drop_others(Part.CLAIMS, present)
        for item in present.values():
            self.claim_seen(item)

    def sync_classes(self, items: Iterable[DeviceClass]) -> None:
        """Replace all DeviceClasses."""
        present = {item.metadata.name: item for item in items}
        for name in sorted(self._table.classes.keys() - present.keys()):
            self._table.put_class(name, None)
        for item in present.values():
            self.class_seen(item)

    def _drop_others(self, part: Part, present: Collection[str]) -> None:
        for key in self._table.keys(part):
            if key not in present:
                self._table.drop(part, key)
        self._settle()

    # Consequences

    @property
    def losses(self) -> list[Loss]:
        """The lost leaf cells, by node and type."""
        found = self._losses.current if self._losses is not None else {}
        return [found[place] for place in sorted(found)]

    def is_misread(self, node: str, chain: str) -> bool:
        """See `Layout.is_misread`."""
        return self._losses is not None and self._losses.layout.is_misread(node, chain)

    def troubles(self) -> dict[str, tuple[str, float | None]]:
        """By node, the reason for its losses, and since when this replica saw them. Cost O(losses)."""
        reasons: dict[str, list[str]] = {}
        for loss in self.losses:
            reasons.setdefault(loss.node, []).append(in_short(loss))
        return {node: (f"{SHORT}: {'; '.join(texts)}", self._since.get(node)) for node, texts in reasons.items()}

    def reported_losses(self) -> list[LostDevices]:
        """The losses as the HTTP API shows them."""
        return [reported(loss) for loss in self.losses]

    def shortages(self) -> list[Shortage]:
        """The promises that cannot all be kept, as the HTTP API shows them."""
        return [
            Shortage(shared.chain, [*shared.vcs], shared.cells, str(shared), shared.reasons(self.losses))
            for shared in (shared_shortages(self._core.state) if self._core is not None else ())
        ]

    def counts(self) -> dict[tuple[str, str], int]:
        """Lost devices, by resource and cause: missing, used by a pod, or by a claim."""
        counts: Counter[tuple[str, str]] = Counter()
        for loss in self.losses:
            counts[loss.resource, "missing"] += loss.missing
            for used in loss.used:
                counts[loss.resource, "claim" if used.is_claim else "pod"] += used.count
        return dict(counts)

    def explained(self, reason: str, vc: str) -> str:
        """Add to a reason to wait the part of the VC's guarantee that lost devices take."""
        if self._core is None or self._losses is None or not self._losses.current:
            return reason
        lack = of_virtual_cluster(self._core.state, vc, self.losses)
        return f"{reason}; {lack}" if lack else reason

    def _settle(self) -> None:
        if self._core is None or self._losses is None or not self._table.changed:
            return
        table = self._table
        changed, table.changed = table.changed, {}
        for loss in self._losses.settle(self._core, table.nodes, table.classes, changed, self._holds):
            self._announce(loss)
        lacking = {loss.node for loss in self._losses.current.values()}
        for node in sorted(lacking ^ self._since.keys()):
            if self._since.pop(node, None) is None:
                self._since[node] = self._announcements.now_s

    def _announce(self, loss: Loss) -> None:
        if loss.missing:
            self._announcements.devices_missing(loss.node, of_node(loss))
        for used in loss.used:
            for uid, namespace, name in used.pods:
                if uid not in self._told:
                    self._told.add(uid)
                    self._announcements.say(PodName(uid, namespace, name), Reason.FOREIGN_DEVICES, of_pod(loss, used))
