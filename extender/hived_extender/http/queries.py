"""Values behind a path."""

from hived.values.errors import UserError

MOST_DIGITS = 9


def number(text: str, name: str, expected: str) -> int:
    """A number of a query. Raises UserError (400), which says what was `expected` of this key."""
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise UserError(f"{name}={text[:40]!r}: expected {expected}")
    return int(text)
