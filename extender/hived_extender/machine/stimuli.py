"""All facts and questions for the machine: values only, parsed before."""

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
    """A listing of all nodes; the next sight of a node counts as new."""

    names: tuple[str, ...]


class NodeSeen(msgspec.Struct, frozen=True):
    """A node as seen, or as it was when deleted."""

    node: Node
    is_gone: bool = False


class PodSeen(msgspec.Struct, frozen=True):
    """A pod with its parsed annotations; one that `is_listed` surely exists."""

    pod: Pod
    reading: Reading
    is_listed: bool = False


class PodGone(msgspec.Struct, frozen=True):
    """A deleted pod."""

    uid: str


class ObjectSeen(msgspec.Struct, frozen=True):
    """A change of an object that describes gangs."""

    ref: ObjectRef


class NamespaceChanged(msgspec.Struct, frozen=True):
    """New labels of a namespace. Answer: True if its pods may act otherwise now and must be told again."""

    namespace: str


class DevicesListed(msgspec.Struct, frozen=True):
    """All objects of dynamic resource allocation of a kind."""

    kind: type[DeviceObject]
    objects: tuple[Any, ...]


class DeviceSeen(msgspec.Struct, frozen=True):
    """An object of dynamic resource allocation, as seen or when deleted."""

    object: DeviceObject
    is_gone: bool = False


# Questions of kube-scheduler


class FilterAsked(msgspec.Struct, frozen=True):
    """Choose among these nodes for the pod. Answer: FilterResult.

    Asked `tentatively`, the answer is a PodOutcome, and nothing is held, told or remembered.
    """

    args: FilterArgs
    reading: Reading
    tentatively: bool = False


class PreemptAsked(msgspec.Struct, frozen=True):
    """Choose victims for this pod. Answer: PreemptResult."""

    args: PreemptArgs
    reading: Reading


class BindAsked(msgspec.Struct, frozen=True):
    """Bind this pod. The answer follows the write; `stranger` is the pod as read for a `ReadPod`."""

    args: BindArgs
    stranger: Pod | None = None


class WhatIfAsked(msgspec.Struct, frozen=True):
    """Foresee these pods as if created now. Answer: list[PodOutcome], in their order."""

    pods: tuple[tuple[Pod, Reading], ...]


# Moves


class MoveOrder(msgspec.Struct, frozen=True):
    """One group of a move's step. `becomes` is the new placement of all its pods; None if open."""

    step: int
    group: str
    gang: str
    was: tuple[PlannedPod, ...]
    becomes: BindInfo | None


class MovesAsked(msgspec.Struct, frozen=True):
    """Move these groups, for `who`, in favour of a VC. Answer: MovingReport.

    Pods have `return_s` to leave in each step, and as long to return. Groups of `movable` VCs need no permission of
    their own. `jobs` are the beneficiary groups and pods, if any: no step begins once none of them waits.
    """

    orders: tuple[MoveOrder, ...]
    who: str
    vc: str
    return_s: float
    movable: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()


class MovesStopped(msgspec.Struct, frozen=True):
    """Stop moving. Answer: MovingReport."""

    reason: str


class MovesLookedAt(msgspec.Struct, frozen=True):
    """Report the moves. Answer: MovingReport."""


# Cells held for jobs that wait in queues


class Hold(msgspec.Struct, frozen=True):
    """Cells for a job whose pods do not exist yet.

    `spec` is the whole gang as one affinity group, at the pods' future priority; its group's name is `key`. `own` are
    the virtual leaf cells by the VC's own schedule, in slot order; empty for any. `pods` has each slot's pod by its
    template, with rules about nodes; empty for any node. `queue` is the job's leaf of the quota tree, "" for none, and
    `request` its amounts there.
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
    """A hold that gets its cells once these jobs have left, with all opportunistic work if it `takes_lent`."""

    hold: Hold
    leaving: tuple[JobRef, ...]
    takes_lent: bool = False


class HoldAsked(msgspec.Struct, frozen=True):
    """Hold cells without evicting; the job's pods get them when they come.

    Answer: `holds.HeldBind`, a Bind; Wait; or `holds.NeedsVictims`, a Wait. While cells are held, the answer for a key
    stays the same. Slots of existing pods count as taken. From then on all its pods run at the hold's priority.

    The `claims` still get their cells in turn; impossible ones do not count. `is_start`: the job has no pods yet; pods
    of an earlier run must be gone first. Questions of one `walk` (0 for none) are ordered: once room was made since its
    first, the answer is `holds.RoomMade`.
    """

    hold: Hold
    claims: tuple[Claimed, ...] = ()
    is_start: bool = False
    walk: int = 0


class UpgradeAsked(msgspec.Struct, frozen=True):
    """Turn a job's borrowed cells into guaranteed ones: those of this hold, with its virtual leaf cells.

    No pod moves. From then on they run at the hold's priority. Answer: True; False, and nothing changes, if its
    hardware cannot be behind these virtual cells.
    """

    hold: Hold


class LentAsked(msgspec.Struct, frozen=True):
    """Ask if a job's pods run on lent cells. Answer: None if none has cells, or none is known to the core.

    Asked when a term begins. After an upgrade cut off by a leader's end, all count as lent.
    """

    job: JobRef


class VictimsAsked(msgspec.Struct, frozen=True):
    """Find the fewest of these jobs to preempt for this hold. Nothing changes. Answer: Victims, or None.

    `candidates` are in order of preemption, besides the jobs of `leaving`. Opportunistic groups outside held jobs
    follow, newest first, unless it `spares_others`. The `claims` get their cells first.
    """

    hold: Hold
    candidates: tuple[JobRef, ...]
    leaving: tuple[JobRef, ...] = ()
    claims: tuple[Claimed, ...] = ()
    spares_others: bool = False


class Victims(msgspec.Struct, frozen=True):
    """The answer: jobs, and affinity groups outside jobs, none of which could stay."""

    jobs: tuple[JobRef, ...]
    groups: tuple[str, ...] = ()


class GroupsEvicted(msgspec.Struct, frozen=True):
    """Evict all pods of these affinity groups for `winner`, as their owners read. Nothing can spare them then."""

    groups: tuple[str, ...]
    winner: str


class HoldDropped(msgspec.Struct, frozen=True):
    """Release a job's hold, and the priority of its pods."""

    key: str


class HoldShrunk(msgspec.Struct, frozen=True):
    """Free slots that a job needs no more, for good.

    Answer: the virtual leaf cells of the slots still held, in slot order; none if borrowed.
    """

    hold: Hold


class HoldsLookedAt(msgspec.Struct, frozen=True):
    """Report the pods of held jobs, of these keys or all. Answer: dict of HoldState by key."""

    keys: tuple[str, ...] | None = None


class JobsBarred(msgspec.Struct, frozen=True):
    """Hold pods of these jobs, each in its named queue; free those of all others.

    A job is free as soon as cells are held for it. The pods that a `reclaimed` job has now leave for others.
    """

    barred: Mapping[JobName, str] = msgspec.field(default_factory=dict)
    freed: tuple[JobName, ...] = ()
    reclaimed: JobRef | None = None


class JobsMade(msgspec.Struct, frozen=True):
    """Jobs made by others, whose admission and cells they share; None: not any more.

    A job listed as made by itself has its own, whatever labels its pods have.
    """

    makers: Mapping[JobName, JobName | None]


class QuotasFollowed(msgspec.Struct, frozen=True):
    """Count all cells against this tree from now on; None for no tree. Until it `is_known`, nothing new gets cells."""

    tree: QuotaTree | None
    is_known: bool = True


class HoldState(msgspec.Struct, frozen=True):
    """The answer: of `slot_count` pods, the slots still held, and the pods placed and bound."""

    slot_count: int
    held_count: int
    placed_count: int
    bound_count: int
    is_lost: bool = False  # somebody took held cells, or their nodes are bad: hold again


# Queues


class JobChanged(msgspec.Struct, frozen=True):
    """A job looks different, or is gone; the next turn reads it."""

    name: JobName


class ObjectsFound(msgspec.Struct, frozen=True):
    """Objects of queues as their watch tells of them."""

    found: Any


class TurnAsked(msgspec.Struct, frozen=True):
    """Take a turn soon: something that the queues read has changed."""


class TakeTurn(msgspec.Struct, frozen=True):
    """Do the next piece of the turn that has begun: a few milliseconds."""


class JobHeld(msgspec.Struct, frozen=True):
    """Hold a queued job, or have it take its turns again; by the key of its unit.

    If it `is_now`, its author's words about its start are removed as well.
    """

    key: str
    is_held: bool
    is_now: bool = False


class JobMoved(msgspec.Struct, frozen=True):
    """Give a queued job another place: `front`, `back`, or before the job of that key."""

    key: str
    to: str


class ReclaimAsked(msgspec.Struct, frozen=True):
    """Suspend borrowers for guaranteed work of no queue, which gets their cells."""

    hold: Hold
    jobs: tuple[JobRef, ...]


class ClaimsKept(msgspec.Struct, frozen=True):
    """Forget the claims of work of no queue but for those of these keys."""

    keys: frozenset[str]


# Results and time


class Wrote(msgspec.Struct, frozen=True):
    """The result of an effect, or its `error`. `is_current`: the deciding term goes on.

    `found` is the version that a binding was tried with last, the pod that was read, or an `Announced`. For statuses it
    has the gangs that have changed and those that failed.
    """

    effect: Write
    error: HivedError | None = None
    found: Any = None
    is_current: bool = True


class TimeCame(msgspec.Struct, frozen=True):
    """One or more timers have expired."""


class TryWaiting(msgspec.Struct, frozen=True):
    """Try some of the waiting pods, as there is time."""


class Closing(msgspec.Struct, frozen=True):
    """Write what must be stored: the process is about to end."""


# Leadership and configuration


class Elected(msgspec.Struct, frozen=True):
    """Lead from now on. `changed` has original annotations of changed pods, by uid."""

    changed: Mapping[str, Reading] = msgspec.field(default_factory=dict)


class Deposed(msgspec.Struct, frozen=True):
    """Lead no more; `standing` describes this replica's state."""

    standing: str


class Configured(msgspec.Struct, frozen=True):
    """Take a configuration while not leading. Answer: False on a leader, which must switch instead."""

    configuration: Configuration
    text: str


class Switched(msgspec.Struct, frozen=True):
    """Take a configuration with its finished state in `core`: its lost devices, and the refused pods, by uid.

    `version` is its number, 0 for none.
    """

    configuration: Configuration
    core: Core
    losses: Losses
    unaccounted: Mapping[str, UserError]
    version: int = 0


class Reconfigured(msgspec.Struct, frozen=True):
    """Tell the owners of running pods, by uid, the effects of another configuration."""

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
    | JobChanged
    | ObjectsFound
    | TurnAsked
    | TakeTurn
    | JobHeld
    | JobMoved
    | ReclaimAsked
    | ClaimsKept
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
