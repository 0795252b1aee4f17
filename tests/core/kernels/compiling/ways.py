"""What a process decides, as one digest: `python -m tests.core.kernels.compiling.ways`.

It replays small recorded scenarios and random operations, with kernels run in the way that the environment says. With
`--changing` they begin plain and are compiled from the middle of each on.
"""

import hashlib
import sys
from collections.abc import Iterator

from hived.kernels.jit import EXCHANGEABLE, kernels_in_use
from hived_config.loader import load_cluster
from hived_extender.machine.recording.operations import read_scenario
from hived_extender.machine.recording.replay import CoreScheduler, Replay, StateDetail, encode_record
from hived_extender.warm import compile_kernels
from tests.places import ROOT
from tests.property.soak import make_run

RECORDED = ROOT / "tests" / "parity" / "recorded"
SCENARIOS = ("n2-2l-mix", "n8-4l-bad", "gang-being-preempted", "extra-m9")
SEEDS, OPERATIONS = 4, 60


def change(*, to_compiled: bool) -> None:
    """Have plain kernels run, or compiled ones."""
    for entry in EXCHANGEABLE:
        entry.target = entry.function
    if to_compiled:
        compile_kernels()


def recorded(name: str, *, changes: bool) -> Iterator[bytes]:
    """The records of a scenario, with digests of the state."""
    replay = Replay(
        CoreScheduler, lambda config: load_cluster(RECORDED / "configs" / config, lenient=True), StateDetail.HASH
    )
    operations = read_scenario(RECORDED / "scenarios" / f"{name}.jsonl")
    for place, record in enumerate(replay.run(operations, name)):
        yield encode_record(record)
        if changes and place == 40:
            change(to_compiled=True)


def random(seed: int, *, changes: bool) -> Iterator[bytes]:
    """The core's state after each random operation; every one is compared with the oracle, too."""
    lockstep, operations = make_run(seed, beyond=True)
    for op in operations.start():
        lockstep.apply(op)
    while len(lockstep.operations) < OPERATIONS:
        op = operations.next()
        operations.learn(op, lockstep.apply(op))
        yield lockstep._core_memory()
        if changes and len(lockstep.operations) == OPERATIONS // 2:
            change(to_compiled=True)


def main() -> None:
    """Print the way and the digest."""
    changes = "--changing" in sys.argv
    digest = hashlib.sha256()
    for run in (
        *(recorded(name, changes=changes) for name in SCENARIOS),
        *(random(i, changes=changes) for i in range(SEEDS)),
    ):
        change(to_compiled=not changes)
        for part in run:
            digest.update(part)
    print(kernels_in_use(), digest.hexdigest())


if __name__ == "__main__":
    main()
