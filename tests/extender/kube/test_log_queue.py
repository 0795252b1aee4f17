"""Queued log lines: all of them, in order, whatever happens."""

import io
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from hived_extender.kube import log_queue
from hived_extender.kube.log_queue import QueuedHandler
from tests.expecting import expect_soon


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
    monkeypatch.setattr(log_queue, "PAUSE_S", 0.0)  # so that lines come in every state of the thread
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
    monkeypatch.setattr(log_queue, "PAUSE_S", 1000.0)
    log.logger.info("before")
    log.logger.warning("now")
    assert log.lines == ["before", "now"]


def test_whoever_finds_too_many_waiting_writes_them(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_queue, "PAUSE_S", 1000.0)
    monkeypatch.setattr(log_queue, "MOST", 10)
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
