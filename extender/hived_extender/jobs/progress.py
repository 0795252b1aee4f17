"""The progress of a pod: its start, its last checkpoint, its declared limit, and permission to move it.

The start is what the kubelet reports, not before the API server has created the pod. The rest are annotations that
owners may set while the pod runs. So they are untrusted: a malformed one is reported and ignored. A checkpoint cannot
be later than now, but for clocks that differ a little. Reading takes microseconds, whatever the text.

The least of several limits counts, for forecasts of starts (rule 24.8). The kubelet enforces
`spec.activeDeadlineSeconds` from the pod's start. `expected-duration` is the owner's own annotation. Limits of others
are read as well: the time limit of Slinky's slurm-bridge, in Slurm's forms, and the label by which Kueue ends a
workload.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec

from hived.values.errors import UserError
from hived.values.specs import WorkTimes
from hived_extender.jobs.annotations import PREFIX
from hived_extender.jobs.wire import Pod
from hived_extender.kube.clocks import timestamp

EXPECTED_DURATION = PREFIX + "expected-duration"
"""The longest run of the pod: `90m`, `1h30m`, `2d`, or a form of Slurm's such as `1-12:00:00`."""

SLURM_LIMITS = ("slinky.slurm.net/timelimit", "slurmjob.slinky.slurm.net/timelimit")
"""Annotations of slurm-bridge, a time limit as for `sbatch --time`."""

KUEUE_LIMIT = "kueue.x-k8s.io/max-exec-time-seconds"
"""A label, in seconds; Kueue ends the workload after it."""

MOST_S = 10 * 365 * 86_400.0
"""More is no limit."""

GRACE_S = 30.0
"""Kubernetes gives this long to a pod that says nothing of it."""

MOST_GRACE_S = int(MOST_S)
"""A longer time to leave counts as so long, and messages name no end of such a pod. The API server takes any."""

_LENGTH = 40  # characters of a limit; longer ones are not looked at
_UNITS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0,
}  # fmt: skip
_PART = r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(ns|us|µs|ms|s|m|h|d|w)"
_PARTS = re.compile(f"(?:{_PART})+")
_WITH_DAYS = re.compile(r"(?P<d>[0-9]{1,6})-(?P<h>[0-9]{1,4})(?::(?P<m>[0-9]{1,4})(?::(?P<s>[0-9]{1,4}))?)?", re.ASCII)
_CLOCK = re.compile(r"(?:(?P<h>[0-9]{1,6}):)?(?P<m>[0-9]{1,9}):(?P<s>[0-9]{1,4})", re.ASCII)
_MINUTES = re.compile(r"[0-9]{1,9}", re.ASCII)
_WORDS = re.compile(r"(?<=[0-9])(?:(s)ec(?:ond)?s?|(m)in(?:ute)?s?|(h)(?:ou)?rs?|(d)ays?|(w)eeks?)(?![a-z])", re.ASCII)
_ENDLESS = ("INFINITE", "UNLIMITED")


def grace_of(pod: Pod) -> float:
    """Seconds that a pod may take to leave, once it is to."""
    grace_s = pod.spec.termination_grace_period_seconds if pod.spec is not None else None
    return GRACE_S if grace_s is None else float(min(max(grace_s, 0), MOST_GRACE_S))


def declared_limit(pod: Pod) -> tuple[float | None, tuple[str, ...]]:
    """(longest run of a pod in seconds, None if none is declared; messages about ignored limits)."""
    deadline = pod.spec.active_deadline_seconds if pod.spec is not None else None
    limits = [float(deadline)] if deadline is not None and deadline > 0 else []
    mistakes: list[str] = []
    for kind, written, key, read in _SOURCES:
        text = written(pod).get(key)
        if text is not None:
            try:
                limits.append(read(text))
            except UserError as error:
                mistakes.append(f"{kind} {key} is ignored: {error.message}")
    least = min(limits, default=math.inf)
    return (least if least <= MOST_S else None), tuple(mistakes)


def read_duration(text: str) -> float:
    """Seconds of a length that people type, also in words such as `2 hours`; a number alone is refused, as Slurm would
    mean minutes by it. Raises UserError.
    """
    found = sum_of_units(_short(text))
    if found is None and len(text) <= _LENGTH and not _MINUTES.fullmatch(text):
        found = _slurm(text)
    if found is not None:
        return _positive(found, text)
    raise UserError(f"expected a length of time such as 90m, 1h30m, 2d or 1-12:00:00, found {_shown_limit(text)}")


def read_whole_duration(text: str) -> int:
    """Whole seconds of a limit that is to end something, rounded up. A number alone is minutes, and 0 is no limit, both
    as for sbatch. Raises UserError, for one without end as well.
    """
    found = read_slurm_limit(text) if _MINUTES.fullmatch(text) else read_duration(text)
    if math.isinf(found):
        raise UserError("a limit without end is none: leave it out")
    return math.ceil(found)


def _short(text: str) -> str:
    """A length in units of one letter: `1h30m` of `1 Hour 30 minutes`."""
    if len(text) > _LENGTH:
        return text
    return _WORDS.sub(
        lambda found: found[found.lastindex or 0],
        re.sub(r"(?<=\w) +(?=[a-z])|(?<=[a-z]) +(?=[0-9.])", "", text.lower()),
    )


def sum_of_units(text: str) -> float | None:
    """Seconds of a duration such as 1h30m, as Go writes it, with days and weeks besides; None for any other text."""
    if len(text) > _LENGTH or not _PARTS.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, text))


def read_slurm_limit(text: str) -> float:
    """Seconds of a limit as `sbatch --time` takes it, a number alone is minutes; infinite for none. Raises UserError.

    Slurm takes 0 as no limit.
    """
    found = _slurm(text) if len(text) <= _LENGTH else None
    if found is None:
        raise UserError(f"expected minutes, or a time such as 1-12:00:00, found {_shown_limit(text)}")
    return found or math.inf


def read_seconds(text: str) -> float:
    """Seconds, a whole number above 0. Raises UserError."""
    if len(text) > _LENGTH or not _MINUTES.fullmatch(text) or int(text) == 0:
        raise UserError(f"expected seconds, a whole number above 0, found {_shown_limit(text)}")
    return float(text)


def _annotations(pod: Pod) -> Mapping[str, str]:
    return pod.annotations


def _labels(pod: Pod) -> Mapping[str, str]:
    return pod.labels


_SOURCES: tuple[tuple[str, Callable[[Pod], Mapping[str, str]], str, Callable[[str], float]], ...] = (
    ("annotation", _annotations, EXPECTED_DURATION, read_duration),
    *(("annotation", _annotations, key, read_slurm_limit) for key in SLURM_LIMITS),
    ("label", _labels, KUEUE_LIMIT, read_seconds),
)


def _slurm(text: str) -> float | None:
    """Minutes, M:S, H:M:S, D-H, D-H:M or D-H:M:S; infinite for no limit, None if it is no such form."""
    if text.upper() in _ENDLESS:
        return math.inf
    if _MINUTES.fullmatch(text):
        return int(text) * 60.0
    match = _WITH_DAYS.fullmatch(text) or _CLOCK.fullmatch(text)
    if match is None:
        return None
    return sum(int(number) * _UNITS[unit] for unit, number in match.groupdict().items() if number is not None)


def _positive(seconds: float, text: str) -> float:
    if seconds <= 0:
        raise UserError(f"expected a length of time above 0, found {_shown_limit(text)}")
    return seconds


def _shown_limit(text: str) -> str:
    return repr(text) if len(text) <= _LENGTH else repr(text[:_LENGTH]) + "..."


CHECKPOINTED_AT = PREFIX + "checkpointed-at"
"""The time of the last checkpoint of the pod's group, in RFC 3339: only later work is lost if it has to leave."""

MAY_MOVE = PREFIX + "may-move"
"""`true`: the pod may be evicted so that it starts anew elsewhere, against fragmentation."""

MOST_AHEAD_S = 60.0
"""By which a checkpoint may be later than now: the clocks of nodes differ."""

MOST_STARTED_AHEAD_S = 86_400.0
"""By which a start may be later than now: a node's clock is wrong, and no work is lost until then."""

LAST_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
"""Later moments have no text in RFC 3339."""

_TIME_LIMIT = 40
"""Characters of a time: `2026-11-23T15:04:05.123456789+01:00` has 35."""

_SHOWN = 40
"""Characters of a wrong value that are repeated."""


class Progress(msgspec.Struct, frozen=True):
    """The known progress of a pod; `mistakes` are messages about ignored annotations.

    `limit_s` is the longest run that the pod declares, from its start; None if it declares none.
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
    return timestamp(time_s)


def _started_at(text: str | None, created: str | None, now_s: float) -> float | None:
    """The start of a pod; unknown if it is no time, or far in the future, as clients other than the kubelet may set it.

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
