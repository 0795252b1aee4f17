"""Each effect is one call, with an answer whatever comes of it."""

from typing import Any
from unittest.mock import Mock

import pytest

from hived.values.errors import InvariantError, UserError
from hived_extender.jobs.bind_info import Prover
from hived_extender.jobs.kinds.description import GangKey
from hived_extender.kube.client import KubeError
from hived_extender.kube.metrics import Metrics
from hived_extender.machine.effects import (
    AnnotatePod,
    Announce,
    BindPod,
    Errand,
    EvictPod,
    ReadPod,
    TouchPod,
    Write,
    WriteStatuses,
)
from hived_extender.machine.gangs.plans import GangState
from hived_extender.machine.notices import Announced, Condition, Notice, Reason
from hived_extender.machine.pods import PodName
from hived_extender.machine.stimuli import Wrote
from hived_extender.machine.writes.writer import Writer
from tests.extender.machine.small_cluster import FakeKube, Json, pod_json

NAME = PodName("uid-p", "ns", "p")
KEY = GangKey("ns", "g")
BIND = BindPod(NAME, "n0", "", {"key": "text"}, "scheduler")


class Broken(FakeKube):
    """Every call shows a mistake of ours."""

    def __getattribute__(self, name: str) -> Any:
        if name in ("bind_pod", "get", "patch", "patch_lists", "create", "evict_pod", "delete_pod"):
            return lambda *_, **__: 1 / 0
        return super().__getattribute__(name)


class BrokenStatuses:
    def write(self, *_: Any) -> Any:
        raise ZeroDivisionError


@pytest.fixture
def kube() -> FakeKube:
    kube = FakeKube()
    kube.add(pod_json("p"))
    return kube


def written(kube: FakeKube, effect: Write, *, may_write: bool = True) -> Wrote:
    return Writer(kube, Metrics(), Prover(), None, None).write(effect, lambda: may_write)


def bound(kube: FakeKube, node: str = "n0") -> Json:
    pod = kube.pods["p"]
    pod["spec"]["nodeName"] = node
    return pod


@pytest.mark.parametrize(("by_force", "how"), [(False, "evicted"), (True, "deleted")])
def test_a_pod_is_evicted_or_deleted(kube: FakeKube, by_force: bool, how: str) -> None:
    assert written(kube, EvictPod(NAME, by_force)).error is None
    assert kube.leaving == [(how, "p")]


def test_a_touch_gives_a_pod_another_version(kube: FakeKube) -> None:
    before = kube.pods["p"]["metadata"]["resourceVersion"]
    written(kube, TouchPod(NAME))
    assert kube.pods["p"]["metadata"]["resourceVersion"] != before


def test_a_pod_that_is_bound_is_annotated(kube: FakeKube) -> None:
    bound(kube)
    written(kube, AnnotatePod(NAME, {"key": "new"}, {"key": "old"}, False))
    assert kube.pods["p"]["metadata"]["annotations"]["key"] == "new"


@pytest.mark.parametrize("is_another", [False, True])
def test_a_pod_that_is_not_bound_or_another_is_not_annotated(kube: FakeKube, is_another: bool) -> None:
    if is_another:
        bound(kube)["metadata"]["uid"] = "another"
    written(kube, AnnotatePod(NAME, {"key": "new"}, {}, False))
    assert kube.patches == []


def test_a_binding_tells_the_version_that_it_was_tried_with_last(kube: FakeKube) -> None:
    found = written(kube, BindPod(NAME, "n0", "1", {}, "scheduler"))
    assert found.error is None
    assert found.found not in ("", "1", kube.pods["p"]["metadata"]["resourceVersion"])


@pytest.mark.parametrize("effect", [BIND, TouchPod(NAME), EvictPod(NAME, False)], ids=lambda one: type(one).__name__)
def test_nothing_is_written_once_another_leads(kube: FakeKube, effect: Write) -> None:
    before = kube.pods["p"]["metadata"]["resourceVersion"]
    assert isinstance(written(kube, effect, may_write=False).error, UserError)
    assert (kube.pods["p"]["metadata"]["resourceVersion"], kube.leaving) == (before, [])


@pytest.mark.parametrize("effect", [BIND, TouchPod(NAME), EvictPod(NAME, False)], ids=lambda one: type(one).__name__)
def test_a_refusal_is_the_answer(kube: FakeKube, effect: Write) -> None:
    refusal = KubeError(500, "InternalError", "etcd is away")
    kube.refusals.append(refusal)
    assert written(kube, effect).error is refusal


@pytest.mark.parametrize(
    "effect",
    [BIND, ReadPod(NAME), TouchPod(NAME), EvictPod(NAME, False), Errand("awaited", Mock(side_effect=TypeError))],
    ids=lambda one: type(one).__name__,
)
def test_a_mistake_of_ours_is_logged_and_has_an_answer_too(effect: Write, caplog: pytest.LogCaptureFixture) -> None:
    found = written(Broken(), effect)
    assert isinstance(found.error, InvariantError)
    assert caplog.messages == ["a call in the background failed"]


@pytest.mark.parametrize("condition", [None, Condition(True, "Allocated", "")])
def test_what_cannot_be_told_for_a_mistake_of_ours_is_not_told_again(condition: Condition | None) -> None:
    notice = Notice(Reason.WAITING, "no room", 1, 0.0)
    found = written(Broken(), Announce(NAME, "Pod", (notice,), condition, None, True)).found
    assert found == Announced(1, has_looked=condition is not None, stored=condition)


def test_statuses_that_cannot_be_written_for_a_mistake_of_ours_are_tried_later() -> None:
    effect = WriteStatuses({KEY: GangState()}, {})
    writer = Writer(FakeKube(), Metrics(), Prover(), None, BrokenStatuses())
    assert writer.write(effect, lambda: True).found == ((), (KEY,))
