"""The shell of Kueue's admission check: follows Kueue's objects, asks the service for cells, and writes states.

Where the API server has no objects of Kueue, it is asked again every few seconds, and nothing else happens. Every
replica follows; only the one that leads asks and writes.

Writing into the status of Kueue's objects: our check in Workloads, and that we are at work in AdmissionChecks.

Every write names the version that was read. So it fails where Kueue has evicted the Workload meanwhile, and set its
checks back: a state written after that would keep it out of Kueue's queue for ever.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from hived.values.errors import HivedError, InvariantError, UserError
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import timestamp, wall_s
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import ObjectKind, OptionalKinds
from hived_extender.kueue.asking import Asking
from hived_extender.kueue.checks import Checks, Entry, Write, with_states
from hived_extender.kueue.gangs import Gang, NoCells, gang_elsewhere, gang_of
from hived_extender.kueue.workloads import (
    ACTIVE,
    CHECKS,
    FLAVORS,
    KINDS,
    MANAGER,
    QUEUES,
    WORKLOADS,
    Check,
    ClusterQueue,
    Object,
    Workload,
    assignment_on,
    check_of,
    cluster_queue_of,
    flavor_labels,
    warning,
    workload_of,
)
from hived_extender.machine.claims import Lender, NoLender
from hived_extender.machine.service import Service

log = logging.getLogger(__name__)


class StatusApi(Protocol):
    """The call to the API server; `kube.KubeClient` has it."""

    def patch_as(self, path: str, body: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Merge `body` into an object as a field manager, and return it. Raises KubeError."""


def write_state(kube: StatusApi, collection: str, write: Write, now_s: float) -> Object:
    """Write a state into the checks of a Workload, and return it as it is then.

    `collection` is the path of all Workloads. Raises KubeError: a conflict if the Workload is another version by now.
    """
    workload = write.workload
    status: Object = {"admissionChecks": with_states(workload.written, write, timestamp(now_s))}
    if write.said.nodes:
        status["admission"] = {"podSetAssignments": _on_nodes(workload, write.said.nodes)}
    body = {"metadata": {"resourceVersion": workload.version, "uid": workload.job.uid}, "status": status}
    base, plural = collection.rsplit("/", 1)
    namespace, name = quote(workload.job.namespace, safe=""), quote(workload.job.name, safe="")
    return kube.patch_as(f"{base}/namespaces/{namespace}/{plural}/{name}/status", body, MANAGER)


AT_WORK = "hived holds cells for Workloads with this check"
"""The message of the condition, unless there is something to warn of."""


def _on_nodes(workload: Workload, nodes: Mapping[str, Mapping[str, int]]) -> list[Object]:
    """The assignments of a Workload's pod sets, with our nodes instead of those that Kueue has chosen."""
    assigned = [dict(each) for each in workload.admission.get("podSetAssignments") or ()]
    for each in assigned:
        if (own := nodes.get(each.get("name", "main"))) is not None and "topologyAssignment" in each:
            each["topologyAssignment"] = assignment_on(own)
    return assigned


def write_active(kube: StatusApi, collection: str, check: Check, message: str, now_s: float) -> None:
    """Say in an AdmissionCheck that its controller is at work, in these words. Raises KubeError."""
    condition = {
        "type": ACTIVE,
        "status": "True",
        "reason": "Active",
        "message": message,
        "observedGeneration": check.generation,
        "lastTransitionTime": timestamp(now_s),
    }
    others = [dict(each) for each in check.conditions if each.get("type") != ACTIVE]
    body = {"metadata": {"resourceVersion": check.version}, "status": {"conditions": [*others, condition]}}
    kube.patch_as(f"{collection}/{quote(check.name, safe='')}/status", body, MANAGER)


def is_passing(error: KubeError) -> bool:
    """Will the watch tell of something else soon: another version, or the object's end?"""
    return error.is_conflict or error.is_not_found


TURN_S = 1.0
"""Between two turns while Workloads wait for cells or have them; a fact that is news begins one sooner."""

LEAST_S = 0.05
"""Between any two turns."""


class KueueDesk:
    """See the module; from `start` to `stop`. `turn` may be called by tests in place of the thread."""

    def __init__(
        self,
        service: Service,
        kube: KubeClient,
        metrics: Metrics,
        lender: Lender | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = wall_s,
    ) -> None:
        """`lender` calls back jobs on cells that are due to Workloads; without one there are none."""
        self._service, self._kube = service, kube
        self._clock, self._now = clock, now
        self._lock = threading.Lock()  # for all that follows; never held while anybody is called
        self._flavors: dict[str, dict[str, str]] = {}
        self._queues: dict[str, ClusterQueue] = {}
        self._known_checks: dict[str, Check] = {}
        self._checks = Checks(self._read, self._read_elsewhere)
        self._term: object = None
        self._rules: object = None
        self._asking = Asking(service, self._checks, self._lock, lender or NoLender(), clock)
        self._news = threading.Event()
        self._is_stopping = threading.Event()
        self._kinds = OptionalKinds(kube, metrics, KINDS, self, "Kueue's objects")
        self._thread = threading.Thread(target=self._run, name="Kueue", daemon=True)

    def start(self) -> None:
        """Begin to follow and, while this replica leads, to answer."""
        self._kinds.start()
        self._thread.start()

    def stop(self) -> None:
        """Answer nothing any more. Does not wait for a call under way."""
        self._is_stopping.set()
        self._news.set()
        self._kinds.stop()

    def join(self, timeout_s: float) -> None:
        """Wait for the end after `stop`, up to so long for each thread."""
        self._kinds.join(timeout_s)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def entries(self) -> list[Entry]:
        """The Workloads with quota and a check of ours, as they are known."""
        with self._lock:
            return list(self._checks.entries.values())

    # Told by the watches

    def listed(self, kind: ObjectKind, items: list[Object]) -> None:
        """See `kube.watch.Told`."""
        with self._lock:
            if kind is WORKLOADS:
                there = {one.key: one for item in items if (one := _read(workload_of, item)) is not None}
                for key in self._checks.missing(there):
                    self._checks.workload_gone(key)
                for workload in there.values():
                    self._checks.workload_seen(workload)
            elif kind is CHECKS:
                self._known_checks = {one.name: one for item in items if (one := _read(check_of, item)) is not None}
                self._checks.checks_are(self._known_checks.values())
            elif kind is QUEUES:
                self._queues = {one.name: one for item in items if (one := _read(cluster_queue_of, item)) is not None}
            else:
                self._flavors = dict(one for item in items if (one := _read(flavor_labels, item)) is not None)
                self._checks.read_anew()
        self._news.set()

    def seen(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`."""
        with self._lock:
            if kind is WORKLOADS and (workload := _read(workload_of, item)) is not None:
                self._checks.workload_seen(workload)
            elif kind is CHECKS and (check := _read(check_of, item)) is not None:
                self._known_checks[check.name] = check
                self._checks.checks_are(self._known_checks.values())
            elif kind is QUEUES and (queue := _read(cluster_queue_of, item)) is not None:
                self._queues[queue.name] = queue
            elif kind is FLAVORS and (flavor := _read(flavor_labels, item)) is not None:
                name, labels = flavor
                if self._flavors.get(name) != labels:
                    self._flavors[name] = labels
                    self._checks.read_anew()
        self._news.set()

    def gone(self, kind: ObjectKind, item: Object) -> None:
        """See `kube.watch.Told`."""
        with self._lock:
            if kind is WORKLOADS and (workload := _read(workload_of, item)) is not None:
                self._checks.workload_gone(workload.key)
            elif kind is CHECKS and (check := _read(check_of, item)) is not None:
                self._known_checks.pop(check.name, None)
                self._checks.checks_are(self._known_checks.values())
            elif kind is QUEUES and (queue := _read(cluster_queue_of, item)) is not None:
                self._queues.pop(queue.name, None)
        self._news.set()

    def unserved(self, kind: ObjectKind) -> None:
        """See `kube.watch.Told`."""
        self.listed(kind, [])

    # Turns

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            is_busy = False
            try:
                is_busy = self.turn()
            except InvariantError:
                return  # the service has stopped
            except Exception:
                log.critical("a turn of Kueue's admission check has failed, and is tried again", exc_info=True)
                is_busy = True
            self._news.wait(TURN_S if is_busy else None)
            self._news.clear()
            self._is_stopping.wait(LEAST_S)

    def turn(self) -> bool:
        """Ask for cells and write what is due. Returns whether to come again soon without news.

        Cost: a question to the core for each kind of gang that waits, a write for each state that changes.
        """
        if not self._service.is_ready:
            self._term = None
            with self._lock:
                return bool(self._known_checks)
        with self._lock:
            self._begin_term()
            wanted = {one.name: self._words(one) for one in self._known_checks.values() if one.is_ours}
            untold = [self._known_checks[name] for name, words in wanted.items() if not self._says(name, words)]
        for check in untold:
            self._tell_active(check, wanted[check.name])
        try:
            self._asking.ask()
        except UserError as error:  # it leads no more, or others were served for too long
            log.info("cells for Kueue's workloads are asked for later", extra={"fields": {"cause": error.message}})
        self._write()
        with self._lock:
            return bool(self._checks.entries or untold)

    def _begin_term(self) -> None:
        term, rules = self._service.machine.term, self._service.machine.interpreter.rules
        if term != self._term:
            self._term, self._rules = term, rules
            self._checks.forget_holds()
        elif rules is not self._rules:
            self._rules = rules
            self._checks.read_anew()

    # Writes

    def _write(self) -> None:
        collection = self._kinds.path(lambda kind: kind is WORKLOADS)
        with self._lock:
            writes = self._checks.take_writes(self._clock())
        for write in writes:
            error: HivedError | None = None
            found: Workload | None = None
            try:
                if collection and self._service.is_ready and not self._is_stopping.is_set():
                    found = _read(workload_of, write_state(self._kube, collection, write, self._now()))
            except KubeError as refusal:
                error = refusal
                level = logging.INFO if is_passing(refusal) else logging.WARNING
                fields = {"workload": str(write.workload.job), "state": write.said.state, "cause": str(refusal)}
                log.log(level, "the state of a Workload was not written", extra={"fields": fields})
            with self._lock:
                self._checks.wrote(write, self._clock(), refused=error is not None)
                if found is not None:
                    self._checks.workload_written(found)

    def _words(self, check: Check) -> str:
        """The message of its condition: a warning if there is one, else that hived is at work."""
        interpreter: Interpreter = self._service.machine.interpreter
        return warning(check.name, self._queues.values(), interpreter.devices) or AT_WORK

    def _says(self, name: str, words: str) -> bool:
        check = self._known_checks[name]
        return check.is_active and check.message == words

    def _tell_active(self, check: Check, words: str) -> None:
        collection = self._kinds.path(lambda kind: kind is CHECKS)
        try:
            if collection:
                write_active(self._kube, collection, check, words, self._now())
        except KubeError as error:
            fields = {"check": check.name, "cause": str(error)}
            log.warning("an AdmissionCheck was not told that hived is at work", extra={"fields": fields})

    def _read(self, workload: Workload) -> Gang | NoCells:
        interpreter: Interpreter = self._service.machine.interpreter
        return gang_of(workload, interpreter, lambda name: self._flavors.get(name, {}))

    def _read_elsewhere(self, workload: Workload) -> Gang | None:
        interpreter: Interpreter = self._service.machine.interpreter
        return gang_elsewhere(workload, interpreter, lambda name: self._flavors.get(name, {}))


def _read(reader: Callable[[Object], Any], item: Object) -> Any:
    """An object as read, None if it cannot be: then the log has it, and others go on."""
    try:
        return reader(item)
    except (UserError, msgspec.MsgspecError) as error:
        log.warning("an object of Kueue's was not understood", extra={"fields": {"cause": str(error)}})
        return None
