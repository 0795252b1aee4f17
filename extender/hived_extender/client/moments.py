"""Moments and lengths of time, as answers have them and as people read them."""

import math
from datetime import UTC, datetime


def parse_time(text: str) -> datetime | None:
    """An RFC 3339 time, None if `text` is not one."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def seconds_since(text: str, now: datetime) -> float | None:
    """Seconds from an RFC 3339 time until now, None if `text` is not one."""
    moment = parse_time(text)
    return None if moment is None else (now - moment).total_seconds()


def as_minute(text: str) -> str:
    """An RFC 3339 time to the minute, in UTC, as `2026-11-20 10:00 UTC`; the text itself if it is no time."""
    moment = parse_time(text)
    return text if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def duration(seconds: float) -> str:
    """`seconds` in at most two units, the finer one only while it still tells something: 45s, 3m20s, 5h, 12d."""
    total = max(0, math.floor(seconds))
    minutes, hours, days = total // 60, total // 3600, total // 86400
    if total < 120:
        return f"{total}s"
    if minutes < 10:
        return _two(minutes, "m", total % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 730:
        return f"{days}d"
    return _two(days // 365, "y", days % 365, "d")


def _two(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}" + (f"{minor}{minor_unit}" if minor else "")
