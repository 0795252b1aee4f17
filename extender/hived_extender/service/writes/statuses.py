"""Writes the progress of gangs into the status of the objects that describe them, where the tools of each kind look.

An object is written only as it was when it was last seen: if somebody was faster, it is looked at again. A later
status by others stays until the gang changes again.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.events import timestamp
from hived_extender.pods.dialects import volcano
from hived_extender.pods.dialects.description import GangKey, ObjectRef
from hived_extender.service.effects import WriteStatuses
from hived_extender.service.gangs.letting_in import waits_for_us
from hived_extender.service.gangs.states import GangState
from hived_extender.service.writes.podgroup_status import status_patch

log = logging.getLogger(__name__)


class Found(Protocol):
    """The objects as they were seen last; `podgroups.Objects` is one."""

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        """The object, None if it does not exist."""

    def collection(self, kind: str) -> str:
        """The path under which the API server has objects of this kind, "" if it has none."""


class StatusWriter:
    """`serves` tells whether pods of a schedulerName are ours. One call of `write` at a time."""

    def __init__(self, kube: KubeClient, objects: Found, serves: Callable[[str], bool]) -> None:
        self._kube = kube
        self._objects = objects
        self._serves = serves
        self._without_subresource: set[str] = set()  # kinds

    def write(self, effect: WriteStatuses, may_write: Callable[[], bool]) -> tuple[list[GangKey], list[GangKey]]:
        """Write what the objects do not say yet.

        Returns the gangs that have changed meanwhile, or were not come to, and those that failed. Raises nothing.
        """
        changed, failed, cause = list[GangKey](), list[GangKey](), ""
        for key, state in effect.states.items():
            if not may_write():
                changed.append(key)
                continue
            try:
                self._write(key, state, effect.sources.get(key))
            except KubeError as error:
                if error.is_conflict:
                    changed.append(key)  # what the other one wrote will have been seen by the next round
                elif not error.is_not_found:  # else it was deleted this moment
                    failed.append(key)
                    cause = str(error)
            except Exception:
                log.exception("the status of a gang cannot be told")
        if cause:
            fields = {"gangs": [str(key) for key in failed[:8]], "cause": cause}
            log.warning("status not written", extra={"fields": fields})
        return changed, failed

    def _write(self, key: GangKey, state: GangState | None, ref: ObjectRef | None) -> None:
        if ref is None:
            if state is None:
                self._let_in(key)
            return
        collection, found = self._objects.collection(ref.kind), self._objects.get(ref.kind, ref.namespace, ref.name)
        if found is not None and collection:
            status = status_patch(ref.kind, state or GangState(), found, timestamp())
            if status:
                self._patch(ref, collection, found, status)

    def _let_in(self, key: GangKey) -> None:
        """Let a PodGroup in whose controller waits for that before it creates pods. Here is no queue to wait in."""
        ref = volcano.KIND.ref(key.namespace, key.name)
        found, collection = self._objects.get(ref.kind, ref.namespace, ref.name), self._objects.collection(ref.kind)
        if found is not None and collection and waits_for_us(self._kube, self._serves, found):
            self._patch(ref, collection, found, {"phase": "Inqueue"})

    def _patch(self, ref: ObjectRef, collection: str, found: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        """Volcano's PodGroups had no status of their own for a long time: there it is a part of the object."""
        base, _, plural = collection.rpartition("/")
        path = f"{base}/namespaces/{quote(ref.namespace, safe='')}/{plural}/{quote(ref.name, safe='')}"
        body = {"metadata": {"resourceVersion": found["metadata"].get("resourceVersion", "")}, "status": status}
        if ref.kind not in self._without_subresource:
            try:
                self._kube.patch(f"{path}/status", body)
                return
            except KubeError as error:
                if not error.is_not_found:
                    raise
        self._kube.patch(path, body)
        self._without_subresource.add(ref.kind)
