"""A lock on a file of ours, so that one process at a time writes it; it ends with the process."""

import fcntl
import os
from pathlib import Path


class FileLock:
    """The lock is on a file of its own, which stays. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """`path` is made when the lock is taken."""
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Hold the lock from now on; False if another process has it, at once.

        True as well where no file can be locked, as in a folder that is read-only: then nobody writes there.
        """
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            return True
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Others may have the lock from now on."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
