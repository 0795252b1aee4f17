"""A computation in a process of its own, which begins with all that this one has in memory.

Plain Python that takes a second would take turns with every other thread for all of it, filter calls among them. A copy
of the process (fork) has its own interpreter: making it takes this one 5 to 10 ms at 16,384 nodes, and memory is shared
until one of both changes it.

Only the thread that asks lives on in the copy. So a computation takes no other lock that may be held, and neither
logs nor reads files. Where it does not end in time it is killed, and there is no result.
"""

import gc
import logging
import math
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import NoReturn

from hived.values.errors import HivedError

log = logging.getLogger(__name__)

LONGEST_S = 60.0
NICENESS = 5
PIECE = 1 << 16
FIRST_FILE = 3
"""Those before it are standard input, output and errors."""

DONE = b"\x01"
"""The end of a result; a failure ends otherwise, with its traceback."""


class ApartError(HivedError):
    """The process has failed, or took too long."""


def compute_apart(
    compute: Callable[[], bytes], lock: AbstractContextManager[object], longest_s: float = LONGEST_S
) -> bytes:
    """The result of `compute`, in a process of its own on Linux, and in this one elsewhere.

    `lock` is held while the process is made, so that `compute` may take it: it is free there. In this process
    it is held throughout, and has to let its owner take it again.

    Raises ApartError if it fails or takes longer than `longest_s`, or if there can be no process.
    """
    if sys.platform != "linux":
        with lock:
            return compute()
    ours, theirs = os.pipe()
    try:
        with lock:
            child = os.fork()
            if child == 0:
                _be_apart(compute, theirs)
    except OSError as error:
        os.close(ours)
        os.close(theirs)
        raise ApartError(f"there can be no other process: {error.strerror}") from error
    os.close(theirs)
    try:
        found = _read(ours, time.monotonic() + longest_s)
    finally:
        os.close(ours)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it has said all, or takes too long
        _, status = os.waitpid(child, 0)
    if found is None:
        raise ApartError(f"a computation took longer than {longest_s:g} s")
    if not found.endswith(DONE):
        log.critical("a computation has failed in a process of its own: %s", found.decode(errors="replace").strip())
        raise ApartError(f"a computation has failed in a process of its own (status {status})")
    return found[:-1]


def _read(file: int, until: float) -> bytes | None:
    """All that comes until the other end is closed; None if that takes too long.

    By poll: select refuses files of number 1,024 and above, which a service with many connections has.
    """
    pieces: list[bytes] = []
    waiting = select.poll()
    waiting.register(file, select.POLLIN)
    while (left_s := until - time.monotonic()) > 0:
        if not waiting.poll(math.ceil(left_s * 1000)):
            continue
        piece = os.read(file, PIECE)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
    return None


def _be_apart(compute: Callable[[], bytes], file: int) -> NoReturn:
    """The life of the copy. Connections are closed first: they would stay open for as long as it lives."""
    try:
        logging.disable()  # the queue of the log belongs to threads that are not here
        gc.disable()  # it would touch all memory, which would then be copied
        os.closerange(FIRST_FILE, file)
        os.closerange(file + 1, os.sysconf("SC_OPEN_MAX"))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        with suppress(OSError):
            os.nice(NICENESS)
        try:
            found = compute() + DONE
        except BaseException:
            found = traceback.format_exc().encode()
        left = memoryview(found)
        while left:
            left = left[os.write(file, left) :]
    finally:
        os._exit(0)
