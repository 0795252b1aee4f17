"""`hived get jobs`, `nodes` and `free`: rows of what waits, runs and is bad."""

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from hived_cli import main
from hived_extender.api.waiting import When
from tests.cli.waiting_service import GANG, GONE, REASON, WaitingService


@pytest.fixture
def service() -> Iterator[WaitingService]:
    with WaitingService() as running:
        yield running


def get(service: WaitingService, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["get", *arguments, "--server", service.url])


def rows(service: WaitingService, *arguments: str) -> list[list[str]]:
    result = get(service, *arguments)
    assert result.exit_code == 0, result.output
    return [[cell.strip() for cell in line.split("   ") if cell] for line in result.output.splitlines()]


def test_jobs_have_their_reason_and_their_start(service: WaitingService) -> None:
    header, gang, solo, train = rows(service, "jobs")
    assert header == ["JOB", "VC", "STATE", "AGE", "ASKS", "WHEN", "REASON"]
    assert gang[:3] == ["podgroup/lab/gang", "vision", "Waiting"]
    assert gang[4:] == ["2 nodes of 8 H100", "any moment (bounded)", REASON]
    assert solo == ["default/solo", "lang", "Running", "-", "1x1 H100", "-"]
    assert train[0] == "me~train/default"


def test_a_preempted_job_says_when_and_for_whom(service: WaitingService) -> None:
    service.jobs = [GONE]
    (row,) = rows(service, "jobs")[1:]
    assert row[:3] == ["podgroup/lab/gone", "lang", "Preempted"]
    assert row[-1] == "preempted at Jan 1 00:00 for gang"
    assert rows(service, "jobs", "--waiting") == [["No such job waits or runs."]]


def test_wide_jobs_have_users_priorities_and_nodes(service: WaitingService) -> None:
    _, gang, solo, train = rows(service, "jobs", "-o", "wide")
    assert gang[2:4] == ["me", "50"]
    assert solo[2:4] == ["-", "opportunistic"]
    assert train[-1] == "dgx-1"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--waiting"], ["podgroup/lab/gang"]),
        (["--vc", "lang"], ["default/solo"]),
        (["--user", "me"], ["podgroup/lab/gang", "me~train/default"]),
        (["--state", "running"], ["default/solo", "me~train/default"]),
        (["-n", "lab"], ["podgroup/lab/gang"]),
        (["--vc", "vision", "--state", "Running"], ["me~train/default"]),
    ],
)
def test_jobs_can_be_chosen(service: WaitingService, options: list[str], names: list[str]) -> None:
    assert [row[0] for row in rows(service, "jobs", *options)[1:]] == names
    told = json.loads(get(service, "jobs", *options, "-o", "json").output)
    assert [job["name"] for job in told["items"]] == names


def test_nothing_that_waits_is_said_so(service: WaitingService) -> None:
    assert get(service, "jobs", "--user", "nobody").output == "No such job waits or runs.\n"
    service.jobs = []
    assert get(service, "jobs").output == "No job waits or runs.\n"


def test_jobs_of_a_virtual_cluster_that_is_not_there_are_a_mistake(service: WaitingService) -> None:
    result = get(service, "jobs", "--vc", "visoin")
    assert (result.exit_code, result.output) == (1, "Error: no virtual cluster 'visoin'; there are vision, lang\n")


def test_waiting_is_a_state_already(service: WaitingService) -> None:
    result = get(service, "jobs", "--waiting", "--state", "Running")
    assert (result.exit_code, "--waiting and --state exclude each other" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        (None, "..."),
        (When(kind="now"), "now"),
        (When(kind="never"), "never"),
        (When(kind="unknown"), "unknown"),
        (When(kind="certain", by="2026-01-01T01:00:00Z"), "any moment (certain)"),
        (
            When(kind="estimated", likely="2026-01-01T01:00:00Z", by="2026-01-01T02:00:00Z"),
            "any moment (estimated)",
        ),
    ],
)
def test_a_start_is_told_with_its_kind(service: WaitingService, when: When | None, expected: str) -> None:
    service.jobs = [replace(GANG, when=when)]
    assert rows(service, "jobs")[1][5] == expected


def test_nodes_have_their_health_and_their_jobs(service: WaitingService) -> None:
    header, one, three = rows(service, "nodes")
    assert header == ["NODE", "HEALTH", "FOR", "CELLS", "FREE", "LOST", "REASON", "GROUPS"]
    assert one == ["dgx-1", "Healthy", "-", "8", "0", "-", "-", "me~train/default"]
    assert (three[:2], three[3:]) == (["dgx-3", "Bad"], ["8", "0", "2", "NotReady", "-"])


def test_bad_nodes_are_asked_for_alone(service: WaitingService) -> None:
    assert [row[0] for row in rows(service, "nodes", "--bad")[1:]] == ["dgx-3"]
    assert [node["node"] for node in json.loads(get(service, "nodes", "--bad", "-o", "json").output)] == ["dgx-3"]


def test_free_cells_have_a_row_for_each_level(service: WaitingService) -> None:
    assert rows(service, "free")[1:] == [
        ["vision", "H100-POOL", "H100", "1", "24", "8", "0", "8", "8", "0"],
        ["H100-NODE", "8", "3", "1", "0", "1", "1", "0"],
        ["lang", "H100-POOL", "H100", "1", "8", "0", "1", "0", "8", "0"],
    ]


def test_free_cells_of_a_virtual_cluster_that_is_not_there_name_the_others(service: WaitingService) -> None:
    result = get(service, "free", "visoin")
    assert (result.exit_code, result.stderr) == (
        1,
        "Error: no virtual cluster 'visoin'; there are vision, lang\n",
    )


@pytest.mark.parametrize("what", ["jobs", "nodes", "free"])
@pytest.mark.parametrize("form", ["table", "json"])
def test_an_older_service_is_said_to_be_older(what: str, form: str) -> None:
    with WaitingService(is_old=True) as service:
        result = get(service, what, "-o", form)
    assert result.exit_code == 1
    assert (
        f"does not know /v1/inspect/{what.replace('free', 'free-cells')}: its version of hived is older"
        in result.stderr
    )
