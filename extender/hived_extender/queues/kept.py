"""The state of a unit that outlives this process: an annotation on its job, written in the same call that lets it go.

So a crash never leaves a job let go of which nobody knows why. Tenants may write annotations too, so it has a seal;
one without it counts as absent, and the job is held back again.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from hived_extender.pods.annotations import PREFIX
from hived_extender.pods.proofs import Prover
from hived_extender.queues.rests import IN_TIME, NONE_RETURNED, Late, Returned

STATE = PREFIX + "queue-state"
"""The annotation of a job object."""

_LIMIT = 4096
"""Characters."""


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is kept of one unit.

    Attributes
    ----------
    version : counts what hived has written, so that an older state tells itself whatever clocks say
    is_let_go : hived has let the job go, and not called it back
    leaf_count : the leaf cells of the gang that was let go
    is_borrowed : it runs as opportunistic work
    since_s : when it was let go or called back last
    due_s : when the schedule of its VC alone has started it, None if it has not
    attempts : how often it was let go
    place : its own place in the order, None for the one that follows from its creation
    is_held : its owner or an admin said `hived hold`
    is_suspended : its owner has suspended the object while it ran, and has not resumed it
    promised_s : the limit by which it went past the first job that did not fit, None if it has not
    late : how often its pods did not come, and until when it takes no turn
    returned : how often it gave borrowed cells back, and until when it borrows no more
    evicted_for : the job that its cells went to, as `masked` has it for its owner; "" if it was never called back
    """

    version: int = 0
    is_let_go: bool = False
    leaf_count: int = 0
    is_borrowed: bool = False
    since_s: float = 0.0
    due_s: float | None = None
    attempts: int = 0
    place: float | None = None
    is_held: bool = False
    is_suspended: bool = False
    promised_s: float | None = None
    evicted_for: str = ""
    late: Late = IN_TIME
    returned: Returned = NONE_RETURNED

    @property
    def is_aside(self) -> bool:
        """Is it to be in no turn, by the word of a person?"""
        return self.is_held or self.is_suspended

    def rest_notice(self, now: float) -> str:
        """Until when it takes no turn, or borrows no cells; "" if it may do both."""
        return self.late.at(now).notice or self.returned.at(now).notice

    def followed_by(self, **changes: Any) -> "Kept":
        """The next state, with these changes."""
        return replace(self, version=self.version + 1, **changes)


class _Sealed(msgspec.Struct, frozen=True):
    kept: str
    seal: str = ""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_Sealed)
_kept_decoder = msgspec.json.Decoder(Kept)


def written(kept: Kept, uid: str, prover: Prover) -> dict[str, str]:
    """The annotation that keeps it, on the job with this uid."""
    text = _encoder.encode(kept).decode()
    return {STATE: _encoder.encode(_Sealed(text, prover.seal(uid, text))).decode()}


def read(annotations: Mapping[str, str], uid: str, prover: Prover) -> Kept:
    """The state that hived has written onto a job; an empty one if it has not, or somebody else has."""
    try:
        sealed = _decoder.decode(annotations.get(STATE, "{}")[:_LIMIT])
        if not prover.is_sealed(uid, sealed.kept, sealed.seal):
            return Kept()
        kept = _kept_decoder.decode(sealed.kept)
    except (ValueError, RecursionError):
        return Kept()
    times = (kept.since_s, kept.due_s or 0.0, kept.place or 0.0, kept.promised_s or 0.0)
    numbers = (*times, kept.late.until_s, kept.late.first_s, kept.returned.until_s, kept.returned.first_s)
    return kept if all(map(math.isfinite, numbers)) else Kept()
