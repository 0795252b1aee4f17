"""A watch whose events a test gives."""

import queue
from collections.abc import Iterator
from typing import Any

from hived_extender.kube.answers import WatchEvent


class OpenWatch:
    """Tells what it is given until it is closed."""

    def __init__(self) -> None:
        self.events: queue.Queue[WatchEvent[Any] | None] = queue.Queue()

    def __iter__(self) -> Iterator[WatchEvent[Any]]:
        return iter(self.events.get, None)

    def close(self) -> None:
        self.events.put(None)
