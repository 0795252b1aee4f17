"""Waking pods while the API server does not answer: few calls, and everybody is told."""

from typing import Any

import pytest

from hived_extender.kube.client import KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.pods.proofs import Prover
from hived_extender.service.pods import PodRecord
from hived_extender.service.writes import binder as writing
from hived_extender.service.writes.binder import Binder
from tests.extender.service.world import FakeKube, wait_until


class AwayKube(FakeKube):
    """Nobody answers; `calls` counts who asked."""

    calls = 0

    def patch(self, *_: Any) -> Any:
        self.calls += 1
        raise KubeError(0, "NoAnswer", "connection refused")


def waiting(number: int) -> PodRecord:
    return PodRecord(f"u{number}", f"p{number}", "ns", "1")


def wake(binder: Binder, count: int) -> None:
    told: list[int] = []
    for number in range(count):
        binder.ask_retry_later(waiting(number), lambda number=number: told.append(number))
    wait_until(lambda: len(told) == count)


@pytest.mark.parametrize(("silent_s", "calls"), [(3600.0, 1), (0.0, 201)])
def test_after_a_wake_without_an_answer_none_is_tried_for_a_while(
    monkeypatch: pytest.MonkeyPatch, silent_s: float, calls: int
) -> None:
    monkeypatch.setattr(writing, "SILENT_S", silent_s)
    kube = AwayKube()
    binder = Binder(kube, Metrics(), Prover())
    wake(binder, 1)
    wake(binder, 200)
    binder.close()
    assert kube.calls == calls
