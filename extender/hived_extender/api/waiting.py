"""Waiting jobs, as the service, the commands and the pages show them: why, since when, until when, what would help.

One form for HTTP, the command line, events, conditions and pages. Moments are RFC 3339 in UTC; unknown ones are "".

The what-if question about pods, and its answer.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from hived_extender.jobs.outcomes import EvictionName
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
    "held",
    "invalid",
    "never",
    "unknown",
    "preempting",
]
"""The closed set of causes; docs/waiting.md has each with its remedy."""

RECLAIMING: tuple[CauseName, ...] = ("lent", "preempting")
"""Causes of a job for which others are leaving: all on lent cells, or some with a lower priority."""

UNTRIED_CAUSES: tuple[CauseName, ...] = ("incomplete", "invalid", "order", "held", *RECLAIMING)
"""Causes for which no changes are tried, or none is needed."""

FOR_JOBS = "it waits for other jobs, and not for cells"
"""The reason why no change is tried for a job that waits by its author's word."""

MASKED = "(another tenant's)"
"""The name of a job that the caller may not see."""


class Holder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that has cells which a waiting job needs; `group` is its name as `hived why` takes it.

    `cells` counts leaf cells; a group of another virtual cluster's or an opportunistic one may be `lent` them. `until`
    is when it ends at the latest by its own declaration, or by its grace period once it is leaving. One that is waiting
    itself has reserved the cells, which others still use. Lists of those who have some cells say whose they are:
    `lent_by` has the virtual clusters that are promised lent ones.
    """

    group: str
    namespace: str = ""
    vc: str = ""
    priority: int
    cells: int = 0
    nodes: list[str] = []
    since: str = ""
    until: str = ""
    is_lent: bool = False
    is_leaving: bool = False
    is_waiting: bool = False
    user: str = ""
    lent_by: list[str] = []


class BadNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node that cannot be used, why (`NotReady`, `cordoned`, lost devices), and since when."""

    node: str
    reason: str = ""
    since: str = ""


NOT_READY_NEXT = (
    "hived evicts nothing from a node that is NotReady: Kubernetes deletes its pods once their tolerationSeconds are "
    "over, 300 s by default; then their controller makes new ones, which get good cells"
)


def is_not_ready(reason: str) -> bool:
    """Is a node bad since its kubelet is silent?"""
    return reason.partition(":")[0] == "NotReady"


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
    """The start of a job, by the present queue; never shown without its kind.

    certain: only jobs that have to leave are in the way; they are gone `by` then. bounded: every holder in the way
    declared a limit; at `by` at the latest, unless what `unless` says happens: nothing is held for the job. estimated:
    half of the cases by `likely`, 9 of 10 by `by`. unknown: `because` says why. `position` is the place in the order of
    its virtual cluster, from 1; 0 if it has none. Of an unknown one, its author may have said the `earliest` moment.
    """

    kind: Literal["now", "certain", "bounded", "estimated", "unknown", "never"]
    by: str = ""
    likely: str = ""
    because: str = ""
    unless: str = ""
    position: int = 0
    earliest: str = ""


class Certificate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why a job does not start, one sentence first.

    `cause` is the one that stands alone between the job and its start, or the first of the least set that does; `also`
    has the rest of that set. Cells are counted at `level`, the lowest cell type that holds the largest pod: `asked` by
    the job, `total` promised to the virtual cluster (or in the cluster, for opportunistic jobs), and of these `free`,
    `in_use`, `in_pieces`, `bad` and `refused` by Kubernetes. `free_leaves` and `largest_fit` count leaf cells: all that
    are free, and the largest pod that would start now. `largest_ever` is the largest pod that could ever start, and
    `largest_asked` the largest of the job.
    `unit` is the word for a cell of `level`: "node", or the type. `rules` names nodes that Kubernetes refuses, and by
    which rule. `reason` is the reference's message. A job that `never_preempts` could, but for its preemption policy.
    `untried` is why no change was tried, where one might help. So many `own_pods` of the job have cells, and none of
    them is a holder.
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
    own_pods: int = 0


class Preempted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job, or pods of it, had to leave at this moment, for the job `by` with pods in a `namespace`; "" if unknown.

    `priority` is that of `by`, None if unknown; `why` is the kind.
    """

    at: str
    by: str = ""
    namespace: str = ""
    priority: int | None = None
    why: EvictionName = ""

    @property
    def because(self) -> str:
        """Who evicted it, if no job had to get its cells: `its node was drained`; "" for a preemption."""
        return EVICTIONS[self.why] if self.why in NOT_BY_JOBS else ""


class Ended(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a job, and what it used. Moments are "" if unknown: one that never ran has not `started`.

    Attributes
    ----------
    exit_code, reason : of the pod that decided, such as 137 and `OOMKilled`; without one the reason of the job's object
    pod, node : the pod that decided, and where it ran
    ran_s : seconds for which pods of it ran, over all of its runs
    gpus, gpu_hours : leaf cells, the most at one time; leaf cells times hours, summed over its pods and runs
    evictions : the last times that it lost its cells before its end, oldest first; `eviction_count` counts all
    more_nodes : it ran on more nodes than are listed
    is_bare : it is a pod that nobody makes anew
    attempts : how often a job that `hived submit` has made was started, if it was started again after a failure; else 0
    """

    at: str
    created: str = ""
    started: str = ""
    exit_code: int | None = None
    reason: str = ""
    pod: str = ""
    node: str = ""
    ran_s: float = 0.0
    gpus: int = 0
    gpu_hours: float = 0.0
    evictions: list[Preempted] = []
    eviction_count: int = 0
    more_nodes: bool = False
    is_bare: bool = False
    attempts: int = 0


EndState = Literal["Completed", "Failed", "Preempted", "Evicted", "Deleted", "Unknown"]
"""States of jobs that have ended. Unknown: it ended while no replica of hived led."""

JobState = Literal[
    "Waiting", "Preempting", "Held", "Refused", "Starting", "Running", "Leaving",
    "Completed", "Failed", "Preempted", "Evicted", "Deleted", "Unknown",
]  # fmt: skip


class PodCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The pods of a job: `wanted` in all, of which some run, wait, or are done. `failed` ones may have been made anew.

    One that is `running` has its cells, or its node if it needs none.
    """

    wanted: int = 0
    running: int = 0
    waiting: int = 0
    done: int = 0
    failed: int = 0

    @property
    def words(self) -> str:
        """The same for people: `40 of 50 done, 6 run, 4 wait`; "" of a single pod, of which its state says it all."""
        known = self.done + self.running + self.waiting
        wanted = max(self.wanted, known)
        counted = (self.done, "done", "done"), (self.running, "runs", "run"), (self.waiting, "waits", "wait")
        kinds = (*counted, (wanted - known, "to come", "to come")) if wanted > 1 else ()
        told = [(count, one if count == 1 else several) for count, one, several in kinds if count]
        first = f"of {wanted} " if known else ""
        parts = [f"{count} {'' if place else first}{word}" for place, (count, word) in enumerate(told)]
        return ", ".join([*parts, *([f"{self.failed} failed"] if self.failed else [])])


class PodView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pod of a job, `NAMESPACE/NAME`, with its node once it has one, and `since` when it runs or has ended.

    Commands add those that have ended, by the API server, and those that are not made yet: with the `index` among the
    pods of the job, if they have one, and the `reason` of the state. A row may stand for several that are alike.
    """

    name: str
    state: Literal["Waiting", "Starting", "Running", "Leaving", "Held", "Completed", "Failed"]
    node: str = ""
    since: str = ""
    index: int | None = None
    reason: str = ""

    @property
    def goes_on(self) -> bool:
        """Is it there, and has not ended?"""
        return not self.reason and self.state not in ("Completed", "Failed")


KEPT_S = 7 * 86_400.0
"""Jobs that have ended are known for so long."""


class Used(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Leaf cells that a job has now, and leaf cells times hours of all of its runs so far; its `queue`."""

    gpus: int = 0
    gpu_hours: float = 0.0
    queue: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job, gang or single pod, that waits, has cells, or is leaving; or that has `ended`.

    A job of which pods wait and others run is Waiting. One that waits in a `queue` without pods has its `place` there,
    1 for the first. The pods of one that `is_elastic` start one by one.

    `name` is what `hived why` takes: `KIND/NAMESPACE/NAME` of a job object, with its `api_version` if that is known;
    `podgroup/NAMESPACE/NAME` of a gang, an affinity group's, or `NAMESPACE/NAME` of a pod that starts alone. Of its
    `aliases`, gangs and groups of a job object are known by their own names as well. One that is a run of a CronJob, or
    was made by another object, is `made_by` that, and it is an alias. `pods` are `NAMESPACE/NAME`.
    `since` is when it was created (waiting), started (running) or ended. A job that waits or runs again has `preempted`
    too, for a day. `Held` and `Refused` are jobs of queues, as there, or are suspended and in no queue. A job that runs
    has its `bad_nodes`, and `demoted` says since when it, or some of its pods, have no guarantee; `sentence` tells
    both. One of a queue that `is_borrowed` runs on borrowed cells, at the `priority` that it has in its queue. Its
    `members` are its pods one by one, where they are asked for. One that has, or had, cells and goes on has `used`.
    One without a `vc` has no `priority`: it asks for no cells, or hived cannot read it.
    """

    name: str
    state: JobState
    namespace: str = ""
    user: str = ""
    vc: str = ""
    priority: int | None = None
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
    api_version: str = ""
    aliases: list[str] = []
    made_by: str = ""
    is_elastic: bool = False
    is_borrowed: bool = False
    counts: PodCounts = PodCounts()
    members: list[PodView] = []
    used: Used | None = None
    ended: Ended | None = None

    @property
    def comes_next(self) -> str:
        """What becomes of a job that runs on a node that is NotReady; "" for any other."""
        return NOT_READY_NEXT if any(is_not_ready(one.reason) for one in self.bad_nodes) else ""


class Jobs(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs: waiting ones first, in the order in which they are served, then others by name."""

    items: list[Job] = []


WAITING_STATES: tuple[JobState, ...] = ("Waiting", "Preempting", "Held", "Refused")
"""States of jobs that have no cells yet."""


def with_records(jobs: Sequence[Job], held: Sequence[Job]) -> list[Job]:
    """The jobs of a list, with those that the service does not watch behind the others that wait."""
    first = sum(job.state in WAITING_STATES for job in jobs)
    return [*jobs[:first], *held, *jobs[first:]]


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
    """The answer to changes: the job would start at once, where, and after which evictions; else why not.

    Of a job whose pods start one by one, so many `pods` would start of those `asked` about, of which the job has so
    many `waiting`. These are 0 for other jobs.
    """

    starts: bool
    nodes: list[str] = []
    victims: list[str] = []
    certificate: Certificate | None = None
    pods: int = 0
    asked: int = 0
    waiting: int = 0

    @property
    def counted(self) -> str:
        """The pods that would start, in words; "" for a job that starts whole."""
        return pods_that_start(self.pods, self.asked, self.waiting)


def pods_that_start(pods: int, asked: int, waiting: int) -> str:
    """`2 of the 4 waiting pods`, `all 4 waiting pods`; "" for a job that starts whole."""
    if waiting < 2:
        return ""
    if asked < waiting:
        return f"{pods} of the first {asked} of {waiting} waiting pods"
    return f"all {waiting} waiting pods" if pods == waiting else f"{pods} of the {waiting} waiting pods"


class LeafCounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Leaf cells of a node: all, and the free and lost ones among them."""

    cells: int = 0
    free: int = 0
    lost: int = 0


Elsewhere = Literal["starts", "preempts", "waits"]
"""A job whose node is drained now: it starts at once on others, once other jobs have left for it, or it waits."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node: whether it can be used, its cells, and the groups on it. `by_type` has the cells of a node with several
    leaf cell types. `pods` with cells run there. If it were drained, their jobs would lose `gpu_hours`: those of their
    whole groups since these started, or since their last checkpoint. Where that is asked, `if_drained` says of each of
    its groups what these would do then, by cells alone, all of them together.
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
    pods: int = 0
    gpu_hours: float = 0.0
    if_drained: list[Elsewhere] = []


class FreeCells(msgspec.Struct, frozen=True, kw_only=True):
    """Cells of one level of a virtual cluster, in a chain: how many could be given to whole-cell jobs at once.

    `promised` to the VC; `in_use` by its guaranteed jobs, wholly or in part; `free` could start a guaranteed job at
    once (lent ones count, since borrowers leave); `lent` of these are used by opportunistic jobs of any virtual
    cluster; `bad` are the rest: promised == in_use + free + bad. `in_use_bad` counts those in use that are bad, wholly
    or in part. `borrowed` counts cells beyond the promise that opportunistic jobs of the VC use, wholly or in part.
    Cells of a `pinned` cell have rows of their own.
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


def leaf_rows(rows: Iterable[FreeCells]) -> list[FreeCells]:
    """The rows of leaf cells, in which each cell counts once: larger cells may have one leaf cell each.

    `rows` are of whole virtual clusters, in the order of the service: top level first.
    """
    return list({(row.vc, row.chain, row.pinned): row for row in rows}.values())


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
    it is "wait", "never" or "refused" for the reason given, or "not-ours": another scheduler's. "never": no end of a
    job, no repair and no offer of Kubernetes would help. Where a search found no room, `certificate` has the causes.

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


EVICTIONS: dict[str, str] = {
    "": "",
    "priority": "",
    "reclaim": "lent cells were reclaimed",
    "move": "it was moved to make room",
    "node-lost": "its node was lost",
    "drained": "its node was drained",
    "tainted": "its node has a taint",
    "kubelet": "its kubelet evicted it",
}
"""Kinds of evictions as people read them."""

NOT_BY_JOBS = ("node-lost", "drained", "tainted", "kubelet")

LOST = ("Preempted", "Evicted")
"""States of jobs that did not end by themselves."""

NOT_BY_EXIT = ("Completed", *LOST)
"""States of which an exit code says nothing."""

NEVER_RAN = "it never ran"

NOT_AGAIN = "no controller makes this pod anew: create it again"

UNSEEN = "it ended while no replica of hived led"


def preempted_words(found: Preempted, moment: str, by: str) -> str:
    """A preemption or eviction at a `moment`, for the job `by`: `preempted at 14:02 for prod-7 (priority 100)`."""
    verb = "evicted" if found.why in NOT_BY_JOBS else "preempted"
    of_rank = "" if found.priority is None else f" ({rank_in_words(found.priority)})"
    why = f": {EVICTIONS[found.why]}" if EVICTIONS[found.why] else ""
    return f"{verb} at {moment}" + (f" for {by}{of_rank}" if by else "") + why


def attempt_words(attempts: int) -> str:
    """Return words on the attempt of a job that this was: `attempt 3, as it failed before`."""
    return f"attempt {attempts}, as it failed before"


def exit_words(ended: Ended) -> str:
    """`exit code 137 (OOMKilled) of pod a/b on node n3`; "" if nothing is known."""
    reason = EVICTIONS.get(ended.reason, ended.reason)
    if ended.exit_code is None or (ended.exit_code == 0 and reason):
        said = reason
    else:
        said = f"exit code {ended.exit_code}" + (f" ({reason})" if reason else "")
    if not said or not ended.pod:
        return said
    return f"{said} of pod {ended.pod}" + (f" on node {ended.node}" if ended.node else "")


def rank(priority: int | None, *, is_borrowed: bool = False) -> str:
    """A priority as people call it, "" if it is unknown; of a job that `is_borrowed`, its own beside that."""
    if priority is None:
        return ""
    return "opportunistic" if priority < 0 else f"{priority}{', borrows' if is_borrowed else ''}"


def rank_in_words(priority: int | None, *, is_borrowed: bool = False) -> str:
    """The same in a sentence: `priority 5`."""
    found = rank(priority, is_borrowed=is_borrowed)
    return f"priority {found}" if found[:1].isdigit() else found
