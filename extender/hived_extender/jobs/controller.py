"""Carries out what `policies.py` decides, for all jobs of a cluster or for one: in the place of their controllers.

Two of them do each other no harm: whoever acts first writes what it is about to do into the job's record, and the
other's write fails as a conflict. Nothing is remembered but what the API server has, so that one that is started again
goes on where it, or another one, was stopped.
"""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import quote

import msgspec

from hived.errors import UserError
from hived_extender.jobs.creation import create_again
from hived_extender.jobs.policies import END_OF, Action, Phase, Reaction, SeenPod, decide, outcome
from hived_extender.jobs.records import KIND, Record, State, parse_record
from hived_extender.jobs.roles import JOB
from hived_extender.jobs.submission import Manifest, PlannedJob
from hived_extender.kube import KubeClient, KubeError, pod_path
from hived_extender.metrics import Metrics
from hived_extender.watch import Reflector, Resource
from hived_extender.wire import is_older

log = logging.getLogger(__name__)

RETRY_S = 1.0
"""After a failure of the API server."""

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


class _Owner(msgspec.Struct):
    uid: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    owner_references: list[_Owner] | None = None


class _Pod(msgspec.Struct):
    metadata: _Metadata
    status: _Status | None = None


class JobController:
    """Follows records and pods, from `start` to `stop`.

    Parameters
    ----------
    only : the jobs to look after; None for all of the cluster
    tell : is told what is done, in one line
    """

    def __init__(
        self, kube: KubeClient, only: Collection[Key] | None = None, tell: Callable[[str], None] = log.info
    ) -> None:
        self._kube = kube
        self._only = only
        self._tell = tell
        # Guards what follows; never held during a call.
        self._changed = threading.Condition()
        self._records: dict[Key, Record] = {}
        self._pods: dict[Key, dict[str, _Pod]] = {}
        self._ended: dict[Key, Record] = {}
        self._due: dict[Key, None] = {}
        self._has_synced = False
        self._is_stopping = False
        self._plans: dict[Key, tuple[str, PlannedJob]] = {}
        namespaces = {namespace for namespace, _ in only or ()}
        where = f"/api/v1/namespaces/{quote(namespaces.pop(), safe='')}" if len(namespaces) == 1 else "/api/v1"
        metrics = Metrics()
        pods = Resource(f"{where}/pods", _Pod, self._sync_pods, self._pod_seen, self._pod_gone)
        records = Resource(f"{where}/configmaps", dict, self._sync_records, self._record_seen, self._record_gone)
        self._reflectors: list[Reflector[Any]] = [Reflector(kube, pods, metrics), Reflector(kube, records, metrics)]
        self._worker = threading.Thread(target=self._run, name="jobs", daemon=True)

    def start(self) -> None:
        """Begin to look after the jobs."""
        for reflector in self._reflectors:
            reflector.start()
        self._worker.start()

    def stop(self) -> None:
        """Do nothing more, and wait for what is under way."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()
        for reflector in self._reflectors:
            reflector.stop()
        if self._worker.ident is not None:
            self._worker.join(_JOIN_S)
        for reflector in self._reflectors:
            reflector.join(_JOIN_S)

    def __enter__(self) -> "JobController":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_ended(self, key: Key, timeout_s: float | None = None) -> Phase | None:
        """Wait until nothing is left to do for a job, and tell how it ended; None if it was deleted, or at a stop."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_stopping or self._is_over(key), timeout_s)
            record = self._records.get(key)
            return record.state.phase if record is not None and record.state.phase.is_final else None

    def _is_over(self, key: Key) -> bool:
        record = self._records.get(key)
        return (record is None and self._has_synced) or (record is not None and record.state.phase.is_final)

    # ---- what the watches tell

    def _sync_pods(self, pods: list[_Pod]) -> None:
        with self._changed:
            self._due.update(dict.fromkeys(self._pods))
            self._pods = {}
            for pod in pods:
                self._take_pod(pod)
            self._due.update(dict.fromkeys(self._pods))
            self._changed.notify_all()

    def _pod_seen(self, pod: _Pod) -> None:
        with self._changed:
            key = self._take_pod(pod)
            if key is not None:
                self._note(key)

    def _take_pod(self, pod: _Pod) -> Key | None:
        name = (pod.metadata.labels or {}).get(JOB)
        if name is None:
            return None
        key = (pod.metadata.namespace, name)
        self._pods.setdefault(key, {})[pod.metadata.name] = pod
        return key

    def _pod_gone(self, pod: _Pod) -> None:
        with self._changed:
            key = (pod.metadata.namespace, (pod.metadata.labels or {}).get(JOB, ""))
            if self._pods.get(key, {}).pop(pod.metadata.name, None) is not None:
                self._note(key)

    def _sync_records(self, config_maps: list[Manifest]) -> None:
        with self._changed:
            found = {(one.namespace, one.name): one for one in map(_record_in, config_maps) if one is not None}
            for key, record in self._records.items():
                if key not in found:
                    self._ended[key] = record
            self._due.update(dict.fromkeys([*self._records, *found]))
            self._records = found
            self._has_synced = True
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

    # ---- what is done

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopping or self._due)
                if self._is_stopping:
                    return
                keys = list(self._due)
                self._due.clear()
            failed = [key for key in keys if not self._look_after(key)]
            if failed:
                with self._changed:
                    self._changed.wait_for(lambda: self._is_stopping, RETRY_S)
                    self._due.update(dict.fromkeys(failed))

    def _look_after(self, key: Key) -> bool:
        """Do what a job needs; False to try again."""
        with self._changed:
            record, ended, pods = self._records.get(key), self._ended.pop(key, None), dict(self._pods.get(key, {}))
        try:
            if ended is not None:
                self._remove_what_is_left(ended, pods)
            if record is not None and (self._only is None or key in self._only):
                self._step(record, pods)
        except UserError as error:
            log.error("job %s/%s cannot be looked after: %s", *key, error)
        except KubeError as error:
            if error.is_conflict:
                return True  # somebody else was faster: what they wrote comes by the watch
            log.warning("job %s/%s: %s; trying again", *key, error)
            if ended is not None:
                with self._changed:
                    self._ended.setdefault(key, ended)
            return False
        return True

    def _step(self, record: Record, pods: Mapping[str, _Pod]) -> None:
        seen = {name: _seen(pod) for name, pod in pods.items() if _belongs(pod, record)}
        state = record.state
        if state.phase is Phase.RESTARTING:
            self._go_on_restarting(record, seen)
        elif state.phase is Phase.RUNNING:
            tasks = self._tasks_due(record, seen)
            self._forget_stale_absences(record, tasks, seen)
            reaction = decide(self._plan(record).rules, tasks, seen)
            if reaction is not None:
                self._react(record, reaction, seen)
            elif (end := outcome(self._tasks(record), seen)) is not None:
                self._end(record, end, "", seen, removes=False)
        elif state.phase.is_final:
            self._delete(record, [pod for pod in seen.values() if not pod.is_finished])

    def _react(self, record: Record, reaction: Reaction, seen: Mapping[str, SeenPod]) -> None:
        if not reaction.counts:
            return self._create(record, reaction.names)
        if reaction.action in END_OF:
            return self._end(record, END_OF[reaction.action], reaction.reason, seen, reaction.action)
        limit = self._plan(record).rules.max_retries
        if limit is not None and record.state.retries >= limit:
            reason = f"{reaction.reason}, and its pods have been started again {limit} times already"
            return self._end(record, Phase.FAILED, reason, seen)
        going = {name: seen[name].uid if name in seen else "" for name in reaction.names}
        state = State(Phase.RESTARTING, reaction.reason, record.state.retries + 1, going)
        record = self._write(record, state)
        self._tell(f"job {record.name}: {reaction.reason}: {reaction.action.value} ({state.retries})")
        self._go_on_restarting(record, seen)

    def _go_on_restarting(self, record: Record, seen: Mapping[str, SeenPod]) -> None:
        going = record.state.going
        old = [pod for pod in seen.values() if going.get(pod.name) == pod.uid]
        if old:
            return self._delete(record, old)
        due = self._tasks_due(record, {name: pod for name, pod in seen.items() if name not in going})
        self._create(record, [name for name in going if name in due])
        self._write(record, State(Phase.RUNNING, record.state.reason, record.state.retries))

    def _end(
        self,
        record: Record,
        phase: Phase,
        reason: str,
        seen: Mapping[str, SeenPod],
        action: Action | None = None,
        removes: bool = True,
    ) -> None:
        record = self._write(record, State(phase, reason, record.state.retries))
        self._tell(f"job {record.name}: {reason + ': ' if reason else ''}{phase.value}")
        if removes:
            is_all = action is Action.CLEAN_UP
            self._delete(record, [pod for pod in seen.values() if is_all or not pod.is_finished])

    def _delete(self, record: Record, pods: list[SeenPod]) -> None:
        for pod in pods:
            if pod.is_leaving:
                continue
            try:
                self._kube.delete_pod(record.namespace, pod.name, uid=pod.uid)
            except KubeError as error:
                if not error.is_not_found and not error.is_conflict:
                    raise

    def _create(self, record: Record, names: Iterable[str]) -> None:
        by_name = {pod.name: pod for pod in self._plan(record).pods}
        create_again(self._kube, record, [by_name[name] for name in names if name in by_name])

    def _remove_what_is_left(self, record: Record, pods: Mapping[str, _Pod]) -> None:
        """The pods of a record that was deleted: a real API server collects them itself, which does no harm."""
        self._plans.pop((record.namespace, record.name), None)
        left = [_seen(pod) for pod in pods.values() if _belongs(pod, record)]
        self._delete(record, left)
        if left:
            self._tell(f"job {record.name} was deleted: {len(left)} pods are deleted with it")

    def _write(self, record: Record, state: State) -> Record:
        written = record.write(self._kube, state)
        with self._changed:
            self._take_record(written)
        return written

    def _plan(self, record: Record) -> PlannedJob:
        key = (record.namespace, record.name)
        known = self._plans.get(key)
        if known is None or known[0] != record.uid:
            known = self._plans[key] = (record.uid, record.plan())
        return known[1]

    def _tasks(self, record: Record) -> dict[str, str]:
        return {pod.name: pod.role for pod in self._plan(record).pods}

    def _tasks_due(self, record: Record, seen: Mapping[str, SeenPod]) -> dict[str, str]:
        """The pods that shall be there now, with their tasks: all, or the first so that `width` are unfinished."""
        plan, due, unfinished = self._plan(record), dict[str, str](), 0
        for pod in plan.pods:
            if plan.width is not None and unfinished >= plan.width:
                break
            due[pod.name] = pod.role
            unfinished += pod.name not in seen or not seen[pod.name].is_finished
        return due

    def _forget_stale_absences(self, record: Record, tasks: Mapping[str, str], seen: dict[str, SeenPod]) -> None:
        """Ask for pods that the watch does not know: it may be behind, and an absence may restart a whole job."""
        if not self._plan(record).rules.policies:
            return
        for name in tasks:
            if name not in seen:
                try:
                    pod = self._kube.get(pod_path(record.namespace, name), _Pod)
                except KubeError as error:
                    if not error.is_not_found:
                        raise
                    continue
                if _belongs(pod, record):
                    seen[name] = _seen(pod)


def _record_in(config_map: Manifest) -> Record | None:
    """The record that a ConfigMap is; None if it is none, or unusable, which the log says."""
    if KIND not in (config_map["metadata"].get("labels") or {}):
        return None
    try:
        return parse_record(config_map)
    except UserError as error:
        log.error("%s", error)
        return None


def _belongs(pod: _Pod, record: Record) -> bool:
    return any(owner.uid == record.uid for owner in pod.metadata.owner_references or ())


def _seen(pod: _Pod) -> SeenPod:
    status = pod.status or _Status()
    codes = [
        one.state.terminated.exit_code
        for one in status.container_statuses or ()
        if one.state is not None and one.state.terminated is not None
    ]
    metadata = pod.metadata
    return SeenPod(
        metadata.name,
        metadata.uid,
        status.phase or "Pending",
        max(codes, default=0),
        metadata.deletion_timestamp is not None,
    )
