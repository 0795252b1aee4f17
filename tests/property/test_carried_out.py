"""Carrying out a decision at once gives the same state as finding its cells again in its bind info (rule 11)."""

import json
from dataclasses import replace

import pytest

from hived.cells.state import State
from hived.life.groups import placements_of
from hived.scheduler import handle, new_state
from hived.values.decisions import Bind, Decision
from hived.values.errors import UserError
from hived.values.events import Event, PodAllocated, ScheduleRequested
from hived.values.specs import ClusterSpec, Placements
from hived_extender.machine.recording.operations import decode_operation
from hived_extender.machine.recording.replay import CoreScheduler, Replay, StateDetail
from tests.core.builders import fingerprint, healthy_state, pod, rack_cluster
from tests.property.choices import Choices, Seeded
from tests.property.clusters import make_cluster, make_hardware, pack_some
from tests.property.examples import examples
from tests.property.lockstep import reservations
from tests.property.operations import Operations

OP_COUNT = 250


class Twins(CoreScheduler):
    """Two cores with the same events, of which one forgets before each event what it has found."""

    shortcuts = 0

    def __init__(self, spec: ClusterSpec) -> None:
        super().__init__(spec)
        self.other = new_state(spec)

    def handle(self, event: Event) -> Decision:
        """The decision of both; counts the decisions that were carried out without a second look at their names."""
        self.other.last_bind = None
        known = self.state.last_bind
        mine, theirs = outcome(self.state, event), outcome(self.other, event)
        if isinstance(event, PodAllocated) and known is not None and self.state.last_bind is None:
            type(self).shortcuts += 1
        assert mine == theirs
        assert fingerprint(self.state) == fingerprint(self.other)
        assert places(self.state) == places(self.other)
        if isinstance(mine, str):
            raise UserError(mine)
        return mine


def outcome(state: State, event: Event) -> Decision | str:
    """The decision, or why the event is refused."""
    try:
        return handle(state, event)
    except UserError as error:
        return error.message


def places(state: State) -> list[Placements]:
    """The places of every group, as its bind info has them."""
    return [placements_of(state, group) for group in state.groups.values()]


def play(seed: int) -> int:
    """A random run on twins; returns how many decisions were carried out the short way."""
    choices, twins = Choices(Seeded(seed)), type("Counted", (Twins,), {"shortcuts": 0})
    hardware = make_hardware(choices)
    configs = {f"config{i}.yaml": pack_some(choices, make_cluster(choices, hardware)) for i in range(2)}
    replay = Replay(twins, configs.__getitem__, StateDetail.NONE)
    operations = Operations(
        choices,
        configs,
        beyond=True,
        reservations=lambda: reservations(replay.scheduler.state) if replay.scheduler else [],
    )
    queue = operations.start()
    for i in range(OP_COUNT):
        op = queue.pop(0) if queue else operations.next()
        operations.learn(op, replay.record(i, decode_operation(json.dumps(op).encode()))["result"])
    return twins.shortcuts


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(examples(24)))
def test_both_ways_give_the_same_state_after_every_event(seed: int) -> None:
    assert play(seed) > 0


def test_bind_info_of_equal_content_is_read_by_its_names() -> None:
    state, wanted = healthy_state(rack_cluster()), pod("p")
    decision = handle(state, ScheduleRequested(wanted))
    assert isinstance(decision, Bind)
    handle(state, PodAllocated(wanted, replace(decision.bind_info)))
    assert state.last_bind is not None
