"""All that the queues know of one unit, and the part of it that outlives a process.

Rests: a job for which cells were held in vain, or lent and taken back, steps back, longer each time.

So no job is started and called back over and over, and its cells serve others. One whose pods did not come in time
takes no turn (`Late`). One that gave borrowed cells back to others borrows no more (`Returned`), and starts on cells of
its own whenever its turn comes. A rest is over early if the clock was set back meanwhile.

The state of a unit that outlives this process: an annotation on its job, written in the same call that lets it go.

So a crash never leaves a job let go of which nobody knows why. Tenants may write annotations too, so it has a seal;
one without it counts as absent, and the job is held back again.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import msgspec
from msgspec.structs import replace

from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.bind_info import Prover
from hived_extender.kube.clocks import timestamp
from hived_extender.queues.order import At
from hived_extender.queues.units import Unit

FIRST_S = 900.0
"""The first rest of a job that gave borrowed cells back."""


class Rest(msgspec.Struct, frozen=True, omit_defaults=True):
    """How often it came to this, until when the job rests, in seconds since 1970, and how long the first rest is."""

    count: int = 0
    until_s: float = 0.0
    first_s: float = 0.0

    FREE: ClassVar[int] = 0
    """So often nothing follows."""
    FACTOR: ClassVar[float] = 2.0
    LONGEST_S: ClassVar[float] = 0.0
    """Each rest is so many times as long as the one before, and none is longer, unless the first one is."""

    @property
    def length_s(self) -> float:
        """How long the present rest is in all."""
        times = self.count - self.FREE
        return (
            min(self.first_s * self.FACTOR ** min(times - 1, 20), max(self.LONGEST_S, self.first_s)) if times else 0.0
        )

    @property
    def is_on(self) -> bool:
        """Is it not said to be over? See `at`."""
        return self.until_s > 0.0

    def after(self, now: float, first_s: float) -> Self:
        """The next one, which begins now."""
        following = replace(self, count=self.count + 1, until_s=0.0, first_s=first_s)
        return replace(following, until_s=now + following.length_s) if following.length_s else following

    def goes_on(self, now: float) -> bool:
        """Is it not over yet?"""
        return 0.0 < self.until_s - now <= self.length_s

    def at(self, now: float) -> Self:
        """The same; one that is over says so."""
        return self if not self.is_on or self.goes_on(now) else replace(self, until_s=0.0)


class Late(Rest, frozen=True, omit_defaults=True):
    """How often in a row the pods of a job did not come within `first_s`, and until when it takes no turn."""

    LONGEST_S: ClassVar[float] = 6 * 3600.0

    @property
    def notice(self) -> str:
        """Words for its owner, which stay true; "" if it does not rest."""
        return f"it takes no turn before {timestamp(self.until_s)}" if self.is_on else ""


class Returned(Rest, frozen=True, omit_defaults=True):
    """How often a job gave borrowed cells back, and until when it borrows no more; not at all after the first time."""

    FREE: ClassVar[int] = 1
    FACTOR: ClassVar[float] = 4.0
    LONGEST_S: ClassVar[float] = 64 * 3600.0

    @property
    def notice(self) -> str:
        """Words for its owner, which stay true; "" if it does not rest."""
        return f"it borrows no cells before {timestamp(self.until_s)}" if self.is_on else ""

    @property
    def reason(self) -> str:
        """Why the job does not borrow."""
        return f"it gave borrowed cells back {self.count} times, and borrows again at {timestamp(self.until_s)}"


IN_TIME, NONE_RETURNED = Late(), Returned()
"""Of a job whose pods came, or that had no cells yet; of one that has given no borrowed cells back."""


@dataclass(slots=True)
class Run:
    """A unit has cells in the live cluster."""

    start_s: float
    is_borrowed: bool


@dataclass(slots=True)
class Entry:
    """A unit, where it stands, and what became of it."""

    unit: Unit
    place: float
    kind: int
    is_held: bool = False
    is_over: bool = False  # its user has too many that wait
    run: Run | None = None
    is_leaving: bool = False
    leaving_for: str = ""  # "" for nobody: it was suspended, or has lost its cells
    ran_s: float | None = None  # has really ended after so long, and is yet to be played in its own schedule
    impossible: str = ""
    promised_s: float | None = None  # as `Kept` has it
    late: Late = IN_TIME  # as `Kept` has it; both rests are told once they are over
    returned: Returned = NONE_RETURNED  # as `Kept` has it
    whole: Unit | None = None  # as it asked, if it starts with fewer pods

    @property
    def at(self) -> At:
        """Its place among equals."""
        return self.place, self.unit.key

    @property
    def is_waiting(self) -> bool:
        """Has it no cells, and may get some?"""
        return self.run is None and self.ran_s is None

    @property
    def is_aside(self) -> bool:
        """Is it in no turn, though nothing else is in its way?"""
        return self.is_held or self.late.is_on

    @property
    def is_standing(self) -> bool:
        """Does it take part in turns?"""
        return not (self.is_aside or self.is_over or self.impossible)


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


NEW = Kept()
"""Of a job that hived has never written onto."""


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
