"""Log lines off the road of whoever logs: one thread formats and writes them, in order, and none is lost.

A line costs its format and a call of the system, and every filter call logs one. Here a caller only appends a record.
The thread sleeps between two batches, so that it seldom takes the interpreter from a call under way. It is woken for
the first record after a pause alone.

Warnings and whatever is worse are written before the caller goes on, with all lines before them; so is everything once
`MOST` records wait, so that memory is bounded, and when the process ends in order. A process that is killed loses the
lines of its last `PAUSE_S`.
"""

import logging
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TextIO

MOST = 4096
"""Records that wait."""

PAUSE_S = 0.02


class QueuedHandler(logging.StreamHandler[TextIO]):
    """See the module. `flush` writes what waits; `logging` calls it at the end of the process."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._records: deque[logging.LogRecord] = deque()
        self._has_records = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._write_batches, name="log", daemon=True)
        self._thread.start()

    def handle(self, record: logging.LogRecord) -> bool:
        """Take a record that the filters let pass. Cost: an append, but for the cases that the module names."""
        if not self.filter(record):
            return False
        self._records.append(record)
        if record.levelno >= logging.WARNING or len(self._records) >= MOST or self._is_closed:
            self.flush()
        elif not self._has_records.is_set():
            self._has_records.set()
        return True

    def flush(self) -> None:
        """Write all records that wait."""
        assert self.lock is not None
        with self.lock:
            lines = []
            with suppress(IndexError):
                while True:
                    record = self._records.popleft()
                    try:
                        lines.append(self.format(record) + self.terminator)
                    except Exception:
                        self.handleError(record)
            if lines:
                with suppress(OSError, ValueError):  # nobody reads the log any more
                    self.stream.write("".join(lines))
            with suppress(OSError, ValueError):
                self.stream.flush()

    def close(self) -> None:
        """Write what waits and end the thread; later records are written at once."""
        self._is_closed = True
        self._has_records.set()
        self.flush()
        super().close()

    def _write_batches(self) -> None:
        while not self._is_closed:
            self._has_records.wait()
            while self._records and not self._is_closed:
                time.sleep(PAUSE_S)
                self.flush()
            self._has_records.clear()
            if self._records:  # of somebody who saw the event still set
                self._has_records.set()
