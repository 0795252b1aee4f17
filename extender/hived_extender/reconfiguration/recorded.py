"""The effects of a configuration on the last state of a recorded run (`hived serve --record`)."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from hived.errors import UserError
from hived.specs import BindInfo, ClusterSpec
from hived.state import State
from hived_config.errors import ConfigError
from hived_config.loader import Configuration, load, load_text
from hived_extender.api.configuration import ConfigReport
from hived_extender.reconfiguration.change import Change
from hived_extender.reconfiguration.in_force import invalid
from hived_extender.reconfiguration.waiting_jobs import Waiting
from hived_extender.recording.operations import Operation, read_scenario
from hived_extender.recording.replay import CoreScheduler, Replay, StateDetail
from hived_extender.service.state_inputs import Placed, StateInputs, reservations, without_place


def plan_recorded(record_dir: Path, text: str, file: str) -> ConfigReport:
    """The report on a text, against the state in which the newest run of a folder ends.

    Nodes that the recorded configuration does not have are taken to be healthy. Raises UserError if the run does not
    exist, or cannot be repeated. Cost: that of the run.
    """
    try:
        new = load_text(text, file)
    except ConfigError as error:
        return invalid(error, 0)
    old, replay, state = _repeat(record_dir)
    change = Change(old, new, None, 0)
    change.catch_up(_inputs(replay, state, change.node_names))
    outcome = change.outcome(state, _waiting(replay))
    return outcome.report()


def _repeat(record_dir: Path) -> tuple[Configuration, Replay, State]:
    parts = sorted(record_dir.glob("*-[0-9]*.jsonl"))
    if not parts:
        raise UserError(f"{record_dir}: found no record of a run, expected RUN-0001.jsonl as --record writes it")
    run = parts[-1].name.rpartition("-")[0]
    used: list[Configuration] = []

    def read(name: str) -> ClusterSpec:
        used.append(load(record_dir / name, lenient=True))
        return used[-1].cluster

    def operations() -> Iterator[tuple[int, Operation]]:
        for part in parts:
            if part.name.rpartition("-")[0] == run:
                yield from read_scenario(part)

    replay = Replay(CoreScheduler, read, StateDetail.NONE)
    for _ in replay.run(operations(), run):
        pass
    if not isinstance(replay.scheduler, CoreScheduler):
        raise UserError(f"{record_dir}: the run {run} has not begun")
    return used[-1], replay, replay.scheduler.state


def _inputs(replay: Replay, state: State, node_names: Sequence[str]) -> StateInputs:
    known = zip(state.topology.node_names, state.cells.node_bad.tolist(), strict=True)
    bad = {name for name, is_bad in known if is_bad}
    placed = {
        uid: Placed(request, _as_it_is(state, request.spec.group.name, info), replay.times(uid))
        for uid, (request, info) in replay.placed().items()
    }
    return StateInputs(frozenset(node_names) - bad, placed, reservations(state))


def _as_it_is(state: State, name: str, info: BindInfo) -> BindInfo:
    """The bind info of a pod, without a place in the VC if its group has lost that to another one."""
    group = state.groups.get(name)
    if group is None or group.lazy_preemptor in (None, name):
        return info
    return dataclasses.replace(info, members=without_place(info.members))


def _waiting(replay: Replay) -> list[Waiting]:
    jobs: dict[str, Waiting] = {}
    for request in replay.waiting():
        spec = request.spec
        known = jobs.setdefault(spec.group.name, Waiting(spec.group.name, spec.virtual_cluster, (), (request,)))
        jobs[spec.group.name] = replace(known, pods=(*known.pods, f"{request.namespace}/{request.name}"))
    return list(jobs.values())
