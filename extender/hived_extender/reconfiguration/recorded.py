"""The effects of a configuration on the last state of a recorded run, and on its decisions (`hived serve --record`)."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from hived.cells.state import State
from hived.life.groups import without_place
from hived.scenario import Asked
from hived.values.errors import UserError
from hived.values.specs import BindInfo, ClusterSpec
from hived_config.document import ConfigError
from hived_config.loader import Configuration, load, load_text
from hived_extender.api.configuration import ConfigReport
from hived_extender.api.past import RecordedPast
from hived_extender.machine.core import Placed, StateInputs, reservations
from hived_extender.machine.offers import Asking
from hived_extender.machine.recording.operations import New, Operation, read_scenario
from hived_extender.machine.recording.replay import CoreScheduler, Replay, StateDetail
from hived_extender.reconfiguration.change import Change
from hived_extender.reconfiguration.configurations import invalid
from hived_extender.reconfiguration.judging import Waiting
from hived_extender.reconfiguration.past import Past, has_other_rules, with_rules_of


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


def past_under(
    record_dir: Path,
    text: str,
    file: str,
    run: str = "",
    tell: Callable[[int, int], None] = lambda done, of: None,
) -> RecordedPast | None:
    """The decisions of a recorded run that the rules of another text would have changed; None if it has the same rules.

    Parameters
    ----------
    record_dir, run : the folder, and the name of the run; by default the newest one
    text, file : a sound configuration and its name
    tell : called with the number of lines done, and of how many, for each line

    Only the rules and the keys of VCs that belong to them are taken from the text; the cells are those of the record.
    Raises UserError if the run does not exist, or cannot be repeated. Cost: that of two replays of the run.
    """
    parts = _parts(record_dir, run)
    new = load_text(text, file, lenient=True).cluster

    @cache
    def read(name: str) -> ClusterSpec:
        return load(record_dir / name, lenient=True).cluster

    def lines() -> Iterator[tuple[str, Operation]]:
        count = 0
        for part in parts:
            for number, operation in read_scenario(part):
                yield f"{part.name}:{number}", operation
                count += 1
                tell(count, total)

    total, used = 0, []
    for part in parts:
        for _, operation in read_scenario(part):
            total += 1
            if isinstance(operation, New):
                used.append(operation.config)
    if not any(has_other_rules(read(name), new) for name in used):
        return None
    return Past(_run_of(parts[0]), read, lambda recorded: with_rules_of(recorded, new)).compare(lines())


def _parts(record_dir: Path, run: str = "") -> list[Path]:
    """The files of a run, by default of the newest one. Raises UserError if there is none."""
    parts = sorted(record_dir.glob("*-[0-9]*.jsonl"))
    run = run or (_run_of(parts[-1]) if parts else "")
    found = [part for part in parts if _run_of(part) == run]
    if not found:
        raise UserError(f"{record_dir}: found no record of a run, expected RUN-0001.jsonl as --record writes it")
    return found


def _run_of(part: Path) -> str:
    return part.name.rpartition("-")[0]


def _repeat(record_dir: Path) -> tuple[Configuration, Replay[CoreScheduler], State]:
    parts = _parts(record_dir)
    used: list[Configuration] = []

    def read(name: str) -> ClusterSpec:
        used.append(load(record_dir / name, lenient=True))
        return used[-1].cluster

    replay = Replay(CoreScheduler, read, StateDetail.NONE)
    for part in parts:
        for _ in replay.run(read_scenario(part), str(part)):
            pass
    if replay.scheduler is None:
        raise UserError(f"{record_dir}: the run {_run_of(parts[0])} has not begun")
    return used[-1], replay, replay.scheduler.state


def _inputs(replay: Replay[CoreScheduler], state: State, node_names: Sequence[str]) -> StateInputs:
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


def _waiting(replay: Replay[CoreScheduler]) -> list[Waiting]:
    jobs: dict[str, Waiting] = {}
    for request in replay.waiting():
        spec = request.spec
        name = spec.group.name
        known = jobs.setdefault(name, Waiting(name, spec.virtual_cluster, (), (Asking(Asked(request)),), job=name))
        jobs[name] = replace(known, pods=(*known.pods, f"{request.namespace}/{request.name}"))
    return list(jobs.values())
