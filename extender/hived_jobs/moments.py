"""The moments at which people have a job begin, as they type them for sbatch and at.

A day and a time of day without a zone are those of the machine on which they are typed, so what is read has to be told
back in UTC. A moment that is only a time of day is the next such one. A day alone is its 00:00, as sbatch has it.
"""

import re
from datetime import date, datetime, time, timedelta

from hived.values.errors import UserError
from hived_extender.jobs.progress import read_duration, read_time, write_time

_TIMES = {"midnight": time(0), "elevenses": time(11), "noon": time(12), "fika": time(15), "teatime": time(16)}
"""Words of sbatch and at for times of day."""

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))?(?::(\d\d))? ?([ap]m)?", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_SECONDS = re.compile(r"now *\+ *(\d{1,9})", re.ASCII)

FORMS = (
    "expected a moment such as 18:00, 6pm, tomorrow, 'friday 9:00', 2026-12-24, 2026-12-24T18:00 (here in {zone}) or "
    "2026-12-24T18:00:00Z, or so long from now: +2h, now+30m, now+1hour"
)


def read_moment(text: str, now_s: float) -> float | None:
    """The moment of `--begin` in seconds since 1970; None for now, which holds nothing back. Raises UserError.

    A number alone behind `now+` is seconds, as for sbatch.
    """
    words = " ".join(text.lower().split())
    if words == "now":
        return None
    if seconds := _SECONDS.fullmatch(words):
        words = f"now+{seconds[1]}s"
    try:
        return read_time(text)
    except UserError:
        first, plus, length = words.partition("+")
    start_s = now_s if plus and first.strip() in ("", "now") else _start(first.strip(), now_s)
    if start_s is None:
        zone = datetime.fromtimestamp(now_s).astimezone()
        raise UserError(f"{FORMS.format(zone=f'{zone:%Z}')}; found {text[:40]!r}")
    return start_s + (read_duration(length.strip()) if plus else 0.0)


def told(moment_s: float) -> str:
    """A moment in UTC, with the time that clocks here show where that is another one."""
    here = datetime.fromtimestamp(moment_s).astimezone()
    return write_time(moment_s) + (f" ({here:%Y-%m-%d %H:%M %Z})" if here.utcoffset() else "")


def _start(words: str, now_s: float) -> float | None:
    """A day, a time of day, or both in either order; None if it is none of these."""
    now = datetime.fromtimestamp(now_s)
    if (clock := _time_of(words)) is not None:
        is_past = datetime.combine(now.date(), clock) <= now
        return _seconds(now.date() + timedelta(days=int(is_past)), clock)
    if (day := _day_of(words, now.date())) is not None:
        return _next_week(words, _seconds(day, time()), now_s)
    for gap in re.finditer(r"(?<=[\dwy])t(?=\d)|[ ,]+", words):
        one, other = words[: gap.start()], words[gap.end() :]
        for said_day, said_time in ((one, other), (other, one)):
            day, clock = _day_of(said_day, now.date()), _time_of(said_time)
            if day is not None and clock is not None:
                return _next_week(said_day, _seconds(day, clock), now_s)
    return None


def _next_week(day: str, found_s: float, now_s: float) -> float:
    """The same moment a week later if it is one of a weekday that has passed."""
    if day[:3] in {name[:3] for name in _WEEKDAYS} and found_s <= now_s:
        return (datetime.fromtimestamp(found_s) + timedelta(days=7)).astimezone().timestamp()
    return found_s


def _time_of(words: str) -> time | None:
    found = _CLOCK.fullmatch(words)
    if found is None or not (found[2] or found[4]):
        return _TIMES.get(words)
    hour, half = int(found[1]), found[4]
    if half and not 1 <= hour <= 12:
        return None
    try:
        return time(hour % 12 + 12 * (half == "pm") if half else hour, int(found[2] or 0), int(found[3] or 0))
    except ValueError:
        return None


def _day_of(words: str, today: date) -> date | None:
    """`today`, `tomorrow`, the first such weekday from today by its name or three letters of it, or a date."""
    if words in ("today", "tomorrow"):
        return today + timedelta(days=int(words == "tomorrow"))
    weekday = next((at for at, name in enumerate(_WEEKDAYS) if words in (name, name[:3])), None)
    if weekday is not None:
        return today + timedelta(days=(weekday - today.weekday()) % 7)
    try:
        return date.fromisoformat(words) if _DATE.fullmatch(words) else None
    except ValueError:
        return None


def _seconds(day: date, clock: time) -> float:
    return datetime.combine(day, clock).astimezone().timestamp()
