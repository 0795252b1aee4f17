"""Jobs as text: starts in a few words, and lines that fit the terminal."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from hived_cli.helpers.tables import cut
from hived_cli.helpers.waits import brief_when, draw_why
from hived_extender.api.waiting import NOT_READY_NEXT, BadNode, Ended, EndState, Job, NodeView, When, Why
from tests.cli.terminal import Running
from tests.cli.waiting_service import REASON, SENTENCE, WaitingService

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOON, LATE, OVER = "2026-01-01T00:06:44Z", "2026-01-01T02:00:00Z", "2025-12-31T23:59:59Z"


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (When(kind="bounded", by=SOON), "within 6m44s (bounded)"),
        (When(kind="bounded", by=OVER), "any moment (bounded)"),
        (When(kind="estimated", likely=SOON, by=LATE), "about 6m44s, within 120m (estimated)"),
        (When(kind="estimated", likely=OVER, by=SOON), "any moment, within 6m44s (estimated)"),
        (When(kind="estimated", likely=OVER, by=OVER), "any moment (estimated)"),
        (When(kind="unknown", because=f"not before {LATE}", earliest=LATE), "not before 02:00"),
        (When(kind="unknown", earliest="2026-01-02T09:30:00Z"), "not before 2026-01-02 09:30"),
        (None, "-"),
    ],
)
def test_a_moment_has_its_kind_and_one_that_is_over_is_no_promise(when: When | None, expected: str) -> None:
    assert brief_when(when, NOW) == expected


@pytest.mark.parametrize(("reason", "is_told"), [("NotReady: new fans", True), ("cordoned", False)])
def test_a_job_on_a_node_that_is_not_ready_says_what_comes_next(reason: str, is_told: bool) -> None:
    job = Job(name="train", state="Running", nodes=["n1"], bad_nodes=[BadNode("n1", reason)])
    assert (NOT_READY_NEXT in draw_why(Why(job=job), NOW)) is is_told


def test_a_node_says_the_gpu_hours_at_stake_and_what_comes_next(service: WaitingService) -> None:
    bad = NodeView(node="n1", is_bad=True, reason="NotReady", cells=8, groups=["train"], pods=2, gpu_hours=12.5)
    service.nodes = [bad, NodeView(node="n2", cells=8, groups=["far", "wide"], if_drained=["starts", "waits"])]
    header, row, *after = lines(service, "get", "nodes", "n1", columns=200)
    assert header.split()[-7:] == ["LOST", "PODS", "GPU-H", "AT", "STAKE", "REASON", "JOBS"]
    assert row.split()[-4:] == ["2", "12.5", "NotReady", "train"]
    assert " ".join(after) == NOT_READY_NEXT
    drained = lines(service, "get", "nodes", "n2", columns=200)
    assert [line.split() for line in drained[-3:]] == [["JOB", "IF", "DRAINED"], ["far", "starts"], ["wide", "waits"]]
    assert NOT_READY_NEXT not in " ".join(drained)


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
    assert found[0].split() == ["JOB", "VC", "STATE", "FOR", "WHEN"]
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


@pytest.mark.parametrize(("state", "is_told"), [("Preempted", True), ("Evicted", True), ("Failed", False)])
def test_a_pod_that_was_lost_and_that_nobody_makes_anew_says_so(state: EndState, is_told: bool) -> None:
    job = Job(name="ns/p", state=state, pods=["ns/p"], ended=Ended(at=OVER, started=OVER, is_bare=True))
    assert ("\n  no controller makes this pod anew: create it again" in draw_why(Why(job=job), NOW)) is is_told
