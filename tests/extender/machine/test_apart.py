"""Computations in a process of their own."""

import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from hived_extender.machine.apart import ApartError, compute_apart

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies of processes are made on Linux alone")

FILES_OF_SELECT = 1024
"""`select` takes no file of this number, or a higher one."""

SPARE_FILES = 512
LONG = bytes(range(256)) * 4096


def test_the_result_comes_back_whole() -> None:
    assert compute_apart(lambda: LONG, nullcontext()) == LONG


def test_nothing_that_is_computed_changes_anything_here() -> None:
    seen = [1]

    def compute() -> bytes:
        seen.append(2)
        return bytes(seen) + os.getpid().to_bytes(8, "big")

    found = compute_apart(compute, nullcontext())
    assert (found[:2], seen) == (b"\x01\x02", [1])
    assert int.from_bytes(found[2:], "big") != os.getpid()


def test_a_mistake_there_is_an_error_here() -> None:
    def compute() -> bytes:
        raise ValueError("no")

    with pytest.raises(ApartError, match="has failed in a process of its own"):
        compute_apart(compute, nullcontext())


def test_a_computation_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: made.append(fork()) or made[-1])
    with pytest.raises(ApartError, match=r"took longer than 0\.2 s"):
        compute_apart(lambda: bytes(time.sleep(600) or b""), nullcontext(), longest_s=0.2)
    with pytest.raises(ChildProcessError):
        os.waitpid(made[0], os.WNOHANG)  # it has ended, and somebody has asked about it


def test_files_of_high_numbers_are_read_too() -> None:
    with many_files(FILES_OF_SELECT):
        assert compute_apart(lambda: LONG, nullcontext()) == LONG


def test_a_computation_that_is_killed_is_an_error_here() -> None:
    with pytest.raises(ApartError, match="has failed in a process of its own"):
        compute_apart(lambda: bytes(os.kill(os.getpid(), signal.SIGKILL) or b""), nullcontext())


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """So many files open in this process. Skips the test where that many are not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + SPARE_FILES:
        pytest.skip(f"a process may open {hard} files here, and {count + SPARE_FILES} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + SPARE_FILES), hard))
    first = os.open(os.devnull, os.O_RDONLY)
    files = [first, *(os.dup(first) for _ in range(count))]
    try:
        yield
    finally:
        for each in files:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.long
def test_a_lock_that_others_take_all_the_time_is_free_there() -> None:
    lock, is_stopping = threading.RLock(), threading.Event()

    def hold() -> None:
        while not is_stopping.is_set():
            with lock:
                time.sleep(0.001)

    others = [threading.Thread(target=hold) for _ in range(4)]
    for each in others:
        each.start()

    def compute() -> bytes:
        with lock:
            return b"free"

    try:
        assert [compute_apart(compute, lock) for _ in range(20)] == [b"free"] * 20
    finally:
        is_stopping.set()
        for each in others:
            each.join()


def test_connections_are_closed_there() -> None:
    ours, theirs = os.pipe()
    found = compute_apart(lambda: b" ".join(os.fsencode(name) for name in os.listdir("/proc/self/fd")), nullcontext())
    os.close(ours)
    os.close(theirs)
    assert not {str(ours), str(theirs)} & set(found.decode().split())
