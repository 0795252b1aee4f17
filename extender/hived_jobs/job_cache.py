"""A cache of jobs: their records and pods, as two watches report them, and the jobs that somebody has to look at."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from hived.errors import UserError
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.versions import is_older
from hived_extender.kube.watch import Reflector, Resource
from hived_extender.pods.wire import PodMetadata
from hived_jobs.policies import TaskPod
from hived_jobs.records import KIND, Record, parse_record
from hived_jobs.roles import JOB
from hived_jobs.submission import Manifest

log = logging.getLogger(__name__)

_JOIN_S = 2.0

Key = tuple[str, str]
"""Namespace and name of a job."""


class _Terminated(msgspec.Struct, rename="camel"):
    exit_code: int = 0


class _ContainerState(msgspec.Struct):
    terminated: _Terminated | None = None


class _ContainerStatus(msgspec.Struct):
    state: _ContainerState | None = None


class _Status(msgspec.Struct, rename="camel"):
    phase: str = ""
    container_statuses: list[_ContainerStatus] | None = None


class JobPod(msgspec.Struct):
    """A pod, as far as its job is concerned."""

    metadata: PodMetadata
    status: _Status | None = None


class JobCache:
    """Follows records and pods, from `start` to `stop`.

    `namespaces` are those to follow: one, or the whole cluster if there are several or none.
    """

    def __init__(self, kube: KubeClient, namespaces: Collection[str]) -> None:
        # Guards what follows; never held during a call.
        self._changed = threading.Condition()
        self._records: dict[Key, Record] = {}
        self._pods: dict[Key, dict[str, JobPod]] = {}
        self._ended: dict[Key, Record] = {}
        self._due: dict[Key, None] = {}
        self._lists_missing = {"pods", "records"}
        self._is_stopping = False
        where = "/api/v1" if len(namespaces) != 1 else f"/api/v1/namespaces/{quote(next(iter(namespaces)), safe='')}"
        metrics = Metrics()
        pods = Resource(f"{where}/pods", JobPod, self._sync_pods, self._pod_seen, self._pod_gone)
        records = Resource(f"{where}/configmaps", dict, self._sync_records, self._record_seen, self._record_gone)
        self._reflectors: list[Reflector[Any]] = [Reflector(kube, pods, metrics), Reflector(kube, records, metrics)]

    def start(self) -> None:
        """Begin to follow."""
        for reflector in self._reflectors:
            reflector.start()

    def stop(self) -> None:
        """Tell nothing more; whoever waits goes on."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        for reflector in self._reflectors:
            reflector.stop()

    def join(self) -> None:
        """Wait for the end after `stop`."""
        for reflector in self._reflectors:
            reflector.join(_JOIN_S)

    def wait(self, is_enough: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Wait until a question about what is known is answered with yes, until a stop, or a time-out."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or is_enough(), timeout_s)

    def take_due(self) -> list[Key] | None:
        """The jobs of which something has changed, waiting until there is one; None at a stop.

        No job is due before all pods and records have been listed: a pod that is not known yet would count as gone.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or bool(self._due and not self._lists_missing))
            keys = list(self._due)
            self._due.clear()
            return None if self._is_stopping else keys

    def put_back(self, keys: Iterable[Key]) -> None:
        """Have these jobs looked at again."""
        with self._changed:
            self._due.update(dict.fromkeys(keys))

    def record(self, key: Key) -> Record | None:
        """The record of a job, None if there is none."""
        with self._changed:
            return self._records.get(key)

    def is_gone(self, key: Key) -> bool:
        """Whether a job has no record, as far as is known by now; one that was created since may come by the watch."""
        with self._changed:
            return not self._lists_missing and key not in self._records

    def pods(self, record: Record) -> dict[str, TaskPod]:
        """The pods of a job, by name."""
        with self._changed:
            pods = dict(self._pods.get((record.namespace, record.name), {}))
        return {name: as_seen(pod) for name, pod in pods.items() if belongs(pod, record)}

    def take_ended(self, key: Key) -> Record | None:
        """The record of a job that was deleted since this was asked for the last time."""
        with self._changed:
            return self._ended.pop(key, None)

    def put_ended(self, record: Record) -> None:
        """Have this answered by `take_ended` once more."""
        with self._changed:
            self._ended.setdefault((record.namespace, record.name), record)

    def take(self, record: Record) -> None:
        """Take in a record that was just written, unless a later one is known."""
        with self._changed:
            self._take_record(record)

    def _sync_pods(self, pods: list[JobPod]) -> None:
        with self._changed:
            self._due.update(dict.fromkeys(self._pods))
            self._pods = {}
            for pod in pods:
                self._take_pod(pod)
            self._due.update(dict.fromkeys(self._pods))
            self._lists_missing.discard("pods")
            self._changed.notify_all()

    def _pod_seen(self, pod: JobPod) -> None:
        with self._changed:
            key = self._take_pod(pod)
            if key is not None:
                self._note(key)

    def _take_pod(self, pod: JobPod) -> Key | None:
        name = (pod.metadata.labels or {}).get(JOB)
        if name is None:
            return None
        key = (pod.metadata.namespace, name)
        self._pods.setdefault(key, {})[pod.metadata.name] = pod
        return key

    def _pod_gone(self, pod: JobPod) -> None:
        with self._changed:
            key = (pod.metadata.namespace, (pod.metadata.labels or {}).get(JOB, ""))
            pods = self._pods.get(key, {})
            if pods.pop(pod.metadata.name, None) is not None:
                self._note(key)
                if not pods:
                    del self._pods[key]

    def _sync_records(self, config_maps: list[Manifest]) -> None:
        with self._changed:
            found = {(one.namespace, one.name): one for one in map(_record_in, config_maps) if one is not None}
            for key, record in self._records.items():
                if key not in found:
                    self._ended[key] = record
            self._due.update(dict.fromkeys([*self._records, *found]))
            self._records = found
            self._lists_missing.discard("records")
            self._changed.notify_all()

    def _record_seen(self, config_map: Manifest) -> None:
        record = _record_in(config_map)
        if record is not None:
            with self._changed:
                self._take_record(record)

    def _take_record(self, record: Record) -> None:
        key = (record.namespace, record.name)
        known = self._records.get(key)
        if known is None or known.uid != record.uid or is_older(known.version, record.version):
            self._records[key] = record
            self._note(key)

    def _record_gone(self, config_map: Manifest) -> None:
        record = _record_in(config_map)
        if record is not None:
            with self._changed:
                key = (record.namespace, record.name)
                self._records.pop(key, None)
                self._ended[key] = record
                self._note(key)

    def _note(self, key: Key) -> None:
        self._due[key] = None
        self._changed.notify_all()


def _record_in(config_map: Manifest) -> Record | None:
    """The record that a ConfigMap is; None if it is none, or unusable, which the log says."""
    if KIND not in (config_map["metadata"].get("labels") or {}):
        return None
    try:
        return parse_record(config_map)
    except UserError as error:
        log.error("%s", error)
        return None


def read_pod(kube: KubeClient, record: Record, name: str) -> TaskPod | None:
    """A pod of a job as the API server has it, None if there is none. Raises KubeError."""
    try:
        pod = kube.get(pod_path(record.namespace, name), JobPod)
    except KubeError as error:
        if not error.is_not_found:
            raise
        return None
    return as_seen(pod) if belongs(pod, record) else None


def belongs(pod: JobPod, record: Record) -> bool:
    """Whether a pod was made for this very job, not for an earlier one of its name, nor by others."""
    return any(owner.uid == record.uid for owner in pod.metadata.owners or ())


def as_seen(pod: JobPod) -> TaskPod:
    """A pod as policies see it."""
    status = pod.status or _Status()
    codes = [
        one.state.terminated.exit_code
        for one in status.container_statuses or ()
        if one.state is not None and one.state.terminated is not None
    ]
    metadata = pod.metadata
    return TaskPod(
        metadata.name,
        metadata.uid,
        status.phase or "Pending",
        max(codes, default=0),
        metadata.deletion_timestamp is not None,
    )
