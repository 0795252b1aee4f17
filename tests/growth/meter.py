"""Counts operations by name; of those that are done more than once, the most that one took is kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import ModuleType

from tests.growth.work import Work, counted


class Meter:
    """The cost of operations, in `work`; `packages` are counted besides the core."""

    def __init__(self, *packages: ModuleType) -> None:
        self.work: dict[str, Work] = {}
        self._packages = packages

    @contextmanager
    def counting(self, name: str) -> Iterator[None]:
        """Count what happens as one operation of this name."""
        with counted(*self._packages) as work:
            yield
        known = asdict(self.work.get(name, work))
        self.work[name] = Work(**{meter: max(count, known[meter]) for meter, count in asdict(work).items()})
