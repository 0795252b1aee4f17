"""Versions, history and watches: what makes list and watch consistent.

One counter numbers every change of every collection. A collection keeps its objects and a bounded history of changes;
from these any recent version can be rebuilt (pages of one list agree with each other) and any watch resumed. A version
older than the history is answered with 410, never with a gap.

Invariants: objects are immutable once stored (a change stores a new `Revision`, parts may be shared); versions in
`history` ascend; `compacted` is the version of the last change that fell out of it. Everything here runs on the event
loop of the server and never yields in the middle of a change.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from hived_lab.embedded.apiserver.bodies import ApiError, Body, encode
from hived_lab.embedded.apiserver.models import View

DEFAULT_HISTORY_LIMIT = 2_000


class Key(NamedTuple):
    """An object's place in its collection; `namespace` is empty for kinds without one."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Revision:
    """One version of one object: as JSON-ready body (never changed), as typed view and as JSON text."""

    key: Key
    version: int
    body: Body
    view: View
    json: bytes


class ChangeType(Enum):
    """The kinds of changes."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"


@dataclass(slots=True, eq=False)
class Change:
    """One entry of the history; of a deletion, `after` is the last state under the version of the deletion."""

    type: ChangeType
    before: Revision | None
    after: Revision
    frames: dict[ChangeType, bytes] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version that the change made."""
        return self.after.version

    def frame(self, seen_as: ChangeType) -> bytes:
        """Return the line of a watch that reports this change; encoded once for all watches."""
        if seen_as not in self.frames:
            self.frames[seen_as] = watch_frame(seen_as.value, self.after.json)
        return self.frames[seen_as]


def watch_frame(event_type: str, json: bytes) -> bytes:
    """Return one line of a watch: an event of `event_type` around an object's JSON text."""
    return b'{"type":"%s","object":%s}\n' % (event_type.encode(), json)


class Collection:
    """The objects of one resource, ordered by key when listed."""

    def __init__(self, history_limit: int) -> None:
        self.revisions: dict[Key, Revision] = {}
        self.history: deque[Change] = deque()
        self.history_limit = history_limit
        self.compacted = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def record(self, change: Change) -> None:
        """Apply `change` to the objects, append it to the history and wake everyone who waits."""
        if change.type is ChangeType.DELETED:
            del self.revisions[change.after.key]
        else:
            self.revisions[change.after.key] = change.after
        self.history.append(change)
        while len(self.history) > self.history_limit:
            self.compacted = self.history.popleft().version
        self.wake()

    def wake(self) -> None:
        """End every wait for the next change."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def next_change(self) -> asyncio.Future[None]:
        """Return what is done after the next change, or when `wake` is called; it misses nothing from this call on."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        waiter.add_done_callback(self._waiters.discard)
        return waiter

    def changes_since(self, version: int) -> list[Change]:
        """Return the changes after `version`, oldest first; ApiError (410) if some are no longer known.

        Cost O(changes returned).
        """
        self._require(version)
        newer: list[Change] = []
        for change in reversed(self.history):
            if change.version <= version:
                break
            newer.append(change)
        newer.reverse()
        return newer

    def snapshot(self, version: int) -> dict[Key, Revision]:
        """Return the objects as they were at `version`; ApiError (410) if that is no longer known."""
        newer = self.changes_since(version)
        if not newer:
            return self.revisions
        objects = dict(self.revisions)
        for change in reversed(newer):
            if change.before is None:
                objects.pop(change.after.key, None)
            else:
                objects[change.before.key] = change.before
        return objects

    def _require(self, version: int) -> None:
        if version < self.compacted:
            raise ApiError(410, f"too old resource version: {version} ({self.compacted})")


class Store:
    """All collections under one version counter.

    The counter starts at `first_version`, above every version of an earlier run when that is taken from the clock: a
    client that outlived a restart asks for a version from before `first_version` and is told to list again.
    """

    def __init__(self, first_version: int, history_limit: int = DEFAULT_HISTORY_LIMIT) -> None:
        self.version = first_version
        self._first_version = first_version
        self._history_limit = history_limit
        self._collections: dict[str, Collection] = {}

    def collection(self, resource: str) -> Collection:
        """Return the objects of `resource` (group and plural)."""
        if resource not in self._collections:
            self._collections[resource] = Collection(self._history_limit)
            self._collections[resource].compacted = self._first_version
        return self._collections[resource]

    def revise(self, key: Key, body: Body, read: Callable[[Body], View]) -> Revision:
        """Return `body` as the next version of the object at `key`; nothing is stored yet, and `body` stays as it is.

        Raises ApiError (400) if it cannot be encoded or read.
        """
        version = self.version + 1
        stamped = {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}
        return Revision(key, version, stamped, read(stamped), encode(stamped))

    def put(self, collection: Collection, after: Revision) -> None:
        """Store what `revise` has just returned, as a new object or in place of the one at its key."""
        before = collection.revisions.get(after.key)
        kind = ChangeType.ADDED if before is None else ChangeType.MODIFIED
        self._record(collection, Change(kind, before, after))

    def remove(self, collection: Collection, after: Revision) -> None:
        """Remove an object; `after` is its last state as `revise` has just returned it."""
        self._record(collection, Change(ChangeType.DELETED, collection.revisions[after.key], after))

    def wake_all(self) -> None:
        """End every wait on every collection."""
        for collection in self._collections.values():
            collection.wake()

    def _record(self, collection: Collection, change: Change) -> None:
        self.version = change.version
        collection.record(change)


Filter = Callable[[Revision], bool]
Render = Callable[[Change, ChangeType], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Watch:
    """One request to watch.

    `initial` is sent first; then every change after `version` that `accepts` lets through, as `render` writes it. With
    `bookmark` (version and "is the end of the initial list" to a line) progress is told every `bookmark_interval_s` and
    before the end.
    """

    collection: Collection
    version: int
    current_version: Callable[[], int]
    initial: bytes
    accepts: Filter
    render: Render
    timeout_s: float
    bookmark: Callable[[int, bool], bytes] | None
    bookmark_interval_s: float
    ends_initial_list: bool
    is_stopping: Callable[[], bool]

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the lines, several at a time; ends with the time-out, a 410 or the server."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.timeout_s
        told = self.version
        if self.initial:
            yield self.initial
        if self.ends_initial_list and self.bookmark is not None:
            yield self.bookmark(told, True)
        next_bookmark = clock() + self.bookmark_interval_s
        while not self.is_stopping():
            try:
                changes = self.collection.changes_since(told)
            except ApiError as gone:
                yield watch_frame("ERROR", encode(gone.status()))
                return
            if changes:
                told = changes[-1].version
                lines = self._lines(changes)
                if lines:
                    yield lines
                    continue
            is_over = clock() >= deadline
            if self.bookmark is not None and (is_over or clock() >= next_bookmark):
                # Nothing newer than the counter concerns this collection: its changes have all been told.
                told = self.current_version()
                next_bookmark = clock() + self.bookmark_interval_s
                yield self.bookmark(told, False)
                if not is_over:
                    continue
            if is_over:
                return
            wake_at = deadline if self.bookmark is None else min(deadline, next_bookmark)
            await self._wait(wake_at - clock())

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.collection.next_change()
        except TimeoutError:
            return

    def _lines(self, changes: list[Change]) -> bytes:
        lines = []
        for change in changes:
            seen_as = self._seen_as(change)
            if seen_as is not None:
                lines.append(self.render(change, seen_as))
        return b"".join(lines)

    def _seen_as(self, change: Change) -> ChangeType | None:
        """Return the change as it looks through the filter, None if it is invisible."""
        was_seen = change.before is not None and self.accepts(change.before)
        is_seen = change.type is not ChangeType.DELETED and self.accepts(change.after)
        if is_seen:
            return ChangeType.MODIFIED if was_seen else ChangeType.ADDED
        return ChangeType.DELETED if was_seen else None
