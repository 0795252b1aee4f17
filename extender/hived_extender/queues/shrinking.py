"""Jobs that need less than they were let go with give the rest back at once: to their queue, and to all others.

A pod has succeeded and is not made anew, a job was scaled down, or a part of it has finished. The cells of its pods are
free then, or are held for pods that never come. Pods that still end keep theirs until they are gone. So a job gives
back in steps, and those behind it get cells that are really free. Not thread-safe.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from hived.values.specs import GroupSpec
from hived_extender.job_kinds import gangs
from hived_extender.job_kinds.job import JobRef
from hived_extender.queues.book import Book
from hived_extender.queues.live_room import LiveRoom, leaves_of
from hived_extender.queues.queues import Queues
from hived_extender.queues.room import Ask
from hived_extender.queues.units import Unit
from hived_extender.service.service import Service
from hived_extender.service.stand_ins import members_of


class Shrinking:
    """See the module. `keep` writes onto a job how many leaf cells it has from now on."""

    def __init__(
        self, service: Service, book: Book, queues: Queues, room: LiveRoom, keep: Callable[[str, int], None]
    ) -> None:
        self._service, self._book, self._queues, self._room, self._keep = service, book, queues, room, keep
        self._smaller: dict[str, None] = {}  # jobs with cells that need less than they have

    def seen(self, key: str) -> None:
        """A job looks different. A gang whose pods a controller makes anew needs all of its places."""
        entry, had = self._book.entries.get(key), self._queues.running_unit(key)
        if entry is None or entry.unit is None or had is None or not entry.step.has_cells:
            self._smaller.pop(key, None)
            return
        if entry.job.ref.kind == gangs.KIND and entry.job.comes_back:
            return
        if any(count < _sizes(had)[size] for size, count in _needed(had, entry.unit).items()):
            self._smaller[key] = None
        else:
            self._smaller.pop(key, None)

    def look(self) -> None:
        """Give back what no pod has or will have any more. Cost O(pods of jobs that need less)."""
        for key in list(self._smaller):
            entry, had = self._book.entries.get(key), self._queues.running_unit(key)
            if entry is None or entry.unit is None or had is None or not entry.step.has_cells:
                del self._smaller[key]
                continue
            unit = self._of_now(entry.job.ref, had, entry.unit)
            if unit.leaf_count < had.leaf_count:
                self._give_back(entry.job.ref, unit, is_borrowed=entry.kept.is_borrowed)
                self._keep(key, unit.leaf_count)
            if all(count >= _sizes(unit)[size] for size, count in _needed(unit, entry.unit).items()):
                del self._smaller[key]

    def _of_now(self, job: JobRef, had: Unit, needs: Unit) -> Unit:
        """The unit with the pods that are needed, and those that have cells still. One slot is left at least."""
        with self._service.runner.look() as machine:
            placed = Counter(machine.holds.placed_sizes(job))
        before, needed = _sizes(had), _needed(had, needs)
        sizes = [
            size for size, count in before.items() for _ in range(min(count, max(needed[size], placed[size])))
        ] or [max(before)]
        group = GroupSpec(had.spec.group.name, members_of(sizes))
        spec = dataclasses.replace(had.spec, group=group, leaf_cell_count=max(sizes))
        left, least = sum(sizes), min(needs.leaf_count, had.leaf_count)
        part = (left - least) / (had.leaf_count - least) if had.leaf_count > least else 1.0
        names = dict.fromkeys((*had.request, *needs.request))
        request = {
            name: min(had.request.get(name, 0.0), _between(needs.request, had.request, name, part)) for name in names
        }
        return replace(had, spec=spec, request=request)

    def _give_back(self, job: JobRef, unit: Unit, *, is_borrowed: bool) -> None:
        held = self._room.shrink(Ask(unit, is_borrowed))
        with self._service.runner.look() as machine:
            core, pods = machine.cache.core, machine.cache.jobs.pods_of(job)
            groups = list(dict.fromkeys(one.request.spec.group.name for one in pods if one.request is not None))
            own = () if core is None or is_borrowed else leaves_of(core.state, unit, groups, held)
        self._queues.shrunk(unit, own)


def _sizes(unit: Unit) -> Counter[int]:
    """The pods of a unit by their leaf cells."""
    return Counter({member.leaf_cell_count: member.pod_count for member in unit.spec.group.members})


def _needed(had: Unit, needs: Unit) -> dict[int, int]:
    """The pods of each size that a unit had and needs still."""
    wanted = _sizes(needs)
    return {size: min(count, wanted[size]) for size, count in _sizes(had).items()}


def _between(least: Mapping[str, float], most: Mapping[str, float], name: str, part: float) -> float:
    low, high = least.get(name, 0.0), most.get(name, 0.0)
    return low + (high - low) * part
