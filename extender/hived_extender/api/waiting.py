"""Waiting jobs, as the service, the commands and the pages show them: why, since when, until when, what would help.

One form for HTTP, the command line, events, conditions and pages. Moments are RFC 3339 in UTC; unknown ones are "".

The what-if question about pods, and its answer.
"""

from typing import Literal

import msgspec

from hived_extender.jobs.wire import Pod

CauseName = Literal[
    "in-use",
    "in-pieces",
    "bad",
    "lent",
    "kubernetes",
    "incomplete",
    "quota",
    "order",
    "invalid",
    "never",
    "unknown",
    "preempting",
]
"""The closed set of causes; docs/waiting.md has each with its remedy."""

TAKEN_BACK: tuple[CauseName, ...] = ("lent", "preempting")
"""Causes of a job for which others are leaving: all on lent cells, or some with a lower priority."""

UNTRIED_CAUSES: tuple[CauseName, ...] = ("incomplete", "invalid", "order", *TAKEN_BACK)
"""Causes for which no changes are tried, or none is needed."""

MASKED = "(another tenant's)"
"""The name of a job that the caller may not see."""


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that has cells which a waiting job needs; `group` is its name as `hived why` takes it.

    `cells` counts leaf cells; a group of another virtual cluster's or an opportunistic one may be `lent` them. `until`
    is when it ends at the latest by its own declaration, or by its grace period once it is leaving. One that is waiting
    itself has reserved the cells, which others still use.
    """

    group: str
    namespace: str = ""
    vc: str = ""
    priority: int = -1
    cells: int = 0
    nodes: list[str] = []
    since: str = ""
    until: str = ""
    is_lent: bool = False
    is_leaving: bool = False
    is_waiting: bool = False


class BadNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that cannot be used, why (`NotReady`, `cordoned`, lost devices), and since when."""

    node: str
    reason: str = ""
    since: str = ""


class Unblock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change that the core has confirmed: with it alone the job starts at once.

    `change` is the same for programs, in the words of `hived why --if`: `priority=200`, `pods=16x1`, `leafType=A100`,
    `vc=research`, `opportunistic`, `ends=GROUP`, `heal=NODE`, `cells=VC:+2xTYPE`, `combine=VC`,
    `move=GROUP,GROUP`. `victims` names groups that would be preempted for it.
    """

    change: str
    text: str
    victims: list[str] = []


class When(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When a job starts, by the present queue; never shown without its kind.

    certain: only jobs that have to leave are in the way; they are gone `by` then. bounded: every holder in the way
    declared a limit; at `by` at the latest, unless what `unless` says happens: nothing is held for the job. estimated:
    half of the cases by `likely`, 9 of 10 by `by`. unknown: `because` says why. `position` is the place in the order of
    its virtual cluster, from 1; 0 if it has none.
    """

    kind: Literal["now", "certain", "bounded", "estimated", "unknown", "never"]
    by: str = ""
    likely: str = ""
    because: str = ""
    unless: str = ""
    position: int = 0


class Certificate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a job does not start, one sentence first.

    `cause` is the one that stands alone between the job and its start, or the first of the least set that does; `also`
    has the rest of that set. Cells are counted at `level`, the lowest cell type that holds the largest pod: `asked` by
    the job, `total` promised to the virtual cluster (or in the cluster, for opportunistic jobs), and of these `free`,
    `in_use`, `in_pieces`, `bad` and `refused` by Kubernetes. `free_leaves` and `largest_fit` count leaf cells: all that
    are free, and the largest pod that would start now. `largest_ever` is the largest pod that could ever start, and
    `largest_asked` the largest of the job.
    `unit` is the word for a cell of `level`: "node", or the type. `rules` names nodes that Kubernetes refuses, and by
    which rule. `reason` is the reference's message. A job that `never_preempts` could, but for its preemption policy.
    `untried` is why no change was tried, where one might help.
    """

    sentence: str
    cause: CauseName
    also: list[CauseName] = []
    vc: str = ""
    is_opportunistic: bool = False
    pinned: str = ""
    chain: str = ""
    level: str = ""
    unit: str = ""
    leaf_type: str = ""
    asks: str = ""
    asked: int = 0
    total: int = 0
    free: int = 0
    in_use: int = 0
    in_pieces: int = 0
    bad: int = 0
    refused: int = 0
    free_leaves: int = 0
    largest_fit: int = 0
    largest_ever: int = 0
    largest_asked: int = 0
    holders: list[Holder] = []
    more_holders: int = 0
    bad_nodes: list[BadNode] = []
    rules: str = ""
    unblock: list[Unblock] = []
    never: bool = False
    never_preempts: bool = False
    untried: str = ""
    reason: str = ""


class Preempted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job had to leave at this moment, for the job `by` with pods in a `namespace`; "" if nobody knows."""

    at: str
    by: str = ""
    namespace: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job, gang or single pod, that waits, has cells, or is leaving; or that was Preempted, and is gone.

    A job that waits in a `queue` without pods has its `place` there, 1 for the first, and is named Kind/namespace/name.

    `name` is what `hived why` takes: `NAMESPACE/NAME` of a pod, `podgroup/NAMESPACE/NAME` of a gang, or an affinity
    group's. `pods` are `NAMESPACE/NAME`. `since` is when it was created (waiting), started (running) or preempted. A
    job that waits or runs again has `preempted` too, for a day. `Held` and `Refused` are jobs of queues, as there.
    A job that runs has its `bad_nodes`, and `demoted` says since when it has no guarantee any more; `sentence` tells
    both.
    """

    name: str
    state: Literal["Waiting", "Preempting", "Held", "Refused", "Starting", "Running", "Leaving", "Preempted"]
    namespace: str = ""
    user: str = ""
    vc: str = ""
    priority: int = 0
    asks: str = ""
    pods: list[str] = []
    nodes: list[str] = []
    since: str = ""
    cause: str = ""
    sentence: str = ""
    when: When | None = None
    preempted: Preempted | None = None
    queue: str = ""
    place: int = 0
    bad_nodes: list[BadNode] = []
    demoted: str = ""


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs: waiting ones first, in the order in which they are served, then others by name."""

    items: list[Job] = []


class Why(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that is known of one job. A job that runs has no certificate; `certificate.unblock` has what would help."""

    job: Job
    certificate: Certificate | None = None
    when: When | None = None


class IfArgs(msgspec.Struct):
    """Changes to try on a waiting job, in the words of `Unblock.change`; all together."""

    name: str
    changes: list[str]


class IfResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Whether the job would start at once with the changes, where, and who would have to leave; else why not."""

    starts: bool
    nodes: list[str] = []
    victims: list[str] = []
    certificate: Certificate | None = None


class LeafCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Leaf cells of a node: all, and the free and lost ones among them."""

    cells: int = 0
    free: int = 0
    lost: int = 0


class NodeView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node: whether it can be used, its cells, and the groups on it. `by_type` has the cells of a node with several
    leaf cell types.
    """

    node: str
    is_bad: bool = False
    reason: str = ""
    since: str = ""
    cells: int = 0
    free: int = 0
    lost: int = 0
    by_type: dict[str, LeafCounts] = {}
    groups: list[str] = []


class FreeCells(msgspec.Struct, frozen=True, kw_only=True):
    """Cells of one level of a virtual cluster, in a chain: how many could be given to whole-cell jobs at once.

    `promised` to the VC; `in_use` by its guaranteed jobs, wholly or in part; `free` could start a guaranteed job at
    once (lent ones count, since borrowers leave); `lent` of these are used by opportunistic jobs of anybody; `bad` are
    the rest: promised == in_use + free + bad. `in_use_bad` counts those in use that are bad, wholly or in part.
    `borrowed` counts cells beyond the promise that opportunistic jobs of the VC use, wholly or in part. Cells of a
    `pinned` cell have rows of their own.
    """

    vc: str
    chain: str
    level: str
    leaves: int
    promised: int
    in_use: int = 0
    lent: int = 0
    bad: int = 0
    free: int = 0
    borrowed: int = 0
    pinned: str = ""
    in_use_bad: int = 0


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
