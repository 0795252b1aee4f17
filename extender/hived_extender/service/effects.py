"""Everything that the machine can have done in the world. Values only: the runner carries them out.

Each effect but the holds of bindings is answered by one `stimuli.Wrote`, so that the machine knows what is under way.
"""

from collections.abc import Mapping

import msgspec

from hived_extender.pods.dialects.description import GangKey, ObjectRef
from hived_extender.service.gangs.states import GangState
from hived_extender.service.notices import Condition, Notice
from hived_extender.service.pods import PodName


class BindPod(msgspec.Struct, frozen=True):
    """Bind a pod and annotate it, if it has this resourceVersion. `origin` is "scheduler" or "force"."""

    pod: PodName
    node: str
    version: str
    annotations: Mapping[str, str]
    origin: str


class ReadPod(msgspec.Struct, frozen=True):
    """Read a pod that is to be bound and that no watch has told of."""

    pod: PodName


class TouchPod(msgspec.Struct, frozen=True):
    """Change a pod, so that kube-scheduler tries it again."""

    pod: PodName


class AnnotatePod(msgspec.Struct, frozen=True):
    """Change annotations of a bound pod and prove them.

    `anew` is all that was written onto it: it replaces what is there, unless that is proven. For `is_bare` and `quota`
    see `proofs.Proof`.
    """

    pod: PodName
    changed: Mapping[str, str]
    anew: Mapping[str, str]
    is_bare: bool
    quota: Mapping[str, str] | None = None


class EvictPod(msgspec.Struct, frozen=True):
    """Make a pod leave; `by_force` deletes it whatever disruption budgets say. `is_move`: its group is being moved.

    It has `grace_s` seconds, None for its own `terminationGracePeriodSeconds`.
    """

    pod: PodName
    by_force: bool
    is_move: bool = False
    grace_s: int | None = None


class Announce(msgspec.Struct, frozen=True):
    """Write events and a condition about an object. `about` is its kind.

    `stored` is the condition that it has as far as is known, which is to be read first unless `is_stored_known`.
    """

    pod: PodName
    about: str
    notices: tuple[Notice, ...]
    condition: Condition | None
    stored: Condition | None
    is_stored_known: bool


class KeepChanged(msgspec.Struct, frozen=True):
    """Write down where tenants cannot write what pods were given whose annotations do not say so any more, by uid."""

    changed: Mapping[str, Mapping[str, str]]


class WriteStatuses(msgspec.Struct, frozen=True):
    """Write how far gangs have come into the objects that describe them; None for a gang without pods."""

    states: Mapping[GangKey, GangState | None]
    sources: Mapping[GangKey, ObjectRef]


class HoldBindings(msgspec.Struct, frozen=True):
    """Let calls to bind these pods, by uid, wait for `ReleaseBindings`."""

    uids: tuple[str, ...]


class ReleaseBindings(msgspec.Struct, frozen=True):
    """Let calls to bind these pods go on."""

    uids: tuple[str, ...]


Write = BindPod | ReadPod | TouchPod | AnnotatePod | EvictPod | Announce | KeepChanged | WriteStatuses
Effect = Write | HoldBindings | ReleaseBindings


class Awaits(msgspec.Struct, frozen=True):
    """An answer that follows the carrying out of an effect, by whoever asked."""

    effect: BindPod | ReadPod
