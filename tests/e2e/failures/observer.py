"""An observer of its own, directly at the API server: who holds which device from when to when, and who did so unduly.

It knows nothing of cells: a pod holds (node, device) for every device in its isolation annotation, from the moment that
it has a node until it has completed or is gone. Events of one resource come in the order in which they were stored, so
two holders of a device at one moment cannot be missed. Only after an API server was away something may have happened
unseen; then the list tells who holds what now.
"""

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from hived_extender.annotations import LEAF_CELL_ISOLATION
from hived_extender.kube import PODS, KubeClient, KubeError
from hived_extender.wire import ENABLE_LIMIT

RETRY_S = 0.1
COMPLETED = ("Succeeded", "Failed")

Device = tuple[str, str]


@dataclass(eq=False)
class Seen:
    """A pod of ours: as it was when last seen, when (on this process's clock) it got its node, and how it ended."""

    pod: dict[str, Any]
    bound_at: float = 0.0
    is_gone: bool = False
    devices: tuple[Device, ...] = ()

    @property
    def name(self) -> str:
        """Its name; names are never used twice here."""
        return str(self.pod["metadata"]["name"])

    @property
    def is_bound(self) -> bool:
        """Whether it has a node."""
        return bool(self.pod["spec"].get("nodeName"))

    @property
    def is_completed(self) -> bool:
        """Whether it ran to its end."""
        return self.pod["status"].get("phase") in COMPLETED

    @property
    def is_leaving(self) -> bool:
        """Whether somebody deletes it."""
        return "deletionTimestamp" in self.pod["metadata"]

    @property
    def is_waiting(self) -> bool:
        """Whether it has no node yet, and nobody deletes it."""
        return not (self.is_gone or self.is_bound or self.is_leaving)

    @property
    def is_running(self) -> bool:
        """Whether it has its devices."""
        return self.is_bound and not self.is_gone and not self.is_completed

    @property
    def was_evicted(self) -> bool:
        """Whether it was asked to leave through the Eviction API."""
        return any(one["type"] == "DisruptionTarget" for one in self.pod["status"].get("conditions") or ())


@dataclass
class Observer:
    """Watches the pods from `start` to `stop`. Read its attributes with `lock` held.

    Attributes
    ----------
    pods : every pod of ours that was ever seen, by name
    violations : what must never happen, in words
    changed_at : when a pod last came, got its node, completed or went
    """

    kube: KubeClient
    pods: dict[str, Seen] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    changed_at: float = 0.0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._holders: dict[Device, Seen] = {}
        self._stop = threading.Event()
        self._watch: Any = None
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End; the client given is closed."""
        self._stop.set()
        self.kube.close()
        self._thread.join(timeout=5)

    def seen(self) -> list[Seen]:
        """All pods, as they are now."""
        with self.lock:
            return list(self.pods.values())

    def _run(self) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    listing = self.kube.list_objects(PODS, dict[str, Any])
                    self._take_all(listing.items)
                    version = listing.resource_version
                for event in self.kube.watch(PODS, dict[str, Any], version):
                    if event.object is not None:
                        with self.lock:
                            self._take(event.object, is_gone=event.type == "DELETED")
                    version = event.resource_version or version
            except KubeError as error:
                if error.status:
                    version = ""
                self._stop.wait(RETRY_S)

    def _take_all(self, pods: list[dict[str, Any]]) -> None:
        with self.lock:
            names = {pod["metadata"]["name"] for pod in pods}
            for seen in self.pods.values():
                if seen.name not in names and not seen.is_gone:
                    self._take(seen.pod, is_gone=True)
            # Who has let go of a device goes first: in which order it happened, a list does not tell.
            for pod in sorted(pods, key=lambda pod: pod["status"].get("phase") not in COMPLETED):
                self._take(pod, is_gone=False)

    def _take(self, pod: dict[str, Any], *, is_gone: bool) -> None:
        if not any(ENABLE_LIMIT in (one.get("resources", {}).get("limits") or {}) for one in pod["spec"]["containers"]):
            return
        name = pod["metadata"]["name"]
        seen = self.pods.setdefault(name, Seen(pod))
        before = (seen.is_bound, seen.is_completed, seen.is_gone)
        seen.pod, seen.is_gone = pod, is_gone
        if seen.is_bound and not seen.bound_at:
            seen.bound_at = time.monotonic()
        self._account(seen)
        if before != (seen.is_bound, seen.is_completed, seen.is_gone) or not self.changed_at:
            self.changed_at = time.monotonic()

    def _account(self, seen: Seen) -> None:
        devices = _devices(seen.pod)
        if seen.is_bound and not devices:
            self._violated(f"{seen.name} was bound to {seen.pod['spec']['nodeName']} without devices")
        if seen.devices and devices != seen.devices:
            self._violated(f"{seen.name} had {seen.devices}, now it has {devices}")
        if seen.is_running:
            for device in devices:
                holder = self._holders.setdefault(device, seen)
                if holder is not seen:
                    self._violated(f"{'/'.join(device)} was given to {seen.name} while {holder.name} held it")
        else:
            for device in devices:
                if self._holders.get(device) is seen:
                    del self._holders[device]
        seen.devices = devices

    def _violated(self, what: str) -> None:
        if what not in self.violations:
            self.violations.append(what)


def _devices(pod: dict[str, Any]) -> tuple[Device, ...]:
    node = pod["spec"].get("nodeName")
    if not node:
        return ()
    text = pod["metadata"].get("annotations", {}).get(LEAF_CELL_ISOLATION, "")
    with contextlib.suppress(ValueError):
        return tuple((node, str(int(part))) for part in text.split(",") if part)
    return ()
