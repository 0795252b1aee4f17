"""Everything that the machine can be told or asked. Values only, read from text before."""

from collections.abc import Mapping
from typing import Any

import msgspec

from hived.values.errors import HivedError, UserError
from hived.values.specs import BindInfo, PodSpec
from hived_config.loader import Configuration
from hived_extender.api.defrag import PlannedPod
from hived_extender.jobs.job import JobName, JobRef
from hived_extender.jobs.kinds.description import ObjectRef
from hived_extender.jobs.quotas.tree import QuotaTree
from hived_extender.jobs.readings import Reading
from hived_extender.jobs.wire import BindArgs, FilterArgs, Node, Pod, PreemptArgs
from hived_extender.machine.core import Core
from hived_extender.machine.devices.dra import DeviceClass, ResourceClaim, ResourceSlice
from hived_extender.machine.devices.shortage import Losses
from hived_extender.machine.effects import Write
from hived_extender.machine.notices import Reason

DeviceObject = DeviceClass | ResourceSlice | ResourceClaim


# Facts


class NodesListed(msgspec.Struct, frozen=True):
    """There are no other nodes than these, and what is seen next of them is new."""

    names: tuple[str, ...]


class NodeSeen(msgspec.Struct, frozen=True):
    """A node looks like this now, or did when it went."""

    node: Node
    is_gone: bool = False


class PodSeen(msgspec.Struct, frozen=True):
    """A pod looks like this now, and its annotations say this; one that `is_listed` is sure to exist."""

    pod: Pod
    reading: Reading
    is_listed: bool = False


class PodGone(msgspec.Struct, frozen=True):
    """A pod was deleted."""

    uid: str


class ObjectSeen(msgspec.Struct, frozen=True):
    """An object that describes gangs was created, changed or deleted."""

    ref: ObjectRef


class NamespaceChanged(msgspec.Struct, frozen=True):
    """A namespace has other labels. Answer: may its pods do something else now, and have to be told anew?"""

    namespace: str


class DevicesListed(msgspec.Struct, frozen=True):
    """These are all objects of dynamic resource allocation of their kind."""

    kind: type[DeviceObject]
    objects: tuple[Any, ...]


class DeviceSeen(msgspec.Struct, frozen=True):
    """An object of dynamic resource allocation looks like this now, or did when it went."""

    object: DeviceObject
    is_gone: bool = False


# Questions of kube-scheduler


class FilterAsked(msgspec.Struct, frozen=True):
    """On which of these nodes can the pod run? Answer: FilterResult.

    Asked `tentatively`, the answer is a PodOutcome, and nothing is held, told or remembered.
    """

    args: FilterArgs
    reading: Reading
    tentatively: bool = False


class PreemptAsked(msgspec.Struct, frozen=True):
    """Which pods should leave for this one? Answer: PreemptResult."""

    args: PreemptArgs
    reading: Reading


class BindAsked(msgspec.Struct, frozen=True):
    """Bind this pod. The answer follows the writing; `stranger` is the pod as read for a `ReadPod`."""

    args: BindArgs
    stranger: Pod | None = None


class WhatIfAsked(msgspec.Struct, frozen=True):
    """How would these pods fare if they were created now? Answer: list[PodOutcome], in their order."""

    pods: tuple[tuple[Pod, Reading], ...]


# Moves


class MoveOrder(msgspec.Struct, frozen=True):
    """One group that is to move in a step. `becomes` is the new placement of all its pods; None if it has none yet."""

    step: int
    group: str
    gang: str
    was: tuple[PlannedPod, ...]
    becomes: BindInfo | None


class MovesAsked(msgspec.Struct, frozen=True):
    """Move these groups, for `who`, in favour of a VC. Answer: MovingReport.

    Pods have `return_s` to leave in each step, and as long to come back. Groups of `movable` VCs need not allow it.
    `jobs` are the affinity groups and pods that room is made for, if it is for jobs: no step begins once none waits.
    """

    orders: tuple[MoveOrder, ...]
    who: str
    vc: str
    return_s: float
    movable: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()


class MovesStopped(msgspec.Struct, frozen=True):
    """Move nobody else. Answer: MovingReport."""

    reason: str


class MovesLookedAt(msgspec.Struct, frozen=True):
    """How far have the moves come? Answer: MovingReport."""


# Cells held for jobs that wait in queues


class Hold(msgspec.Struct, frozen=True):
    """Cells for a job whose pods do not exist yet.

    `spec` is the whole gang as one affinity group, at the priority that the pods are to have. Its group's name is
    `key`. `own` are the virtual leaf cells that the VC's own schedule gives it, in slot order; empty if any will do.
    `pods` has for each slot the pod as its template makes it, whose rules about nodes are heeded; empty if any node
    will do.
    `queue` is the leaf of the quota tree that the job is in, "" if it is in none, and `request` are its amounts there.
    """

    key: str
    job: JobRef
    spec: PodSpec
    own: tuple[int, ...] = ()
    pods: tuple[Pod, ...] = ()
    queue: str = ""
    request: Mapping[str, float] = msgspec.field(default_factory=dict)
    is_preemptible: bool = True


class Claimed(msgspec.Struct, frozen=True):
    """A hold that gets its cells once these jobs have left, and all opportunistic work if it `takes_lent`."""

    hold: Hold
    leaving: tuple[JobRef, ...]
    takes_lent: bool = False


class HoldAsked(msgspec.Struct, frozen=True):
    """Hold cells, without evicting anybody; the pods of the job get them when they come.

    Answer: `holds.HeldBind`, a Bind; Wait; or `holds.NeedsVictims`, a Wait. While the cells are held, the answer for a
    key stays the same. Slots that pods of the job have already count as taken. From then on its pods run at the
    priority of the hold, whatever they say.

    The `claims` still get their cells in turn; one that could not have them anyway does not count. `is_start`: the job
    has no pods yet. Pods that there are belong to an earlier run, and have to be gone first. Questions of one `walk`
    follow an order: once something has made room since the first of them, the answer is `holds.RoomMade`. 0 is none.
    """

    hold: Hold
    claims: tuple[Claimed, ...] = ()
    is_start: bool = False
    walk: int = 0


class UpgradeAsked(msgspec.Struct, frozen=True):
    """Make the borrowed cells of a job guaranteed ones: those of this hold, which names its virtual leaves.

    Nobody moves. From then on its pods run at the priority of the hold. Answer: True; False, and nothing changes, if
    the hardware that it has cannot be behind these virtual cells.
    """

    hold: Hold


class LentAsked(msgspec.Struct, frozen=True):
    """Do the pods of a job run on lent cells? Answer: None if none has cells, or none is known to be in the core.

    Asked when a term begins. If only some do, as a leader has ended amid an upgrade, all are lent from then on.
    """

    job: JobRef


class VictimsAsked(msgspec.Struct, frozen=True):
    """Which of these jobs would have to leave for this hold, at the least? Nothing changes. Answer: Victims, or None.

    `candidates` are in the order in which they should leave, besides the jobs of `leaving`. Opportunistic groups of no
    held job come after them, newest first, unless it `spares_others`. The `claims` get their cells first.
    """

    hold: Hold
    candidates: tuple[JobRef, ...]
    leaving: tuple[JobRef, ...] = ()
    claims: tuple[Claimed, ...] = ()
    spares_others: bool = False


class Victims(msgspec.Struct, frozen=True):
    """An answer: these jobs and, of no job, these affinity groups; none of them could stay."""

    jobs: tuple[JobRef, ...]
    groups: tuple[str, ...] = ()


class GroupsEvicted(msgspec.Struct, frozen=True):
    """Evict all pods of these affinity groups for `winner`, which their owners read. Nothing can spare them then."""

    groups: tuple[str, ...]
    winner: str


class HoldDropped(msgspec.Struct, frozen=True):
    """Give back what is still held for a job, and forget at which priority its pods were to run."""

    key: str


class HoldShrunk(msgspec.Struct, frozen=True):
    """The job of a hold needs fewer pods, for good: slots that none of them will take are held no longer.

    Answer: the virtual leaves of the slots that are still held, in slot order; none if borrowed.
    """

    hold: Hold


class HoldsLookedAt(msgspec.Struct, frozen=True):
    """How far have the pods of held jobs come? Answer: dict of HoldState by key."""


class JobsBarred(msgspec.Struct, frozen=True):
    """Pods of these jobs wait, each in the queue that is named; those of others do not any more.

    A job is free as soon as cells are held for it.
    """

    barred: Mapping[JobName, str] = msgspec.field(default_factory=dict)
    freed: tuple[JobName, ...] = ()


class JobsMade(msgspec.Struct, frozen=True):
    """These jobs were made by others, which have the turn and the cells for them; None: not any more.

    One that has made itself has these, whatever labels of its pods say.
    """

    makers: Mapping[JobName, JobName | None]


class QuotasFollowed(msgspec.Struct, frozen=True):
    """All that gets cells counts against this tree from now on; None: there is none. Until it `is_known`, nothing new
    gets any.
    """

    tree: QuotaTree | None
    is_known: bool = True


class HoldState(msgspec.Struct, frozen=True):
    """An answer: of `slot_count` pods, how many slots are still held, and how many pods have cells, and are bound."""

    slot_count: int
    held_count: int
    placed_count: int
    bound_count: int
    is_lost: bool = False  # somebody took held cells, or their nodes are bad: hold again


# Results and time


class Wrote(msgspec.Struct, frozen=True):
    """An effect was carried out, or failed with `error`. `is_current`: the term that it was decided in goes on.

    `found` is the result: the version that a binding was tried with last, the pod that was read, or an `Announced`. Of
    statuses it is the gangs that have changed and those that failed.
    """

    effect: Write
    error: HivedError | None = None
    found: Any = None
    is_current: bool = True


class TimeCame(msgspec.Struct, frozen=True):
    """The moment of a timer has come, of several perhaps."""


class TryWaiting(msgspec.Struct, frozen=True):
    """There is time to try some of the pods that wait."""


class Closing(msgspec.Struct, frozen=True):
    """The process is about to end: what is to be kept is to be written now."""


# Leadership and configuration


class Elected(msgspec.Struct, frozen=True):
    """This replica leads from now on. `changed` has, by uid, what pods were given whose annotations do not say so."""

    changed: Mapping[str, Reading] = msgspec.field(default_factory=dict)


class Deposed(msgspec.Struct, frozen=True):
    """This replica does not lead any more; `standing` says in words what it does."""

    standing: str


class Configured(msgspec.Struct, frozen=True):
    """Take up a configuration while not leading. Answer: False on a replica that leads, which has to switch."""

    configuration: Configuration
    text: str


class Switched(msgspec.Struct, frozen=True):
    """Take up a configuration whose state, with all that is held, has been built: its `core`, the devices that it has
    counted as lost, and the pods, by uid, that it refused. `version` is its number, 0 for none.
    """

    configuration: Configuration
    core: Core
    losses: Losses
    unaccounted: Mapping[str, UserError]
    version: int = 0


class Reconfigured(msgspec.Struct, frozen=True):
    """Tell the owners of running pods, by uid, what another configuration has done to them."""

    news: tuple[tuple[tuple[str, ...], tuple[Reason, str]], ...]


Stimulus = (
    NodesListed
    | NodeSeen
    | PodSeen
    | PodGone
    | ObjectSeen
    | NamespaceChanged
    | DevicesListed
    | DeviceSeen
    | FilterAsked
    | PreemptAsked
    | BindAsked
    | WhatIfAsked
    | MovesAsked
    | MovesStopped
    | MovesLookedAt
    | HoldAsked
    | VictimsAsked
    | UpgradeAsked
    | LentAsked
    | GroupsEvicted
    | HoldDropped
    | HoldShrunk
    | HoldsLookedAt
    | JobsBarred
    | JobsMade
    | QuotasFollowed
    | Wrote
    | TimeCame
    | TryWaiting
    | Closing
    | Elected
    | Deposed
    | Configured
    | Switched
    | Reconfigured
)
