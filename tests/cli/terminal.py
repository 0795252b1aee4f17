"""Commands in a process of their own: on a terminal, or with their output in a pipe."""

import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from fcntl import ioctl
from typing import Self

LIMIT_S = 60.0


class Running:
    """A command that runs, with all that it has printed so far in `text`; it is killed at the end of the block."""

    def __init__(self, *arguments: str, size: tuple[int, int] | None = None, **environ: str) -> None:
        """`size` is the rows and columns of its terminal; None for a pipe."""
        self.text = ""
        inner = {}
        if size is None:
            self._end, write = os.pipe()
        else:
            self._end, write = pty.openpty()
            ioctl(write, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
            inner = {"stdin": write}
        without_size = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "LINES"}}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from hived_cli import main; main()", *arguments],
            stdout=write, stderr=subprocess.PIPE, start_new_session=True,
            env={**without_size, "TERM": "xterm", "NUMBA_DISABLE_JIT": "1", **environ}, **inner,
        )  # fmt: skip
        os.close(write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        os.close(self._end)

    def read_until(self, text: str, count: int = 1) -> None:
        """Wait until a text has been printed so often."""
        until = time.monotonic() + LIMIT_S
        while self.text.count(text) < count:
            assert time.monotonic() < until, self.text
            if select.select([self._end], [], [], 0.1)[0]:
                self._read()

    def press(self, key: str) -> None:
        """Type a key on its terminal."""
        os.write(self._end, key.encode())

    def interrupt(self) -> int:
        """Send it Ctrl-C's signal; returns its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.wait()

    def wait(self) -> int:
        """Wait for its end, reading on; returns its exit code."""
        until = time.monotonic() + LIMIT_S
        while self.process.poll() is None and time.monotonic() < until:
            if select.select([self._end], [], [], 0.05)[0] and not self._read():
                break
        code = self.process.wait(LIMIT_S)
        while select.select([self._end], [], [], 0)[0] and self._read():
            pass
        return code

    def errors(self) -> str:
        """All of standard error, after the end."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def _read(self) -> bool:
        try:
            part = os.read(self._end, 65536)
        except OSError:  # a terminal whose other side is closed
            return False
        self.text += part.decode()
        return bool(part)
