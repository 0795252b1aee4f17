"""Classes of pods that are alike for Kubernetes' offer, and a proof that they cannot all be placed (rule 19.8).

A search places one class after the other, not pod by pod. A cheap proof comes first. Pods of each size by themselves
may have room, and all pods leaves enough, and still they may not fit: two pods of 5 leaves need two nodes of 8, which
leaves room for pods of 3 alone. So each size is given a *weight*. Pods fit only if their weight together is at most the
sum over rows of the largest weight that fits into each. That holds for any weights; some that often prove it are tried.
They are dual feasible functions, as for bin packing.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hived.cells.topology import BoolArray
from hived.complete.capacity import Capacity
from hived.values.events import Limit, Offer, Spread, Together
from hived.values.specs import MemberSpec, sizes_of

Kind = tuple[int, tuple[int, ...], tuple[bool, ...]]
"""Size, weights and counts of a class: what decides how many of its pods a row has room for."""


class PodClass(NamedTuple):
    """Pods of a group that can take each other's places."""

    size: int
    weights: tuple[int, ...]  # in each `Limit`
    counts: tuple[bool, ...]  # by each `Spread`
    together: tuple[bool, ...]  # in each `Together`
    slots: tuple[int, ...]


def find_pod_classes(members: tuple[MemberSpec, ...], offer: Offer) -> list[PodClass]:
    """The classes of a group's pods, larger ones first. Cost O(pods x nodes), O(pods) if all have one row of memory."""
    limits = [rule.weight for rule in offer.rules if isinstance(rule, Limit)]
    spreads = [rule.counts for rule in offer.rules if isinstance(rule, Spread)]
    together = [rule.slots for rule in offer.rules if isinstance(rule, Together)]
    sizes = sizes_of(members)
    row_of = _row_keys(offer.nodes), _row_keys(offer.after)
    classes: dict[tuple[object, ...], list[int]] = {}
    parts: dict[tuple[object, ...], tuple[int, tuple[int, ...], tuple[bool, ...], tuple[bool, ...]]] = {}
    for slot, size in enumerate(sizes):
        part = (
            size,
            tuple(int(weight[slot]) for weight in limits),
            tuple(bool(counts[slot]) for counts in spreads),
            tuple(bool(slots[slot]) for slots in together),
        )
        key = (*part, *(keys(slot) for keys in row_of))
        classes.setdefault(key, []).append(slot)
        parts[key] = part
    found = [PodClass(*parts[key], tuple(slots)) for key, slots in classes.items()]
    return sorted(found, key=lambda alike: (-alike.size, alike.slots))


def _row_keys(mask: BoolArray) -> Callable[[int], bytes]:
    """A key that tells one row of a mask from another; it is the same for rows that share their memory."""
    return (lambda _: b"") if mask.strides[0] == 0 else (lambda slot: mask[slot].tobytes())


_Weights = tuple[int, ...]  # of each size


def may_pack(capacity: Capacity, classes: Sequence[PodClass], allowed: BoolArray) -> bool:
    """False if it is proved that the pods of some classes cannot all be placed together.

    allowed : shape (classes, rows); rules between pods are not asked

    Cost O(sizes + leaves of a row) bounds, each O(rows + sizes x leaves of a row).
    """
    free = np.where(capacity.reachable(), capacity.room - capacity.demand, 0)
    most = int(free.max(initial=0))
    sizes = sorted({alike.size for alike in classes})
    for weights in _weightings(sizes, most):
        weight_of = dict(zip(sizes, weights, strict=True))
        heavy = [number for number, alike in enumerate(classes) if weight_of[alike.size]]
        wanted = sum(weight_of[classes[number].size] * len(classes[number].slots) for number in heavy)
        held = np.array(_most_weight(sizes, weights, most), np.int64)[free]
        if wanted and capacity.most(np.where(allowed[heavy].any(axis=0), held, 0)) < wanted:
            return False
    return True


def _weightings(sizes: Sequence[int], most: int) -> Iterator[_Weights]:
    """Weights to try, each once: larger pods alone by number and by leaves, pods that leave little beside them as if
    they filled a row, and sizes in coarser steps.
    """
    tried: set[_Weights] = set()
    for least in sizes:
        for weights in (
            tuple(int(size >= least) for size in sizes),
            tuple(size if size >= least else 0 for size in sizes),
            tuple(most if size > most - least else size if size >= least else 0 for size in sizes),
        ):
            if weights not in tried:
                tried.add(weights)
                yield weights
    for steps in range(2, most + 1):
        weights = tuple(size * steps // most for size in sizes)
        if weights not in tried:
            tried.add(weights)
            yield weights


def _most_weight(sizes: Sequence[int], weights: _Weights, most: int) -> list[int]:
    """The most weight that pods in 0 .. `most` free leaves can have, with as many pods of each size as one likes."""
    held = [0] * (most + 1)
    for free in range(1, most + 1):
        held[free] = max(
            [held[free - 1], *(held[free - size] + weight for size, weight in zip(sizes, weights, strict=True)
                               if size <= free)]
        )  # fmt: skip
    return held
