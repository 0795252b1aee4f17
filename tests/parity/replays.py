"""Running a recorded scenario on the core, record by record."""

import json
from collections.abc import Iterator
from pathlib import Path

from hived_config.loader import load_cluster
from hived_extender.machine.recording.operations import read_scenario
from hived_extender.machine.recording.replay import CoreScheduler, Json, Replay, StateDetail, encode_record


def replay_on_core(folder: Path, name: str) -> Iterator[Json]:
    """The records of a scenario in `folder`/scenarios as a trace would hold them, with state hashes."""
    replay = Replay(
        CoreScheduler,
        lambda config: load_cluster(folder / "configs" / config, lenient=True),
        StateDetail.HASH,
    )
    for record in replay.run(read_scenario(folder / "scenarios" / f"{name}.jsonl"), name):
        yield json.loads(encode_record(record))


def scenario_names(folder: Path) -> list[str]:
    return sorted(path.stem for path in (folder / "scenarios").glob("*.jsonl"))
