"""However kernels are run, they decide the same."""

import os
import subprocess
import sys

import pytest

from hived.kernels import linked
from hived.kernels.jit import EXCHANGEABLE
from hived.kernels.linked import HERE, Library
from tests.core.kernels.test_linked import PATH, needs_library

PLAIN = {"NUMBA_DISABLE_JIT": "1"}

needs_compiler = pytest.mark.skipif(not EXCHANGEABLE, reason="kernels are linked, or stay plain: make test-jit")


def decided(*options: str, **environ: str) -> tuple[str, str]:
    """(which kernels ran, a digest of all decisions and states) of a new process."""
    clean = {name: value for name, value in os.environ.items() if name not in {"NUMBA_DISABLE_JIT", "HIVED_KERNELS"}}
    done = subprocess.run(
        [sys.executable, "-m", "tests.core.kernels.compiling.ways", *options],
        env=clean | {"PYTHONPATH": PATH} | environ, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    way, _, digest = done.stdout.strip().rpartition(" ")
    return way, digest


@pytest.fixture(scope="module")
def plain() -> str:
    """What plain Python decides."""
    way, digest = decided(**PLAIN)
    assert way == "plain"
    return digest


@pytest.fixture(scope="module")
def on_disk() -> None:
    """Compiled kernels, from a process that may take as long as it needs."""
    environ = {name: value for name, value in os.environ.items() if name != "NUMBA_DISABLE_JIT"}
    command = [sys.executable, "-m", "hived_extender.warm"]
    subprocess.run(command, env=environ | {"PYTHONPATH": PATH, "HIVED_KERNELS": "compiled"}, check=True)


@needs_compiler
@pytest.mark.usefixtures("on_disk")
def test_compiled_kernels_decide_as_plain_ones(plain: str) -> None:
    assert decided(HIVED_KERNELS="compiled") == ("compiled", plain)


@needs_compiler
@pytest.mark.usefixtures("on_disk")
def test_a_change_of_kernels_amid_a_run_changes_no_decision(plain: str) -> None:
    assert decided("--changing", HIVED_KERNELS="compiled") == ("compiled", plain)


@pytest.mark.long
@needs_library
def test_linked_kernels_of_every_variant_decide_as_plain_ones(plain: str) -> None:
    names = linked._load(HERE / linked.LIBRARY).variants()
    assert names == sorted(names, key=["avx512", "avx2", "baseline"].index)
    assert Library(HERE).variant == names[0]
    for name in names:
        assert decided(HIVED_KERNELS=name) == (f"linked ({name})", plain)
