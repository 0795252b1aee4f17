"""All lists of `hived get` may be sorted by a column or a field, and be without headers; other words for them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result

from hived.values.errors import UserError
from hived_cli import main
from hived_cli.helpers.listing import Form, order_of
from hived_cli.helpers.waits import job_columns
from hived_extender.api.waiting import Job
from tests.cli.waiting_service import WaitingService


@pytest.fixture
def service() -> Iterator[WaitingService]:
    with WaitingService() as found:
        yield found


def get(service: WaitingService, *words: str) -> Result:
    return CliRunner().invoke(main, ["get", *words, "--server", service.url])


def firsts(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [line.split()[0] for line in result.output.splitlines()]


def test_jobs_are_sorted_by_a_column_or_a_field_and_have_no_headers(service: WaitingService) -> None:
    by_priority = ["default/solo", "podgroup/lab/gang", "me~train/default"]
    assert firsts(get(service, "jobs", "--sort-by", "priority", "--no-headers")) == by_priority
    assert firsts(get(service, "jobs", "--sort-by", ".vc", "--no-headers")) == [
        "default/solo",
        "podgroup/lab/gang",
        "me~train/default",
    ]
    told = json.loads(get(service, "jobs", "--sort-by", "priority", "-o", "json").output)["items"]
    assert [job["name"] for job in told] == by_priority


def test_jobs_without_a_priority_come_after_the_others_which_keep_their_order() -> None:
    jobs = [Job(name=str(priority), state="Waiting", priority=priority) for priority in (None, 5, -1, 0)]
    found = Form(sort_by="PRIORITY").ordered(jobs, job_columns(datetime.now(UTC)))
    assert [job.priority for job in found] == [-1, 0, 5, None]


def test_a_column_that_there_is_not_is_a_mistake(service: WaitingService) -> None:
    for words in (("jobs",), ("nodes",), ("free",)):
        told = get(service, *words, "--sort-by", "colour")
        assert (told.exit_code, "--sort-by colour: no such column; there are " in told.output) == (1, True)


def test_other_words_are_the_same_lists_and_a_node_is_found_by_its_name(service: WaitingService) -> None:
    for word in ("node", "no"):
        assert get(service, word).output == get(service, "nodes").output
    name = firsts(get(service, "nodes", "--no-headers"))[0]
    assert firsts(get(service, "nodes", name, "--no-headers")) == [name]
    told = get(service, "nodes", f"{name}x")
    assert (told.exit_code, f"nearest: {name}" in told.output) == (1, True)


@pytest.mark.parametrize("words", ["a=b=c", "a in b", "a,", "-a", "a in (b", "a=" + 64 * "b"])
@pytest.mark.parametrize("listing", ["jobs", "nodes"])
def test_a_selector_that_cannot_be_read_is_a_mistake(service: WaitingService, listing: str, words: str) -> None:
    told = get(service, listing, "-l", words)
    assert (told.exit_code, "Invalid value for '-l' / '--selector': selector " in told.output) == (2, True)
    assert service.told == []


def test_a_selector_goes_with_no_name_of_a_node_and_with_no_job_that_has_ended(service: WaitingService) -> None:
    for words, said in ((("nodes", "dgx-1"), "NAME and --selector"), (("jobs", "--ended"), "--selector and --ended")):
        told = get(service, *words, "-l", "a=b")
        assert (told.exit_code, f"{said} exclude each other" in told.output) == (2, True)


def test_cells_are_sorted_as_people_count() -> None:
    texts = ["n10", "-", "2d3h", "n2", "7", "45s", "1,024"]
    assert sorted(texts, key=order_of) == ["7", "45s", "1,024", "2d3h", "n2", "n10", "-"]
    with pytest.raises(UserError, match="no such column"):
        Form(sort_by="c").shown(["A", ">B"], [["1", "2"]])
