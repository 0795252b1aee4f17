"""Log lines in both forms, and the thread that writes them."""

import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import numba
import pytest

from hived_extender.kube import logs
from hived_extender.kube.logs import QueuedHandler
from tests.expecting import expect_soon


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


class Log:
    """A logger with a queued handler, and what it has written."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.handler = QueuedHandler(self.stream)
        self.logger = logging.Logger("queued")
        self.logger.addHandler(self.handler)

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.handler.close()


def test_a_line_is_written_soon(log: Log) -> None:
    log.logger.info("one")
    expect_soon(lambda: bool(log.lines))
    assert log.lines == ["one"]


def test_lines_that_come_one_by_one_are_all_written_soon(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAUSE_S", 0.0)  # so that lines come in every state of the thread
    for number in range(100):
        log.logger.info("%d", number)
        expect_soon(lambda: len(log.lines) == number + 1)  # noqa: B023  # asked before the next turn
    assert log.lines == [str(number) for number in range(100)]


def test_lines_stay_in_order(log: Log) -> None:
    for number in range(1000):
        log.logger.info("%d", number)
    log.handler.flush()
    assert log.lines == [str(number) for number in range(1000)]


def test_a_warning_is_written_at_once_behind_the_lines_before_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAUSE_S", 1000.0)
    log.logger.info("before")
    log.logger.warning("now")
    assert log.lines == ["before", "now"]


def test_whoever_finds_too_many_waiting_writes_them(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PAUSE_S", 1000.0)
    monkeypatch.setattr(logs, "MOST", 10)
    for number in range(25):
        log.logger.info("%d", number)
    assert len(log.lines) >= 20


def test_no_line_of_many_threads_is_lost(log: Log) -> None:
    def tell(name: str) -> None:
        for number in range(200):
            log.logger.info("%s %d", name, number)

    threads = [threading.Thread(target=tell, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.handler.flush()
    for name in "abcd":
        assert [line for line in log.lines if line[0] == name] == [f"{name} {number}" for number in range(200)]


def test_a_record_that_cannot_be_formatted_costs_no_other_line(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    log.logger.info("one")
    log.logger.info("%d", "no number")
    log.logger.info("two")
    log.handler.flush()
    assert log.lines == ["one", "two"]


def test_after_its_end_lines_are_written_at_once(log: Log) -> None:
    log.handler.close()
    log.logger.info("late")
    assert log.lines == ["late"]


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise IndexError('boom')"])
def test_a_process_that_ends_writes_its_last_lines(end: str) -> None:
    code = (
        "import logging, sys\n"
        "from hived_extender.kube import logs\n"
        "logs.configure('json', is_queued=True)\n"
        "for number in range(100): logging.getLogger('x').info('line %d', number)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code + end], capture_output=True, text=True, check=False, timeout=100)
    assert [f"line {number}" in ended.stderr for number in range(100)] == [True] * 100
