"""Kueue's admission check as a pure machine: Workloads and answers go in; holds to ask for and states come out.

    quota reserved --> asks --cells are held--> ready --all pods have cells--> (the job runs)
         ^              |  ^                      |
         |              |  +-- evicted, finished, deleted: cells are given back
         |              |  +-- cannot be read ---> pending, with what is not understood
         |              +-- can never run ------> rejected
         +-- Kueue evicts <-- retry <-------------+ held cells are lost

Kueue decides which Workload has quota; the order here is that in which cells are asked for. Nothing here calls the API
server, reads a clock or starts a thread.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from hived.values.errors import UserError
from hived.values.specs import MIN_GUARANTEED_PRIORITY
from hived_config.words import counted
from hived_extender.jobs.job import JobRef
from hived_extender.kube.answers import is_older
from hived_extender.kube.clocks import Backoff, with_transition
from hived_extender.machine.stimuli import Hold, HoldState
from hived_extender.queues.kueue.gangs import Gang, NoCells
from hived_extender.queues.kueue.workloads import PENDING, READY, REJECTED, RETRY, Check, CheckState, Object, Workload

MESSAGE_S = 10.0
"""The least time between two messages of a Workload that goes on waiting."""

EVICTION_S = 30.0
"""The time for pods that were asked to leave for a Workload, before others are asked."""

FIRST_REQUEUE_S, LONGEST_REQUEUE_S = 30, 600
"""Seconds until Kueue tries a Workload again whose held cells were lost; the time doubles."""

MESSAGE_LIMIT = 1024
"""Characters of a message."""


_Order = tuple[str, int, int, float, float, str]


class Step(Enum):
    """The progress of a Workload with quota."""

    ASKS = "asks"
    HELD = "held"
    NEEDS_NONE = "needs none"
    REJECTED = "rejected"
    UNREAD = "unread"
    LOST = "lost"


class Said(msgspec.Struct, frozen=True):
    """The state of our check in a Workload, as it is to stand there."""

    state: str
    message: str
    updates: tuple[Object, ...] = ()
    requeue_s: int | None = None
    nodes: Mapping[str, Mapping[str, int]] = {}  # of each pod set, with pods, where Kueue's own are not to stand


class Write(msgspec.Struct, frozen=True):
    """Write a state into these checks of this version of a Workload."""

    workload: Workload
    checks: tuple[str, ...]
    said: Said


class Entry(msgspec.Struct):
    """One Workload with a check of ours. `needs` is a mistake as text where it cannot be read.

    One that `is_elsewhere` needs not be on the nodes that Kueue has chosen; `nodes` are its own, by pod set.
    """

    workload: Workload
    needs: Gang | NoCells | str
    step: Step = Step.ASKS
    why: str = ""
    place: tuple[int, int] = (0, 0)
    nodes: Mapping[str, Mapping[str, int]] = {}
    is_elsewhere: bool = False
    is_held: bool = False  # the service holds cells for it, or has it in its books
    evicts_until_s: float = 0.0
    told_s: float = 0.0
    written: Write | None = None
    backoff: Backoff = msgspec.field(default_factory=Backoff)

    @property
    def hold(self) -> Hold | None:
        """The hold to ask the service for, None if nothing is to be held."""
        if not isinstance(self.needs, Gang):
            return None
        return Hold(self.workload.key, self.workload.job, self.needs.spec, pods=self.needs.pods)


class Checks:
    """Admission checks as a pure machine.

    `read` says which cells a Workload needs, and raises UserError for a mistake in it.
    """

    def __init__(
        self,
        read: Callable[[Workload], Gang | NoCells],
        elsewhere: Callable[[Workload], Gang | None] = lambda workload: None,
    ) -> None:
        """`elsewhere` reads the same where it may have other nodes than Kueue has chosen."""
        self._read, self._elsewhere = read, elsewhere
        self._ours: dict[str, None] = {}
        self._workloads: dict[str, Workload] = {}  # all there are, by key
        self._dropped: dict[str, None] = {}
        self.entries: dict[str, Entry] = {}

    # Facts

    def checks_are(self, checks: Iterable[Check]) -> None:
        """These are all AdmissionChecks."""
        ours = dict.fromkeys(sorted(each.name for each in checks if each.is_ours))
        if ours.keys() != self._ours.keys():
            self._ours = ours
            for workload in list(self._workloads.values()):
                self.workload_seen(workload)

    def workload_seen(self, workload: Workload) -> None:
        """A Workload looks like this now."""
        key = workload.key
        known = self._workloads.get(key)
        if known is not None and is_older(workload.version, known.version):
            return  # the answer to a write of ours was faster than the watch
        self._workloads[key] = workload
        is_ours = any(name in self._ours for name in workload.check_names)
        if not (workload.wants_cells and is_ours):
            self._let_go(key)
            return
        entry = self.entries.get(key)
        if entry is None:
            self.entries[key] = self._new(workload)
        else:
            changed = _wants(workload) != _wants(entry.workload)
            entry.workload = workload
            if changed and entry.step in (Step.ASKS, Step.UNREAD):
                self.entries[key] = self._new(workload)

    def workload_written(self, workload: Workload) -> None:
        """As the answer to a write of ours shows it; it may have been deleted since."""
        if workload.key in self._workloads:
            self.workload_seen(workload)

    def workload_gone(self, key: str) -> None:
        """A Workload was deleted."""
        self._workloads.pop(key, None)
        self._let_go(key)

    def missing(self, there: Collection[str]) -> list[str]:
        """The keys of Workloads that are known and not among these."""
        return [key for key in self._workloads if key not in there]

    def read_anew(self) -> None:
        """Another configuration is in force, or flavors have other labels: waiting Workloads may need other cells."""
        for key, entry in list(self.entries.items()):
            if entry.step is not Step.HELD:
                self.entries[key] = self._new(entry.workload)

    def forget_holds(self) -> None:
        """Another term begins: nothing is held that is not asked for again."""
        self._dropped.clear()
        for key, entry in list(self.entries.items()):
            self.entries[key] = self._new(entry.workload)

    # Cells

    def to_ask(self) -> list[Hold]:
        """The holds to ask for now, in order; each is to be answered. Their places among those that wait follow."""
        waiting = sorted((one for one in self.entries.values() if one.step is Step.ASKS), key=self._order_of_questions)
        counts: dict[str, int] = {}
        for entry in waiting:
            vc = _vc(entry)
            counts[vc] = counts.get(vc, 0) + 1
            entry.place = counts[vc], 0
        for entry in waiting:
            entry.place = entry.place[0], counts[_vc(entry)]
        return [hold for entry in waiting if (hold := entry.hold) is not None]

    def asking(self) -> list[str]:
        """The keys of all that wait for cells."""
        return [key for key, entry in self.entries.items() if entry.step is Step.ASKS]

    def before(self, key: str) -> tuple[JobRef, ...]:
        """The Workloads with cells of the same virtual cluster that had quota before this one, or with it."""
        this = self.entries[key]
        held = (one for one in self.entries.values() if one.step is Step.HELD and _vc(one) == _vc(this))
        return tuple(one.workload.job for one in held if _reserved_s(one) <= _reserved_s(this))

    def held(self, key: str, nodes: Sequence[str] = ()) -> None:
        """The service holds its cells, on these nodes by slot."""
        if (entry := self.entries.get(key)) is not None and entry.step is Step.ASKS:
            entry.step, entry.is_held, entry.why = Step.HELD, True, ""
            if entry.is_elsewhere and isinstance(entry.needs, Gang):
                told = dict[str, Counter[str]]()
                for name, node in zip(entry.needs.sets, nodes, strict=True):
                    told.setdefault(name, Counter())[node] += 1
                entry.nodes = told

    def look_elsewhere(self, key: str) -> Hold | None:
        """Ask for cells on other nodes than Kueue has chosen from now on; None if it may not, or does so already.

        A job that may have started keeps its nodes: its pods have been told them.
        """
        entry = self.entries.get(key)
        if entry is None or entry.step is not Step.ASKS or entry.is_elsewhere or _is_ready(entry, self._ours):
            return None
        found = self._elsewhere(entry.workload)
        if found is None:
            return None
        entry.needs, entry.is_elsewhere = found, True
        return entry.hold

    def refused(self, key: str, why: str, *, never: bool) -> None:
        """There is no room now, or never can be."""
        entry = self.entries.get(key)
        if entry is None or entry.step is not Step.ASKS:
            return
        entry.why = why
        if never:
            entry.step = Step.REJECTED
        elif _is_ready(entry, self._ours):
            # Its job may have been started by an earlier leader, whose cells others have got since.
            entry.step = Step.LOST

    def may_evict(self, key: str, now: float) -> bool:
        """May opportunistic pods be asked to leave for it? Only for the first of a VC, and not while some leave."""
        entry = self.entries.get(key)
        if entry is None or not isinstance(entry.needs, Gang) or entry.needs.spec.priority < MIN_GUARANTEED_PRIORITY:
            return False
        return entry.place[0] == 1 and entry.evicts_until_s <= now

    def evicts(self, key: str, now: float, count: int) -> None:
        """So many groups were asked to leave for it."""
        entry = self.entries.get(key)
        if entry is None:
            return
        entry.evicts_until_s = now + EVICTION_S
        entry.why = f"{counted(count, 'opportunistic job')} {'leave' if count > 1 else 'leaves'} for it"

    def progressed(self, states: Mapping[str, HoldState]) -> None:
        """Advance holds. One that is lost before all its pods have cells is given up."""
        for key, state in states.items():
            entry = self.entries.get(key)
            is_whole = state.placed_count >= state.slot_count
            if entry is not None and entry.step is Step.HELD and state.is_lost and not is_whole:
                entry.step = Step.LOST
                entry.why = "cells that were held for it were lost, as nodes went bad or others had to have them"
                self._dropped[key] = None
                entry.is_held = False

    def take_dropped(self) -> list[str]:
        """The keys of cells to give back."""
        dropped = list(self._dropped)
        self._dropped.clear()
        return dropped

    # States

    def take_writes(self, now: float) -> list[Write]:
        """The states to write now; each is to be answered by `wrote`. One at a time for each Workload."""
        due = []
        for entry in self.entries.values():
            if entry.written is None and entry.backoff.at_s <= now and (write := self._write(entry, now)) is not None:
                entry.written, entry.told_s = write, now
                due.append(write)
        return due

    def wrote(self, write: Write, now: float, *, refused: bool) -> None:
        """A state was written, or the API server refused it: then the Workload has changed, or it is tried again."""
        entry = self.entries.get(write.workload.key)
        if entry is None or entry.written is not write:
            return
        entry.written = None
        if refused:
            entry.backoff.failed(now)
        else:
            entry.backoff.succeeded()

    def said(self, entry: Entry, found: CheckState) -> Said:
        """The state that a check of a Workload has to have (rules 32.12, 32.13); `found` is what stands there."""
        gang = entry.needs
        if entry.step is Step.REJECTED:
            return Said(REJECTED, _clipped(entry.why))
        if entry.step is Step.UNREAD:
            return Said(PENDING, _clipped(f"this Workload is not understood: {entry.why}"))
        if entry.step is Step.NEEDS_NONE and isinstance(gang, NoCells):
            return Said(READY, _clipped(gang.why))
        if entry.step is Step.HELD and isinstance(gang, Gang):
            moved = ", on other nodes than Kueue has chosen" if entry.nodes else ""
            return Said(READY, f"cells are held: {gang.words}{moved}", gang.updates, nodes=entry.nodes)
        if entry.step is Step.LOST:
            wait_s = min(FIRST_REQUEUE_S * 2 ** min(found.retry_count, 10), LONGEST_REQUEUE_S)
            return Said(RETRY, _clipped(entry.why), requeue_s=wait_s)
        place, count = entry.place
        where = f", {place} of {count} that Kueue has given quota" if count > 1 else ""
        return Said(PENDING, _clipped(f"waits for cells{where}: {entry.why or 'not asked yet'}"))

    # Inside

    def _new(self, workload: Workload) -> Entry:
        if workload.mistake:
            return Entry(workload, workload.mistake, Step.UNREAD, workload.mistake)
        try:
            needs: Gang | NoCells | str = self._read(workload)
        except UserError as error:
            needs = error.message
        if isinstance(needs, str):
            return Entry(workload, needs, Step.REJECTED, needs)
        entry = Entry(workload, needs, Step.NEEDS_NONE if isinstance(needs, NoCells) else Step.ASKS)
        if entry.step is Step.ASKS and workload.has_started and _is_ready(entry, self._ours):
            entry.step, entry.is_held = Step.HELD, True  # an earlier leader held its cells; its pods have them
        return entry

    def _order_of_questions(self, entry: Entry) -> tuple[bool, _Order]:
        """Jobs come first that an earlier leader may have let start."""
        return not _is_ready(entry, self._ours), _order(entry)

    def _let_go(self, key: str) -> None:
        entry = self.entries.pop(key, None)
        if entry is not None and entry.is_held:
            self._dropped[key] = None

    def _write(self, entry: Entry, now: float) -> Write | None:
        found = [state for name in self._ours if (state := entry.workload.check(name)) is not None]
        wrong, said = [], None
        for state in found:
            wanted = self.said(entry, state)
            is_due = state.state != wanted.state or (
                state.message != wanted.message and _may_reword(entry, wanted) and now - entry.told_s >= MESSAGE_S
            )
            # Kueue sets back a check that said Retry or Rejected; nothing is written over that before it has.
            if is_due and state.state not in (RETRY, REJECTED):
                wrong.append(state.name)
                said = said or wanted
        return None if said is None else Write(entry.workload, tuple(wrong), said)


def with_states(written: Iterable[Mapping[str, Any]], write: Write, at: str) -> list[Object]:
    """All checks of a Workload with this state in ours; `at` is now, in RFC 3339. Other checks are as they were."""
    said, checks = write.said, []
    for each in written:
        if each.get("name") not in write.checks:
            checks.append(dict(each))
            continue
        kept = {key: each[key] for key in ("retryCount",) if key in each}
        told = {**kept, "name": each["name"], "state": said.state, "message": said.message}
        check = with_transition(told, each, at, key="state")
        if said.updates:
            check["podSetUpdates"] = list(said.updates)
        if said.requeue_s is not None:
            check["requeueAfterSeconds"] = said.requeue_s
        checks.append(check)
    return checks


def _wants(workload: Workload) -> tuple[object, ...]:
    """A Workload needs other cells only if one of these has changed."""
    return workload.pod_sets, workload.priority, workload.mistake


def _order(entry: Entry) -> _Order:
    workload, gang = entry.workload, entry.needs
    priority = gang.spec.priority if isinstance(gang, Gang) else 0
    return _vc(entry), -priority, -workload.priority, _reserved_s(entry), workload.created_s, workload.key


def _reserved_s(entry: Entry) -> float:
    """Return when Kueue gave it quota."""
    workload = entry.workload
    return workload.created_s if workload.reserved_s is None else workload.reserved_s


def _vc(entry: Entry) -> str:
    return entry.needs.spec.virtual_cluster if isinstance(entry.needs, Gang) else ""


def _is_ready(entry: Entry, ours: Mapping[str, None]) -> bool:
    return any((state := entry.workload.check(name)) is not None and state.state == READY for name in ours)


def _may_reword(entry: Entry, wanted: Said) -> bool:
    """May the message change alone? That of Ready stays, as Kueue has taken the pod set updates over by then."""
    return wanted.state == PENDING and entry.step in (Step.ASKS, Step.UNREAD)


def _clipped(text: str) -> str:
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 3] + "..."
