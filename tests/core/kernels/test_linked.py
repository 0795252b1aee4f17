"""The linked library: loaded if it is whole and of these sources, passed over otherwise, and strict about arguments."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hived.cells.journal import JournalFull, mark, put, start_recording, undo_changes
from hived.kernels import linked
from hived.kernels.linked import DESCRIPTION, HERE, LIBRARY, Library, _NotUsableError
from tests.core.builders import healthy_state, quota, rack_cluster
from tests.places import ROOT

PATH = os.pathsep.join(str(ROOT / each) for each in (".", "config", "extender"))


def is_there() -> bool:
    """Whether the checkout has a library of these sources."""
    try:
        linked._describe(HERE)
    except _NotUsableError:
        return False
    return True


needs_library = pytest.mark.skipif(not is_there(), reason="there is no library of these sources: make kernels")


def say(code: str, cwd: Path = HERE, **environ: str) -> tuple[str, str]:
    """(stdout, stderr) of a new process."""
    clean = {name: value for name, value in os.environ.items() if name not in {"NUMBA_DISABLE_JIT", "HIVED_KERNELS"}}
    done = subprocess.run(
        [sys.executable, "-c", code], env=clean | {"PYTHONPATH": PATH} | environ, capture_output=True, text=True,
        timeout=300, check=True, cwd=cwd,
    )  # fmt: skip
    return done.stdout, done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the core with its library."""
    copy = tmp_path / "hived"
    shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture
def kernels() -> dict[str, Any]:
    """The functions of the library, whatever the tests' own process runs."""
    library = Library(HERE)
    return {name.rpartition(".")[2]: function for name, function in library._functions.items()}


def test_without_a_library_nothing_is_said(tmp_path: Path, folder: Path) -> None:
    (folder / DESCRIPTION).unlink(missing_ok=True)
    with pytest.raises(_NotUsableError) as error:
        Library(folder)
    assert not str(error.value)


@needs_library
def test_a_library_of_other_sources_is_passed_over_without_a_word(folder: Path) -> None:
    with (folder / "tree.py").open("a") as source:
        source.write("# another line\n")
    with pytest.raises(_NotUsableError) as error:
        Library(folder)
    assert not str(error.value)


@needs_library
@pytest.mark.parametrize("size", [0, 100, 100_000])
def test_a_library_that_was_cut_off_is_named_and_not_loaded(folder: Path, size: int) -> None:
    whole = (folder / LIBRARY).read_bytes()
    (folder / LIBRARY).write_bytes(whole[:size])
    with pytest.raises(_NotUsableError, match="is damaged, its SHA-256 digest differs"):
        Library(folder)


@needs_library
def test_a_description_that_is_no_json_is_named(folder: Path) -> None:
    (folder / DESCRIPTION).write_text("{")
    with pytest.raises(_NotUsableError, match=DESCRIPTION):
        Library(folder)


@pytest.fixture
def described(tmp_path: Path) -> dict[str, Any]:
    """The description of a library of a single source, all of it in the test's folder."""
    (tmp_path / "source.py").write_text("")
    (tmp_path / LIBRARY).write_bytes(b"")
    return {"sources": {"hived": linked.core_digest(tmp_path)}, "sha256": "0"}


@pytest.mark.parametrize("name", ["sources", "sha256"])
def test_a_description_that_lacks_something_is_named(tmp_path: Path, described: dict[str, Any], name: str) -> None:
    del described[name]
    (tmp_path / DESCRIPTION).write_text(json.dumps(described))
    with pytest.raises(_NotUsableError, match=rf"{DESCRIPTION}: KeyError\('{name}'\)"):
        Library(tmp_path)


@pytest.mark.parametrize("name", ["sources", "sha256"])
@pytest.mark.parametrize("wrong", [None, [1], 7])
def test_a_description_of_another_form_is_named(
    tmp_path: Path, described: dict[str, Any], name: str, wrong: object
) -> None:
    (tmp_path / DESCRIPTION).write_text(json.dumps(described | {name: wrong}))
    with pytest.raises(_NotUsableError, match="_kernels"):
        Library(tmp_path)


def test_a_source_in_another_folder_makes_another_digest(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    source = tmp_path / "one" / "source.py"
    source.write_text("same")
    before = linked.core_digest(tmp_path)
    source.rename(tmp_path / "two" / "source.py")
    assert linked.core_digest(tmp_path) != before


def test_the_digest_does_not_depend_on_where_the_core_lies(folder: Path) -> None:
    assert linked.core_digest(folder) == linked.core_digest()


@needs_library
def test_a_file_that_is_no_library_is_named(folder: Path) -> None:
    description = json.loads((folder / DESCRIPTION).read_text())
    (folder / LIBRARY).write_bytes(b"no library")
    description["sha256"] = linked.hashlib.sha256(b"no library").hexdigest()
    (folder / DESCRIPTION).write_text(json.dumps(description))
    with pytest.raises(_NotUsableError, match=LIBRARY):
        Library(folder)


@needs_library
def test_a_variant_that_the_cpu_has_not_is_named() -> None:
    with pytest.raises(_NotUsableError, match=r"HIVED_KERNELS=avx9: this CPU has .*baseline"):
        Library(HERE, "avx9")


@needs_library
def test_a_process_with_a_damaged_library_says_so_once_and_works(folder: Path) -> None:
    (folder / LIBRARY).write_bytes(b"")
    code = (
        "from hived.cells.journal import undo_to\nfrom hived.kernels.jit import kernels_in_use\nprint(kernels_in_use())"
    )
    out, err = say(code, folder.parent, PYTHONPATH=os.pathsep.join((str(folder.parent), PATH)))
    assert out == "plain\n"
    assert [line.split(":")[0] for line in err.splitlines()] == ["hived"]


@needs_library
def test_a_process_with_linked_kernels_imports_no_compiler() -> None:
    code = "import sys, hived_extender.running, hived_extender.warm as warm\n"
    code += "from hived.kernels.jit import kernels_in_use\n"
    code += "warm.compile_kernels()\nprint(kernels_in_use(), [n for n in ('numba', 'llvmlite') if n in sys.modules])"
    assert say(code, HIVED_KERNELS="baseline") == ("linked (baseline) []\n", "")


@needs_library
@pytest.mark.parametrize("environ", [{"NUMBA_DISABLE_JIT": "1"}, {"HIVED_KERNELS": "plain"}])
def test_the_environment_can_ask_for_plain_kernels(environ: dict[str, str]) -> None:
    code = "from hived.cells.journal import undo_to\nprint(type(undo_to).__name__)"
    assert say(code, **environ)[0] == "function\n"


@needs_library
def test_a_kernel_takes_a_block_of_its_own_kind_only(kernels: dict[str, Any]) -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1})))
    with pytest.raises(TypeError, match="undo_to: s is no block of the right kind"):
        kernels["undo_to"](state.arrays, 0)


@needs_library
@pytest.mark.parametrize("wrong", [None, 7, "text", np.zeros(3, np.int32)])
def test_what_is_no_block_is_refused(kernels: dict[str, Any], wrong: object) -> None:
    with pytest.raises(TypeError, match="undo_to: s is no block of the right kind"):
        kernels["undo_to"](wrong, 0)


@needs_library
@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [1, 2],
        np.zeros(3, np.int64),
        np.zeros(3, np.uint32),
        np.zeros((2, 2), np.int32),
        np.zeros(6, np.int32)[::2],
        np.zeros(3, ">i4"),
        np.frombuffer(bytes(12), np.int32),
    ],
    ids=["none", "list", "wider", "unsigned", "two_dimensions", "gaps", "swapped", "read_only"],
)
def test_a_kernel_takes_arrays_of_its_own_kind_only(kernels: dict[str, Any], wrong: object) -> None:
    with pytest.raises(TypeError, match="enter_names: slots is no contiguous array of the right type"):
        kernels["enter_names"](np.zeros(1, np.uint64), np.zeros(1, np.int32), wrong)


@needs_library
def test_an_array_that_is_only_read_may_be_read_only(kernels: dict[str, Any]) -> None:
    words = np.frombuffer(bytes(8), np.uint64)
    assert kernels["enter_names"](words, np.zeros(1, np.int32), np.full(1, -1, np.int32)) is None


@needs_library
def test_a_number_that_is_none_is_refused(kernels: dict[str, Any]) -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1})))
    with pytest.raises(TypeError):
        kernels["undo_to"](state.cells, "0")


@needs_library
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_call_with_another_number_of_arguments_is_refused(kernels: dict[str, Any], count: int) -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1})))
    with pytest.raises(TypeError, match=f"undo_to takes 2 arguments, not {count}"):
        kernels["undo_to"](*[state.cells, 0, 0][:count])


@needs_library
def test_an_exception_of_a_kernel_arrives_as_it_was_raised(kernels: dict[str, Any]) -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1})))
    state.cells = state.cells.with_arrays(journal_position=np.empty(1, np.int64), journal_value=np.empty(1, np.int32))
    start_recording(state)
    nodes = np.arange(len(state.topology.node_names), dtype=np.int32)
    with pytest.raises(JournalFull, match=r"^journal is full$"):
        kernels["set_node_health"](state.arrays, state.cells, nodes, 1)


@needs_library
def test_a_library_does_not_depend_on_where_it_was_built() -> None:
    assert str(ROOT).encode() not in (HERE / LIBRARY).read_bytes()


@needs_library
def test_a_linked_kernel_changes_the_arrays_of_its_block(kernels: dict[str, Any]) -> None:
    state = healthy_state(rack_cluster(quota("A", {"RACK": 1})))
    start_recording(state)
    before = state.cells.memory.copy()
    put(state.cells, state.cells.priority, 0, 7)
    assert not (state.cells.memory == before).all()
    kernels["undo_to"](state.cells, 0)
    assert (state.cells.memory == before).all()
    undo_changes(state, mark(state))
