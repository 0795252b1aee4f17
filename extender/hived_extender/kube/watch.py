"""Following a resource of the API server: list it, watch it, list again when the watch has lost track.

Nothing that the API server or an object does ends a reflector: it waits, longer each time, and goes on. Waits are
jittered so that many schedulers do not return to a restarted API server at the same instant.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

import msgspec

from hived_extender.kube.answers import Listing, WatchEvent
from hived_extender.kube.client import KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.versions import is_older

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
STEADY_AFTER_S = 5.0
"""A watch that lasted as long as this was a good one: the next wait is short again."""

EXPIRED = 410

T = TypeVar("T")


class OpenWatch(Protocol[T]):
    """A watch under way: its events, and a way to end it from another thread."""

    def __iter__(self) -> Iterator[WatchEvent[T]]: ...

    def close(self) -> None:
        """Make the iteration end."""


class WatchApi(Protocol):
    """A reflector's calls to the API server; `kube.KubeClient` is one. Everything raises KubeError."""

    def list_objects(self, path: str, item_type: type[T], *, field_selector: str = "") -> Listing[T]:
        """Everything under a path."""

    def watch(self, path: str, item_type: type[T], resource_version: str, *, field_selector: str = "") -> OpenWatch[T]:
        """All changes since a version."""


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """A path to follow, and callbacks: for all objects at once, one that exists now, one that is gone.

    The first gets a list of its own, which it may empty (`drained`).
    """

    path: str
    item_type: type[T]
    on_sync: Callable[[list[T]], None]
    on_seen: Callable[[T], None]
    on_gone: Callable[[T], None]
    field_selector: str = ""


def drained(items: list[T]) -> Iterator[T]:
    """The items in their order, each taken off the list before it is handed out.

    So an object is freed as soon as something smaller has been made of it: else all of them would be in memory until
    the last has been read, and leave gaps behind.
    """
    items.reverse()
    while items:
        yield items.pop()


class Reflector(Generic[T]):
    """Follows one resource on a thread of its own, from `start` to `stop`."""

    def __init__(self, kube: WatchApi, resource: Resource[T], metrics: Metrics) -> None:
        self._kube = kube
        self._resource = resource
        self._metrics = metrics
        self._version = ""
        self._wait_s = FIRST_WAIT_S
        self._random = random.Random()
        self._thread = threading.Thread(target=self.run, name=f"watch {resource.path}", daemon=True)
        self._is_stopping = False
        self._lock = threading.Lock()
        self._watch: OpenWatch[T] | None = None
        self._asked: list[threading.Event] = []
        self._wake = threading.Event()  # set when a list is asked for and when the end has come

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Tell nothing more. Does not wait for a call under way."""
        self._is_stopping = True
        self._interrupt()

    def join(self, timeout_s: float) -> None:
        """Wait for the end after `stop`."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    @property
    def is_following(self) -> bool:
        """True while a watch is open, after everything has been listed."""
        return self._watch is not None

    def has_reached(self, version: str) -> bool:
        """Has everything been told that happened up to this resourceVersion?"""
        return bool(self._version) and not is_older(self._version, version)

    def relist(self) -> threading.Event:
        """Ask for everything to be listed anew, at once; the event is set when such a list, begun after this call, has
        been told. From any thread, before `start` too.
        """
        done = threading.Event()
        self._interrupt(done)
        return done

    def run(self) -> None:
        """Follow the resource until stopped."""
        while not self._is_stopping:
            started = time.monotonic()
            error: Exception | None = None
            is_listed = not self._version or self._wake.is_set()
            try:
                if is_listed:
                    self._list()
                self._follow()
            except KubeError as refusal:
                error = refusal
                if not _is_passing(refusal):
                    self._version = ""
                if refusal.status == EXPIRED and not is_listed:
                    self._wait_s = FIRST_WAIT_S  # an API server that was away is back, and a list is all it takes
            except Exception as unforeseen:
                log.exception("%s: an event was not taken in; listing everything again", self._resource.path)
                error = unforeseen
                self._version = ""
            if time.monotonic() - started >= STEADY_AFTER_S:
                self._wait_s = FIRST_WAIT_S
            self._pause(error)

    def _interrupt(self, *asked: threading.Event) -> None:
        with self._lock:
            self._asked.extend(asked)
            self._wake.set()
            if self._watch is not None:
                self._watch.close()

    def _list(self) -> None:
        resource = self._resource
        with self._lock:
            asked = self._asked[:]
            self._wake.clear()
        try:
            listing = self._kube.list_objects(resource.path, resource.item_type, field_selector=resource.field_selector)
            items, version = listing.items, listing.resource_version
            del listing  # whoever empties the list lets its objects go
            resource.on_sync(items)
        except BaseException:
            if asked:
                self._version = ""  # whoever asked still waits
            raise
        self._version = version
        with self._lock:
            self._asked = self._asked[len(asked) :]
        for done in asked:
            done.set()

    def _follow(self) -> None:
        resource = self._resource
        watch = self._kube.watch(
            resource.path, resource.item_type, self._version, field_selector=resource.field_selector
        )
        with self._lock:
            self._watch = watch
        try:
            if self._is_stopping or self._wake.is_set():
                watch.close()
            for event in watch:
                if self._is_stopping or self._wake.is_set():
                    return
                self._take(event)
        finally:
            with self._lock:
                self._watch = None

    def _take(self, event: WatchEvent[T]) -> None:
        if event.object is not None:
            (self._resource.on_gone if event.type == "DELETED" else self._resource.on_seen)(event.object)
        # Only now: an event that could not be taken in must not be skipped.
        self._version = event.resource_version or self._version

    def _pause(self, error: Exception | None) -> None:
        """Wait before the next attempt; only errors make the waits longer, and a list that is asked for ends them."""
        if self._is_stopping or self._wake.is_set():
            return
        self._metrics.watch_restarts.labels(self._resource.path, _cause(error)).inc()
        if error is None:
            self._wake.wait(FIRST_WAIT_S)
            return
        wait_s = self._wait_s * self._random.uniform(0.5, 1.5)
        fields = {"resource": self._resource.path, "cause": str(error), "wait_s": round(wait_s, 1)}
        log.warning("lost the API server", extra={"fields": fields})
        self._wake.wait(wait_s)
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)


def _is_passing(error: KubeError) -> bool:
    """Can the watch go on from its version? The connection broke or the server is busy; any other refusal may last."""
    return error.reason == "NoAnswer" or error.status in (429, 503)


def _cause(error: Exception | None) -> str:
    if isinstance(error, KubeError):
        return error.reason or str(error.status)
    return "ended" if error is None else type(error).__name__
