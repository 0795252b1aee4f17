"""Whoever waits for tests sees that they run, also where output goes to a file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

CONFTEST = """
from tests.progress import Progress

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(every_s={every_s}, is_compiling=lambda: {is_compiling}))
"""
TESTS = """
import time

def test_quick():
    pass

def test_slow():
    time.sleep(1.5)
"""


def lines_of(folder: Path, *options: str, is_compiling: bool = False, every_s: float = 0.2) -> list[str]:
    """The output of pytest into a pipe about a quick and a slow test."""
    (folder / "conftest.py").write_text(CONFTEST.format(is_compiling=is_compiling, every_s=every_s))
    (folder / "test_some.py").write_text(TESTS)
    plugins = ["-p", "xdist", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *options, str(folder)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environ |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_a_slow_test_is_named_while_it_runs(tmp_path: Path, options: tuple[str, ...]) -> None:
    said = [line for line in lines_of(tmp_path, *options) if line.startswith("... ")]
    assert any("running test_some.py::test_slow" in line and "1 tests done" in line for line in said)


def test_it_says_that_kernels_are_compiled(tmp_path: Path) -> None:
    assert any("compiling kernels, running" in line for line in lines_of(tmp_path, is_compiling=True))


def test_nothing_is_said_where_tests_end_soon(tmp_path: Path) -> None:
    assert not [line for line in lines_of(tmp_path, "-k", "quick", every_s=60.0) if line.startswith("... ")]
