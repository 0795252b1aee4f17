"""Log lines for machines (JSON) and for people (text), both from the standard library's records.

A line's facts go into `extra={"fields": {...}}`, so that the text stays constant and can be searched for. Formatting
never fails and never lets a caller's input grow a line beyond `VALUE_LIMIT` per value.
"""

import logging
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, TextIO

import msgspec

from hived_extender.kube.log_queue import QueuedHandler

log = logging.getLogger(__name__)

VALUE_LIMIT = 2000

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
            "time": _timestamp(record.created),
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
        head = f"{_timestamp(record.created)} {record.levelname:7} {record.name}: {message}"
        lines = [" ".join([head, *pairs])]
        if record.exc_info:
            lines.append(self.formatException(record.exc_info))
        return str(_printable("\n".join(lines)))


FORMATTERS = {"text": TextFormatter, "json": JsonFormatter}


def configure(
    log_format: str,
    level: str = "INFO",
    stream: TextIO | None = None,
    only: logging.Filter | None = None,
    *,
    is_queued: bool = False,
) -> None:
    """Send the log lines of the process to `stream` (default stderr), as "text" or "json"; `only` says which.

    Where they are queued, a thread of their own writes them (`log_queue.py`).
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
    """Log the exception that ended a call on a pool of threads: nobody asks the future."""
    error = None if future.cancelled() else future.exception()
    if error is not None:
        log.error("a call in the background failed", exc_info=error)


def _timestamp(seconds: float) -> str:
    return f"{_second(int(seconds))}.{int(seconds % 1 * 1000):03d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


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
