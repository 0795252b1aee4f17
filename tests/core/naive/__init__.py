"""The oracle: the whole scheduler again, slow and obvious, to check the array core against.

It is written from the rules (docs/rules.md), not from the core, with objects, lists and dicts. So the two can only
agree where both follow the rules. Nothing here is imported by the product.
"""

from tests.core.naive.scheduler import NaiveScheduler

__all__ = ["NaiveScheduler"]
