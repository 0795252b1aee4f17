"""Following a resource of the API server: list it, watch it, list again when the watch has lost track.

Nothing that the API server or an object does ends a reflector: it waits, longer each time, and goes on. Waits are
jittered so that many schedulers do not return to a restarted API server at the same instant.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from hived_extender.kube.answers import Listing, WatchEvent, is_older
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import Backoff
from hived_extender.kube.metrics import Metrics

log = logging.getLogger(__name__)

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 5.0
STEADY_AFTER_S = 5.0
"""A watch that lasted as long as this was a good one: the next wait is short again."""

EXPIRED = 410

T = TypeVar("T")
Key = TypeVar("Key", bound=Hashable)


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


def mirrored(
    path: str,
    item_type: type[T],
    key_of: Callable[[T], Key],
    known: Callable[[], Iterable[Key]],
    seen: Callable[[T], None],
    gone: Callable[[Key], None],
    field_selector: str = "",
) -> Resource[T]:
    """A path whose objects are kept by key: a list of all is a deletion for each `known` one that it lacks."""

    def sync(items: list[T]) -> None:
        for key in set(known()).difference(map(key_of, items)):
            gone(key)
        for item in drained(items):
            seen(item)

    return Resource(path, item_type, sync, seen, lambda item: gone(key_of(item)), field_selector)


class Reflector(Generic[T]):
    """Follows one resource on a thread of its own, from `start` to `stop`."""

    def __init__(self, kube: WatchApi, resource: Resource[T], metrics: Metrics) -> None:
        self._kube = kube
        self._resource = resource
        self._metrics = metrics
        self._version = ""
        self._backoff = Backoff(FIRST_WAIT_S, LONGEST_WAIT_S)
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
                    self._backoff.succeeded()  # an API server that was away is back, and a list is all it takes
            except Exception as unforeseen:
                log.exception("%s: an event was not taken in; listing everything again", self._resource.path)
                error = unforeseen
                self._version = ""
            if time.monotonic() - started >= STEADY_AFTER_S:
                self._backoff.succeeded()
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
            del listing  # the callee may free the objects as it empties the list
            resource.on_sync(items)
        except BaseException:
            if asked:
                self._version = ""  # the caller of `relist` still waits
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
        wait_s = self._backoff.failed() * self._random.uniform(0.5, 1.5)
        fields = {"resource": self._resource.path, "cause": str(error), "wait_s": round(wait_s, 1)}
        log.warning("lost the API server", extra={"fields": fields})
        self._wake.wait(wait_s)


def _is_passing(error: KubeError) -> bool:
    """Can the watch go on from its version? The connection broke or the server is busy; any other refusal may last."""
    return error.reason == "NoAnswer" or error.status in (429, 503)


def _cause(error: Exception | None) -> str:
    if isinstance(error, KubeError):
        return error.reason or str(error.status)
    return "ended" if error is None else type(error).__name__


LOOK_INTERVAL_S = 60.0
"""Between two looks for all kinds."""

GLANCE_INTERVAL_S = 5.0
"""Between two looks for kinds that are not followed: one call, and one for each version of their groups."""

RETRY_S = 5.0
GLANCES = round(LOOK_INTERVAL_S / GLANCE_INTERVAL_S)

Object = dict[str, Any]


class OptionalKind(Protocol):
    """A resource; of `versions` the first is followed that the API server has."""

    @property
    def group(self) -> str:
        """The API group."""

    @property
    def plural(self) -> str:
        """The name of the resource in paths."""

    @property
    def versions(self) -> tuple[str, ...]:
        """Those that we read, the best first."""


class ObjectKind(msgspec.Struct, frozen=True):
    """An `OptionalKind` of which no more is to be known."""

    group: str
    plural: str
    versions: tuple[str, ...]


K = TypeVar("K", bound=OptionalKind)
T_contra = TypeVar("T_contra", bound=OptionalKind, contravariant=True)


class Told(Protocol[T_contra]):
    """Takes in what is followed, on the threads of watches. None of these is called once the kind is not followed."""

    def listed(self, kind: T_contra, items: list[Object]) -> None:
        """These are all objects of a kind; the list is the callee's. Each has its `apiVersion`, which lists omit."""

    def seen(self, kind: T_contra, item: Object) -> None:
        """An object looks like this now."""

    def gone(self, kind: T_contra, item: Object) -> None:
        """An object was deleted; it looked like this."""

    def unserved(self, kind: T_contra) -> None:
        """The API server does not have this kind any more, and none of its objects."""


class OptionalKinds(Generic[K]):
    """Follows kinds that an API server may have or not, each for as long as it is there, from `start` to `stop`.

    Most clusters have few of these kinds, and one may come while jobs run. So the API server is asked again and again:
    every few seconds for kinds that are not there, every minute whether the others still are. A kind that we may not
    see is like one that is not there, as far as the log goes. `what` names the kinds in the log.
    """

    def __init__(self, kube: KubeClient, metrics: Metrics, kinds: Sequence[K], told: Told[K], what: str) -> None:
        self.glance_interval_s = GLANCE_INTERVAL_S
        self._kube = kube
        self._metrics = metrics
        self._kinds = tuple(kinds)
        self._told = told
        self._what = what
        self._reflectors: dict[str, Reflector[Object]] = {}  # by path
        self._served: dict[str, K] = {}  # by path
        self._unlisted: set[str] | None = None  # paths; None until it is known which there are
        self._lock = threading.Condition()  # for changes of these three; never held while anybody is told
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kinds of {what}", daemon=True)

    def path(self, is_it: Callable[[K], bool]) -> str:
        """The path under which the API server has all objects of a kind, "" if it has none."""
        return next((path for path, kind in tuple(self._served.items()) if is_it(kind)), "")

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Follow nothing any more. Does not wait for a call under way."""
        with self._lock:
            self._is_stopping.set()
            for reflector in self._reflectors.values():
                reflector.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the end after `stop`, up to so long for each thread."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        for reflector in self._reflectors.values():
            reflector.join(timeout_s)

    def wait_until_listed(self, timeout_s: float) -> bool:
        """Wait until all objects are known. False if that takes longer, as where it is not allowed to list them."""
        with self._lock:
            return self._lock.wait_for(lambda: self._unlisted is not None and not self._unlisted, timeout_s)

    def relist(self) -> list[threading.Event]:
        """See `Reflector.relist`; an event for each path that has been listed before."""
        with self._lock:
            asked = {path: reflector.relist() for path, reflector in self._reflectors.items()}
            return [done for path, done in asked.items() if path not in (self._unlisted or ())]

    def _run(self) -> None:
        glances = 0
        while not self._is_stopping.is_set():
            try:
                known = {} if glances % GLANCES == 0 else dict(self._served)
                self._follow(known | self._find([kind for kind in self._kinds if kind not in known.values()]))
                wait_s, glances = self.glance_interval_s, glances + 1
            except KubeError as error:
                log.warning(
                    "cannot see which kinds of %s there are", self._what, extra={"fields": {"cause": str(error)}}
                )
                wait_s = RETRY_S
            except Exception:
                log.exception("the API server's answer which kinds of %s there are was not understood", self._what)
                wait_s = LOOK_INTERVAL_S
            self._is_stopping.wait(wait_s)

    def _find(self, kinds: Sequence[K]) -> dict[str, K]:
        """The kinds that the API server has, of some, by the path of the version to be read."""
        if not kinds:
            return {}
        groups = {group["name"]: group["versions"] for group in self._kube.get("/apis").get("groups") or ()}
        served, plurals = {}, dict[str, set[str]]()
        for kind in kinds:
            there = {each["version"] for each in groups.get(kind.group, ())}
            for base in (f"/apis/{kind.group}/{version}" for version in kind.versions if version in there):
                if base not in plurals:
                    plurals[base] = self._plurals(base)
                if kind.plural in plurals[base]:
                    served[f"{base}/{kind.plural}"] = kind
                    break
        return served

    def _plurals(self, base: str) -> set[str]:
        try:
            return {resource["name"] for resource in self._kube.get(base).get("resources") or ()}
        except KubeError as error:
            if error.is_not_found:  # it has gone this very moment
                return set()
            raise

    def _follow(self, served: Mapping[str, K]) -> None:
        """Follow these kinds and no others."""
        with self._lock:
            if self._is_stopping.is_set():
                return
            for path in self._reflectors.keys() - served.keys():
                self._reflectors.pop(path).stop()
                log.info("follows no more", extra={"fields": {"path": path}})
            new = [path for path in served if path not in self._reflectors]
            for path in new:
                self._reflectors[path] = Reflector(self._kube, self._resource(path, served[path]), self._metrics)
                self._reflectors[path].start()
                log.info("follows", extra={"fields": {"path": path, "of": self._what}})
            left = [kind for path, kind in self._served.items() if path not in served and kind not in served.values()]
            self._served = dict(served)
            self._unlisted = {path for path in self._unlisted or () if path in served} | set(new)
            self._lock.notify_all()
        for kind in left:
            self._told.unserved(kind)

    def _type_of(self, kind: K) -> type[Any]:
        """The type that the objects of a kind are read as."""
        return dict

    def _resource(self, path: str, kind: K) -> Resource[Any]:
        return Resource(
            path,
            self._type_of(kind),
            partial(self._listed, path, kind),
            lambda item: self._tell(path, self._told.seen, kind, _versioned(path, item)),
            lambda item: self._tell(path, self._told.gone, kind, _versioned(path, item)),
        )

    def _listed(self, path: str, kind: K, items: list[Any]) -> None:
        self._tell(path, self._told.listed, kind, [_versioned(path, item) for item in items])
        with self._lock:
            if self._unlisted:
                self._unlisted.discard(path)
                self._lock.notify_all()

    def _tell(self, path: str, tell: Callable[[K, Any], None], kind: K, item: Any) -> None:
        """Unless the watch has been ended."""
        if path in self._reflectors:
            tell(kind, item)


def _versioned(path: str, item: Any) -> Any:
    """The item, as JSON has it with the version under which it was read."""
    if isinstance(item, dict):
        item.setdefault("apiVersion", "/".join(path.split("/")[2:4]))
    return item
