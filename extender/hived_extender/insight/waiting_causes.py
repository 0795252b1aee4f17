"""How many pods wait, by virtual cluster and cause: from what is known of each pod already, so that it costs little.

The cause of a refusal is that of the last certificate that was told for the pod. A pod that was not refused has the
cause that its own state, or its gang's, shows.
"""

import time
from collections import Counter

from hived.cells.state import State
from hived.life.victims import victims_of
from hived.values.errors import UserError
from hived.values.specs import PodRequest
from hived_extender.api.waiting import CauseName
from hived_extender.service.machine import Machine
from hived_extender.service.pods import PodRecord, PodState
from hived_extender.service.service import Service

AT_ONCE = 500
"""Pods looked at under the lock; others are served in between."""

NO_VC = ""
"""Stands for the virtual cluster of pods that name none, or one that there is not."""


def waiting_causes(service: Service) -> Counter[tuple[str, str]]:
    """The number of pods that wait, by virtual cluster and `api.waiting.CauseName`.

    Cost: a list of all pods under the lock at once, then a look at each that waits, in slices.
    """
    with service.runner.look() as machine:
        core, records = machine.cache.core, list(machine.cache.pods)
        vcs = frozenset(core.state.topology.vc_names) if core is not None else frozenset()
    waiting = [record for record in records if record.state in (PodState.WAITING, PodState.HELD)]
    found: Counter[tuple[str, str]] = Counter()
    for first in range(0, len(waiting), AT_ONCE):
        time.sleep(0)  # let another waiter have the lock first
        with service.runner.look() as machine:
            for record in waiting[first : first + AT_ONCE]:
                if machine.cache.pods.get(record.uid) is record and not record.state.is_placed:
                    vc, _ = record.claim
                    found[vc if vc in vcs else NO_VC, cause_of(machine, record)] += 1
    return found


def cause_of(machine: Machine, record: PodRecord) -> str:
    """Why a pod waits, as far as that is known without asking the core. Cost: a look into tables."""
    cache, request = machine.cache, record.request
    if record.state is PodState.HELD:
        return "incomplete"
    if record.gang is not None:
        plan = cache.gangs.plan(record.gang)
        if plan.refusal or plan.forming:
            return "invalid" if plan.refusal else "incomplete"
    has_mistake = record.reading is not None and isinstance(record.reading.spec, UserError) and record.reading.is_own
    if record.translation.mistake or (request is None and has_mistake):
        return "invalid"
    if request is not None and cache.core is not None and cache.core.reserves(request):
        return _taken_back(machine, cache.core.state, request)
    return record.cause or "unknown"


def _taken_back(machine: Machine, state: State, request: PodRequest) -> CauseName:
    """From whom the cells are taken back that a request reserves."""
    for uids in victims_of(state, state.groups[request.spec.group.name]).values():
        for uid in uids:
            victim = machine.cache.pods.get(uid)
            if victim is None or victim.request is None:
                continue
            group = state.groups.get(victim.request.spec.group.name)
            if group is not None and group.virtual is not None:
                return "preempting"
    return "lent"
