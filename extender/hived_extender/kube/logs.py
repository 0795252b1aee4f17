"""Log lines for machines (JSON) and for people (text), both from the standard library's records.

A line's facts go into `extra={"fields": {...}}`, so that the text stays constant and can be searched for. Formatting
never fails and never lets a caller's input grow a line beyond `VALUE_LIMIT` per value.
"""

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TextIO

import msgspec

from hived_extender.kube.clocks import timestamp

log = logging.getLogger(__name__)

VALUE_LIMIT = 2000

MOST = 4096
"""Records that wait to be written."""

PAUSE_S = 0.02

_encoder = msgspec.json.Encoder(enc_hook=str)


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """The facts that came with a record, long texts cut."""
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return {key: _cut(value) for key, value in fields.items()}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON; a traceback becomes the field `exception`."""
        line: dict[str, Any] = {
            "time": timestamp(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _cut(record.getMessage()),
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            text = _encoder.encode(line)
        except UnicodeEncodeError:
            text = _encoder.encode({key: _printable(value) for key, value in line.items()})
        return text.decode()


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: message key=value ...`, a traceback on the lines below."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text."""
        pairs = [f"{key}={_quoted(value)}" for key, value in fields_of(record).items() if value not in ("", None)]
        message = "".join(_escaped(letter) for letter in _cut(record.getMessage()))
        head = f"{timestamp(record.created, 3)} {record.levelname:7} {record.name}: {message}"
        lines = [" ".join([head, *pairs])]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        return str(_printable("\n".join(lines)))


FORMATTERS = {"text": TextFormatter, "json": JsonFormatter}


class QueuedHandler(logging.StreamHandler[TextIO]):
    """Writes log lines on a thread of its own, in order, so that a call does not wait for them; none is lost.

    A line costs its format and a call of the system, and every filter call logs one. Here a caller only appends a
    record. The thread sleeps between two batches, so that it seldom takes the interpreter from a call under way.

    Warnings and worse are written before the caller goes on, with all lines before them; so is everything once `MOST`
    records wait, and when the process ends in order. A process that is killed loses the lines of its last `PAUSE_S`.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._records: deque[logging.LogRecord] = deque()
        self._has_records = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._write_batches, name="log", daemon=True)
        self._thread.start()

    def handle(self, record: logging.LogRecord) -> bool:
        """Take a record that the filters let pass. Cost: an append, but for the cases above."""
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
                with suppress(OSError, ValueError):  # the reader of the log is gone
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
            if self._records:  # appended while the event was still set
                self._has_records.set()


def configure(
    log_format: str,
    level: str = "INFO",
    stream: TextIO | None = None,
    only: logging.Filter | None = None,
    *,
    is_queued: bool = False,
) -> None:
    """Send the log lines of the process to `stream` (default stderr), as "text" or "json"; `only` says which.

    Where they are queued, a thread of their own writes them.
    """
    target = stream or sys.stderr
    handler: logging.Handler = QueuedHandler(target) if is_queued else logging.StreamHandler(target)
    if only is not None:
        handler.addFilter(only)
    handler.setFormatter(FORMATTERS[log_format]())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # The compiler of the kernels writes megabytes at DEBUG.
    logging.getLogger("numba").setLevel(logging.WARNING)


def tell_failure(future: Future[None]) -> None:
    """Log the exception that ended a call on a pool of threads, whose future is not read."""
    error = None if future.cancelled() else future.exception()
    if error is not None:
        log.error("a call in the background failed", exc_info=error)


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > VALUE_LIMIT:
        return f"{value[:VALUE_LIMIT]}... ({len(value)} characters)"
    return value


def _printable(value: Any) -> Any:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _escaped(letter: str) -> str:
    return letter if letter.isprintable() else repr(letter)[1:-1]


def _quoted(value: Any) -> str:
    text = str(value)
    return text if text and text.isprintable() and not set(text) & set(' "=') else repr(text)
