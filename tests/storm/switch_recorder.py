"""The effect of a switch on each group, found out without asking the code that says so.

The inspect API shows the groups at the moment before and the moment after, both while the service's lock is held.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hived.cells.state import State
from hived.life import status
from hived.values.specs import MIN_GUARANTEED_PRIORITY
from hived_extender.jobs.wire import PreemptArgs, PreemptResult
from hived_extender.machine.machine import Machine
from hived_extender.machine.service import Service
from hived_extender.machine.stimuli import Stimulus, Switched
from hived_extender.reconfiguration.judging import Verdict

Json = dict[str, Any]
Groups = Mapping[str, Json]


def groups_of(state: State) -> Groups:
    """The status of each group by name."""
    items = status.affinity_groups(state)["items"] or ()
    return {item["metadata"]["name"]: item["status"] for item in items}


def verdict_of(before: Json, after: Json | None) -> str:
    """The fate of a group; "" if it goes on as before."""
    if before["state"] == "Preempting":
        is_kept = after is not None and after["state"] == "Preempting"
        return "" if is_kept else Verdict.PREEMPTION_CANCELLED.value
    had, has = leaves(before), leaves(after)
    if not has and had:
        return Verdict.UNACCOUNTED.value
    if had - has:
        return Verdict.PARTLY_UNACCOUNTED.value
    had_place, has_place = "virtualPlacement" in before, after is not None and "virtualPlacement" in after
    if had_place and not has_place:
        return Verdict.LAZILY_PREEMPTED.value
    is_back = has_place and not had_place and before["priority"] >= MIN_GUARANTEED_PRIORITY
    return Verdict.RESTORED.value if is_back or has - had else ""


def leaves(group: Json | None) -> set[tuple[str, int]]:
    """The node and device of each leaf cell that a group has."""
    placement = {} if group is None else group.get("physicalPlacement", {})
    return {(node, device) for node, devices in placement.items() for device in devices}


class SwitchRecorder:
    """Watches the switches of a service.

    `before` and `after` are those of the last one, `count` how many there were; `waited_s` has how long requests waited
    for each. `victims` has the uids of pods that the service has ever named as victims of a preemption.
    """

    def __init__(self, service: Service) -> None:
        self.before: Groups = {}
        self.after: Groups = {}
        self.count = 0
        self.waited_s: list[float] = []
        self.victims: set[str] = set()
        self._verbs, runner = service.machine.verbs, service.runner
        self._exclusive, self._handle = runner.exclusive, runner.handle_within
        runner.exclusive = self._hold  # the point of it
        runner.handle_within = self._watch
        self._evicting, self._name_victims = service.machine.announcements.evicting, service.preempt_victims
        service.machine.announcements.evicting = self._note_eviction
        service.preempt_victims = self._note_victims

    def verdicts(self) -> dict[str, str]:
        """Of all groups that something has become of, at the last switch."""
        found = {name: verdict_of(group, self.after.get(name)) for name, group in self.before.items()}
        return {name: verdict for name, verdict in found.items() if verdict}

    @contextmanager
    def _hold(self, **options: Any) -> Iterator[Machine]:
        """Hold the lock; whoever waits for it while a switch takes place waits for so long."""
        with self._exclusive(**options) as machine:
            began, count = time.perf_counter(), self.count
            yield machine
            if self.count > count:
                self.waited_s.append(time.perf_counter() - began)

    def _watch(self, stimulus: Stimulus) -> Any:
        if not isinstance(stimulus, Switched):
            return self._handle(stimulus)
        self.before = groups_of(self._verbs.core.state)
        answer = self._handle(stimulus)
        self.after = groups_of(self._verbs.core.state)
        self.count += 1
        return answer

    def _note_eviction(self, victim: Any, preemptor: Any) -> None:
        self.victims.add(victim.uid)
        self._evicting(victim, preemptor)

    def _note_victims(self, args: PreemptArgs) -> PreemptResult:
        found = self._name_victims(args)
        self.victims |= {
            pod.uid for on_node in (found.node_name_to_meta_victims or {}).values() for pod in on_node.pods
        }
        return found
