"""Queue and QueueUnit objects in the words of Kube Queue (`scheduling.x-k8s.io/v1alpha1`), for those who read these.

Pure: the objects as they should be, and the patch that is missing from one that is there.
"""

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from hived_extender.jobs.job import JobRef
from hived_extender.kube.clocks import with_transition
from hived_extender.queues.reasons import held_by

API_VERSION = "scheduling.x-k8s.io/v1alpha1"
QUEUE_NAMESPACE = "kube-queue"

MAX_DEPTH = "koord-queue/max-depth"
"""Annotation of a Queue: so many of its units are looked at, from the front."""

SHOWN_ITEMS = 200
"""Positions that the status of a queue has; `hived get queue` has all of them. An object has a size limit."""

PATH = "hivedscheduler.microsoft.com/quota"
"""The label of a Queue object with the digest of its full name, and the annotation with the name itself."""

_KINDS = {"PyTorchJob": "py", "TFJob": "tf", "MPIJob": "mpi", "RayJob": "ray"}
"""In names of units; of other kinds the kind itself."""

_NAME_LIMIT = 253
_DIGEST_LENGTH, _LONG_DIGEST_LENGTH = 5, 20

Object = dict[str, Any]


class Phase(StrEnum):
    """The phases of a QueueUnit that hived writes."""

    ENQUEUED = "Enqueued"
    RESERVED = "Reserved"
    DEQUEUED = "Dequeued"
    RUNNING = "Running"
    SUCCEEDED = "Succeed"
    FAILED = "Failed"


class UnitRecord(msgspec.Struct, frozen=True):
    """All that a QueueUnit says of one job. `evicted_for` names the job that took its cells, "" if none did.

    It `is_held` by `hived hold`. The object is deleted with its `owner`, None for the job.
    """

    job: JobRef
    queue: str
    priority: int
    request: Mapping[str, str]
    phase: Phase
    message: str = ""
    attempts: int = 0
    running: int = 0
    pending: int = 0
    evicted_for: str = ""
    priority_class: str = ""
    owner: JobRef | None = None
    is_held: bool = False


class QueueRecord(msgspec.Struct, frozen=True):
    """All that a Queue says of one leaf. `items` are (namespace, name of the unit, priority) in the queue's order.

    Only the first `SHOWN_ITEMS` count.
    """

    path: str
    items: Sequence[tuple[str, str, int]] = ()


MADE_BY = {"app.kubernetes.io/managed-by": "hived"}
"""Labels of objects that hived has made."""


def is_only_ours(item: Object) -> bool:
    """Has hived made an object, and has no user changed it?"""
    metadata, spec = item["metadata"], item.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    is_changed = bool(spec) or MAX_DEPTH in annotations if PATH in annotations else spec.get("active") is False
    return MADE_BY.items() <= (metadata.get("labels") or {}).items() and not is_changed


def queue_name(path: str) -> str:
    """The name of the object of a queue: its path with dashes, and a digest, so that no two paths share one."""
    digest = hashlib.sha256(path.encode()).hexdigest()[:_DIGEST_LENGTH]
    plain = "".join(each if each.isascii() and (each.isalnum() or each in "-.") else "-" for each in path.lower())
    return f"{plain.strip('-.')[: _NAME_LIMIT - _DIGEST_LENGTH - 1] or 'queue'}-{digest}"


def unit_name(job: JobRef) -> str:
    """The name of the object of a unit, as Kube Queue has it: a suffix tells jobs of several kinds apart.

    No two jobs share one. A Job has its own name, unless that ends like a suffix, and a long name ends in a digest.
    """
    kind, end = _KINDS.get(job.kind, job.kind.lower()), "-qu"
    if kind == "job":
        group = job.api_version.partition("/")[0]
        kind = group.split(".")[1] if group != "batch" else kind if job.name.endswith(end) else ""
    name = f"{job.name}-{kind}{end}" if kind else job.name
    if len(name) <= _NAME_LIMIT:
        return name
    end = f"-{hashlib.sha256(name.encode()).hexdigest()[:_LONG_DIGEST_LENGTH]}-long{end}"
    return name[: _NAME_LIMIT - len(end)].rstrip("-.") + end


def unit_key(job: JobRef) -> tuple[str, str]:
    """The namespace and name of the object of a unit."""
    return job.namespace, unit_name(job)


def queue_object(record: QueueRecord) -> Object:
    """A Queue to be created; its policy is left to its users."""
    metadata = {
        "name": queue_name(record.path),
        "namespace": QUEUE_NAMESPACE,
        "labels": MADE_BY,
        "annotations": {PATH: record.path},
    }
    return {"apiVersion": API_VERSION, "kind": "Queue", "metadata": metadata, "spec": {}}


def queue_status(record: QueueRecord) -> Object:
    """The status of a Queue."""
    items = [
        {"name": name, "namespace": namespace, "priority": priority, "position": number}
        for number, (namespace, name, priority) in enumerate(record.items[:SHOWN_ITEMS], start=1)
    ]
    return {"queueItemDetails": {"active": items}}


def unit_object(record: UnitRecord) -> Object:
    """A QueueUnit to be created. It goes with its job."""
    job, by = record.job, record.owner or record.job
    owner = {"apiVersion": by.api_version, "kind": by.kind, "name": by.name, "uid": by.uid}
    metadata = {
        "name": unit_name(job),
        "namespace": job.namespace,
        "labels": MADE_BY,
        "ownerReferences": [owner],
    }
    return {"apiVersion": API_VERSION, "kind": "QueueUnit", "metadata": metadata, "spec": unit_spec(record)}


def unit_spec(record: UnitRecord) -> Object:
    """The part of a QueueUnit's spec that hived writes; `active` and others are its users'."""
    job = record.job
    consumer = {
        "apiVersion": job.api_version,
        "kind": job.kind,
        "namespace": job.namespace,
        "name": job.name,
        "uid": job.uid,
    }
    spec: Object = {
        "consumerRef": consumer,
        "queue": queue_name(record.queue),
        "priority": record.priority,
        "request": dict(record.request),
        "resource": dict(record.request),
    }
    return {**spec, "priorityClassName": record.priority_class} if record.priority_class else spec


def unit_status(record: UnitRecord, old: Mapping[str, Any], now: str, *, is_active: bool = True) -> Object:
    """The status of a QueueUnit, on top of the one that is there. `now` is the time as Kubernetes writes it.

    A user says of one that waits whether it `is_active`.
    """
    if not is_active and record.phase is Phase.ENQUEUED:
        record = replace(record, message=held_by("/".join(unit_key(record.job)), is_held=record.is_held))
    status: Object = {
        "phase": record.phase.value,
        "message": record.message,
        "attempts": record.attempts,
        "podState": {"running": record.running, "pending": record.pending},
        "conditions": _conditions(record, old.get("conditions") or (), now),
    }
    is_moved = old.get("phase") != status["phase"]
    status["lastUpdateTime"] = now if is_moved or not old.get("lastUpdateTime") else old["lastUpdateTime"]
    if record.phase is Phase.RESERVED and is_moved:
        status["lastAllocateTime"] = now
    return status


def missing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Object:
    """The top-level parts of `wanted` that `found` does not have like this; empty if it has them all."""
    return {key: value for key, value in wanted.items() if found.get(key) != value}


def _conditions(record: UnitRecord, old: Sequence[Mapping[str, Any]], now: str) -> list[Object]:
    """The conditions that follow from the phase; those of other types stay."""
    phase = record.phase
    has_cells = phase in (Phase.RESERVED, Phase.DEQUEUED, Phase.RUNNING)
    is_resumed = phase in (Phase.DEQUEUED, Phase.RUNNING)
    is_over = phase in (Phase.SUCCEEDED, Phase.FAILED)
    wanted = [
        ("QuotaReserved", has_cells, "CellsHeld" if has_cells else "Pending"),
        ("Admitted", is_resumed, "Admitted" if is_resumed else "Pending"),
        ("PodsReady", phase is Phase.RUNNING, "PodsReady" if phase is Phase.RUNNING else "WaitForPods"),
        ("Finished", is_over, phase.value if is_over else "NotFinished"),
        ("Evicted", bool(record.evicted_for), "Preempted" if record.evicted_for else "NotEvicted"),
    ]
    texts = {
        "Evicted": f"its cells went to {record.evicted_for}" if record.evicted_for else "",
        "QuotaReserved": "" if has_cells else record.message,
        "Admitted": record.message,
    }
    before = {each.get("type"): each for each in old}
    made = [_condition(before.get(kind), kind, is_true, why, texts.get(kind, ""), now) for kind, is_true, why in wanted]
    ours = {kind for kind, _, _ in wanted}
    return [*(dict(each) for each in old if each.get("type") not in ours), *made]


def _condition(
    before: Mapping[str, Any] | None, kind: str, is_true: bool, reason: str, message: str, now: str
) -> Object:
    status = "True" if is_true else "False"
    return with_transition({"type": kind, "status": status, "reason": reason, "message": message}, before, now)
