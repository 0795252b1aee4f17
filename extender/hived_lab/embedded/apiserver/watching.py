"""Watches: from a version and a filter to a stream of lines.

A watch holds no queue: it remembers the version it has told and reads on in the history of its collection, so a slow
client costs no memory; one that falls behind the history is told 410 and lists again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from hived_lab.embedded.apiserver.bodies import encode
from hived_lab.embedded.apiserver.statuses import ApiError
from hived_lab.embedded.apiserver.store import Change, ChangeType, Collection, Revision, watch_frame

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
        """Return what the change is to somebody who sees only what the filter lets through."""
        was_seen = change.before is not None and self.accepts(change.before)
        is_seen = change.type is not ChangeType.DELETED and self.accepts(change.after)
        if is_seen:
            return ChangeType.MODIFIED if was_seen else ChangeType.ADDED
        return ChangeType.DELETED if was_seen else None
