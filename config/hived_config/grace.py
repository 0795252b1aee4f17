"""The most time that pods have to leave when their cells are needed: of lent cells, and of preempted guaranteed work.

A pod says by `terminationGracePeriodSeconds` how long it may take, up to years. A guarantee is worth as little as the
longest of these, so the service gives less time where a pod wants more.
"""

from collections.abc import Mapping

import msgspec

from hived_config.kinds import Integer, Key

LENT_KEY, PREEMPTED_KEY = "lentGraceSeconds", "preemptionGraceSeconds"
_SECONDS = Integer("a whole number", 0, 86_400)


class Grace(msgspec.Struct, frozen=True):
    """Ceilings in seconds: of opportunistic pods, of those of some virtual clusters, and of guaranteed pods."""

    lent_s: int = 300
    preempted_s: int = 3_600
    lent_of_vc: Mapping[str, int] = msgspec.field(default_factory=dict)

    def ceiling_s(self, vc: str, *, is_lent: bool) -> int:
        """The most seconds that a pod of a virtual cluster has to leave; `is_lent` if it runs opportunistically."""
        return self.lent_of_vc.get(vc, self.lent_s) if is_lent else self.preempted_s


DEFAULT = Grace()

GRACE_KEYS = (
    Key(
        LENT_KEY,
        _SECONDS,
        "how many seconds an opportunistic pod has to leave at the most, whatever its `terminationGracePeriodSeconds`: "
        "see [time to leave](preemption.md#time-to-leave)",
        DEFAULT.lent_s,
    ),
    Key(
        PREEMPTED_KEY,
        _SECONDS,
        "the same of a guaranteed pod that is preempted or moved",
        DEFAULT.preempted_s,
    ),
)

LENT_OF_VC_KEY = Key(
    LENT_KEY,
    _SECONDS,
    "`lentGraceSeconds` of its opportunistic pods",
    rule="that of all",
    is_nullable=False,
)
