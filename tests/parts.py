"""Context managers that are made of several parts."""

from contextlib import ExitStack
from typing import Self


class MadeOfParts:
    """All parts end with the block, the last one first; those that were started also end when another cannot start."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._begin(stack)
            self._parts = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    def _begin(self, stack: ExitStack) -> None:
        """Start each part, and tell the stack how it ends."""
        raise NotImplementedError
