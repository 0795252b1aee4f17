"""Who has cells is put into words without the lock of the machine, under which only copies are made."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hived_extender.insight import holding
from hived_extender.insight.holding import held
from hived_extender.machine.explaining import GroupMembers
from hived_extender.machine.service import Service
from tests.extender.machine.small_cluster import SmallCluster, spec_text


class Locked:
    """Counts how often the machine is open, and notes what is done meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.depth, self.opened, self.done = 0, 0, list[tuple[str, int]]()
        whole, facts, words = holding.open_machine, GroupMembers.facts.fget, holding.holders_of
        assert facts is not None

        @contextmanager
        def open_machine(service: Service) -> Iterator[Any]:
            with whole(service) as machine:
                self.depth, self.opened = self.depth + 1, self.opened + 1
                yield machine
                self.depth -= 1

        def noted(name: str, function: Any) -> Any:
            def call(*args: Any) -> Any:
                self.done.append((name, self.depth))
                return function(*args)

            return call

        monkeypatch.setattr(holding, "open_machine", open_machine)
        monkeypatch.setattr(GroupMembers, "facts", property(noted("facts", facts)))
        monkeypatch.setattr(holding, "holders_of", noted("words", words))


def test_the_lock_is_held_for_copies_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    small, locked = SmallCluster(), Locked(monkeypatch)
    small.place("p", spec_text(group="first"))
    small.place("q", spec_text(group="second", priority=5))
    topology = small.state.topology
    [found] = held(small.service, topology, [(0, topology.physical_count)])
    assert sorted(one.group for one in found.holders) == ["ns:first", "ns:second"]
    assert locked.done == [("facts", 0), ("facts", 0), ("words", 0)], "each group once, and without the lock"
    assert locked.opened == 2


def test_nobody_holds_cells_of_a_topology_that_is_gone_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    small, other = SmallCluster(), SmallCluster()
    small.place("p", spec_text(group="first"))
    topology = small.state.topology
    whole = holding.open_machine
    services = iter([small.service, other.service])
    monkeypatch.setattr(holding, "open_machine", lambda service: whole(next(services)))
    [found] = held(small.service, topology, [(0, topology.physical_count)])
    assert found.holders == ()
