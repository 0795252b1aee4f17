"""A unit is one job in a queue, as plain values: all that order, shares and placement need to know of it."""

from collections.abc import Mapping

import msgspec

from hived.values.specs import PodSpec
from hived_extender.job_kinds.minimums import Minimum

GROWN = "others until it is its turn, as it asks for more than it was let go with"
LATE = "others for now, as not all of its pods had a node in time"
"""Words in place of the job that gets the cells."""


class Unit(msgspec.Struct, frozen=True):
    """A job that waits or runs.

    Attributes
    ----------
    key : unique for all time, "Kind/namespace/name/uid"
    queue : full name of the leaf of the quota tree, such as "root/team/a"; the virtual cluster where there is no tree
    spec : the whole gang as one affinity group: virtual cluster, priority, members, cells. Its group name is the key
    created_s : seconds since 1970; its place among equals, which it keeps when it comes back
    namespace : of the job
    user : the owner, for limits per user; "" if nobody says
    request : amounts by resource, in the resource's base unit, as the quota tree counts them
    is_preemptible : may it run ahead, on borrowed cells that are taken back
    limit_s : how long a run lasts at the most, as declared; None if nobody says
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

    @property
    def owner(self) -> tuple[str, str, str]:
        """Its user as limits count: in one queue and one namespace, as the name is the word of the job's author."""
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
        return sum(member.pod_count * member.leaf_cell_count for member in self.spec.group.members)


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
    """This unit ran on borrowed cells, and is due: they are its own cells, guaranteed ones, from now on."""

    key: str


Order = Start | Stop | Evict | Upgrade
