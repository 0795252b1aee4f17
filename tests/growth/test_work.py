"""The counter itself: that each meter counts what it says, in a process without compiled kernels."""

import json
import os
import subprocess
import sys

import pytest

from tests.growth.work import counted
from tests.places import ROOT

STATEMENTS = {
    "address": "state.topology.address(0)",
    "comprehension of 10": "note_from(range(10))",
    "comprehension of 20": "note_from(range(20))",
    "lines of others": "json.dumps({'a': 1}, indent=1)",
    "a megabyte": "bytes(10 ** 6)",
    "a megabyte twice, one after the other": "bytes(10 ** 6); bytes(10 ** 6)",
    "two megabytes": "one, two = bytes(10 ** 6), bytes(10 ** 6)",
    "an array of a megabyte": "np.zeros(10 ** 6, np.int8)",
    "a line of another package": "shelves.look()",
    "a node": "handle(state, NodeHealthChanged('gpu-node-00009', False))",
    "the node again": "handle(state, NodeHealthChanged('gpu-node-00009', True))",
    "the node a third time": "handle(state, NodeHealthChanged('gpu-node-00009', False))",
}

PROGRAM = """
import json, sys
import numpy as np
import shelves
from hived.values.events import NodeHealthChanged
from hived.life.groups import check_members
from hived.scheduler import handle, new_state
from hived.values.specs import GroupSpec, MemberSpec, PodSpec
from tests.benchmarks.load import cluster_spec
from tests.benchmarks.core import add_all_nodes
from tests.growth.work import counted

def note_from(numbers):
    check_members(PodSpec("A", 0, 1, GroupSpec("g", tuple(MemberSpec(1, number + 1) for number in numbers))))

state = new_state(cluster_spec(128))
add_all_nodes(state)
found = {}
for name, statement in json.load(sys.stdin).items():
    known = dict(globals())
    with counted(shelves) as work:
        exec(statement, known)
    found[name] = [work.operations, work.allocated]
found["trace"] = sys.gettrace() is not None
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """Operations and bytes of each statement, on one state of 128 nodes, with a package that counts as well."""
    folder = tmp_path_factory.mktemp("other")
    package = folder / "shelves"
    package.mkdir()
    (package / "__init__.py").write_text("def look():\n    return None\n")
    path = os.pathsep.join([str(folder), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=os.environ | {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"},
        input=json.dumps(STATEMENTS), capture_output=True, text=True, timeout=590, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_lines_of_the_core_of_its_kernels_and_of_named_packages_are_counted(found: dict[str, list[int]]) -> None:
    counts = {name: work[0] for name, work in found.items() if name != "trace"}
    assert counts["address"] > 0
    assert (counts["a line of another package"], counts["lines of others"]) == (1, 0)
    assert counts["comprehension of 20"] - counts["comprehension of 10"] >= 10  # each round counts
    assert counts["a node"] == counts["the node a third time"] > 8 * 5  # GPUs of the node x levels above each
    assert not found["trace"]


def test_bytes_are_those_of_the_worst_moment(found: dict[str, list[int]]) -> None:
    for name, megabytes in (
        ("a megabyte", 1),
        ("a megabyte twice, one after the other", 1),
        ("two megabytes", 2),
        ("an array of a megabyte", 1),
    ):
        assert megabytes * 10**6 <= found[name][1] < megabytes * 10**6 + 20_000, name


def test_compiled_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.growth.work.IS_INTERPRETED", False)
    with pytest.raises(RuntimeError, match="start Python with NUMBA_DISABLE_JIT=1"), counted():
        pass
