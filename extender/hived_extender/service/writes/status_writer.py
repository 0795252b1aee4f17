"""Writes what became of gangs into the status of the objects that describe them, where the tools of each kind look.

Best effort, by the leader alone. Each object is written when its gang has changed and its status does not say so yet,
at most once in `INTERVAL_S`, and only as it was when it was last seen: if somebody was faster, it is looked at again.
What others write there afterwards is not written over until the gang changes again.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

from hived_extender.kube.client import KubeError
from hived_extender.kube.events import timestamp
from hived_extender.pods.dialects import volcano
from hived_extender.pods.dialects.description import GangKey, ObjectRef
from hived_extender.service.gangs.letting_in import waits_for_us
from hived_extender.service.gangs.states import GangState
from hived_extender.service.writes.podgroup_status import status_patch

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
"""Between rounds: what changes faster is written once."""

FORGET_FROM = 10_000
"""Gangs that wait to be written, which they do while another replica leads. From there on those without pods are
forgotten.
"""

RETRY_S = 10.0
"""Before a gang is tried again whose status the API server refused, or was not there to take."""


class StatusApi(Protocol):
    """What is asked of the API server; `kube.KubeClient` is one."""

    def get(self, path: str) -> Mapping[str, Any]:
        """One document. Raises KubeError."""

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Merge into one object. Raises KubeError."""


class Found(Protocol):
    """The objects as they were seen last; `objects.Objects` is one."""

    def get(self, kind: str, namespace: str, name: str, /) -> Mapping[str, Any] | None:
        """The object, None if it does not exist."""

    def collection(self, kind: str) -> str:
        """The path under which the API server has objects of this kind, "" if it has none."""


class StatusWriter:
    """Thread-safe; nothing but `close` waits for anything."""

    def __init__(
        self, kube: StatusApi, objects: Found, *, interval_s: float = INTERVAL_S, retry_s: float = RETRY_S
    ) -> None:
        self._kube = kube
        self._objects = objects
        self._interval_s = interval_s
        self._retry_s = retry_s
        self._state_of: Callable[[GangKey], GangState | None] = lambda key: None
        self._serves: Callable[[str], bool] = lambda name: False
        self._may_write: Callable[[], bool] = lambda: False
        self._sources: dict[GangKey, ObjectRef] = {}
        self._without_subresource: set[str] = set()  # kinds
        self._todo: dict[GangKey, None] = {}
        self._failed: dict[GangKey, float] = {}  # when each is to be tried again
        self._forget_from = FORGET_FROM
        self._changed = threading.Condition()  # guards `_todo` and `_failed`
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gang status", daemon=True)

    def start(
        self,
        state_of: Callable[[GangKey], GangState | None],
        serves: Callable[[str], bool],
        may_write: Callable[[], bool],
    ) -> None:
        """Begin to write. `state_of` tells the state of a gang, None if it has no pods, `serves` whether pods of a
        schedulerName are ours, and `may_write` whether this replica leads; all on a thread of the writer's own.
        """
        self._state_of, self._serves, self._may_write = state_of, serves, may_write
        self._thread.start()

    @property
    def pending(self) -> tuple[GangKey, ...]:
        """The gangs that are still to be looked at."""
        with self._changed:
            return tuple({**self._todo, **self._failed})

    def changed(self, key: GangKey) -> None:
        """Something of a gang is not what it was. Returns at once; may be called under any lock."""
        with self._changed:
            self._todo[key] = None
            self._changed.notify()

    def close(self) -> None:
        """Write no more; waits for a call under way."""
        self._is_closed.set()
        with self._changed:
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._is_closed.is_set():
            with self._changed:
                if not self._todo and not self._is_closed.is_set():
                    self._changed.wait(min(self._failed.values()) - time.monotonic() if self._failed else None)
            # Gangs that changed while another replica led are looked at when this one does.
            if self._may_write():
                self._write_all()
            else:
                self._forget_gone()
            self._is_closed.wait(self._interval_s)

    def _write_all(self) -> None:
        """Write what has changed, and what could not be written some time ago."""
        now = time.monotonic()
        with self._changed:
            due = [key for key, at in self._failed.items() if at <= now]
            self._failed = {key: at for key, at in self._failed.items() if at > now}
            todo = [key for key in dict.fromkeys((*due, *self._todo)) if key not in self._failed]
            self._todo = {}
        failed, cause = [], ""
        for key in todo:
            if self._is_closed.is_set() or not self._may_write():
                self.changed(key)
                continue
            try:
                self._write(key)
            except KubeError as error:
                if error.is_conflict:
                    self.changed(key)  # what the other one wrote will have been seen by the next round
                elif not error.is_not_found:  # else it was deleted this moment
                    failed.append(key)
                    cause = str(error)
            except Exception:
                log.exception("the status of a gang cannot be told")
        if cause:
            log.warning(
                "status not written", extra={"fields": {"gangs": [str(key) for key in failed[:8]], "cause": cause}}
            )
        with self._changed:
            self._failed.update(dict.fromkeys(failed, time.monotonic() + self._retry_s))

    def _forget_gone(self) -> None:
        with self._changed:
            self._todo, self._failed = {**dict.fromkeys(self._failed), **self._todo}, {}
            keys = list(self._todo)
        if len(keys) < self._forget_from:
            return
        gone = [key for key in keys if self._state_of(key) is None]
        with self._changed:
            for key in gone:
                self._todo.pop(key, None)
        self._forget_from = max(FORGET_FROM, 2 * (len(keys) - len(gone)))

    def _write(self, key: GangKey) -> None:
        state = self._state_of(key)
        ref = (state.source if state is not None else None) or self._sources.get(key)
        if ref is None and state is None:
            self._let_in(key)
        if ref is not None:
            self._sources[key] = ref
        collection = self._objects.collection(ref.kind) if ref is not None else ""
        found = self._objects.get(ref.kind, ref.namespace, ref.name) if ref is not None else None
        status = status_patch(ref.kind, state or GangState(), found, timestamp()) if ref and found else {}
        if ref is not None and found is not None and collection and status:
            self._patch(ref, collection, found, status)
        if state is None:
            self._sources.pop(key, None)

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
