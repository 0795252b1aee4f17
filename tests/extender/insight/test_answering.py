"""Answers about jobs and nodes go on, whatever happens to the forecasts beside them."""

import logging
import math
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from hived_extender.api.waiting import When
from hived_extender.insight import answering
from hived_extender.insight import forecast as forecaster_module
from hived_extender.insight.answering import Answering, Glances
from hived_extender.insight.forecast import Forecaster
from hived_extender.insight.snapshot import Snapshot
from hived_extender.machine.service import Service
from hived_extender.machine.verbs import NotLeadingError
from tests.expecting import expect_soon
from tests.extender.machine.small_cluster import SmallCluster, wait_until


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


def test_a_glance_waits_for_no_view_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallCluster()
    glances = Glances(Answering(small.service, fresh_s=0.0).view)
    real, may_go_on = answering.take, threading.Event()

    def slow(service: Service) -> Snapshot:
        assert may_go_on.wait(30)
        return real(service)

    monkeypatch.setattr(answering, "take", slow)
    assert glances.get(0.01) is None
    may_go_on.set()
    first = expect_soon(lambda: glances.get(0.01))
    may_go_on.clear()
    small.create("p")
    assert glances.get(0.01) is first
    may_go_on.set()
    wait_until(lambda: (found := glances.get(0.01)) is not None and "ns/p" in found.named)
    small.has_lease = False
    with pytest.raises(NotLeadingError):
        glances.get(0.01)


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


@pytest.mark.skipif(sys.platform != "linux", reason="copies of processes are made on Linux alone")
def test_why_is_answered_where_the_forecast_was_killed_and_the_next_one_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    small = SmallCluster()
    for name in ("p", "q"):
        small.place(name)
    small.filter(small.create("r"))
    real, ours = forecaster_module.forecast_of, os.getpid()

    def killed(*given: Any) -> When:
        assert os.getpid() != ours
        os.kill(os.getpid(), signal.SIGKILL)
        return real(*given)

    monkeypatch.setattr(answering, "FORECAST_EVERY_S", 3600.0)
    now = [0.0]
    answers = Answering(small.service, Forecaster(small.service), clock=lambda: now[0])
    answers._next_forecast = math.inf  # no list of all, which would have the job too
    monkeypatch.setattr(forecaster_module, "forecast_of", killed)
    why = answers.why("ns/r")
    assert why.when == When(kind="unknown", because=answering.BROKEN_OFF)
    assert why.certificate is not None
    assert why.certificate.cause == "in-use"
    assert "no forecast" in caplog.text
    monkeypatch.setattr(forecaster_module, "forecast_of", real)
    now[0] += 2 * answering.FRESH_S
    again = answers.why("ns/r").when
    assert again is not None
    assert again.because != answering.BROKEN_OFF
