"""Counts and lists of names, as messages have them."""

from collections.abc import Iterable, Sequence


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `1,024 GPUs`; names of cell types that are no words, such as `H100`, have no plural."""
    has_plural = noun.islower() or noun in ("GPU", "SKU")
    return f"{count:,} {noun}{'s' * (has_plural and count != 1)}"


def listed(names: Iterable[str], limit: int = 5) -> str:
    """The first few names, and how many more there are: `a, b and 3 more`."""
    every = list(names)
    rest = len(every) - limit
    return ", ".join(every[:limit]) + (f" and {rest:,} more" if rest > 0 else "")


def listed_with(parts: Sequence[str], more: str = "") -> str:
    """`a`, `a and b`, `a, b and 3 more`."""
    every = [*parts, more] if more else list(parts)
    return every[0] if len(every) == 1 else f"{', '.join(every[:-1])} and {every[-1]}"
