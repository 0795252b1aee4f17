"""The question what would become of pods, and its answer."""

import msgspec

from hived_extender.pods.wire import Pod


class WhatIfArgs(msgspec.Struct):
    """what-if: what would become of these pods? They are as their manifests have them."""

    pods: list[Pod]


class PodOutcome(msgspec.Struct, kw_only=True):
    """What would become of one pod if it were created now.

    `outcome` is "bind" to the cells of a node, given by their indices, "preempt" (others have to leave first), "wait"
    or "refused" for the reason given, or "not-ours": another scheduler's.
    """

    namespace: str
    name: str
    outcome: str
    node: str = ""
    cells: list[int] = []
    reason: str = ""


class WhatIfResult(msgspec.Struct):
    """In the order of the pods."""

    pods: list[PodOutcome]
