"""Jobs of queues by the names that people call them, and the names that somebody may see."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import islice

from hived.values.errors import UserError
from hived_extender.api.waiting import MASKED
from hived_extender.jobs.job import parts_of
from hived_extender.queues.book import JobRecord
from hived_extender.queues.turns import Turns

Seen = Collection[str] | None
"""The namespaces whose jobs somebody may see; None for all."""

CLOSE_COUNT = 3
MOST_NAMED = 8
MOST_COMPARED = 5000
"""Jobs whose names are looked through for those that are nearly the one that was given."""


def listed(turns: Turns | None) -> Iterator[JobRecord]:
    """The jobs that are in a queue, or would be but for a problem. A job that was taken out of its queue is neither."""
    entries = () if turns is None else turns.book.entries.values()
    return (entry for entry in entries if entry.unit is not None or entry.problem)


def only(turns: Turns | None, name: str, seen: Seen) -> JobRecord | None:
    """The job of this name, of the namespaces `seen`; None if there is none. Raises UserError (409) for several."""
    found = [entry for entry in listed(turns) if name in names_of(entry) and is_seen(entry, seen)]
    if len(found) > 1:
        raise UserError(f"{name} is {len(found)} jobs: {', '.join(str(one.job.ref) for one in found[:8])}", 409)
    return found[0] if found else None


def find(turns: Turns, name: str, seen: Seen) -> JobRecord:
    """The one job of this name, of the namespaces `seen`. Raises UserError (404, 409)."""
    found = only(turns, name, seen)
    if found is not None:
        return found
    entries = islice((entry for entry in listed(turns) if is_seen(entry, seen)), MOST_COMPARED)
    near = nearest(name, (each for entry in entries for each in names_of(entry)))
    hint = f"; nearest: {', '.join(near)}" if near else ""
    form = "name it Kind/namespace/name, as hived get queue has it"
    raise UserError(f"no job {name!r} is in a queue{hint}; {form}", 404)


def names_of(entry: JobRecord) -> tuple[str, ...]:
    """All names of a job, which may be asked for by each."""
    ref, bare = entry.job.ref, f"{entry.job.ref.namespace}/{entry.job.ref.name}"
    return str(ref), bare, ref.name, f"podgroup/{bare}"


def is_seen(entry: JobRecord, seen: Seen) -> bool:
    """May somebody who sees these namespaces see a job?"""
    return seen is None or entry.job.ref.namespace in seen


def namer(turns: Turns, seen: Seen) -> Callable[[str], str]:
    """Gives the names of jobs by their keys; other words that stand in place of a key are left as they are."""

    def name(key: str) -> str:
        entry = turns.book.entries.get(key)
        if entry is not None:
            return str(entry.job.ref) if is_seen(entry, seen) else MASKED
        parts = parts_of(key)
        if not parts:
            return key
        return "/".join(parts[:-1]) if seen is None or parts[1] in seen else MASKED

    return name


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """A few of these names that are nearly the one that was given, nearest first."""
    return get_close_matches(name, dict.fromkeys(names), n=CLOSE_COUNT)


def near_queues(name: str, names: Sequence[str]) -> str:
    """The names of all queues, or the nearest ones of many."""
    near = nearest(name, (*names, *(each.rpartition("/")[2] for each in names)))
    whole = dict.fromkeys(full for each in near for full in names if each in (full, full.rpartition("/")[2]))
    if len(names) <= MOST_NAMED or not whole:
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return f"there are {', '.join(names[:MOST_NAMED])}{more}"
    return f"nearest: {', '.join(list(whole)[:CLOSE_COUNT])}"
