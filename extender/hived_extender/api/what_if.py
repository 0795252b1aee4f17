"""The what-if question about pods, and its answer."""

import msgspec

from hived_extender.api.waiting import Certificate
from hived_extender.jobs.wire import Pod


class WhatIfArgs(msgspec.Struct):
    """what-if: the pods to try. They are as their manifests have them."""

    pods: list[Pod]


class Victim(msgspec.Struct, frozen=True):
    """A job that would have to leave, or so many pods of it; `name` is what `hived why` takes."""

    name: str
    namespace: str = ""
    pods: int = 1


class PodOutcome(msgspec.Struct, kw_only=True):
    """The outcome for one pod if it were created now.

    `outcome` is "bind" to the cells of a node, given by their indices, or "preempt": others have to leave first. Else
    it is "wait", "never" or "refused" for the reason given, or "not-ours": another scheduler's. "never": nobody's end,
    no repair and no offer of Kubernetes would help. Where a search found no room, `certificate` has the causes.

    Of the pods that start together, the first one has the `victims`; `more_victims` counts jobs that are not listed.
    """

    namespace: str
    name: str
    outcome: str
    node: str = ""
    cells: list[int] = []
    reason: str = ""
    certificate: Certificate | None = None
    victims: list[Victim] = []
    more_victims: int = 0


class WhatIfResult(msgspec.Struct):
    """In the order of the pods."""

    pods: list[PodOutcome]
