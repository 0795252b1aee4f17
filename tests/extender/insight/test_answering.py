"""Answers about jobs and nodes go on, whatever happens to the forecasts beside them."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from hived_extender.api.waiting import When
from hived_extender.insight import answering
from hived_extender.insight.answering import Answering
from hived_extender.insight.forecaster import Forecaster
from tests.extender.service.small_cluster import SmallCluster, wait_until


def test_a_forecast_that_fails_is_logged_and_the_next_is_tried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small = SmallCluster()
    small.create("p")
    forecaster = Forecaster(small.service)
    real, tries = forecaster.all, list[int]()

    def fails_first(snapshot: Any) -> Mapping[str, When]:
        tries.append(1)
        return real(snapshot) if len(tries) > 1 else {"ns/p": [][len(tries)]}

    monkeypatch.setattr(forecaster, "all", fails_first)
    monkeypatch.setattr(answering, "FORECAST_EVERY_S", 0.0)
    answers = Answering(small.service, forecaster, fresh_s=0.0)
    answers.view()
    wait_until(lambda: "forecasts have failed" in caplog.text)
    wait_until(lambda: answers.view().find("ns/p").job.when is not None)
    assert [one.levelno for one in caplog.records if one.levelno >= logging.WARNING] == [logging.CRITICAL]


def test_a_forecast_is_not_told_once_the_causes_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallCluster()
    for name in ("p", "q"):
        small.place(name)
    small.filter(small.create("r"))
    monkeypatch.setattr(answering, "FORECAST_EVERY_S", 3600.0)
    answers = Answering(small.service, Forecaster(small.service), fresh_s=0.0)
    wait_until(lambda: answers.view().find("ns/r").job.when is not None)
    found = answers.view().certificates["ns/r"]
    assert answers._known("ns/r", found) is not None
    assert answers._known("ns/r", replace(found, cause="bad")) is None
    assert answers._known("ns/r", replace(found, also=["bad"])) is None
