"""Names that the shell completes by asking the service."""

from collections.abc import Iterator

import pytest
from click.shell_completion import ShellComplete
from msgspec.structs import replace

from hived_cli import main
from hived_extender.api.waiting import MASKED
from tests.cli.waiting_service import GANG, WaitingService


@pytest.fixture
def service() -> Iterator[WaitingService]:
    with WaitingService() as running:
        yield running


def completed(words: list[str], incomplete: str) -> list[str]:
    completer = ShellComplete(main, {}, "hived", "_HIVED_COMPLETE")
    return [item.value for item in completer.get_completions(words, incomplete)]


@pytest.mark.parametrize("command", ["why", "delete"])
def test_jobs_are_completed(service: WaitingService, command: str) -> None:
    assert completed([command, "--server", service.url], "pod") == ["podgroup/lab/gang"]


def test_the_service_may_be_named_by_the_environment(service: WaitingService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIVED_SERVER", service.url)
    assert completed(["why"], "") == ["podgroup/lab/gang", "default/solo", "me~train/default"]


def test_masked_names_are_left_out(service: WaitingService) -> None:
    service.jobs = [replace(GANG, name=MASKED)]
    assert completed(["why", "--server", service.url], "") == []


@pytest.mark.parametrize("words", [["get", "vc"], ["get", "free"], ["get", "jobs", "--vc"]])
def test_virtual_clusters_are_completed(
    service: WaitingService, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIVED_SERVER", service.url)
    assert completed(words, "vi") == ["vision"]


def test_a_service_that_does_not_answer_completes_nothing() -> None:
    assert completed(["why", "--server", "http://127.0.0.1:1"], "") == []
