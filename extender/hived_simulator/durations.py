"""Lengths of time as people write them: 90s, 30m, 2h, 1.5d."""

import re

from hived.errors import UserError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_FORM = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)([smhdw]?)", re.ASCII)


def parse_duration(text: str, where: str) -> float:
    """Seconds. UserError names `where` the text stands."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise UserError(f"{where}: {text!r} is no length of time; expected a number with s, m, h, d or w, as in 1.5d")
    return float(match[1]) * _UNITS[match[2]]
