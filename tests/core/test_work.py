"""The counter itself: that each meter counts what it says, in a process without compiled kernels."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.places import ROOT

NODES, CELLS = 128, 3343
"""Of the cluster that statements see as `state`; cells are physical and virtual ones."""

ELEMENTS = {
    "state.cells.used.sum()": CELLS,
    "np.sum(state.cells.used)": CELLS + 1,
    "state.cells.used + 1": CELLS,
    "state.cells.used > state.cells.bad": CELLS,
    "np.add.reduce(state.cells.used)": CELLS,
    "np.argsort(state.cells.used)": 2 * CELLS,
    "state.cells.used.argsort()": CELLS,
    "state.cells.used.tolist()": CELLS,
    "state.cells.used.astype(np.int64).sum()": 2 * CELLS,
    "state.cells.used[[1, 2, 3]]": 3,
    "state.cells.used[state.cells.used == 0]": 2 * CELLS,
    "state.cells.used[5:].sum()": CELLS - 5,
    "state.cells.used[:] = 0": CELLS,
    "state.cells.used[[1, 2]] = 0": 2,
    "list(state.cells.used)": CELLS,
    "np.zeros(CELLS).sum()": 2 * CELLS,
    "made = np.ones(10) * 2; made.sum()": 30,
    # containers
    "sorted(state.topology.node_index)": NODES,
    "list(state.topology.node_index.items())": NODES,
    "[name for name in state.topology.node_index.values()]": NODES,
    "dict(state.topology.node_index)": NODES,
    "set(state.topology.node_names)": NODES,
    "state.topology.node_names[9] in state.topology.node_names": 10,
    "state.topology.node_names.index(state.topology.node_names[9])": 10,
    "max(state.topology._addresses)": CELLS,
    "next(iter(state.topology.node_index))": 1,
    # those of an object of another package
    "list(shelf.ordered.values())": NODES,
    "shelf.ordered.popitem(last=False)": 0,
    "shelf.ordered.move_to_end('gpu-node-00009')": 0,
    "sorted(shelf.names)": NODES,
    "[*shelf.names]": NODES,
    "shelf.names - {'x'}": NODES,
    "{'x'} - shelf.names": NODES,
    "shelf.names | {'x'}": NODES,
    "shelf.names.isdisjoint(())": NODES,
    "'x' in shelf.names": 0,
    "list(shelf.itself.inner.names)": NODES,
    # one element, a view, a bisection, a look-up: not the whole
    "state.cells.used[7]": 0,
    "state.cells.used[7] = 1": 0,
    "state.cells.used[3:7]": 0,
    "np.searchsorted(state.cells.used, 3)": 0,
    "state.topology.node_index['gpu-node-00009']": 0,
    "'gpu-node-00009' in state.topology.node_index.keys()": 0,
    "len(state.topology.node_names)": 0,
}

OTHERS = {
    "address": "state.topology.address(0)",
    "comprehension of 10": "note_from(range(10))",
    "comprehension of 20": "note_from(range(20))",
    "lines of others": "json.dumps({'a': 1}, indent=1)",
    "a megabyte": "bytes(10 ** 6)",
    "a megabyte twice, one after the other": "bytes(10 ** 6); bytes(10 ** 6)",
    "two megabytes": "one, two = bytes(10 ** 6), bytes(10 ** 6)",
    "an array of a megabyte": "np.zeros(10 ** 6, np.int8)",
    "a line of another package": "shelf.look()",
    "a node": "handle(state, NodeHealthChanged('gpu-node-00009', False))",
    "the node again": "handle(state, NodeHealthChanged('gpu-node-00009', True))",
    "the node a third time": "handle(state, NodeHealthChanged('gpu-node-00009', False))",
}

SHELF = """
from collections import OrderedDict

class Shelf:
    def __init__(self, names, inner=None):
        self.names, self.ordered = set(names), OrderedDict.fromkeys(names)
        self.itself, self.inner = self, inner

    def look(self):
        return None
"""

PROGRAM = """
import json, sys
import numpy as np
import shelves
from hived.events import NodeHealthChanged
from hived.groups import check_members
from hived.scheduler import check_invariants, handle, new_state
from hived.specs import GroupSpec, MemberSpec, PodSpec
from hived.work import counted
from tests.benchmarks.clusters import cluster_spec
from tests.benchmarks.measure import add_all_nodes

def note_from(numbers):
    check_members(PodSpec("A", 0, 1, GroupSpec("g", tuple(MemberSpec(1, number + 1) for number in numbers))))

state = new_state(cluster_spec(128))
add_all_nodes(state)
CELLS = len(state.cells.used)
before = state.cells.memory.tobytes()
names = state.topology.node_names
shelf = shelves.Shelf(names, shelves.Shelf(names))
found = {}
for name, statement in json.load(sys.stdin).items():
    known = dict(globals())
    with counted(state, shelf, packages=(shelves,)) as work:
        exec(statement, known)
    found[name] = [work.operations, work.elements, work.allocated]
    if "handle" not in statement:
        state.cells.used[:] = 0
    shelf.ordered["gpu-node-00000"] = None
found["types"] = sorted({type(each).__name__ for owner in (
        state, state.topology, state.cells, state.arrays, shelf, shelf.inner)
    for each in (getattr(owner, name) for name in dir(owner) if not name.startswith("__"))
    if isinstance(each, (np.ndarray, dict, list, set, tuple))} | {type(np.zeros(1)).__name__})
check_invariants(state)
print(json.dumps(found))
"""


def run(folder: Path, statements: Mapping[str, str], is_compiled: bool) -> "subprocess.CompletedProcess[str]":
    """Count each statement on one state of 128 nodes, and on an object of a package that is made in `folder`."""
    package = folder / "shelves"
    package.mkdir()
    (package / "__init__.py").write_text(SHELF)
    path = os.pathsep.join([str(folder), *sys.path])
    environment = os.environ | {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": str(int(not is_compiled))}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, input=json.dumps(statements),
        capture_output=True, text=True, timeout=590, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    """Operations, elements and bytes of each statement."""
    done = run(
        tmp_path_factory.mktemp("other"), {statement: statement for statement in ELEMENTS} | OTHERS, is_compiled=False
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("statement", ELEMENTS)
def test_elements_of_arrays_and_containers_are_counted(found: dict[str, list[int]], statement: str) -> None:
    assert found[statement][1] == ELEMENTS[statement]


def test_lines_of_the_core_are_counted(found: dict[str, list[int]]) -> None:
    assert found["address"][0] > 0


def test_lines_of_another_package_are_counted(found: dict[str, list[int]]) -> None:
    assert found["a line of another package"][0] == 1


def test_lines_outside_of_the_packages_are_not_counted(found: dict[str, list[int]]) -> None:
    assert found["lines of others"][0] == 0


def test_each_round_of_a_generator_or_comprehension_counts(found: dict[str, list[int]]) -> None:
    assert found["comprehension of 20"][0] - found["comprehension of 10"][0] >= 10


def test_lines_of_kernels_are_counted(found: dict[str, list[int]]) -> None:
    assert found["a node"][0] > 8 * 5  # GPUs of the node x levels above each


def test_the_same_event_in_the_same_state_gives_the_same_counts(found: dict[str, list[int]]) -> None:
    assert found["a node"][:2] == found["the node a third time"][:2]


def test_bytes_are_those_of_the_worst_moment(found: dict[str, list[int]]) -> None:
    for name, megabytes in (
        ("a megabyte", 1),
        ("a megabyte twice, one after the other", 1),
        ("two megabytes", 2),
        ("an array of a megabyte", 1),
    ):
        assert megabytes * 10**6 <= found[name][2] < megabytes * 10**6 + 20_000, name


def test_nothing_of_the_counter_is_left_afterwards(found: dict[str, list[int]]) -> None:
    assert found["types"] == ["OrderedDict", "dict", "list", "ndarray", "set", "tuple"]


def test_compiled_kernels_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, {"": ""}, is_compiled=True)
    assert "start Python with NUMBA_DISABLE_JIT=1" in done.stderr
