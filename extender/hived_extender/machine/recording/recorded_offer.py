"""An offer of the core as JSON, for records of decisions and their replay.

Pods that are offered the same nodes share a row. Nodes are names, domains of rules numbers in the order of the nodes.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from hived.values.errors import UserError
from hived.values.events import Limit, Offer, Spread, Together
from hived_extender.jobs.node_names import Mask


class AllExcept(msgspec.Struct):
    """Every configured node but these."""

    nodes: list[str] = msgspec.field(name="except")


Names = Literal["all"] | list[str] | AllExcept


class Row(msgspec.Struct):
    """`nodes` will do as they are for the pods in these slots, `after` once pods leave them."""

    slots: list[int]
    nodes: Names
    after: Names


class LimitText(msgspec.Struct, tag="limit", tag_field="rule"):
    """See `hived.values.events.Limit`."""

    domain: list[int]
    weight: list[int]
    room: list[int]


class SpreadText(msgspec.Struct, tag="spread", tag_field="rule", rename="camel"):
    """See `hived.values.events.Spread`."""

    domain: list[int]
    counts: list[bool]
    present: list[int]
    max_skew: int


class TogetherText(msgspec.Struct, tag="together", tag_field="rule"):
    """See `hived.values.events.Together`."""

    domain: list[int]
    slots: list[bool]


class OfferText(msgspec.Struct, omit_defaults=True):
    """See `hived.values.events.Offer`."""

    rows: list[Row]
    rules: list[LimitText | SpreadText | TogetherText] = []


def names_of(mask: Mask, names: Sequence[str]) -> Names:
    """The shorter of the list of names in the mask and the list of names not in it."""
    if mask.all():
        return "all"
    if 2 * int(mask.sum()) < len(names):
        return [names[index] for index in np.flatnonzero(mask).tolist()]
    return AllExcept([names[index] for index in np.flatnonzero(~mask).tolist()])


def mask_of(said: Names, names: Sequence[str]) -> Mask:
    """The mask that names stand for; names that are not configured are ignored."""
    if said == "all":
        return np.ones(len(names), np.bool_)
    listed = set(said.nodes if isinstance(said, AllExcept) else said)
    return np.fromiter(((name in listed) != isinstance(said, AllExcept) for name in names), np.bool_, len(names))


def suggestion_mask(suggested: Names, names: Sequence[str]) -> Mask | None:
    """A bool per node; None suggests every node."""
    return None if suggested == "all" else mask_of(suggested, names)


def to_text(offer: Offer, names: Sequence[str]) -> OfferText:
    """Cost O(slots x nodes)."""
    slots: dict[tuple[bytes, bytes], list[int]] = {}
    for slot, (nodes, after) in enumerate(zip(offer.nodes, offer.after, strict=True)):
        slots.setdefault((nodes.tobytes(), after.tobytes()), []).append(slot)
    rows = [
        Row(same, names_of(offer.nodes[same[0]], names), names_of(offer.after[same[0]], names))
        for same in slots.values()
    ]
    return OfferText(rows, [_rule_text(rule) for rule in offer.rules])


def from_text(text: OfferText, names: Sequence[str]) -> Offer:
    """The offer that was recorded. Raises UserError if its rows are not of slots 0 to n - 1."""
    slots = sorted(slot for row in text.rows for slot in row.slots)
    if slots != list(range(len(slots))):
        raise UserError("the rows of an offer must name each slot once, from 0")
    nodes = np.zeros((len(slots), len(names)), np.bool_)
    after = np.zeros_like(nodes)
    for row in text.rows:
        nodes[row.slots] = mask_of(row.nodes, names)
        after[row.slots] = mask_of(row.after, names)
    return Offer(nodes, after, tuple(_rule(rule) for rule in text.rules))


def _rule_text(rule: Limit | Spread | Together) -> LimitText | SpreadText | TogetherText:
    domain = rule.domain.tolist()
    match rule:
        case Limit():
            return LimitText(domain, rule.weight.tolist(), rule.room.tolist())
        case Spread():
            return SpreadText(domain, rule.counts.tolist(), rule.present.tolist(), rule.max_skew)
        case Together():
            return TogetherText(domain, rule.slots.tolist())


def _rule(text: LimitText | SpreadText | TogetherText) -> Limit | Spread | Together:
    domain = np.array(text.domain, np.int32)
    match text:
        case LimitText():
            return Limit(domain, np.array(text.weight, np.int64), np.array(text.room, np.int64))
        case SpreadText():
            counts, present = np.array(text.counts, np.bool_), np.array(text.present, np.int64)
            return Spread(domain, counts, present, text.max_skew)
        case TogetherText():
            return Together(domain, np.array(text.slots, np.bool_))
