"""The same operations give the same bytes, whatever the hash seed of the process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.property.soak import make_run

PROGRAM = "import sys; from hived_cli import main; main(sys.argv[1:])"
OP_COUNT = 120


def trace_of(scenario: Path, out: Path, hash_seed: str) -> bytes:
    words = ["replay", scenario, "--configs", scenario.parent, "--out", out, "--check"]
    subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, words)],
        check=True,
        env=os.environ | {"PYTHONHASHSEED": hash_seed},
        capture_output=True,
    )
    return out.read_bytes()


@pytest.mark.long
def test_two_processes_write_equal_traces(tmp_path: Path) -> None:
    lockstep, operations = make_run(seed=1)
    for op in operations.start():
        lockstep.apply(op)
    while len(lockstep.operations) < OP_COUNT:
        op = operations.next()
        operations.learn(op, lockstep.apply(op))
    scenario = lockstep.dump(tmp_path)
    first, second = (trace_of(scenario, tmp_path / f"trace-{seed}", seed) for seed in ("1", "2"))
    assert first.count(b"\n") == OP_COUNT
    assert first == second
