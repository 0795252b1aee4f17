"""The same files give the same bytes in every process, whatever its hash seed, zone and locale are."""

import os
import subprocess
import sys
from pathlib import Path

from tests.places import ROOT

PROGRAM = """
import hashlib, sys
from hived_simulator.traces.describing import describe
from hived_simulator.traces.reading import read_trace
from hived_simulator.traces.changing import some
from hived_simulator.traces.changing import fold
from hived_simulator.traces.writing import WRITERS
import msgspec
digest = hashlib.sha256()
for path in sys.argv[1:]:
    trace = fold(some(read_trace(path), 1, 3), 60.0)
    for each in (trace, read_trace(path)):
        digest.update(msgspec.json.encode(describe(each, gpus=0)))
        for write in WRITERS.values():
            digest.update(b"".join(write(each)))
print(digest.hexdigest())
"""


def test_another_process_gives_the_same_bytes() -> None:
    left_out = {"README.md", "pai_job_table.csv", "gavel-throughputs.json"}
    samples = sorted(path for path in (ROOT / "tests/simulator/traces/samples").iterdir() if path.name not in left_out)
    paths = ":".join(str(ROOT / folder) for folder in ("", "config", "extender"))
    digests = set()
    for seed, zone in (("1", "UTC"), ("2", "America/Los_Angeles")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "LC_ALL": "C", "PYTHONPATH": paths}
        command = [sys.executable, "-P", "-c", PROGRAM, *map(str, samples)]
        digests.add(subprocess.run(command, env=environment, check=True, capture_output=True, cwd=Path("/")).stdout)
    assert len(digests) == 1
