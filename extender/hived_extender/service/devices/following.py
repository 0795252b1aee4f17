"""Following the objects of dynamic resource allocation, where the API server has them and lets us see them.

They are optional: an API server that does not serve them, or does not allow it, is asked again every minute, and the
log says so once. Until then claims count nothing.
"""

import logging
import threading
from collections.abc import Iterable
from typing import Any, Protocol

from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import Reflector, Resource
from hived_extender.service.devices.dra import GROUP, VERSIONS, DeviceClass, ResourceClaim, ResourceSlice

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 60.0
RETRY_S = 5.0


class Told(Protocol):
    """Takes in what is followed; `service.Service` does."""

    def devices_listed(self, kind: type[Any], objects: Iterable[Any]) -> None:
        """These are all objects of a kind."""

    def device_seen(self, item: Any, *, is_gone: bool = False) -> None:
        """An object looks like this now, or did when it went."""


class DeviceObjects:
    """See the module; from `start` to `stop`."""

    def __init__(self, kube: KubeClient, told: Told, metrics: Metrics) -> None:
        self._kube = kube
        self._told = told
        self._metrics = metrics
        self._reflectors: list[Reflector[Any]] = []
        self._unlisted: set[str] | None = None  # paths; None until it is known whether there are any
        self._lock = threading.Condition()  # for changes of these two
        self._is_stopping = threading.Event()
        self._complaint = ""
        self._thread = threading.Thread(target=self._run, name="device objects", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Follow nothing any more. Does not wait for a call under way."""
        with self._lock:
            self._is_stopping.set()
            for reflector in self._reflectors:
                reflector.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the end after `stop`, up to so long for each thread."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        for reflector in self._reflectors:
            reflector.join(timeout_s)

    def wait_until_listed(self, timeout_s: float) -> bool:
        """Wait until all objects are known, or it is known that there are none to be seen; False if it takes longer."""
        with self._lock:
            return self._lock.wait_for(lambda: self._unlisted is not None and not self._unlisted, timeout_s)

    def _run(self) -> None:
        is_known = False
        while not self._is_stopping.wait(0.0 if not self._complaint else LOOK_INTERVAL_S if is_known else RETRY_S):
            try:
                base = self._served()
                is_known = True
                if base:
                    return self._follow(base)
                self._complain(f"the API server does not serve {GROUP}")
            except KubeError as error:
                is_known = error.status in (401, 403)
                self._complain(str(error))
            if is_known:
                with self._lock:
                    self._unlisted = set()
                    self._lock.notify_all()
        return None

    def _served(self) -> str:
        """The path of the version to be read, "" if there is none. Raises KubeError if we may not see the objects."""
        try:
            group = self._kube.get(f"/apis/{GROUP}")
        except KubeError as error:
            if error.is_not_found:
                return ""
            raise
        there = {each["version"] for each in group.get("versions") or ()}
        version = next((version for version in VERSIONS if version in there), "")
        base = f"/apis/{GROUP}/{version}" if version else ""
        for plural in ("resourceslices", "resourceclaims", "deviceclasses") if base else ():
            self._kube.get(f"{base}/{plural}?limit=1")
        return base

    def _follow(self, base: str) -> None:
        resources: list[Resource[Any]] = [
            self._resource(f"{base}/deviceclasses", DeviceClass),
            self._resource(f"{base}/resourceslices", ResourceSlice),
            self._resource(f"{base}/resourceclaims", ResourceClaim),
        ]
        with self._lock:
            if self._is_stopping.is_set():
                return
            self._unlisted = {resource.path for resource in resources}
            self._reflectors = [Reflector(self._kube, resource, self._metrics) for resource in resources]
            for reflector in self._reflectors:
                reflector.start()
        log.info("follows device objects", extra={"fields": {"path": base}})

    def _resource(self, path: str, kind: type[Any]) -> Resource[Any]:
        def listed(items: list[Any]) -> None:
            self._told.devices_listed(kind, items)
            with self._lock:
                if self._unlisted:
                    self._unlisted.discard(path)
                    self._lock.notify_all()

        told = self._told
        return Resource(path, kind, listed, told.device_seen, lambda item: told.device_seen(item, is_gone=True))

    def _complain(self, cause: str) -> None:
        """Say why nothing is followed, unless that was said already."""
        if cause != self._complaint:
            self._complaint = cause
            log.info("claims of devices are not counted", extra={"fields": {"cause": cause}})
