"""VC safety, the plain way (rules 4.2, 4.3)."""

from tests.core.naive.model import Chain, PhysicalCell


def spare_cells(
    chain: Chain, lowest: int, free: dict[int, list[PhysicalCell]], claims: dict[int, int]
) -> dict[int, int]:
    """How many cells of each level, from the top down to `lowest`, can be split; negative where claims are not met."""
    spare: dict[int, int] = {}
    for level in range(chain.levels[-1], lowest - 1, -1):
        from_above = spare[level + 1] * chain.child_counts[level + 1] if level + 1 in spare else 0
        spare[level] = len(free[level]) - claims[level] + from_above
    return spare
