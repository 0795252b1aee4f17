"""Which pods of a group are alike for Kubernetes' offer: a search places one class after the other, not pod by pod."""

from collections.abc import Callable
from typing import NamedTuple

from hived.events import Limit, Offer, Spread, Together
from hived.specs import MemberSpec
from hived.topology import BoolArray

Kind = tuple[int, tuple[int, ...], tuple[bool, ...]]
"""Size, weights and counts of a class: what decides how many of its pods a row has room for."""


class PodClass(NamedTuple):
    """Pods of a group of which each could take the place of any other."""

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
    sizes = [member.leaf_cell_count for member in members for _ in range(member.pod_count)]
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
