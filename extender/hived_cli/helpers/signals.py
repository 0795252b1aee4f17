"""Commands that run until they are told to stop."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; for the main thread."""
    stop = threading.Event()

    def tell(*_: object) -> None:
        # On another thread: a signal may come while the main one holds the lock of the event that it waits for.
        threading.Thread(target=stop.set, name="stop").start()

    previous = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
