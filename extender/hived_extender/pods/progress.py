"""How far a pod has come, and what its owner says: its start, its last checkpoint, its limit, and leave to move it.

The start is what the kubelet reports, not before the API server has created the pod. The rest are annotations that
owners may set while the pod runs, so they are untrusted: a mistake in one is said and the annotation is ignored. A
checkpoint cannot be later than now, but for clocks that differ a little. Reading takes microseconds, whatever the text.
"""

from datetime import UTC, datetime

import msgspec

from hived.values.errors import UserError
from hived.values.specs import WorkTimes
from hived_extender.pods.annotations import PREFIX
from hived_extender.pods.declared import declared_limit
from hived_extender.pods.wire import Pod

CHECKPOINTED_AT = PREFIX + "checkpointed-at"
"""When the pod last saved the work of its group, in RFC 3339: if it has to leave, only the work since then is lost."""

MAY_MOVE = PREFIX + "may-move"
"""`true`: the pod may be evicted so that it starts anew elsewhere, against fragmentation."""

MOST_AHEAD_S = 60.0
"""A checkpoint may be so much later than now: the clocks of nodes differ."""

MOST_STARTED_AHEAD_S = 86_400.0
"""A start may be so much later than now: a node's clock is wrong, and no work is lost until then."""

LAST_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
"""Later moments have no text in RFC 3339."""

_TIME_LIMIT = 40
"""Characters of a time: `2026-11-23T15:04:05.123456789+01:00` has 35."""

_SHOWN = 40
"""Characters of a wrong value that are repeated."""


class Progress(msgspec.Struct, frozen=True):
    """All that is known of a pod's progress; `mistakes` has the annotations that are ignored, and why.

    `limit_s` is how long the pod runs at the most by its own declaration, from its start; None if nobody says.
    """

    times: WorkTimes = WorkTimes()
    may_move: bool = False
    mistakes: tuple[str, ...] = ()
    limit_s: float | None = None


UNKNOWN = Progress()


def read_progress(pod: Pod, now_s: float) -> Progress:
    """The progress of a pod as a watch shows it, at `now_s` seconds since 1970."""
    annotations = pod.annotations
    saved, moves = annotations.get(CHECKPOINTED_AT), annotations.get(MAY_MOVE)
    started = pod.status.started if pod.status is not None else None
    limit_s, ignored = declared_limit(pod)
    if saved is None and moves is None and started is None and limit_s is None and not ignored:
        return UNKNOWN
    saved_s, mistakes = None, list(ignored)
    if saved is not None:
        try:
            saved_s = _saved_at(saved, now_s)
        except UserError as error:
            mistakes.append(error.message)
    if moves not in (None, "true", "false"):
        mistakes.append(f"annotation {MAY_MOVE} is ignored: expected true or false, found {_shown(moves)}")
    started_s = _started_at(started, pod.metadata.created, now_s)
    return Progress(WorkTimes(started_s, saved_s), moves == "true", tuple(mistakes), limit_s)


def read_time(text: str) -> float:
    """Seconds since 1970 of a time in RFC 3339, with a date, a time of day and a zone. Raises UserError."""
    try:
        if len(text) > _TIME_LIMIT or "T" not in text.upper():
            raise ValueError
        moment = datetime.fromisoformat(text.upper())
        if moment.tzinfo is None or moment.year < 1970:
            raise ValueError
        return max(moment.timestamp(), 0.0)
    except (ValueError, OverflowError):
        raise UserError(f"expected a time such as 2026-11-23T15:04:05Z, found {_shown(text)}") from None


def seconds_of(text: str) -> float | None:
    """A time of Kubernetes in seconds since 1970, None if there is none."""
    try:
        return read_time(text) if text else None
    except UserError:
        return None


def write_time(time_s: float) -> str:
    """A time in seconds since 1970 as RFC 3339, in UTC, in whole seconds.

    Never raises, as tenants' limits may add up to any number: "" for a time before 1970 or after the year 9999.
    """
    if not 0 <= time_s <= LAST_S:
        return ""
    return datetime.fromtimestamp(int(time_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _started_at(text: str | None, created: str | None, now_s: float) -> float | None:
    """The start of a pod, unknown if it is no time, or far ahead: somebody else than the kubelet may have set it.

    An early start would protect a pod from being chosen as a victim, so it is not before `created`.
    """
    if text is None:
        return None
    try:
        started_s = max(read_time(text), read_time(created) if created else 0.0)
    except UserError:
        return None
    return started_s if started_s <= now_s + MOST_STARTED_AHEAD_S else None


def _saved_at(text: str, now_s: float) -> float:
    """The time of a checkpoint. Raises UserError if it is none, or has not come."""
    try:
        saved_s = read_time(text)
    except UserError as error:
        raise UserError(f"annotation {CHECKPOINTED_AT} is ignored: {error.message}") from None
    if saved_s > now_s + MOST_AHEAD_S:
        raise UserError(f"annotation {CHECKPOINTED_AT} is ignored: {text} has not come yet, it is {write_time(now_s)}")
    return saved_s


def _shown(text: str | None) -> str:
    """A value as a message repeats it."""
    text = text or ""
    return repr(text) if len(text) <= _SHOWN else repr(text[:_SHOWN]) + "..."
