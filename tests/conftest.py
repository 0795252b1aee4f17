"""Settings of all tests."""

import fcntl
import gc
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import TextIO

import pytest
from hypothesis import settings

from hived.kernels.jit import EXCHANGEABLE
from hived_extender.warm import compile_kernels
from tests.long import mark_long, run_named_files_as_a_whole
from tests.progress import Progress

pytest.register_assert_rewrite("tests.reconfiguration.runner")  # failed comparisons show what differs

# The same examples on every machine and in every run; a slow machine is no failure.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")

# A shell has what it runs in the background ignore Ctrl-C, and so would all programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW_FILES = (
    "tests/test_packaging",
    "growth/test_growth",
    "growth/test_gangs",
    "attacks/test_attacks",
    "demo/test_demo",
    "kube/test_lease",
    "property/test_lockstep",
    "benchmarks/test_benchmarks",
    "parity/test_reference",
    "reconfiguration/test_cases",
    "demo/test_dialects",
    "storm/test_crashes",
    "storm/test_storm",
    "demo/test_scenario_files",
    "gangs/test_faults",
    "parity/test_successions",
    "kernels/compiling/test_kernel_cache",
    "property/test_machine",
    "extender/test_running",
)
"""Files that take tens of seconds, the longest first. Begun last, one of them would run alone."""


NEED_NO_KERNELS = ("tests", "growth", "deploy", "attacks", "docs")
"""Folders with tests that start at once when they run alone."""


NOBODY = "http://127.0.0.1:1"
"""The service that commands ask in tests that name none. At the default address somebody's own may run."""


def pytest_configure(config: pytest.Config) -> None:
    """Have a process of its own compile kernels while workers collect, and run tests that need none.

    Modules and tests stay until the end. Searches for garbage among them find none and take a third of collecting.
    """
    gc.disable()
    run_named_files_as_a_whole(config)
    os.environ["HIVED_SERVER"] = NOBODY
    compiler = None
    if config.getoption("numprocesses", None) and EXCHANGEABLE:
        with _lock() as lock:
            compiler = subprocess.Popen([sys.executable, "-m", "hived_extender.warm"], pass_fds=[lock.fileno()])
    if not hasattr(config, "workerinput"):
        progress = Progress(is_compiling=lambda: compiler is not None and compiler.poll() is None)
        config.pluginmanager.register(progress)


def pytest_collection(session: pytest.Session) -> None:
    """Import the files in each worker from another one on.

    The first worker to import a file rewrites its assertions, which takes most of the time of collecting. Others read
    the result. In the same order, all of them would rewrite every file at the same time.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return
    folders = [session.config.rootpath / argument for argument in session.config.args]
    files = [file for folder in folders for file in sorted(folder.rglob("test_*.py")) if "e2e" not in file.parts]
    first = int(worker["workerid"].removeprefix("gw")) * len(files) // worker["workercount"]
    for file in [*files[first:], *files[:first]]:
        with suppress(Exception, pytest.skip.Exception):  # collecting it tells of what is wrong
            import_module(".".join(file.relative_to(session.config.rootpath).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the kernels before a test that may wait for one of them with a time-out."""
    if item.path.parent.name not in NEED_NO_KERNELS:
        have_kernels()


@cache
def have_kernels() -> None:
    """Compile the kernels, or load them from disk."""
    if EXCHANGEABLE:
        with _lock():
            compile_kernels()


def _lock() -> TextIO:
    """Held by one process and its children until they have closed it."""
    from hived.kernels.compiling.kernel_cache import kernel_folders  # noqa: PLC0415  # numba

    folder = kernel_folders()[0]
    lock = (folder / "compiling.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def pytest_collection_finish() -> None:
    """Search for garbage again, but only among what tests make, and as seldom as a service does."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tell long tests from quick ones, and begin with what takes longest."""
    mark_long(items)
    order = {name: place for place, name in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: order.get("/".join(item.path.with_suffix("").parts[-2:]), len(order)))
