"""A unit is one job in a queue, as plain values: all that order, shares and placement need to know of it.

A unit may start with fewer pods than it has (rule 32.4). A set is a number for each kind of pods. The search asks first
how many of the smallest pods fit, then for an older set of as many.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec
from msgspec.structs import replace

from hived.values.errors import UserError
from hived.values.specs import ClusterSpec, GroupSpec, PodSpec, count_leaves
from hived_config.words import counted
from hived_extender.jobs.job import Job, Minimum, PodKind
from hived_extender.jobs.needs import Need
from hived_extender.jobs.quotas.backing import virtual_cluster_of
from hived_extender.jobs.quotas.tree import QuotaTree, quota_of
from hived_extender.jobs.wire import Pod
from hived_extender.kube_rules.demands import DemandsReader
from hived_extender.machine.certificates import size_from
from hived_extender.machine.stand_ins import members_of

GROWN = "others until its turn, as it asks for more than it was resumed with"
LATE = "others for now, as not all of its pods had a node in time"
"""Words in place of the job that gets the cells."""


class Unit(msgspec.Struct, frozen=True):
    """A job that waits or runs.

    Attributes
    ----------
    key : unique for all time, "Kind/namespace/name/uid"
    queue : as rule 29.1 has it, a leaf by its full name, such as "root/team/a"
    spec : the whole gang as one affinity group: virtual cluster, priority, members, cells. Its group name is the key
    created_s : seconds since 1970; its place among equals, which it keeps when it comes back
    namespace : of the job
    user : the owner, for limits per user; "" if unknown
    request : amounts by resource, in the resource's base unit, as the quota tree counts them
    is_preemptible : may it borrow cells, which may be reclaimed
    limit_s : how long a run lasts at the most, as declared; None if unknown
    grace_s : how long its pods may take to leave after that; only ever shown
    may_take_time : has it pods without cells, which may come long before those with cells?
    minimum : with which pods it may start, None for all
    chosen : how many pods of each of its kinds it has, () for all
    preempts : do jobs of lower priority leave for it? Borrowers give lent cells back in any case
    needs : equal for units whose pods ask Kubernetes for the same nodes, CPU and so on. One refusal is for all of them
    """

    key: str
    queue: str
    spec: PodSpec
    created_s: float
    user: str = ""
    request: Mapping[str, float] = msgspec.field(default_factory=dict)
    is_preemptible: bool = True
    limit_s: float | None = None
    needs: str = ""
    may_take_time: bool = False
    namespace: str = ""
    preempts: bool = True
    minimum: Minimum | None = None
    chosen: tuple[int, ...] = ()
    grace_s: float = 0.0

    @property
    def owner(self) -> tuple[str, str, str]:
        """Its user as limits count (rule 29.6), since the name is the word of the job's author."""
        return self.queue, self.namespace, self.user

    @property
    def vc(self) -> str:
        """Its virtual cluster."""
        return self.spec.virtual_cluster

    @property
    def priority(self) -> int:
        """-1 is opportunistic: it only ever borrows."""
        return self.spec.priority

    @property
    def leaf_count(self) -> int:
        """Leaf cells of the whole gang."""
        return count_leaves(self.spec.group.members)


NO_UNIT = Unit("", "", PodSpec("", 0, 0, GroupSpec("", ())), 0.0)
"""Of a job that is in no queue."""


class OtherUse(msgspec.Struct, frozen=True):
    """The use of a leaf of the quota tree by pods of no unit, or by pods beyond those that a unit asks for.

    `guaranteed` is the part of the `request` that is on cells of a virtual cluster; `jobs` is 0 if the unit is counted.
    `lent` are the affinity groups that have the rest.
    """

    queue: str
    request: Mapping[str, float]
    guaranteed: Mapping[str, float]
    jobs: int = 1
    lent: tuple[str, ...] = ()

    @property
    def own(self) -> "OtherUse | None":
        """The part that is guaranteed, None if nothing is."""
        if not any(self.guaranteed.values()):
            return None
        return OtherUse(self.queue, self.guaranteed, self.guaranteed, self.jobs)

    @property
    def rest(self) -> "OtherUse":
        """The part that opportunistic groups have, which may have to leave."""
        own = self.guaranteed
        rest = {name: amount - own.get(name, 0.0) for name, amount in self.request.items()}
        return OtherUse(self.queue, rest, {}, 0 if any(own.values()) else self.jobs, self.lent)


class Start(msgspec.Struct, frozen=True):
    """Let this unit's job go: its cells are held. Order of `Queues.turn`.

    `is_borrowed`: as opportunistic work. `own`: the virtual leaf cells, ids in slot order, that its own schedule gives
    it; empty if borrowed.
    """

    key: str
    is_borrowed: bool
    own: tuple[int, ...] = ()


class Stop(msgspec.Struct, frozen=True):
    """Suspend this unit's job: its cells go to `winner`. It keeps its place in its queue."""

    key: str
    winner: str
    why: str


class Evict(msgspec.Struct, frozen=True):
    """Evict opportunistic affinity groups of no job: their cells go to `winner`."""

    groups: tuple[str, ...]
    winner: str


class Upgrade(msgspec.Struct, frozen=True):
    """This unit borrowed its cells, and is entitled now: they are its own cells, guaranteed ones, from now on."""

    key: str


Order = Start | Stop | Evict | Upgrade


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
    """The unit with so many leaf cells at most, as it was resumed with; itself if it has no more."""
    if unit.leaf_count <= leaf_count:
        return unit
    return largest(unit, lambda one: one.leaf_count <= leaf_count) or unit


def pods_of(unit: Unit, counts: Sequence[int]) -> list[int]:
    """Return how many pods of each template a unit has; `counts` are those of the whole gang."""
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


class TooLargeError(UserError):
    """A job asks for more than there is in all, for which no turn in its `queue` helps."""

    def __init__(self, message: str, queue: str) -> None:
        super().__init__(message)
        self.queue = queue


@dataclass(frozen=True, slots=True)
class Cells:
    """A cluster, and how many leaf cells a job may have, of what `has` them."""

    spec: ClusterSpec
    leaf_count: int
    has: str = "the cluster has"


def unit_of(job: Job, need: Need, cells: Cells, tree: QuotaTree | None, *, preempts: bool = True) -> Unit:
    """The unit of a job, for which others leave if it `preempts`.

    Raises UserError if its quota is unknown, or another virtual cluster's, and TooLargeError if it is larger than the
    cluster.
    """
    queue = vc = need.spec.virtual_cluster
    leaf = None if tree is None else quota_of(tree, job.labels, job.ref.namespace)
    if leaf is not None:
        backed = virtual_cluster_of(leaf, cells.spec)
        if backed and backed != vc:
            raise UserError(
                f"its quota {leaf.name} is backed by virtual cluster {backed}, and its pods ask for {vc}: annotate "
                f"their template hivedscheduler.microsoft.com/virtual-cluster: {backed}, or name another quota"
            )
        queue = leaf.name
    unit = Unit(
        job.ref.key, queue, need.spec, job.created_s, need.user, need.request, need.is_preemptible, need.limit_s,
        needs=_needs(need.pods), namespace=job.ref.namespace, may_take_time=need.has_others,
        preempts=preempts, minimum=need.minimum, grace_s=need.grace_s,
    )  # fmt: skip
    least = smallest(unit).leaf_count
    if least > cells.leaf_count:
        is_batch = (job.ref.api_version, job.ref.kind) == ("batch/v1", "Job")
        at_once = cells.leaf_count // need.spec.leaf_cell_count if is_batch else 0
        remedy = f" at once: spec.parallelism: {at_once}, or hived submit --array N%{at_once}" if at_once else ""
        raise TooLargeError(
            f"it asks for {counted(least, 'GPU')}{_sized_by(need, cells.spec)}, and {cells.has} "
            f"{cells.leaf_count}: it can never run; ask for fewer{remedy}",
            queue,
        )
    return unit


def _sized_by(need: Need, spec: ClusterSpec) -> str:
    """The CPU or memory for which the pods of a job need more leaf cells than for devices; "" if there is none."""
    only = next(iter(spec.sku_types), "") if len(spec.sku_types) == 1 else ""
    for member, (pod, _) in zip(reversed(need.spec.group.members), reversed(need.pods), strict=False):
        demands = DemandsReader().read_pod(pod).demands
        if found := size_from(need.spec.leaf_cell_type or only, member.leaf_cell_count, demands, spec):
            each = f", {member.leaf_cell_count} of them a pod" if sum(count for _, count in need.pods) > 1 else ""
            return f"{each} for {found}"
    return ""


def _needs(pods: Sequence[tuple[Pod, int]]) -> str:
    """Equal for pods that Kubernetes may place alike."""
    specs = msgspec.json.encode([(pod.spec, count) for pod, count in pods])
    return hashlib.sha256(specs).hexdigest()[:16]
