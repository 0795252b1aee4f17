"""Cleans up when the tests are killed: a process that waits for their end, ends theirs and removes their folders.

The tests tell it pids and folders through a pipe, which breaks when they are gone, in whatever way. Pids are those of
children that have not been waited for, so they cannot be anybody else's meanwhile. The program imports none of ours.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

_lock = threading.Lock()


def watch(pid: int) -> None:
    """Kill this process if we go before `forget`."""
    _tell(f"+{pid}")


def forget(pid: int) -> None:
    """This process has ended and was waited for."""
    _tell(f"-{pid}")


def remove(folder: Path) -> None:
    """Remove this folder when we are gone, if it is still there."""
    _tell(str(folder.absolute()))


def _tell(line: str) -> None:
    guard = _guard()
    assert guard.stdin is not None
    with _lock:
        guard.stdin.write(line + "\n")
        guard.stdin.flush()


@functools.cache
def _guard() -> "subprocess.Popen[str]":
    command = [sys.executable, "-ES", __file__]
    return subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)


def _stand_guard() -> None:
    pids: set[int] = set()
    folders: set[str] = set()
    for line in map(str.strip, sys.stdin):
        if line.startswith("/"):
            folders.add(line)
        elif line.startswith("+"):
            pids.add(int(line))
        else:
            pids.discard(-int(line))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _stand_guard()
