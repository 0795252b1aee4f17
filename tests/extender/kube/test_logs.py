"""Log lines: one per record, whatever is in it."""

import io
import json
import logging
from collections.abc import Iterator

import numba
import pytest

from hived_extender.kube import logs


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    root.handlers[:], root.level = handlers, level


def test_compiling_a_kernel_is_not_logged_step_by_step(root: logging.Logger) -> None:
    stream = io.StringIO()
    logs.configure("text", "DEBUG", stream)
    logging.getLogger("part").debug("before")
    assert numba.njit(lambda number: number + 1)(1) == 2
    assert len(stream.getvalue().splitlines()) == 1


def log_line(log_format: str, message: str, exc_info: object = None, **fields: object) -> str:
    stream = io.StringIO()
    logs.configure(log_format, stream=stream)
    logging.getLogger("part").warning(message, extra={"fields": fields}, exc_info=exc_info)
    return stream.getvalue()


def test_a_json_line_carries_message_and_fields(root: logging.Logger) -> None:
    line = json.loads(log_line("json", "decision", pod="ns/p", us=12))
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warning", "logger": "part", "message": "decision", "pod": "ns/p", "us": 12}


def test_a_text_line_leaves_empty_fields_out_and_quotes_odd_ones(root: logging.Logger) -> None:
    text = log_line("text", "decision", pod="ns/p", reason="no room", vc="", group=None, us=0)
    assert text.endswith("WARNING part: decision pod=ns/p reason='no room' us=0\n")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_line_break_does_not_break_the_line(root: logging.Logger, log_format: str) -> None:
    line = log_line(log_format, "x\ny", reason="a\nb\r\x1b[0m")
    assert line.count("\n") == 1
    assert "\x1b" not in line


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_long_values_are_cut(root: logging.Logger, log_format: str) -> None:
    text = log_line(log_format, "x", reason="r" * 1_000_000)
    assert len(text) < 2 * logs.VALUE_LIMIT
    assert "1000000 characters" in text


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_lone_surrogate_is_written_as_an_escape(root: logging.Logger, log_format: str) -> None:
    assert "ud800" in log_line(log_format, "x", reason="\ud800")


def test_an_exception_is_a_field_in_json_and_lines_in_text(root: logging.Logger) -> None:
    error = ValueError("boom")
    assert "ValueError: boom" in json.loads(log_line("json", "x", error))["exception"]
    assert log_line("text", "x", error).splitlines()[-1] == "ValueError: boom"
