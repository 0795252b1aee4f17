"""Tentative questions are answered apart: kube-scheduler's calls are served meanwhile, and nobody asks without end."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from hived.values.errors import UserError
from hived_extender.api.waiting import PodOutcome, WhatIfArgs
from hived_extender.jobs.wire import decode_args, encode
from hived_extender.machine import questions
from hived_extender.machine.apart import compute_apart
from hived_extender.machine.machine import Machine
from hived_extender.machine.stimuli import WhatIfAsked
from tests.expecting import expect_soon
from tests.extender.machine.small_cluster import SmallCluster, pod_json, spec_text

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies of processes are made on Linux alone")


def ask(small: SmallCluster, caller: str = "", count: int = 1) -> list[PodOutcome]:
    pods = [pod_json(f"q-{number}", spec_text("b", group="q", pods=count)) for number in range(count)]
    with small.service.questions.place(caller):
        return small.service.what_if(decode_args(encode({"pods": pods}), WhatIfArgs).pods)


class Slow:
    """Answers that are worked out, and kept back until `may_end`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_end, self.begun = threading.Event(), 0
        monkeypatch.setattr(questions, "compute_apart", self._compute)

    def _compute(self, compute: Callable[[], bytes], lock: AbstractContextManager[object], longest_s: float) -> bytes:
        found = compute_apart(compute, lock, longest_s)
        self.begun += 1
        assert self.may_end.wait(60)
        return found


def begin(small: SmallCluster, caller: str) -> threading.Thread:
    asking = threading.Thread(target=ask, args=(small, caller))
    asking.start()
    return asking


def test_filter_is_answered_while_a_question_is(monkeypatch: pytest.MonkeyPatch) -> None:
    small, slow = SmallCluster(), Slow(monkeypatch)
    asking = begin(small, "ann")
    expect_soon(lambda: slow.begun == 1)
    small.place("p")
    assert asking.is_alive()
    slow.may_end.set()
    asking.join()


def test_a_caller_has_one_question_at_a_time_and_the_next_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    small, slow = SmallCluster(), Slow(monkeypatch)
    asking = begin(small, "ann")
    expect_soon(lambda: slow.begun == 1)
    with pytest.raises(UserError, match="an earlier question of yours") as caught:
        ask(small, "ann")
    assert caught.value.code == 429
    slow.may_end.set()
    asking.join()
    assert ask(small, "ann")[0].outcome == "bind"


def test_only_so_many_questions_wait_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    small, slow = SmallCluster(), Slow(monkeypatch)
    asking = [begin(small, f"caller-{number}" if number else "") for number in range(questions.MOST)]
    expect_soon(lambda: len(small.service.questions._callers) == questions.MOST)
    with pytest.raises(UserError, match="3 questions are being answered") as caught:
        ask(small, "ann")
    assert caught.value.code == 429
    slow.may_end.set()
    for each in asking:
        each.join()
    assert ask(small, "ann")[0].outcome == "bind"


def test_a_question_that_takes_too_long_is_given_up_and_the_service_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    small, handle = SmallCluster(), Machine.handle

    def endless(machine: Machine, stimulus: Any, now: Any) -> Any:
        if isinstance(stimulus, WhatIfAsked):
            time.sleep(600)
        return handle(machine, stimulus, now)

    monkeypatch.setattr(Machine, "handle", endless)
    monkeypatch.setattr(questions, "LONGEST_S", 0.2)
    with pytest.raises(UserError, match="took longer than") as caught:
        ask(small)
    assert caught.value.code == 503
    small.place("p")


def test_a_mistake_in_a_question_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    small, handle = SmallCluster(), Machine.handle

    def broken(machine: Machine, stimulus: Any, now: Any) -> Any:
        if isinstance(stimulus, WhatIfAsked):
            raise IndexError("list out of range")
        return handle(machine, stimulus, now)

    monkeypatch.setattr(Machine, "handle", broken)
    with pytest.raises(UserError, match="has failed in a process of its own"):
        ask(small)
    small.place("p")
    assert small.service.fault == ""


def test_a_gang_is_answered_as_one_as_before() -> None:
    small = SmallCluster()
    assert [one.outcome for one in ask(small, count=1)] == ["bind"]
    assert {one.outcome for one in ask(small, count=2)} == {"never"}
