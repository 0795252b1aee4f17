"""The service in force, as a configuration to come sees it: the facts to keep, and the switch."""

import time
from collections.abc import Callable, Iterable

from hived.state import State
from hived_config.document import gc_paused
from hived_config.loader import Configuration
from hived_extender.reconfiguration.successor import Successor
from hived_extender.reconfiguration.verdicts import Affected, news_of
from hived_extender.reconfiguration.waiting_jobs import Waiting, in_turn, note_waiting
from hived_extender.service.pods import PodState
from hived_extender.service.service import Service
from hived_extender.service.state_inputs import StateInputs
from hived_extender.service.stimuli import Configured, Reconfigured, Switched

LOOKED_AT_ONCE = 100
"""Waiting pods; gangs of which the plan is not known cost 0.1 ms each."""


def held(service: Service) -> tuple[StateInputs, State]:
    """All that another configuration would have to keep, and the present state, which changes on."""
    service.check_leads()
    with service.runner.exclusive() as machine:
        return machine.terms.inputs(), machine.verbs.core.state


def waiting_jobs(service: Service) -> list[Waiting]:
    """The jobs that wait, highest priority first. Others are served in between."""
    with service.runner.exclusive() as machine:
        records = machine.cache.pods.records(PodState.WAITING)
    found: dict[str, Waiting] = {}
    for first in range(0, len(records), LOOKED_AT_ONCE):
        with service.runner.exclusive() as machine:
            note_waiting(found, machine.cache, records[first : first + LOOKED_AT_ONCE])
        time.sleep(0)  # let another waiter have the lock first
    return in_turn(found)


def nodes_in_use(service: Service) -> frozenset[str]:
    """The nodes that pods of ours run on, or are being bound to."""
    with service.runner.look() as machine:
        return frozenset(record.place.node for record in machine.cache.pods if record.place.node)


def cluster_nodes(service: Service) -> frozenset[str]:
    """The names of all nodes that the API server has, whatever runs there; none where nobody has seen any."""
    with service.runner.look() as machine:
        return machine.cache.nodes.names


def configure(service: Service, configuration: Configuration, text: str) -> bool:
    """Take up another configuration on a replica that does not lead; False on one that does, which has to switch.

    Pods that this makes ours, or reads differently, have to be listed anew.
    """
    return bool(service.runner.handle(Configured(configuration, text)))


def switch(
    service: Service,
    configuration: Configuration,
    successor: Successor,
    finish: Callable[[StateInputs, State], None],
    version: int,
) -> float:
    """Replace the state with its successor between two requests; returns how long these had to wait, in seconds.

    `version` is the number of the configuration.
    `finish` tells the successor the last differences of inputs and the present state. It raises UserError, and
    nothing else, to keep that.
    """
    service.check_leads()
    with gc_paused(), service.runner.exclusive() as machine:
        began = time.perf_counter()
        present = machine.verbs.core.state  # kept until nobody waits any more: to give it back takes milliseconds
        finish(machine.terms.inputs(), present)
        service.runner.handle_within(
            Switched(configuration, successor.core, successor.losses, successor.unaccounted, version)
        )
        return time.perf_counter() - began


def tell_affected(service: Service, affected: Iterable[Affected]) -> None:
    """Tell the owners of running pods how another configuration has affected them."""
    news = [(one.uids, told) for one in affected if (told := news_of(one)) is not None]
    service.tell(Reconfigured(tuple(news)))
