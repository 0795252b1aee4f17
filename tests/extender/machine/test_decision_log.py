"""Records of answers, as anybody's formatter reads them."""

import logging

import pytest

from hived.values.decisions import Wait
from hived_extender.machine import verbs
from hived_extender.machine.verbs import DecisionRecord


@pytest.mark.parametrize("name", ["created", "msecs", "relativeCreated"])
def test_a_record_has_the_time_that_any_other_would_have(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    like = logging.LogRecord("x", logging.INFO, "", 0, "", None, None)
    monkeypatch.setattr(verbs.time, "time", lambda: like.created)
    record = DecisionRecord("ns/p", None, "filter", "wait", Wait("x"), 0.1)
    assert getattr(record, name) == pytest.approx(getattr(like, name), abs=1.0)
