"""A mistake of ours in a turn is the queues' own: pods go on, and turns begin anew. One of the machine stops all."""

from pathlib import Path

import pytest

from hived.values.errors import InvariantError
from hived_extender.machine.holds import Holds
from hived_extender.queues.announcing import JobEvents
from hived_extender.queues.live_turn import LiveTurn
from hived_extender.queues.turns import Turns
from tests.expecting import expect_soon
from tests.extender.queues.embedded_jobs import jobs_on


def fails(*_: object, **__: object) -> None:
    """Never comes to an end."""
    raise ZeroDivisionError


def test_queues_go_on_after_a_turn_that_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with jobs_on(tmp_path) as jobs, monkeypatch.context() as patch:
        patch.setattr(LiveTurn, "run", fails)
        before = jobs.running.extender.queues.turns
        jobs.create("own", "b")
        jobs.expect(lambda: jobs.running.extender.queues.turns is not before)
        service = jobs.running.extender.service
        assert (service.fault, jobs.runs("own")) == ("", False)
        patch.undo()
        jobs.expect(lambda: jobs.runs("own"))


@pytest.mark.parametrize(("where", "what"), [(JobEvents, "take"), (Turns, "pods_changed")])
def test_pods_go_on_though_queues_fail_beside_their_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: type, what: str
) -> None:
    with jobs_on(tmp_path) as jobs, monkeypatch.context() as patch:
        failed = list[None]()
        patch.setattr(where, what, lambda *_: fails(failed.append(None)))
        jobs.create("own", "b")
        expect_soon(lambda: len(failed) > 1)
        assert jobs.running.extender.service.fault == ""
        patch.undo()
        jobs.expect(lambda: jobs.runs("own"))


def test_a_mistake_of_the_machine_in_a_turn_stops_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with jobs_on(tmp_path) as jobs:
        monkeypatch.setattr(Holds, "_ask", fails)
        jobs.create("own", "b")
        service = jobs.running.extender.service
        expect_soon(lambda: bool(service.fault))
        with pytest.raises(InvariantError, match="ZeroDivisionError"):
            service.runner.take(1.0)
