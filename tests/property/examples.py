"""How many examples property tests try."""

import os

PART = float(os.environ.get("HIVED_EXAMPLES", "0.25"))
"""Of the full count; `make soak` tries many times that."""


def examples(full_count: int) -> int:
    """How many of so many examples to try now; at least one."""
    return max(1, round(PART * full_count))
