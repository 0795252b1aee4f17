"""Which virtual clusters let their groups be moved, and how much work may be lost for order in each of them."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hived_config.kinds import Boolean, Given, Integer, Key, Number, Record


class Budget(msgspec.Struct, frozen=True):
    """The most that moves for one virtual cluster may cost in an hour. `groups` is None for no limit."""

    gpu_hours: float
    groups: int | None = None

    def as_json(self) -> dict[str, Any]:
        """As a file could have it."""
        return {"maxGpuHours": self.gpu_hours} | ({} if self.groups is None else {"maxGroups": self.groups})


class Moving(msgspec.Struct, frozen=True):
    """`movable` are the virtual clusters whose groups may all be moved; `automatic` has the budgets of those in which
    the service makes room by itself.
    """

    movable: frozenset[str] = frozenset()
    automatic: Mapping[str, Budget] = msgspec.field(default_factory=dict)

    def of(self, vc: str) -> tuple[bool, Budget | None]:
        """Both, of one virtual cluster."""
        return vc in self.movable, self.automatic.get(vc)


DEFRAG = Record(
    "defrag",
    "how much room may be made by moving (a mapping)",
    "How much work the service may lose to make room in a virtual cluster by itself.",
    (
        Key(
            "maxGpuHours",
            Number("a number of GPU-hours"),
            "the most work that moves may lose in an hour, in GPU-hours; `0`: only groups that lose none are moved",
            is_required=True,
        ),
        Key(
            "maxGroups",
            Integer("a whole number of groups", 1),
            "the most groups that may be moved in an hour",
            rule="no limit",
            is_nullable=False,
        ),
    ),
)

MOVING_KEYS = (
    Key(
        "movable",
        Boolean(),
        "whether all its groups may be [moved](defrag.md) to make room; without it, those whose pods say `may-move`",
        False,
        is_nullable=False,
    ),
    Key(
        "defrag",
        DEFRAG,
        "the service [makes room](defrag.md#by-itself) for guaranteed jobs of this virtual cluster by itself",
        rule="it does not",
        is_nullable=False,
    ),
)


def read_budget(given: Given) -> Budget | None:
    """The budget of a virtual cluster whose keys are `given`, None without the key."""
    node = given.part("defrag")
    if node is None:
        return None
    parts = DEFRAG.given(given.reader, node)
    return Budget(parts.value("maxGpuHours") or 0.0, parts.value("maxGroups"))
