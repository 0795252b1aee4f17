"""The state of the service while the API server is slow, or refuses to say its version."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from hived.values.specs import Rules
from hived_extender.insight import overview
from hived_extender.insight.overview import Files, Overview
from hived_extender.kube.client import KubeError
from tests.expecting import expect_soon


def overview_of(kubernetes: Callable[[], str]) -> Overview:
    """Of a replica that does not lead, and whose API server says its version so."""
    service = SimpleNamespace(runner=SimpleNamespace(wall_s=0.0), fault="", standing="", is_ready=False, kernels=str)
    more: dict[str, Any] = {"replica": "", "config_version": lambda: 1, "are_followed": lambda: True}
    more["rules"] = lambda: Rules.BETTER
    return Overview(
        cast(Any, service), Mock(), Mock(is_enabled=True), Mock(where=""), files=Files(), kubernetes=kubernetes, **more
    )


class Slow:
    """Answers once it is let; counts the questions."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        self.may_answer.wait(60)
        return "v1.32.1"


def test_the_version_is_in_the_first_answer() -> None:
    assert overview_of(lambda: "v1.32.1").look().kubernetes == "v1.32.1"


def test_a_replica_that_does_not_lead_says_the_rules_and_queues_of_its_configuration() -> None:
    found = overview_of(lambda: "v1.32.1").look()
    assert (found.rules, found.queues.is_enabled) == (2, True)


def test_no_answer_waits_for_a_slow_api_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "FIRST_ANSWER_S", 0.01)
    slow = Slow()
    found = overview_of(slow)
    try:
        began = time.monotonic()
        assert [found.look().kubernetes for _ in range(20)] == [""] * 20
        assert time.monotonic() - began < 30, "the API server has not answered yet"
        assert slow.asked == 1, "one question is under way at a time"
    finally:
        slow.may_answer.set()
    expect_soon(lambda: found.look().kubernetes == "v1.32.1")
    assert slow.asked == 1


def test_the_last_version_is_told_while_the_api_server_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    slow.may_answer.set()
    found = overview_of(slow)
    assert found.look().kubernetes == "v1.32.1"
    slow.may_answer.clear()
    monkeypatch.setattr(overview, "ASKED_S", 0.0)
    try:
        assert [found.look().kubernetes for _ in range(3)] == ["v1.32.1"] * 3
        assert slow.asked == 2
    finally:
        slow.may_answer.set()


@pytest.mark.parametrize("error", [KubeError(0, "NoAnswer", "timed out"), ValueError("no JSON")], ids=["no", "odd"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_refused_question_is_asked_again(error: Exception) -> None:
    answers = Mock(side_effect=[error, "v1.32.1"])
    found = overview_of(answers)
    assert found.look().kubernetes == ""
    assert found.look().kubernetes == "v1.32.1"


def test_the_version_stays_while_the_api_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    asked = Mock(side_effect=["v1.32.1", KubeError(0, "NoAnswer", "timed out")])
    found = overview_of(asked)
    assert found.look().kubernetes == "v1.32.1"
    with monkeypatch.context() as sooner:
        sooner.setattr(overview, "ASKED_S", 0.0)
        found.look()
    expect_soon(lambda: asked.call_count == 2 and threading.active_count() == before)
    assert found.look().kubernetes == "v1.32.1"
