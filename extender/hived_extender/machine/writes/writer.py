"""Carries out the machine's effects: one call of `write` for each, from any thread; with events and conditions."""

import logging
import math
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from hived.values.errors import HivedError, InvariantError, UserError
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.kinds.kind import Verb
from hived_extender.jobs.wire import Pod
from hived_extender.kube.client import KubeClient, KubeError, pod_path
from hived_extender.kube.clocks import timestamp
from hived_extender.kube.events import EventRecorder
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.effects import (
    AnnotatePod,
    Announce,
    BindPod,
    CallJob,
    Errand,
    EvictPod,
    KeepChanged,
    ReadPod,
    TouchPod,
    Write,
    WriteStatuses,
)
from hived_extender.machine.notices import CONDITION_TYPE, Announced, Condition, Notice
from hived_extender.machine.stimuli import Wrote
from hived_extender.machine.writes import binding
from hived_extender.machine.writes.binding_secret import BindingSecret
from hived_extender.machine.writes.statuses import StatusWriter

COMPONENT = "hived"
COMPLAINT_INTERVAL_S = 60.0

log = logging.getLogger(__name__)


class Teller:
    """Writes events and conditions. Thread-safe for different pods. Repeated events are counted up."""

    def __init__(self, kube: KubeClient, metrics: Metrics) -> None:
        self._kube = kube
        self._metrics = metrics
        self._recorder = EventRecorder(kube, COMPONENT, socket.gethostname()[:128])
        self._lock = threading.Lock()  # guards the complaints
        self._next_complaint = -math.inf
        self._unsaid_complaints = 0

    def forget_counts(self) -> None:
        """Drop event counts: another replica may count the same events up."""
        self._recorder.forget_counts()

    def tell(self, effect: Announce) -> Announced:
        """Write the notices, then the condition, until the API server is away. Raises nothing."""
        for count, notice in enumerate(effect.notices):
            if not self._write_event(effect, notice):
                return Announced(count, is_away=True)
        if effect.condition is None:
            return Announced(len(effect.notices))
        return self._write_condition(effect, effect.condition)

    def _write_event(self, effect: Announce, notice: Notice) -> bool:
        """Write an event; False if it should be retried."""
        pod, reason = effect.pod, notice.reason
        try:
            is_new = self._recorder.record(
                pod,
                reason.event_type,
                reason.value,
                notice.message,
                times=notice.times,
                since_s=notice.since_s,
                about=effect.about,
            )
        except KubeError as error:
            self._metrics.events.labels("failed").inc()
            self._complain(f"the event {reason.value} about {pod.key} is not written", str(error))
            return not _is_passing(error)
        self._metrics.events.labels("created" if is_new else "counted").inc()
        return True

    def _write_condition(self, effect: Announce, wanted: Condition) -> Announced:
        name, stored, count = effect.pod, effect.stored, len(effect.notices)
        path = pod_path(name.namespace, name.name)
        try:
            if not effect.is_stored_known:
                pod: Pod = self._kube.get(path, Pod)
                if pod.metadata.uid != name.uid:
                    raise KubeError(404, "NotFound", f"pod {name.uid} is gone, another one has its name")
                stored = Condition.read(pod.condition(CONDITION_TYPE))
            if wanted != stored:
                # The uid protects a later pod of the same name.
                item = _written(wanted, stored)
                body = {"metadata": {"uid": name.uid}, "status": {"conditions": [item]}}
                self._kube.patch_lists(f"{path}/status", body)
                self._metrics.conditions.labels("written").inc()
        except KubeError as error:
            if error.is_not_found:
                return Announced(count, is_gone=True)
            self._metrics.conditions.labels("failed").inc()
            self._complain(f"the condition of {name.key} is not written", str(error))
            if _is_passing(error):
                return Announced(count, has_looked=True, is_stored_known=False, is_away=True)
            # Else it would be refused again.
        return Announced(count, has_looked=True, stored=wanted)

    def _complain(self, message: str, reason: str) -> None:
        """Log a lost or late write, rate-limited."""
        with self._lock:
            now = time.monotonic()
            if now < self._next_complaint:
                self._unsaid_complaints += 1
                return
            unsaid, self._unsaid_complaints = self._unsaid_complaints, 0
            self._next_complaint = now + COMPLAINT_INTERVAL_S
        log.warning(message, extra={"fields": {"reason": reason, "others": unsaid}})


def _is_passing(error: KubeError) -> bool:
    """True if the same call may succeed later."""
    return error.reason == "NoAnswer" or error.status in (408, 429) or error.status >= 500


def _written(wanted: Condition, stored: Condition | None) -> dict[str, str]:
    """The item for a pod's conditions; the merged one keeps its time if its status stays."""
    item = {
        "type": CONDITION_TYPE,
        "status": "True" if wanted.is_true else "False",
        "reason": wanted.reason,
        "message": wanted.message,
    }
    if stored is None or stored.is_true != wanted.is_true:
        item["lastTransitionTime"] = timestamp()
    return item


class Writer:
    """Carries out effects. Without a `secret` or `statuses`, nothing is written there."""

    def __init__(
        self,
        kube: KubeClient,
        metrics: Metrics,
        prover: Prover,
        secret: BindingSecret | None,
        statuses: StatusWriter | None,
    ) -> None:
        self._kube = kube
        self._metrics = metrics
        self._prover = prover
        self._secret = secret
        self._statuses = statuses
        self._teller = Teller(kube, metrics)

    def forget_counts(self) -> None:
        """Drop event counts: another replica may count events up."""
        self._teller.forget_counts()

    def write(self, effect: Write, may_write: Callable[[], bool]) -> Wrote:
        """Carry out an effect and return its result. `may_write` is true while the deciding term goes on.

        Raises nothing: the machine waits for each result, even after a bug.
        """
        try:
            return self._write(effect, may_write)
        except Exception as error:
            log.exception("a call in the background failed")
            if isinstance(effect, Announce):
                has_looked = effect.condition is not None  # as if it was written: it would fail again and again
                return Wrote(effect, found=Announced(len(effect.notices), has_looked, effect.condition))
            if isinstance(effect, WriteStatuses):
                return Wrote(effect, found=((), tuple(effect.states)))
            version = effect.version if isinstance(effect, BindPod) else None
            return Wrote(effect, InvariantError(f"{type(error).__name__}: {error}"), version)

    def _write(self, effect: Write, may_write: Callable[[], bool]) -> Wrote:
        if isinstance(effect, Announce):
            return Wrote(effect, found=self._teller.tell(effect))
        if isinstance(effect, WriteStatuses):
            return Wrote(effect, found=self._statuses.write(effect, may_write) if self._statuses else ((), ()))
        if isinstance(effect, BindPod):
            return self._bind(effect, may_write)
        try:
            return Wrote(effect, found=self._call(effect, may_write))
        except KubeError as error:
            self._complain(effect, error)
            return Wrote(effect, error)
        except UserError as error:
            return Wrote(effect, error)

    def _call(self, effect: Write, may_write: Callable[[], bool]) -> Any:
        if isinstance(effect, ReadPod):
            return binding.read(self._kube, effect.pod)
        if isinstance(effect, Errand):
            return effect.run(may_write)
        if not may_write():
            raise UserError("this replica does not lead any more", code=503)
        if isinstance(effect, TouchPod):
            binding.touch(self._kube, effect.pod)
        elif isinstance(effect, AnnotatePod):
            binding.annotate(self._kube, self._prover, effect)
        elif isinstance(effect, CallJob):
            self._call_job(effect, may_write)
        elif isinstance(effect, EvictPod):
            call = self._kube.delete_pod if effect.by_force else self._kube.evict_pod
            own = {} if effect.grace_s is None else {"grace_period_s": effect.grace_s}
            call(effect.pod.namespace, effect.pod.name, uid=effect.pod.uid, **own)
        elif isinstance(effect, KeepChanged) and self._secret is not None:
            self._secret.keep(effect.changed)
        return None

    def _call_job(self, effect: CallJob, may_write: Callable[[], bool]) -> None:
        """Make all calls on a job. Raises KubeError, and UserError (503) between two of them if the term has ended."""
        for each in effect.calls:
            if not may_write():
                raise UserError("this replica does not lead any more", code=503)
            try:
                match each.verb:
                    case Verb.PATCH:
                        self._kube.patch(each.path, each.body)
                    case Verb.PATCH_LISTS:
                        self._kube.patch_lists(each.path, each.body)
                    case Verb.CREATE:
                        self._kube.create(each.path, each.body)
                    case Verb.DELETE:
                        self._kube.delete(each.path, uid=each.uid)
            except KubeError as error:
                is_done = each.verb is Verb.CREATE and error.reason == "AlreadyExists"
                if not is_done and not (each.may_be_missing and error.is_not_found):
                    raise

    def _bind(self, effect: BindPod, may_write: Callable[[], bool]) -> Wrote:
        versions = [effect.version]
        error: HivedError | None = None
        try:
            binding.bind(self._kube, effect, may_write, versions.append)
        except (UserError, KubeError) as refusal:
            error = refusal
        outcome = "ok" if error is None else "error"
        self._metrics.binds.labels(effect.origin, outcome).inc()
        fields = {"pod": effect.pod.key, "node": effect.node, "origin": effect.origin, "outcome": outcome}
        level = logging.INFO if error is None else logging.WARNING
        log.log(level, "bind", extra={"fields": fields | {"reason": str(error or "")}})
        return Wrote(effect, error, versions[-1])

    def _complain(self, effect: Write, error: KubeError) -> None:
        """Log an error that the machine does not handle."""
        if isinstance(effect, CallJob):
            log.warning("a job is not written", extra={"fields": {"job": str(effect.job), "reason": str(error)}})
        elif isinstance(effect, TouchPod) and not error.is_not_found:
            log.warning("retry not asked", extra={"fields": {"pod": effect.pod.key, "reason": str(error)}})
        elif isinstance(effect, AnnotatePod) and not (error.is_conflict or error.is_not_found):
            fields = {"pod": effect.pod.key, "reason": str(error)}
            log.warning("bind info not written anew", extra={"fields": fields})
