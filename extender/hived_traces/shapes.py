"""Shapes of gangs as text: `2x8+4` is two pods of eight leaf cells each and one of four."""

import re

from hived_traces.fields import Unusable, bounded
from hived_traces.jobs import Pods

_PART = re.compile(r"(?:(\d{1,7})x)?(\d{1,7})")


def to_text(pods: tuple[Pods, ...]) -> str:
    """The shape as text."""
    return "+".join(f"{each.count}x{each.leaf_count}" if each.count > 1 else str(each.leaf_count) for each in pods)


def from_text(text: str) -> tuple[Pods, ...]:
    """The shape that a text stands for, ascending by leaf cells. Raises Unusable if it is none."""
    sizes: dict[int, int] = {}
    for part in text.split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None or not int(match[2]) or match[1] == "0":
            raise Unusable("pods are no shape such as 2x8+4", "pods", text)
        sizes[int(match[2])] = sizes.get(int(match[2]), 0) + int(match[1] or 1)
    bounded(sum(size * count for size, count in sizes.items()), "pods")
    return tuple(Pods(sizes[size], size) for size in sorted(sizes))
