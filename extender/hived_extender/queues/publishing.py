"""Writes Queue and QueueUnit objects as `records` says, where the API server has these kinds.

Only differences are written, a bounded number at a time, the oldest first. Changes by others to the parts that hived
writes are written over. Users' own fields stay: `active` of a unit, policy and priority of a queue.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from hived_extender.jobs.job import JobState, told
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import timestamp
from hived_extender.kube.watch import ObjectKind
from hived_extender.queues.queued_jobs import JobRecord, QueuedJobs
from hived_extender.queues.reasons import held_by
from hived_extender.queues.records import (
    PATH,
    QUEUE_NAMESPACE,
    SHOWN_ITEMS,
    Phase,
    QueueRecord,
    UnitRecord,
    is_only_ours,
    missing,
    queue_name,
    queue_object,
    queue_status,
    unit_key,
    unit_name,
    unit_object,
    unit_spec,
    unit_status,
)
from hived_extender.queues.table import Life
from hived_extender.queues.watched import QueueItem

log = logging.getLogger(__name__)

RETRY_S = 10.0
"""Before an object is written again that the API server refused."""

Object = dict[str, Any]
Name = tuple[str, str]
Record = QueueRecord | UnitRecord


QUEUES = ObjectKind("scheduling.x-k8s.io", "queues", ("v1alpha1",))
UNITS = ObjectKind("scheduling.x-k8s.io", "queueunits", ("v1alpha1",))
KINDS = (QUEUES, UNITS)


class Found(msgspec.Struct, frozen=True):
    """Objects of a kind as a watch tells of them, by name: their kept part, and whether a unit is inactive; None for
    one that is gone. If they are `all`, there are no others; None if the kind is not served.
    """

    kind: ObjectKind
    items: Mapping[Name, tuple[bytes, bool] | None] | None
    is_all: bool = False


class Due(msgspec.Struct, frozen=True):
    """An object that is to say what `record` says, or to go, as it was found last."""

    key: tuple[ObjectKind, Name]
    record: Record | None
    packed: bytes | None


class Publisher:
    """The wanted texts of objects. Not thread-safe, but for methods of a watch, which `tell` their finds."""

    def __init__(
        self, kube: KubeClient, clock: Callable[[], float], tell: Callable[[Found], None] | None = None
    ) -> None:
        """`tell` has `take_in` called in its time; at once by default."""
        self._kube = kube
        self._clock = clock
        self._tell = tell or self.take_in
        self._found: dict[ObjectKind, dict[Name, bytes]] = {}  # a kind that is not served is not in it
        self._wanted: dict[tuple[ObjectKind, Name], Record | None] = {}  # None: is to go
        self._due: dict[tuple[ObjectKind, Name], float] = {}  # since when, oldest first
        self._last: dict[tuple[ObjectKind, Name], None] = {}
        self._inactive: frozenset[Name] = frozenset()
        self._swept: object = None
        self.has_words = True  # users may have said something else since this was set to False

    # The watch

    def listed(self, kind: ObjectKind, items: list[Object]) -> None:
        """See `kube.watch.Told`."""
        self._tell(Found(kind, {_name(item): _found(kind, item) for item in items}, is_all=True))

    def seen(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`."""
        self._tell(Found(kind, {_name(item): _found(kind, item)}))

    def gone(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`."""
        self._tell(Found(kind, {_name(item): None}))

    def unserved(self, kind: ObjectKind) -> None:
        """See `kube.watch.Told`."""
        self._tell(Found(kind, None))

    # Facts

    def take_in(self, told: Found) -> None:
        """Take in objects. Cost O(1) for each, and for an inactive unit O(inactive ones)."""
        kind, items = told.kind, told.items
        before = self._inactive
        if items is None:
            self._found.pop(kind, None)
        elif told.is_all:
            self._found[kind] = {name: found[0] for name, found in items.items() if found is not None}
            self._swept = None
            self._due.update({each: 0.0 for each in self._wanted if each[0] == kind})
        for name, found in (items or {}).items() if not told.is_all else ():
            known = self._found.setdefault(kind, {})
            if found is None:
                known.pop(name, None)
            else:
                if kind == QUEUES and name not in known and (kind, name) not in self._wanted:
                    self._swept = None  # the last call of an earlier term has made it
                known[name] = found[0]
            if (kind, name) in self._wanted:
                self._due.setdefault((kind, name), 0.0)
        if kind == UNITS:
            inactive = [name for name, found in (items or {}).items() if found is not None and found[1]]
            left = () if items is None or told.is_all else (name for name in before if name not in items)
            if inactive or before:
                self._inactive = frozenset((*left, *inactive))
        self.has_words = self.has_words or kind == QUEUES or self._inactive != before

    # Questions

    def inactive(self) -> frozenset[Name]:
        """The names of all units of which a user says `active: false`. Cost O(1) between changes."""
        return self._inactive

    def queue_items(self) -> list[QueueItem]:
        """The Queue objects of quotas: their policy and priority are their users'. Cost O(queues)."""
        items = []
        for (namespace, name), packed in self._found.get(QUEUES, {}).items():
            item = _QUEUE.decode(packed)
            annotations = item.metadata.get("annotations") or {}
            if path := annotations.get(PATH, ""):
                items.append(QueueItem(path, item.metadata["uid"], namespace, name, item.spec or {}, annotations))
        return items

    # Writing

    def want(self, record: Record, *, is_last: bool = False) -> None:
        """An object should say this. Cost O(1) if it was wanted before. Nothing else will be wanted if it `is_last`."""
        key = _key(record)
        if is_last:
            self._last[key] = None
        else:
            self._last.pop(key, None)
        if self._wanted.get(key) != record:
            self._wanted[key] = record
            self._due.setdefault(key, 0.0)

    def forget(self, record: Record) -> None:
        """An object is not followed any more; it stays as it is."""
        for each in (self._wanted, self._due, self._last):
            each.pop(_key(record), None)

    def forget_all(self) -> None:
        """Another replica writes from now on."""
        for each in (self._wanted, self._due, self._last):
            each.clear()

    def sweep(self, term: object, paths_of: Callable[[], Collection[str] | None]) -> None:
        """Have the Queue objects of other queues than `paths_of()` deleted; if that is None all, and all QueueUnits.

        Only objects that hived has made go, and none with words of its users. Once in each term, and when all objects
        were listed. Cost O(objects).
        """
        if self._swept == term:
            return
        self._swept, paths = term, paths_of()
        for kind, items in self._found.items():
            for name, packed in items.items() if paths is None or kind == QUEUES else ():
                item = msgspec.json.decode(packed)
                annotations = item["metadata"]["annotations"] or {}
                is_stale = paths is None or annotations.get(PATH) not in paths
                is_elsewhere = kind == QUEUES and name[0] != QUEUE_NAMESPACE  # made by a tenant
                if is_stale and is_only_ours(item) and not is_elsewhere:
                    self._wanted[kind, name] = None
                    self._due.setdefault((kind, name), 0.0)

    def take_due(self, limit: int) -> list[Due]:
        """Take so many objects that are to be written, oldest first."""
        now = self._clock()
        due = (key for key, at_s in self._due.items() if at_s <= now and key[0] in self._found and key in self._wanted)
        found = [Due(key, self._wanted[key], self._found[key[0]].get(key[1])) for key in islice(due, limit)]
        for each in found:
            del self._due[each.key]
        return found

    def carry_out(self, due: Iterable[Due], may_write: Callable[[], bool]) -> list[tuple[Due, KubeError | None]]:
        """Write these objects off the lock, for as long as this replica leads. Raises nothing."""
        results: list[tuple[Due, KubeError | None]] = []
        for each in due:
            if not may_write():
                break
            try:
                self._write(each)
                results.append((each, None))
            except KubeError as error:
                results.append((each, error))
            except Exception:
                log.exception("an object of a queue cannot be written")
        return results

    def wrote(self, results: Iterable[tuple[Due, KubeError | None]]) -> None:
        """Take in what became of objects that were written."""
        for due, error in results:
            if error is not None:
                self._again(due.key, error)
            elif due.record is None and self._wanted.get(due.key) is None:
                self._wanted.pop(due.key, None)
            elif due.record is not None and due.key in self._last and self._wanted.get(due.key) is due.record:
                self.forget(due.record)

    def _write(self, due: Due) -> None:
        """Write what differs. Raises KubeError."""
        kind, (namespace, name) = due.key
        record = due.record
        collection = f"/apis/{kind.group}/{kind.versions[0]}/namespaces/{quote(namespace, safe='')}/{kind.plural}"
        path = f"{collection}/{quote(name, safe='')}"
        found = None if due.packed is None else msgspec.json.decode(due.packed)
        if record is None:
            if found is not None and is_only_ours(found):
                self._kube.delete(path, uid=found["metadata"]["uid"])
            return
        if found is None:
            made = queue_object(record) if isinstance(record, QueueRecord) else unit_object(record)
            found = self._kube.create(collection, made)
        elif isinstance(record, UnitRecord) and (spec := missing(unit_spec(record), found.get("spec") or {})):
            self._kube.patch(path, {"spec": spec})
        old = found.get("status") or {}
        if isinstance(record, QueueRecord):
            status = queue_status(record)
        else:
            status = unit_status(record, old, timestamp(), is_active=not _is_inactive(found))
        if changed := missing(status, old):
            body = {"metadata": {"uid": found["metadata"]["uid"]}, "status": changed}
            self._kube.patch(f"{path}/status", body)

    def _again(self, key: tuple[ObjectKind, Name], error: KubeError) -> None:
        if error.is_not_found or error.reason == "AlreadyExists":
            wait_s = 1.0  # the watch is about to tell
        else:
            wait_s = RETRY_S
            fields = {"kind": key[0].plural, "object": "/".join(key[1]), "reason": str(error)}
            log.warning("an object of a queue is not written", extra={"fields": fields})
        if key in self._wanted:
            self._due[key] = self._clock() + wait_s


def _found(kind: ObjectKind, item: Object) -> tuple[bytes, bool]:
    return _kept(item), kind == UNITS and _is_inactive(item)


def _key(record: Record) -> tuple[ObjectKind, Name]:
    if isinstance(record, QueueRecord):
        return QUEUES, (QUEUE_NAMESPACE, queue_name(record.path))
    return UNITS, unit_key(record.job)


def _name(item: Mapping[str, Any]) -> Name:
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _is_inactive(item: Object) -> bool:
    return (item.get("spec") or {}).get("active") is False


class _Queue(msgspec.Struct):
    """The parts of a Queue that are looked at again and again."""

    metadata: Object
    spec: Object | None = None


_QUEUE = msgspec.json.Decoder(_Queue)


def _kept(item: Object) -> bytes:
    """The parts of an object that are looked at; as JSON, which takes a quarter of the memory."""
    metadata = item["metadata"]
    kept = {key: metadata.get(key) for key in ("annotations", "labels")} | {"uid": metadata.get("uid", "")}
    return msgspec.json.encode({"metadata": kept, "spec": item.get("spec"), "status": item.get("status")})


_PHASES = {
    Life.WAITING: Phase.ENQUEUED,
    Life.STARTING: Phase.RESERVED,
    Life.RUNNING: Phase.RUNNING,
    Life.LEAVING: Phase.ENQUEUED,
    Life.OVER: Phase.SUCCEEDED,
}


class Records:
    """Makes objects of jobs and queues, of those that have changed."""

    def __init__(self, publisher: Publisher, quotas: Iterable[str] = ()) -> None:
        """All `quotas` of a tree have objects, other queues once they have jobs."""
        self._publisher, self._quotas = publisher, tuple(quotas)
        self._told: dict[str, UnitRecord] = {}
        self._paths: dict[str, None] = {}  # queues that have objects
        self.heads: dict[str, str] = {}  # the first job of each queue

    def update(self, queues: QueuedJobs, limit: int) -> bool:
        """Have the objects of so many jobs that have changed say what is so now, and of their queues; True if others
        are left.
        """
        changed, moved = queues.take_changed(limit), dict.fromkeys((*self._quotas, *queues.take_moved()))
        for key in changed:
            if key not in queues.entries and (told := self._told.pop(key, None)) is not None:
                self._publisher.forget(told)
        for entry in queues.take_over():
            record = _unit_record(entry)
            if record is not None:
                phase = Phase.SUCCEEDED if entry.job.state is JobState.SUCCEEDED else Phase.FAILED
                self._publisher.want(replace(record, phase=phase, message="", running=0, pending=0), is_last=True)
                self._told.pop(entry.key, None)
        for entry in [queues.entries[key] for key in changed if key in queues.entries]:
            key, record = entry.key, _unit_record(entry)
            if record is not None and self._told.get(key) != record:
                self._told[key] = record
                self._publisher.want(record)
                if record.queue not in self._paths:  # all its jobs may run
                    moved[record.queue] = None
        for path in moved:
            self._paths[path] = None
            order = queues.first(path, SHOWN_ITEMS)
            self.heads.pop(path, None)
            if order:
                self.heads[path] = order[0]
            self._publisher.want(QueueRecord(path, [self._item(queues, key) for key in order]))
        self._quotas = ()  # they have objects now
        return bool(changed)

    def _item(self, queues: QueuedJobs, key: str) -> tuple[str, str, int]:
        job, unit = queues.entries[key].job.ref, queues.entries[key].asks
        return job.namespace, unit_name(job), 0 if unit is None else unit.priority


def _unit_record(entry: JobRecord) -> UnitRecord | None:
    unit = entry.asks
    if unit is None:
        return None
    progress = entry.progress
    phase = _PHASES[entry.life]
    if entry.life is Life.STARTING and entry.written is None and entry.wanted is None:
        phase = Phase.DEQUEUED
    return UnitRecord(
        entry.job.ref,
        unit.queue,
        unit.priority,
        {name: f"{amount:g}" for name, amount in unit.request.items()},
        phase,
        message=entry.refusal or _message(entry, unit.queue),
        is_held=entry.may_not_start,
        attempts=entry.kept.attempts,
        running=progress.bound_count if progress is not None else 0,
        pending=progress.slot_count - progress.bound_count if progress is not None else 0,
        evicted_for=told(entry.kept.evicted_for, entry.job.ref.namespace),
        priority_class=entry.job.priority_class,
        owner=entry.job.owner,
    )


def _message(entry: JobRecord, queue: str) -> str:
    """Return why a job has no pods yet, in words that do not change with its place: each change is a call."""
    match entry.life:
        case Life.WAITING if entry.may_not_start:
            kept, wait = entry.kept, entry.start_wait
            held = [held_by("", is_held=kept.is_held, is_suspended=kept.is_suspended)] if kept.is_on_hold else []
            return "; ".join([*held, *([] if wait is None else [wait.sentence])])
        case Life.WAITING:
            notice = entry.kept.late.notice or entry.kept.returned.notice
            shows = f"hived get queue {queue} shows its place, and what it waits for"
            return f"waits in queue {queue}: {shows}{notice and f'; {notice}'}"
        case Life.STARTING:
            return "cells for all of its pods are held"
        case Life.LEAVING:
            return "is suspended, and is requeued once its pods are gone"
    return ""
