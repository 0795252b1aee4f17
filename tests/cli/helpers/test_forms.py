"""Answers fit the terminal: lines are cut or broken, and reasons stand below their jobs where it is narrow."""

import re
from collections.abc import Iterator

import pytest

from hived_cli.helpers.forms import cut
from tests.cli.terminal import Running
from tests.cli.waiting_service import REASON, SENTENCE, WaitingService


@pytest.fixture
def service() -> Iterator[WaitingService]:
    with WaitingService() as running:
        yield running


def lines(service: WaitingService, *arguments: str, columns: int) -> list[str]:
    """The lines that a command shows on a terminal, without their styles."""
    with Running(*arguments, "--server", service.url, size=(50, columns)) as command:
        assert command.wait() == 0
        return re.sub("\\x1b\\[[0-9;]*m", "", command.text).replace("\r", "").splitlines()


@pytest.mark.sample(3)
@pytest.mark.parametrize("arguments", [("get", "jobs"), ("get", "nodes"), ("why", "gang")])
@pytest.mark.parametrize("columns", [60, 80, 100])
def test_no_line_is_longer_than_the_terminal(service: WaitingService, arguments: tuple[str, ...], columns: int) -> None:
    found = lines(service, *arguments, columns=columns)
    assert max(map(len, found)) <= columns


def test_a_reason_stands_below_its_job_where_the_terminal_is_narrow(service: WaitingService) -> None:
    found = lines(service, "get", "jobs", columns=80)
    assert found[0].split() == ["JOB", "VC", "STATE", "AGE", "WHEN"]
    assert found[1].startswith("podgroup/lab/gang ")
    assert " ".join(line.strip() for line in found[2:4]) == SENTENCE
    assert found[4].startswith("default/solo ")


def test_a_reason_stands_beside_its_job_where_there_is_room(service: WaitingService) -> None:
    found = lines(service, "get", "jobs", columns=200)
    assert found[1].endswith(REASON)
    assert len(found) == 4


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abc..."),
        ("\x1b[1mabcdefg\x1b[0m", 6, "\x1b[1mabc\x1b[0m..."),
        ("\x1b[1mab\x1b[0m cd \x1b[31mefgh\x1b[0m", 9, "\x1b[1mab\x1b[0m cd \x1b[31m\x1b[0m..."),
        ("abc", 2, "..."),
    ],
)
def test_a_line_is_cut_with_its_styles_closed(line: str, width: int, expected: str) -> None:
    assert cut(line, width) == expected
