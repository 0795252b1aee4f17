"""Which pods of gangs start together where more are there than their minimums need: any of them, as many as fit.

The largest set that fits is chosen; between sets of one size the one of the older pods. Pods without cells need room by
Kubernetes' rules, such as CPU, and are chosen like others. Pods that ask alike are
interchangeable, so a set is a number for each kind of pods. If everything fits, the oldest pods up to the minimum start
together, and the others follow one by one. If nothing fits, a gang waits, and makes room, for the smallest pods that
would do: it can only be said never to run if these never can.

The search asks at most `MOST_TRIES` times whether a set fits. It begins with the smallest pods, as many as fit. That is
the largest set already if pods differ in size alone. The other tries look for an older or a larger one, from the
largest number of each kind down. After the last try the best set so far is taken.
"""

from collections.abc import Callable, Sequence

import msgspec

from hived_extender.kube_rules.quantities import CPU
from hived_extender.pods.dialects.description import GangKey
from hived_extender.service.gangs.gang import age, task_of
from hived_extender.service.pods import PodRecord

MOST_TRIES = 48

Members = list[PodRecord]


class Need(msgspec.Struct, frozen=True):
    """At least `count` pods of a gang have to start together; of those of a task, if `of_task`."""

    gang: GangKey
    count: int
    task: str | None = None
    of_task: bool = False

    def has(self, record: PodRecord) -> bool:
        """Does the pod count?"""
        return record.gang == self.gang and (not self.of_task or task_of(record) == self.task)


class Choices(msgspec.Struct, frozen=True, eq=False):
    """The pods that could start, in order, and what is needed of them."""

    ready: tuple[PodRecord, ...]
    needs: tuple[Need, ...]

    def least(self, preferred: Sequence[PodRecord]) -> Members:
        """The first of these pods that are enough, in order of age. All of them have to be."""
        chosen: dict[str, PodRecord] = {}
        for need in sorted(self.needs, key=lambda one: not one.of_task):  # of tasks first: they count for the whole too
            have = sum(need.has(record) for record in chosen.values())
            for record in preferred:
                if have >= need.count:
                    break
                if record.uid not in chosen and need.has(record):
                    chosen[record.uid] = record
                    have += 1
        return sorted(chosen.values(), key=age)

    def are_enough(self, members: Sequence[PodRecord]) -> bool:
        """Is every need met?"""
        return all(sum(need.has(record) for record in members) >= need.count for need in self.needs)

    def smallest(self) -> Members:
        """The smallest pods that are enough, the older ones first."""
        return self.least(sorted(self.ready, key=_size))

    def best(self, fits: Callable[[Members], bool], unlikely: Callable[[PodRecord], bool]) -> Members:
        """The pods that start together, in order; see the module.

        `fits` says whether there is room for pods, `unlikely` for which pods there is no node at all, as far
        as is known: others come first.
        """
        pool = [record for record in self.ready if not unlikely(record)]
        if not self.are_enough(pool):
            pool = list(self.ready)
        smallest = self.least(sorted(pool, key=_size))
        if len(smallest) == len(pool) or len(set(map(kind_of, pool))) == 1:
            return smallest
        search = _Search(self, pool, fits)
        if search.fits(pool):
            return self.least(pool)
        return search.run() or smallest


class _Search:
    """One search. `others` ask for nothing: they only fill up what is needed."""

    def __init__(self, choices: Choices, pool: Members, fits: Callable[[Members], bool]) -> None:
        self._choices = choices
        self._ask = fits
        self._tries = 0
        self._known: dict[frozenset[str], bool] = {}
        self._pool = pool
        self._sized = [record for record in pool if takes_room(record)]
        self._others = [record for record in pool if not takes_room(record)]
        self._places = {record.uid: place for place, record in enumerate(pool)}
        kinds: dict[object, Members] = {}
        for record in self._sized:
            kinds.setdefault(kind_of(record), []).append(record)
        self._kinds = list(kinds.values())
        self._best: Members | None = None

    def fits(self, members: Members) -> bool:
        """Is there room for these pods? False if too many questions were asked."""
        sized = [record for record in members if takes_room(record)]
        key = frozenset(record.uid for record in sized)
        if key not in self._known:
            if self._tries >= MOST_TRIES:
                return False
            self._tries += 1
            self._known[key] = not sized or self._ask(sorted(sized, key=age))
        return self._known[key]

    def run(self) -> Members | None:
        """The best set that fits, None if there is none."""
        ascending = sorted(self._sized, key=_size)
        self._note(ascending[: self._most(ascending, [])])
        if self._best is None:
            self._note_least(ascending)
        self._walk(0, [])
        return None if self._best is None else sorted(self._filled(self._best), key=age)

    def _note_least(self, ascending: Members) -> None:
        """Of tasks: the smallest pods that meet every need, which are no row of the smallest ones."""
        least = self._choices.least([*ascending, *self._others])
        if self.fits(least):
            self._note([record for record in least if takes_room(record)])

    def _most(self, row: Members, chosen: Members) -> int:
        """How many of a row fit beside those that are chosen, which fit."""
        low, high = 0, len(row)
        if self.fits([*chosen, *row]):
            return high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.fits([*chosen, *row[:middle]]) else (low, middle)
        return low

    def _walk(self, number: int, chosen: Members) -> None:
        rest = sum(map(len, self._kinds[number:]))
        if self._best is not None and len(chosen) + rest < len(self._best):
            return
        if number == len(self._kinds):
            self._note(chosen)
            return
        row = self._kinds[number]
        for count in range(self._most(row, chosen), -1, -1):
            if self._tries >= MOST_TRIES:
                return
            self._walk(number + 1, [*chosen, *row[:count]])

    def _note(self, chosen: Members) -> None:
        """These pods fit: they are the best so far, unless they are not enough."""
        if self._choices.are_enough([*chosen, *self._others]) and (
            self._best is None or self._rank(chosen) < self._rank(self._best)
        ):
            self._best = list(chosen)

    def _rank(self, chosen: Members) -> tuple[int, list[int]]:
        return -len(chosen), sorted(self._places[record.uid] for record in chosen)

    def _filled(self, chosen: Members) -> Members:
        """With as many pods that ask for nothing as are needed."""
        found = list(chosen)
        for need in sorted(self._choices.needs, key=lambda one: not one.of_task):
            have = sum(need.has(record) for record in found)
            for record in self._others:
                if have >= need.count:
                    break
                if need.has(record) and record not in found:
                    found.append(record)
                    have += 1
        return found


def _leaves(record: PodRecord) -> int:
    return record.ask.leaf_cell_count if record.ask is not None else 0


def takes_room(record: PodRecord) -> bool:
    """Does a pod ask for cells, or for anything that Kubernetes gives?"""
    return bool(_leaves(record) or record.ruled is not None)


def _size(record: PodRecord) -> tuple[int, int, int, tuple[str, str, str]]:
    asked = dict(record.ruled.demands.requests) if record.ruled is not None else {}
    return _leaves(record), asked.get(CPU, 0), asked.get("memory", 0), age(record)


def kind_of(record: PodRecord) -> object:
    """Pods of one kind are interchangeable."""
    return record.gang, task_of(record), record.ask, record.ruled.demands if record.ruled is not None else None
