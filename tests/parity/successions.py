"""Recorded reconfigurations, made in the way of a push: a successor is told of what was held before."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hived.values.specs import ClusterSpec
from hived_config.loader import load_cluster
from hived_extender.machine.core import Placed, StateInputs
from hived_extender.machine.recording.operations import Restart, read_scenario
from hived_extender.machine.recording.replay import CoreScheduler, Json, Replay, StateDetail
from hived_extender.reconfiguration.judging import Verdict, Verdicts
from hived_extender.reconfiguration.successor import Successor

PREEMPTING = "Preempting"


@dataclass(frozen=True, slots=True)
class Restarted:
    """One recorded restart, after it: `before` and `after` are the states of the replay, which parity tests compare
    with the records; `spec` is the new configuration, `placed` what the listed pods held, in the recorded order.
    """

    number: int
    operation: Restart
    spec: ClusterSpec
    present: CoreScheduler
    before: Mapping[str, Json]
    after: StateInputs
    placed: Mapping[str, Placed]
    refused: frozenset[str]

    @property
    def healthy(self) -> frozenset[str]:
        """The nodes that are healthy after it."""
        return frozenset(CoreScheduler(self.spec).node_names) - set(self.operation.bad_nodes)

    def in_recorded_order(self) -> Successor:
        """The state that a push makes if it is told of nodes and pods one after the other, as the record has them."""
        successor = Successor(self.spec)
        nodes = self.healthy if self.operation.order == "nodesFirst" else frozenset[str]()
        told: dict[str, Placed] = {}
        successor.catch_up(StateInputs(nodes))
        for uid, placed in self.placed.items():
            told[uid] = placed
            successor.catch_up(StateInputs(nodes, dict(told)))
        successor.catch_up(StateInputs(self.healthy, told))
        return successor

    def at_once(self) -> Successor:
        """The state that a push makes: told of everything at once, it takes pods by falling priority."""
        successor = Successor(self.spec)
        successor.catch_up(StateInputs(self.healthy, self.placed))
        return successor

    def survivors(self) -> set[str]:
        """The groups that run before it, and of which a pod still does."""
        names = {placed.request.spec.group.name for placed in self.placed.values()}
        return {name for name in names if name in self.before and self.before[name]["state"] != PREEMPTING}


def restarts(folder: Path, name: str) -> Iterator[Restarted]:
    """Every restart of a scenario in `folder`."""

    def read(config: str) -> ClusterSpec:
        return load_cluster(folder / "configs" / config, lenient=True)

    replay = Replay(CoreScheduler, read, StateDetail.NONE)
    for number, (_, operation) in enumerate(read_scenario(folder / "scenarios" / f"{name}.jsonl")):
        present, placed = replay.scheduler, replay.placed()
        if not isinstance(operation, Restart) or not isinstance(present, CoreScheduler):
            replay.record(number, operation)
            continue
        before = present.snapshot()[2]
        result = replay.record(number, operation)["result"]
        if isinstance(replay.scheduler, CoreScheduler):
            listed = {uid: Placed(*placed[uid]) for uid in operation.pods if uid in placed}
            refused = frozenset(each["pod"] for each in result.get("errors", ()))
            after = replay.scheduler.snapshot()
            yield Restarted(number, operation, read(operation.config), present, before, after, listed, refused)


def recorded_verdicts(restarted: Restarted) -> dict[str, str]:
    """The fate of each group of which a pod was listed, read off the groups before and after it."""
    found = {
        name: _verdict(restarted.before[name], restarted.after[2].get(name)) for name in sorted(restarted.survivors())
    }
    return {name: verdict.value for name, verdict in found.items() if verdict is not None}


def told_verdicts(restarted: Restarted, successor: Successor) -> dict[str, str]:
    """The verdicts of a plan on these groups."""
    affected = Verdicts(successor).affected(restarted.present.state)
    survivors = restarted.survivors()
    return {one.name: one.verdict.value for one in affected if one.name in survivors}


def _verdict(old: Json, new: Json | None) -> Verdict | None:
    had, has = _cell_count(old), _cell_count(new) if new is not None else 0
    if has < had:
        return Verdict.PARTLY_UNACCOUNTED if has else Verdict.UNACCOUNTED
    if new is None:
        return Verdict.UNACCOUNTED
    had_place, has_place = bool(old["virtual"]), bool(new["virtual"])
    if had_place and not has_place:
        return Verdict.LAZILY_PREEMPTED
    return Verdict.RESTORED if has > had or has_place > had_place else None


def _cell_count(group: Json) -> int:
    return sum(map(len, group["physical"].values()))
