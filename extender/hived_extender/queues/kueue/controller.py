"""The shell of Kueue's admission check: follows Kueue's objects, asks the service for cells, and writes states.

Workloads are asked for in order, and borrowers leave for them. The first Workload of a virtual cluster that finds no
room has its place reserved: later ones start only if it would still have room once all have ended that had quota before
it. So it starts by then, however many small ones come.

Where the API server has no objects of Kueue, it is asked again every few seconds, and nothing else happens. Every
replica follows; only the one that leads asks and writes. Every write names the version that was read. So it fails where
Kueue has evicted the Workload meanwhile, and set its checks back: a state written after that would keep it out of
Kueue's queue for ever.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from hived.values.decisions import Bind
from hived.values.errors import HivedError, InvariantError, UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY, PodRequest, PodSpec
from hived_extender.jobs.interpreter import Interpreter
from hived_extender.kube.client import KubeClient, KubeError
from hived_extender.kube.clocks import timestamp, wall_s
from hived_extender.kube.metrics import Metrics
from hived_extender.kube.watch import ObjectKind, OptionalKinds
from hived_extender.machine.claims import Lender, Lent, NoLender
from hived_extender.machine.core import Refused
from hived_extender.machine.explaining import Ration
from hived_extender.machine.holds import NeededByClaims
from hived_extender.machine.service import Service
from hived_extender.machine.stimuli import (
    Claimed,
    GroupsEvicted,
    Hold,
    HoldAsked,
    HoldDropped,
    HoldsLookedAt,
    Stimulus,
    Victims,
    VictimsAsked,
)
from hived_extender.queues.kueue.checks import Checks, Entry, Write, with_states
from hived_extender.queues.kueue.gangs import Gang, NoCells, gang_elsewhere, gang_of
from hived_extender.queues.kueue.workloads import (
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

EXPLANATIONS = 5.0
"""Refusals a second that are explained; each takes milliseconds in a large cluster."""

KEPT = "there are cells, and they are kept for a Workload that had quota before it"

_Line = tuple[str, bool]
"""A virtual cluster, and whether its guaranteed or its opportunistic Workloads are meant."""

_Nodes = tuple[tuple[tuple[str, str], ...], ...]
"""The labels of nodes that pods of a gang want, such as those that Kueue has chosen."""


class Asking:
    """Asks for cells, in order. `lock` guards `checks`, and is never held during a call."""

    def __init__(
        self,
        service: Service,
        checks: Checks,
        lock: threading.Lock,
        lender: Lender,
        clock: Callable[[], float],
    ) -> None:
        self._service, self._checks, self._lock = service, checks, lock
        self._lender, self._clock = lender, clock
        self._lent = Lent()
        self._ration = Ration(EXPLANATIONS, 2 * EXPLANATIONS)

    def ask(self) -> None:
        """Give back what is to be given back, and ask for cells; gangs that are alike get one answer if it is no.

        Raises UserError (503) where this replica does not lead.
        """
        with self._lock:
            dropped, holds = self._checks.take_dropped(), self._checks.to_ask()
        for key in dropped:
            self._put(HoldDropped(key))
        if holds:
            self._lent = self._lender.lent()
        firsts: dict[_Line, Claimed] = {}
        refusals: dict[tuple[PodSpec, _Nodes], tuple[str, bool]] = {}
        for hold in holds:
            alike = hold.spec.of_group(""), _nodes_of(hold)
            if alike in refusals:
                why, never = refusals[alike]
                with self._lock:
                    self._checks.refused(hold.key, why, never=never)
            elif (refusal := self._ask_one(hold, firsts)) is not None:
                refusals[alike] = refusal
        with self._lock:
            asking = self._checks.asking()
            is_any_held = any(entry.is_held for entry in self._checks.entries.values())
        self._lender.forget_others(asking)
        if holds or dropped or is_any_held:
            states = self._put(HoldsLookedAt())
            with self._lock:
                self._checks.progressed(states)

    def _ask_one(self, hold: Hold, firsts: dict[_Line, Claimed]) -> tuple[str, bool] | None:
        """Ask for the cells of one gang. Returns why it cannot have them, and whether it never can; None if it has."""
        line = hold.spec.virtual_cluster, hold.spec.priority >= MIN_GUARANTEED_PRIORITY
        first = (firsts[line],) if line in firsts else ()
        try:
            answer = self._put(HoldAsked(hold, (*self._claims_before(hold), *first)))
        except UserError as error:
            if error.code >= 500:
                raise
            return self._refused(hold, error.message, never=True)
        if isinstance(answer, Bind):
            with self._lock:
                self._checks.held(hold.key, [pod.node for member in answer.bind_info.members for pod in member])
            return None
        with self._lock:
            elsewhere = self._checks.look_elsewhere(hold.key)
        if elsewhere is not None:
            return self._ask_one(elsewhere, firsts)
        if isinstance(answer, NeededByClaims):
            return self._refused(hold, KEPT, never=False)
        why, never = self._explained(hold, answer.reason)
        refusal = self._refused(hold, why, never=never)
        if never:
            return refusal
        with self._lock:
            may_evict = self._checks.may_evict(hold.key, self._clock())
            if line not in firsts:
                firsts[line] = Claimed(hold, self._checks.before(hold.key), takes_lent=line[1])
        if may_evict:
            self._make_room(hold)
        return refusal

    def _claims_before(self, hold: Hold) -> tuple[Claimed, ...]:
        """The other claims that jobs leave for already."""
        return tuple(claim for claim in self._lent.claims if claim.hold.key != hold.key)

    def _refused(self, hold: Hold, why: str, *, never: bool) -> tuple[str, bool]:
        with self._lock:
            self._checks.refused(hold.key, why, never=never)
        return why, never

    def _make_room(self, hold: Hold) -> None:
        """Have borrowers leave, jobs of queues and other opportunistic pods, if that gives a gang its cells."""
        lent = self._lent
        victims: Victims | None = self._put(VictimsAsked(hold, lent.borrowers, lent.leaving, self._claims_before(hold)))
        if victims is None or not (victims.jobs or victims.groups):
            return
        if victims.jobs:
            self._lender.reclaim(hold, victims.jobs)
            self._lent = self._lender.lent()
        if victims.groups:
            self._put(GroupsEvicted(victims.groups, hold.key))
        with self._lock:
            self._checks.evicts(hold.key, self._clock(), len(victims.jobs) + len(victims.groups))

    def _explained(self, hold: Hold, reason: str) -> tuple[str, bool]:
        """Return why there is no room, in words for people, and whether there never can be."""
        job = hold.job
        request = PodRequest(hold.key, job.name, job.namespace, hold.spec)
        with self._service.runner.look() as machine:
            explaining, asking = machine.explaining, machine.holds.question(hold)
            offer, rules = (asking.asked.offer, asking.rules) if asking is not None else (None, "")
            found = explaining.certificate(
                [], [request], Refused(reason, request=request, offer=offer), rules, self._ration
            )
            if found is None:
                return reason, False
            told = explaining.as_told(found, job.namespace)
            return explaining.words(told.sentence, reason), told.never

    def _put(self, question: Stimulus) -> Any:
        """Ask the service, or tell it. Raises UserError (503) where this replica does not lead."""
        self._service.check_leads()
        return self._service.runner.handle(question)


def _nodes_of(hold: Hold) -> _Nodes:
    """Gangs are alike only if they are to be on the same nodes."""
    pods = {id(pod): pod for pod in hold.pods}
    selectors = [(pod.spec and pod.spec.node_selector) or {} for pod in pods.values()]
    return tuple(tuple(sorted(each.items())) for each in selectors)


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


class KueueController:
    """Answers the check, from `start` to `stop`. `turn` may be called by tests in place of the thread."""

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
        """`lender` reclaims cells of jobs for Workloads; without one there are none."""
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
        """Ask for cells and make the next writes. Returns whether to come again soon without news.

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
