"""Answers about queues, from the turns of the present term; and the changes that people make to places.

Each question takes the desk's lock, for a walk over the jobs: 50,000 take tenths of a second. Nobody is asked for
rights meanwhile, so callers say beforehand which namespaces may be named.
"""

from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from hived.errors import UserError
from hived_extender.api.queues import QueueArgs, QueuedJob, QueueReport
from hived_extender.api.waiting import MASKED
from hived_extender.queues.book import Entry, Step
from hived_extender.queues.counting import count, waits_since
from hived_extender.queues.desk import QueueDesk
from hived_extender.queues.reasons import Held, NotItsTurn, Reason
from hived_extender.queues.records import unit_key
from hived_extender.queues.turns import Turns
from hived_extender.queues.words import sentence

Seen = Collection[str] | None
"""The namespaces whose jobs somebody may see; None for all."""

_KEY_PARTS = 4
"""Of the key of a job: its kind, namespace, name and uid."""

_STATES = {Step.STARTING: "Starting", Step.RUNNING: "Running", Step.LEAVING: "Leaving"}


class QueueAnswers:
    """See the module. For any thread. Every method raises UserError (503) while there are no turns."""

    def __init__(self, desk: QueueDesk) -> None:
        self._desk = desk

    @property
    def is_enabled(self) -> bool:
        """Does the configuration in force have queues?"""
        return self._desk.queueing.is_enabled

    def queues(self) -> list[QueueReport]:
        """All queues that have jobs, by name."""
        with self._desk.lock:
            turns = self._turns()
            shares, over, found = turns.queues.shares(), turns.over(), count(turns.book)
            return [
                QueueReport(
                    name=name,
                    vc=found[name].vc,
                    policy=turns.rules.of(name).policy.value,
                    waiting=found[name].waiting,
                    running=found[name].running,
                    borrowed=found[name].borrowed,
                    share=shares.get(name, 0.0),
                    used=found[name].used,
                    guaranteed=turns.guaranteed(name),
                    over=over.get(name, {}),
                )
                for name in sorted(found)
            ]

    def namespaces(self) -> list[str]:
        """The namespaces of all jobs, ascending; none while there are no turns."""
        with self._desk.lock:
            turns = self._desk.turns
            entries = [] if turns is None else turns.book.entries.values()
            return sorted({entry.job.ref.namespace for entry in entries})

    def jobs(self, queue: str = "", seen: Seen = None) -> list[QueuedJob]:
        """The jobs of a queue, or of all: those that wait in their order, then the others. UserError (404).

        Their reasons name no job of a namespace outside `seen`; the list has all jobs itself.
        """
        return self.some_jobs(queue, seen, 0, None)[1]

    def some_jobs(self, queue: str, seen: Seen, start: int, count: int | None) -> tuple[int, list[QueuedJob]]:
        """How many jobs `jobs` has, and `count` of them from `start`. The others are not described."""
        with self._desk.lock:
            turns = self._turns()
            found = _placed(turns, queue)
            end = None if count is None else start + count
            over = turns.going_over()
            return len(found), [self._job(turns, entry, place, seen, over) for entry, place in found[start:end]]

    def job(self, name: str, seen: Seen = None) -> QueuedJob | None:
        """A job by its name, of the namespaces `seen`; None if it is in no queue."""
        with self._desk.lock:
            turns = self._desk.turns
            if turns is None:
                return None
            entries = turns.book.entries.values()
            entry = next((one for one in entries if name in _names(one) and _is_seen(one, seen)), None)
            position = turns.queues.position(entry.key) if entry is not None else None
            return None if entry is None else self._job(turns, entry, position or 0, seen, turns.going_over())

    def act(self, args: QueueArgs) -> QueuedJob:
        """Hold a job, release it, or give it another place. Raises UserError (404, 409)."""
        with self._desk.lock:
            turns = self._turns()
            entry = self._find(turns, args.job)
            if entry.unit is None:
                raise UserError(f"{entry.job.ref} is in no queue: {entry.problem}", 409)
            if args.action == "move":
                to = args.to if args.to in ("front", "back") else self._find(turns, args.to).key
                if entry.step is not Step.WAITING:
                    raise UserError(f"{entry.job.ref} does not wait, so it has no place in its queue", 409)
                place = turns.queues.moved(entry.key, to)
                turns.book.keep(entry.key, replace(entry.kept, place=place))
            else:
                is_held = args.action == "hold"
                if not is_held and turns.is_inactive(entry.job.ref):
                    unit = "/".join(unit_key(entry.job.ref))
                    raise UserError(f"QueueUnit {unit} says active: false; set it to true, or remove it", 409)
                turns.queues.held(entry.key, is_held)
                turns.book.keep(entry.key, replace(entry.kept, is_held=is_held))
            found = self._job(turns, entry, turns.queues.position(entry.key) or 0)
        self._desk.wake()
        return found

    def _turns(self) -> Turns:
        if self._desk.turns is None:
            why = "this replica does not lead" if self._desk.queueing.is_enabled else "queues are not enabled"
            raise UserError(f"{why}: see the key queues of the configuration", 503)
        return self._desk.turns

    def _find(self, turns: Turns, name: str) -> Entry:
        found = [entry for entry in turns.book.entries.values() if name in _names(entry)]
        if len(found) == 1:
            return found[0]
        if found:
            raise UserError(f"{name} is {len(found)} jobs: {', '.join(str(one.job.ref) for one in found[:8])}", 409)
        raise UserError(f"no job {name!r} is in a queue; name it Kind/namespace/name, as hived get queue has it", 404)

    def _job(
        self, turns: Turns, entry: Entry, position: int, seen: Seen = None, over: Mapping[str, str] | None = None
    ) -> QueuedJob:
        """`over` has the jobs that are above a quota that was lowered, with the quota."""
        unit, reason = entry.unit, turns.queues.why(entry.key)
        above = f"; above quota {over[entry.key]}, which was lowered" if over and entry.key in over else ""
        turn = reason if isinstance(reason, NotItsTurn) else None
        return QueuedJob(
            name=str(entry.job.ref),
            namespace=entry.job.ref.namespace,
            queue=unit.queue if unit is not None else "",
            vc=unit.vc if unit is not None else "",
            user=unit.user if unit is not None else "",
            priority=unit.priority if unit is not None else 0,
            position=position,
            state=_state(entry, reason),
            since=waits_since(entry) if entry.step is Step.WAITING else entry.since_s,
            reason=entry.problem or sentence(reason, namer(turns, seen)) + above,
            gpus=unit.leaf_count if unit is not None else 0,
            starts_at=turn.start_s if turn is not None else None,
            certainty=turn.certainty.value if turn is not None else "",
        )


def _placed(turns: Turns, queue: str) -> list[tuple[Entry, int]]:
    """The jobs of a queue, or of all, with their places: those that wait in their order, then the others with 0."""
    names = turns.queues.queues()
    if queue and queue not in names:
        known = f"; those with jobs are {', '.join(names[:8])}" if names else "; no queue has jobs"
        raise UserError(f"there is no queue {queue!r}{known}", 404)
    entries = turns.book.entries
    found: list[tuple[Entry, int]] = []
    for name in [queue] if queue else names:
        found += [(entries[key], place) for place, key in enumerate(turns.queues.order(name), 1)]
    for entry in entries.values():
        is_asked = not queue or (entry.unit is not None and entry.unit.queue == queue)
        if is_asked and (entry.step is not Step.WAITING or entry.unit is None):
            found.append((entry, 0))
    return found


def _state(entry: Entry, reason: Reason | None) -> str:
    if entry.unit is None:
        return "Refused"
    if entry.step is Step.WAITING:
        return "Held" if isinstance(reason, Held) else "Waiting"
    return "Borrowed" if entry.step is Step.RUNNING and entry.kept.is_borrowed else _STATES[entry.step]


def _names(entry: Entry) -> tuple[str, ...]:
    ref = entry.job.ref
    return str(ref), f"{ref.namespace}/{ref.name}", ref.name


def _is_seen(entry: Entry, seen: Seen) -> bool:
    return seen is None or entry.job.ref.namespace in seen


def namer(turns: Turns, seen: Seen) -> Callable[[str], str]:
    """Gives the names of jobs by their keys; other words that stand in place of a key are left as they are."""

    def name(key: str) -> str:
        entry = turns.book.entries.get(key)
        if entry is not None:
            return str(entry.job.ref) if _is_seen(entry, seen) else MASKED
        parts = key.split("/")
        if len(parts) != _KEY_PARTS or " " in key:
            return key
        return "/".join(parts[:-1]) if seen is None or parts[1] in seen else MASKED

    return name
