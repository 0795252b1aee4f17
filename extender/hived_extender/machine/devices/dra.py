"""Dynamic resource allocation (resource.k8s.io): its objects, in every served version, as facts about devices.

A DeviceClass selects devices by expressions. Hived reads `device.driver == "x"` and `device.attributes["x"].type ==
"y"`. Any other class selects no devices here: none counts as missing, and claims count by the class name alone. The
objects are optional: without the API, or the right to read it, hived asks every minute and logs that once. Until then
claims count nothing.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from hived_extender.jobs.wire import Metadata, NodeSelector, Taint
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import ObjectKind, OptionalKinds
from hived_extender.machine.devices.table import Allocated, ClaimUse, Published, Selector, Slice

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")
"""The first one that is served is read."""

EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim that Kubernetes has made for a pod's request of a resource, which counts already."""

_INDEX_ATTRIBUTES = ("index", "minor")
_NAME_WITH_INDEX = re.compile(r"(?:[a-z]+-)?gpu-?(\d{1,5})", re.ASCII)
_DRIVER = re.compile(r"""\(*\s*device\.driver\s*==\s*(["'])([\w.-]+)\1\s*\)*""", re.ASCII)
_KIND = re.compile(r"""\(*\s*device\.attributes\[(["'])[\w.-]+\1\]\.type\s*==\s*(["'])([\w.-]+)\2\s*\)*""", re.ASCII)
_PREVENTS = frozenset({"NoSchedule", "NoExecute"})


class Meta(Metadata):
    """The common fields of these objects."""

    @property
    def key(self) -> str:
        """`namespace/name`, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class _Attribute(msgspec.Struct):
    number: int | None = msgspec.field(name="int", default=None)
    truth: bool | None = msgspec.field(name="bool", default=None)
    text: str | None = msgspec.field(name="string", default=None)


class _Basic(msgspec.Struct):
    attributes: dict[str, _Attribute] | None = None
    taints: list[Taint] | None = None


class _Device(msgspec.Struct):
    name: str
    attributes: dict[str, _Attribute] | None = None
    taints: list[Taint] | None = None
    basic: _Basic | None = None  # where v1beta1 has the two above


class _Pool(msgspec.Struct, rename="camel"):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class _SliceSpec(msgspec.Struct, rename="camel"):
    driver: str = ""
    pool: _Pool = msgspec.field(default_factory=_Pool)
    node_name: str | None = None
    devices: list[_Device] | None = None


class ResourceSlice(msgspec.Struct):
    """Devices that a driver offers."""

    metadata: Meta
    spec: _SliceSpec = msgspec.field(default_factory=_SliceSpec)


class _Cel(msgspec.Struct):
    expression: str = ""


class _DeviceSelector(msgspec.Struct):
    cel: _Cel | None = None


class _ClassSpec(msgspec.Struct):
    selectors: list[_DeviceSelector] | None = None


class DeviceClass(msgspec.Struct):
    """A class of devices that claims request."""

    metadata: Meta
    spec: _ClassSpec = msgspec.field(default_factory=_ClassSpec)


class _Exactly(msgspec.Struct, rename="camel"):
    device_class_name: str = ""


class _SubRequest(_Exactly):
    name: str = ""


class _Request(msgspec.Struct, rename="camel"):
    name: str = ""
    device_class_name: str = ""  # of v1beta1
    exactly: _Exactly | None = None
    first_available: list[_SubRequest] | None = None


class _Requests(msgspec.Struct):
    requests: list[_Request] | None = None


class _ClaimSpec(msgspec.Struct):
    devices: _Requests = msgspec.field(default_factory=_Requests)


class _Result(msgspec.Struct, rename="camel"):
    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None


class _Results(msgspec.Struct):
    results: list[_Result] | None = None


class _Allocation(msgspec.Struct, rename="camel"):
    devices: _Results = msgspec.field(default_factory=_Results)
    node_selector: NodeSelector | None = None


class _Consumer(msgspec.Struct):
    resource: str = ""
    name: str = ""
    uid: str = ""


class _ClaimStatus(msgspec.Struct, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] | None = None


class ResourceClaim(msgspec.Struct):
    """Devices that pods share, or that one pod has alone."""

    metadata: Meta
    spec: _ClaimSpec = msgspec.field(default_factory=_ClaimSpec)
    status: _ClaimStatus | None = None


def read_slice(item: ResourceSlice) -> tuple[str, Slice] | None:
    """(node, devices); None for devices of no single node."""
    spec = item.spec
    if not spec.node_name:
        return None
    devices = tuple(_published(device) for device in spec.devices or ())
    return spec.node_name, Slice(
        spec.driver, spec.pool.name, spec.pool.generation, spec.pool.resource_slice_count, devices
    )


def read_claim(item: ResourceClaim) -> tuple[str, ClaimUse] | None:
    """(node, use); None for a claim without devices of one node, and for the stand-in of a counted request."""
    status = item.status
    annotations = item.metadata.annotations or {}
    if status is None or status.allocation is None or annotations.get(EXTENDED_RESOURCE_CLAIM) == "true":
        return None
    classes = dict(_classes(item.spec.devices.requests or ()))
    devices = tuple(
        Allocated(classes.get(each.request, ""), each.driver, each.pool, each.device, _index_in(each.device))
        for each in status.allocation.devices.results or ()
        if not each.admin_access
    )
    selector = status.allocation.node_selector
    node = (selector.only_node if selector else "") or (devices[0].pool if devices else "")
    if not devices or not node:
        return None
    pods = tuple(sorted((each.uid, each.name) for each in status.reserved_for or () if each.resource == "pods"))
    return node, ClaimUse(item.metadata.namespace, item.metadata.name, devices, pods)


def read_class(item: DeviceClass) -> Selector:
    """The devices that a class selects, as far as hived reads its expressions."""
    driver = kind = ""
    for selector in item.spec.selectors or ():
        for term in (selector.cel.expression if selector.cel is not None else "").split("&&"):
            if match := _DRIVER.fullmatch(term.strip()):
                driver = match[2]
            elif match := _KIND.fullmatch(term.strip()):
                kind = match[3]
            else:
                return Selector()
    return Selector(driver, kind if driver else "")


def _published(device: _Device) -> Published:
    basic = device.basic or _Basic()
    named = (device.attributes or basic.attributes or {}).items()
    attributes = {name.rpartition("/")[2]: value for name, value in sorted(named)}
    numbers = (attributes[name].number for name in _INDEX_ATTRIBUTES if name in attributes)
    index = next((number for number in numbers if number is not None), None)
    healthy = attributes.get("healthy")
    is_tainted = any(taint.effect in _PREVENTS for taint in device.taints or basic.taints or ())
    return Published(
        device.name,
        _index_in(device.name) if index is None else index,
        (attributes["type"].text or "") if "type" in attributes else "",
        not is_tainted and (healthy is None or healthy.truth is not False),
    )


def _index_in(name: str) -> int:
    match = _NAME_WITH_INDEX.fullmatch(name)
    return int(match[1]) if match else -1


def _classes(requests: list[_Request] | tuple[()]) -> Iterator[tuple[str, str]]:
    """(request as results name it, DeviceClass)."""
    for request in requests:
        yield request.name, request.exactly.device_class_name if request.exactly else request.device_class_name
        for each in request.first_available or ():
            yield f"{request.name}/{each.name}", each.device_class_name


log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 60.0


class DeviceKind(ObjectKind, frozen=True):
    """A kind of objects, and the type that they are read as."""

    type: type[Any]


KINDS = (
    DeviceKind(GROUP, "deviceclasses", VERSIONS, DeviceClass),
    DeviceKind(GROUP, "resourceslices", VERSIONS, ResourceSlice),
    DeviceKind(GROUP, "resourceclaims", VERSIONS, ResourceClaim),
)


class Told(Protocol):
    """Takes in listed and changed objects; `service.Service` does."""

    def devices_listed(self, kind: type[Any], objects: Iterable[Any]) -> None:
        """Replace all objects of a kind."""

    def device_seen(self, item: Any, *, is_gone: bool = False) -> None:
        """Take in an object as seen, or as it was when deleted."""


class _Telling:
    """Tells of the objects by their types."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def listed(self, kind: DeviceKind, items: list[Any]) -> None:
        self._told.devices_listed(kind.type, items)

    def seen(self, kind: DeviceKind, item: Any) -> None:
        self._told.device_seen(item)

    def gone(self, kind: DeviceKind, item: Any) -> None:
        self._told.device_seen(item, is_gone=True)

    def unserved(self, kind: DeviceKind) -> None:
        self._told.devices_listed(kind.type, ())


class DeviceObjects(OptionalKinds[DeviceKind]):
    """Watches the objects of dynamic resource allocation from `start` to `stop`."""

    def __init__(self, kube: KubeClient, told: Told, metrics: Metrics) -> None:
        super().__init__(kube, metrics, KINDS, _Telling(told), "devices")
        self.glance_interval_s = LOOK_INTERVAL_S
        self._complaint = ""

    def _type_of(self, kind: DeviceKind) -> type[Any]:
        return kind.type

    def _find(self, kinds: Sequence[DeviceKind]) -> dict[str, DeviceKind]:
        """Those that may be listed, too: nobody waits for the others. Logs once that nothing is watched."""
        cause = f"the API server does not serve {GROUP}"
        try:
            found = super()._find(kinds)
            for path in found:
                self._kube.get(f"{path}?limit=1")
        except KubeError as error:
            if error.status not in (401, 403):
                raise
            found = {path: kind for path, kind in self._served.items() if kind in kinds}  # as they were
            cause = str(error)
        if kinds and not found and cause != self._complaint:
            self._complaint = cause
            log.info("claims of devices are not counted", extra={"fields": {"cause": cause}})
        return found
