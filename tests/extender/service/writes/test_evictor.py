"""Making victims leave, with an API that refuses as told."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hived_config.settings import Budgets
from hived_extender.kube.client import KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.service.pods import PodRecord
from hived_extender.service.writes import evictor
from hived_extender.service.writes.evictor import Evictor, PreemptionPolicy
from tests.extender.service.world import PATIENCE_S, wait_until

PROTECTED = KubeError(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
FORBIDDEN = KubeError(403, "Forbidden", 'pods "v" is forbidden')
BROKEN = KubeError(500, "InternalError", "etcd is away")
SILENT = KubeError(0, "NoAnswer", "timed out")
PREEMPTOR = PodRecord("uid-p", "p", "ns")


class Api:
    """Answers each eviction with the next of `refusals`, the last one for ever; None is a success."""

    def __init__(self) -> None:
        self.refusals: list[KubeError | None] = [None]
        self.calls: list[tuple[str, str]] = []
        self.on_call: Callable[[], object] = lambda: None

    def evict_pod(self, namespace: str, name: str, *, uid: str = "") -> None:
        assert uid == f"uid-{name}"
        self.calls.append(("evict", name))
        self.on_call()
        refusal = self.refusals.pop(0) if len(self.refusals) > 1 else self.refusals[0]
        if refusal is not None:
            raise refusal

    def delete_pod(self, namespace: str, name: str, *, uid: str = "") -> None:
        assert uid == f"uid-{name}"
        self.calls.append(("delete", name))


class World:
    """An evictor; `spared` are no victims any more."""

    def __init__(self, **policy: Any) -> None:
        self.api = Api()
        self.metrics = Metrics()
        self.spared: set[str] = set()
        self.blocked: list[str] = []
        self.evictor = Evictor(
            self.api,
            PreemptionPolicy(**policy),
            self.metrics,
            lambda uid: uid not in self.spared,
            lambda preemptor, reason: self.blocked.append(f"{preemptor.key}: {reason}"),
        )

    def evict(self, *names: str) -> list[str]:
        victims = [PodRecord(f"uid-{name}", name, "ns") for name in names]
        return [record.name for record in self.evictor.evict(victims, PREEMPTOR)]

    def count(self, outcome: str) -> float | None:
        return self.metrics.registry.get_sample_value("hived_evictions_total", {"outcome": outcome})


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictor._Victim.__init__, "__defaults__", (math.inf, 0.02))
    monkeypatch.setattr(evictor, "LONGEST_WAIT_S", 0.04)


@pytest.fixture
def make() -> Iterator[Callable[..., World]]:
    worlds: list[World] = []

    def build(**policy: Any) -> World:
        worlds.append(World(**policy))
        return worlds[-1]

    yield build
    for world in worlds:
        world.evictor.close()


def test_victims_are_asked_once_in_their_order(make: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evictor, "THREADS", 1)
    world = make()
    names = [f"v{number}" for number in range(20)]
    assert world.evict(*names) == names
    assert world.evict("v3", "v7") == []
    wait_until(lambda: len(world.api.calls) == 20)
    assert world.api.calls == [("evict", name) for name in names]


def test_a_victim_that_has_gone_can_come_back_as_another(make: Callable[..., World]) -> None:
    world = make()
    world.evict("v")
    wait_until(lambda: world.api.calls)
    world.evictor.gone("uid-v")
    assert world.evict("v") == ["v"]


def test_nothing_is_remembered_of_victims_that_are_gone(make: Callable[..., World]) -> None:
    world = make()
    world.spared.add("uid-spared")
    world.evict("v", "spared")
    wait_until(lambda: world.evictor._asked == {"uid-v"})
    world.evictor.gone("uid-v")
    assert world.evictor._asked == set()


def test_a_cancelled_preemption_spares_those_not_evicted_yet(make: Callable[..., World]) -> None:
    world = make()
    world.api.refusals = [PROTECTED]
    world.evict("v")
    wait_until(lambda: world.api.calls)
    world.spared.add("uid-v")
    wait_until(lambda: not world.evictor._asked)
    count = len(world.api.calls)
    time.sleep(0.1)
    assert len(world.api.calls) == count


def test_a_victim_that_is_wanted_again_at_the_moment_it_is_spared_is_evicted(make: Callable[..., World]) -> None:
    world = make()
    answers = iter([False])

    def is_victim(uid: str) -> bool:
        is_first = not next(answers, True)
        if is_first:
            world.evict("v")  # of a preemption that begins right after this answer
        return not is_first

    world.evictor._is_victim = is_victim
    world.evict("v")
    wait_until(lambda: world.api.calls)
    assert world.api.calls == [("evict", "v")]


def test_a_budget_that_may_be_overridden_holds_a_victim_for_the_grace_period_only(make: Callable[..., World]) -> None:
    world = make(budgets=Budgets.OVERRIDE, grace_s=0.1)
    world.api.refusals = [PROTECTED]
    began = time.monotonic()
    world.evict("v")
    wait_until(lambda: world.api.calls[-1:] == [("delete", "v")])
    assert time.monotonic() - began >= 0.1
    assert (world.count("deleted"), world.count("evicted")) == (1, None)


def test_a_budget_that_is_respected_holds_a_victim_until_it_allows(make: Callable[..., World]) -> None:
    world = make(budgets=Budgets.RESPECT, grace_s=0.05)
    world.api.refusals = [PROTECTED] * 6 + [None]
    world.evict("v")
    wait_until(lambda: world.count("evicted"))
    assert world.api.calls == [("evict", "v")] * 7


@pytest.mark.parametrize("error", [FORBIDDEN, BROKEN, SILENT], ids=lambda error: str(error.status))
def test_an_eviction_that_is_refused_for_another_reason_is_tried_again(
    make: Callable[..., World], error: KubeError
) -> None:
    world = make()
    world.api.refusals = [error, error, None]
    world.evict("v")
    wait_until(lambda: world.count("evicted"))
    assert world.count("refused") == 2
    assert world.blocked == [f"ns/p: ns/v cannot be evicted: {error}"] * 2


def test_a_victim_that_is_gone_already_is_not_asked_again(make: Callable[..., World]) -> None:
    world = make()
    world.api.refusals = [KubeError(404, "NotFound", "gone")]
    world.evict("v")
    wait_until(lambda: world.api.calls)
    time.sleep(0.1)
    assert (world.api.calls, world.blocked) == ([("evict", "v")], [])


def test_a_conflict_is_no_proof_that_a_victim_is_gone(make: Callable[..., World]) -> None:
    world = make()
    world.api.refusals = [KubeError(409, "Conflict", "a webhook says so"), None]
    world.evict("v")
    wait_until(lambda: world.count("evicted"))
    assert world.api.calls == [("evict", "v")] * 2


def test_only_refusals_of_a_budget_lead_to_force(make: Callable[..., World]) -> None:
    world = make(grace_s=0.0)
    world.api.refusals = [KubeError(0, "NoAnswer", "away"), KubeError(503, "", "starting"), None]
    world.evict("v")
    wait_until(lambda: world.count("evicted"))
    assert world.api.calls == [("evict", "v")] * 3


def test_slow_evictions_go_on_side_by_side(make: Callable[..., World]) -> None:
    world = make()
    together = threading.Barrier(evictor.THREADS)
    world.api.on_call = lambda: together.wait(PATIENCE_S)
    world.evict(*(f"v{number}" for number in range(evictor.THREADS)))
    wait_until(lambda: world.count("evicted") == evictor.THREADS)
    assert world.count("refused") is None


def test_closing_ends_an_evictor_whose_victim_stays(make: Callable[..., World]) -> None:
    world = make(budgets=Budgets.RESPECT)
    world.api.refusals = [PROTECTED]
    world.evict("v")
    wait_until(lambda: world.api.calls)
    world.evictor.close()
    count = len(world.api.calls)
    time.sleep(0.1)
    assert len(world.api.calls) == count


def test_a_mistake_of_ours_on_the_way_is_logged(make: Callable[..., World], caplog: pytest.LogCaptureFixture) -> None:
    world = make()
    world.api.on_call = lambda: 1 / 0
    world.evict("v")
    wait_until(lambda: caplog.records)
    assert caplog.messages == ["a call in the background failed"]
