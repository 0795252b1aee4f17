"""Units that may start with fewer pods than they have: the largest set of them that fits.

Of sets of one size that with the earlier pods is chosen, as for gangs of no queue (`service.gangs.choices`). A set is a
number for each kind of pods. The search asks first how many of the smallest pods fit, then for an older set of as many.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from hived.values.specs import GroupSpec
from hived_extender.job_kinds.minimums import Minimum, PodKind
from hived_extender.queues.units import Unit
from hived_extender.service.stand_ins import members_of

OLDER = 8
"""Older sets that are tried in place of the smallest one of as many pods."""


def has_smaller(unit: Unit) -> bool:
    """May a unit start with fewer pods than it asks for?"""
    return unit.minimum is not None and unit.minimum.count < unit.minimum.total


def largest(unit: Unit, fits: Callable[[Unit], bool]) -> Unit | None:
    """The largest smaller unit that fits, None if none does. Cost: `fits` log2(pods) + OLDER times at most."""
    if unit.minimum is None or not has_smaller(unit):
        return None
    minimum = unit.minimum
    low, high = minimum.count, minimum.total
    best = with_pods(unit, _smallest(minimum, low))
    if not fits(best):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        found = with_pods(unit, _smallest(minimum, middle))
        if fits(found):
            low, best = middle, found
        else:
            high = middle
    for counts in islice(_oldest(minimum.kinds, low), OLDER):
        found = with_pods(unit, counts)
        if found == best or fits(found):
            return found
    return best


def smallest(unit: Unit) -> Unit:
    """The unit with the smallest pods with which it could start."""
    return unit if unit.minimum is None or not has_smaller(unit) else with_pods(unit, _smallest(unit.minimum, 0))


def no_larger(unit: Unit, leaf_count: int) -> Unit:
    """The unit with so many leaf cells at most, as it was let go with; itself if it has no more."""
    if unit.leaf_count <= leaf_count:
        return unit
    return largest(unit, lambda one: one.leaf_count <= leaf_count) or unit


def pods_of(unit: Unit, counts: Sequence[int]) -> list[int]:
    """How many pods of each template a unit has; `counts` are those of the whole gang."""
    if unit.minimum is None or not unit.chosen:
        return list(counts)
    found = [0] * len(counts)
    for kind, number in zip(unit.minimum.kinds, unit.chosen, strict=True):
        left = number
        for template in kind.templates:
            found[template] = min(left, counts[template])
            left -= found[template]
    return found


def with_pods(unit: Unit, chosen: tuple[int, ...]) -> Unit:
    """The unit with so many pods of each kind."""
    assert unit.minimum is not None, "it has a minimum"
    pairs = [pair for pair in zip(unit.minimum.kinds, chosen, strict=True) if pair[1]]
    sizes = sorted(kind.leaf_count for kind, number in pairs for _ in range(number))
    group = GroupSpec(unit.spec.group.name, members_of(sizes))
    spec = dataclasses.replace(unit.spec, group=group, leaf_cell_count=max(sizes))
    request: dict[str, float] = dict(unit.minimum.others)
    for kind, number in pairs:
        for name, amount in kind.request.items():
            request[name] = request.get(name, 0.0) + amount * number
    return replace(unit, spec=spec, request=dict(sorted(request.items())), chosen=chosen)


def _smallest(minimum: Minimum, count: int) -> tuple[int, ...]:
    """So many pods, the smallest ones, and of each kind as many as are needed of it."""
    found = [kind.least for kind in minimum.kinds]
    left = max(count, minimum.count) - sum(found)
    for index in sorted(range(len(found)), key=lambda index: (minimum.kinds[index].leaf_count, index)):
        more = min(max(left, 0), minimum.kinds[index].count - found[index])
        found[index] += more
        left -= more
    return tuple(found)


def _oldest(kinds: Sequence[PodKind], count: int) -> Iterator[tuple[int, ...]]:
    """All sets of so many pods, those with most of the earlier kinds first."""
    if not kinds:
        if count == 0:
            yield ()
        return
    first, rest = kinds[0], kinds[1:]
    least, most = sum(kind.least for kind in rest), sum(kind.count for kind in rest)
    for number in range(min(first.count, count - least), max(first.least, count - most) - 1, -1):
        for others in _oldest(rest, count - number):
            yield (number, *others)
