"""An observer of its own, directly at the API server: which pod holds which device from when to when, and which unduly.

It knows nothing of cells: a pod holds (node, device) for every device in its isolation annotation. That begins when
it has a node and ends when it has completed or is gone. Events of one resource come in the order in which they were
stored, so two holders of a device at one moment cannot be missed. Only after an API server was away something may
have happened unseen; then the list tells which pod holds which device now.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hived_extender.jobs.annotations import LEAF_CELL_ISOLATION
from hived_extender.jobs.wire import ENABLE_LIMIT
from hived_extender.kube.client import PODS, KubeClient, KubeError

RETRY_S = 0.1
COMPLETED = ("Succeeded", "Failed")

Device = tuple[str, str]
Json = dict[str, Any]


@dataclass(eq=False, repr=False, slots=True)
class Seen:
    """A pod as it was when last seen, and when (on this process's clock) it was first seen, and with a node."""

    pod: Json
    since: float
    bound_at: float = 0.0
    is_gone: bool = False
    devices: tuple[Device, ...] = ()

    @property
    def name(self) -> str:
        """Its name, which controllers use again."""
        return str(self.pod["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Which of all that had the name."""
        return str(self.pod["metadata"]["uid"])

    @property
    def labels(self) -> dict[str, str]:
        """Its labels."""
        return self.pod["metadata"].get("labels") or {}

    @property
    def node(self) -> str:
        """The node that it has, "" for none."""
        return str(self.pod["spec"].get("nodeName") or "")

    @property
    def phase(self) -> str:
        """As its status says."""
        return str(self.pod["status"].get("phase") or "")

    @property
    def is_bound(self) -> bool:
        """Whether it has a node."""
        return bool(self.node)

    @property
    def is_running(self) -> bool:
        """Whether its containers run."""
        return self.phase == "Running"

    @property
    def is_completed(self) -> bool:
        """Whether it ran to its end."""
        return self.phase in COMPLETED

    @property
    def is_leaving(self) -> bool:
        """Whether somebody deletes it."""
        return "deletionTimestamp" in self.pod["metadata"]

    @property
    def is_single(self) -> bool:
        """Whether no controller made it."""
        return not self.pod["metadata"].get("ownerReferences")

    @property
    def holds(self) -> bool:
        """Whether its devices are its own."""
        return self.is_bound and not self.is_gone and not self.is_completed

    @property
    def was_refused(self) -> bool:
        """Whether a scheduler has said that it waits."""
        return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in self.conditions)

    @property
    def was_evicted(self) -> bool:
        """Whether it was asked to leave through the Eviction API."""
        return any(one["type"] == "DisruptionTarget" for one in self.conditions)

    @property
    def conditions(self) -> list[Json]:
        """The conditions of its status."""
        return self.pod["status"].get("conditions") or []

    def __repr__(self) -> str:
        said = [f"{one['reason']}: {one.get('message')}" for one in self.conditions if one.get("reason")]
        where = f"on {self.node} after {self.bound_at - self.since:.1f} s" if self.node else "without a node"
        status = "gone" if self.is_gone else "leaving" if self.is_leaving else "there"
        return f"{self.name} {where}, {self.phase}, {status} {said}"


def asks_for_cells(pod: Json) -> bool:
    """Whether it asks for cells by HiveD's own limit."""
    return any(ENABLE_LIMIT in (one.get("resources", {}).get("limits") or {}) for one in pod["spec"]["containers"])


def is_in_default(pod: Json) -> bool:
    """Whether it is in the namespace default."""
    return bool(pod["metadata"]["namespace"] == "default")


@dataclass
class Observer:
    """Watches the pods that `is_ours` selects from `start` to `stop`. Read its attributes with `lock` held.

    Attributes
    ----------
    pods : every pod of ours that was ever seen, by uid, in the order in which they were first seen
    violations : what must never happen, in words
    changed_at : when a pod last came, got its node, completed or went
    """

    kube: KubeClient
    is_ours: Callable[[Json], bool]
    pods: dict[str, Seen] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    changed_at: float = 0.0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._holders: dict[Device, Seen] = {}
        self._stop = threading.Event()
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
        """All pods, as they are now, with those that are gone."""
        with self.lock:
            return list(self.pods.values())

    def present(self) -> list[Seen]:
        """The pods that exist."""
        return [one for one in self.seen() if not one.is_gone]

    def named(self) -> dict[str, Seen]:
        """The last pod of each name."""
        return {one.name: one for one in self.seen()}

    def report(self) -> str:
        """Every pod that exists, and the last ones that went, a line each."""
        gone = [one for one in self.seen() if one.is_gone]
        return "\n".join(map(repr, [*gone[-8:], *self.present()]))

    def _run(self) -> None:
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    listing = self.kube.list_objects(PODS, Json)
                    self._take_all(listing.items)
                    version = listing.resource_version
                for event in self.kube.watch(PODS, Json, version):
                    if event.object is not None:
                        with self.lock:
                            self._take(event.object, is_gone=event.type == "DELETED")
                    version = event.resource_version or version
            except KubeError as error:
                if error.status:
                    version = ""
                self._stop.wait(RETRY_S)

    def _take_all(self, pods: list[Json]) -> None:
        with self.lock:
            uids = {pod["metadata"]["uid"] for pod in pods}
            for seen in self.present():
                if seen.uid not in uids:
                    self._take(seen.pod, is_gone=True)
            # Pods that have let go of a device go first: in which order it happened, a list does not tell.
            for pod in sorted(pods, key=lambda pod: pod["status"].get("phase") not in COMPLETED):
                self._take(pod, is_gone=False)

    def _take(self, pod: Json, *, is_gone: bool) -> None:
        if not self.is_ours(pod):
            return
        seen = self.pods.setdefault(pod["metadata"]["uid"], Seen(pod, time.monotonic()))
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
            self._violated(f"{seen.name} was bound to {seen.node} without devices")
        if seen.devices and devices != seen.devices:
            self._violated(f"{seen.name} had {seen.devices}, now it has {devices}")
        if seen.holds:
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


def _devices(pod: Json) -> tuple[Device, ...]:
    node = pod["spec"].get("nodeName")
    if not node:
        return ()
    text = (pod["metadata"].get("annotations") or {}).get(LEAF_CELL_ISOLATION, "")
    with contextlib.suppress(ValueError):
        return tuple((node, str(int(part))) for part in text.split(",") if part)
    return ()
