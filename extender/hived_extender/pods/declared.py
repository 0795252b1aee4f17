"""How long a pod runs at the most, by its own declaration: for forecasts of when waiting jobs start.

`spec.activeDeadlineSeconds` is enforced by the kubelet, and counts from the pod's start. The annotation
`expected-duration` is the owner's word. Limits in the words of others are read as well: the time limit of Slinky's
slurm-bridge, in Slurm's forms, and the label by which Kueue ends a workload. OpenPAI's job protocol has no field for
it. The least limit counts. Anybody may have written them, so a mistake is said and that limit is ignored.
"""

import math
import re
from collections.abc import Callable, Mapping

from hived.values.errors import UserError
from hived_extender.pods.annotations import PREFIX
from hived_extender.pods.wire import Pod

EXPECTED_DURATION = PREFIX + "expected-duration"
"""How long the pod runs at the most: `90m`, `1h30m`, `2d`, or a form of Slurm's such as `1-12:00:00`."""

SLURM_LIMITS = ("slinky.slurm.net/timelimit", "slurmjob.slinky.slurm.net/timelimit")
"""Annotations of slurm-bridge, a time limit as for `sbatch --time`."""

KUEUE_LIMIT = "kueue.x-k8s.io/max-exec-time-seconds"
"""A label, in seconds; Kueue ends the workload after it."""

MOST_S = 10 * 365 * 86_400.0
"""More is no limit."""

_LENGTH = 40  # characters of a limit; longer ones are not looked at
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PARTS = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,6})?[smhdw])+", re.ASCII)
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])", re.ASCII)
_WITH_DAYS = re.compile(r"(?P<d>[0-9]{1,6})-(?P<h>[0-9]{1,4})(?::(?P<m>[0-9]{1,4})(?::(?P<s>[0-9]{1,4}))?)?", re.ASCII)
_CLOCK = re.compile(r"(?:(?P<h>[0-9]{1,6}):)?(?P<m>[0-9]{1,9}):(?P<s>[0-9]{1,4})", re.ASCII)
_MINUTES = re.compile(r"[0-9]{1,9}", re.ASCII)
_ENDLESS = ("INFINITE", "UNLIMITED")


def declared_limit(pod: Pod) -> tuple[float | None, tuple[str, ...]]:
    """Seconds from its start that a pod runs at the most, None if nobody says; and the limits that are ignored."""
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
    """Seconds of our own annotation; a number alone is refused, as Slurm would mean minutes by it. Raises UserError."""
    if len(text) <= _LENGTH and _PARTS.fullmatch(text):
        return _positive(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)), text)
    if len(text) <= _LENGTH and not _MINUTES.fullmatch(text):
        found = _slurm(text)
        if found is not None:
            return _positive(found, text)
    raise UserError(f"expected a length of time such as 90m, 1h30m, 2d or 1-12:00:00, found {_shown(text)}")


def read_slurm_limit(text: str) -> float:
    """Seconds of a limit as `sbatch --time` takes it, a number alone is minutes; infinite for none. Raises UserError.

    Slurm takes 0 as no limit.
    """
    found = _slurm(text) if len(text) <= _LENGTH else None
    if found is None:
        raise UserError(f"expected minutes, or a time such as 1-12:00:00, found {_shown(text)}")
    return found or math.inf


def read_seconds(text: str) -> float:
    """Seconds, a whole number above 0. Raises UserError."""
    if len(text) > _LENGTH or not _MINUTES.fullmatch(text) or int(text) == 0:
        raise UserError(f"expected seconds, a whole number above 0, found {_shown(text)}")
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
        raise UserError(f"expected a length of time above 0, found {_shown(text)}")
    return seconds


def _shown(text: str) -> str:
    return repr(text) if len(text) <= _LENGTH else repr(text[:_LENGTH]) + "..."
