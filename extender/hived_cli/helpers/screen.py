"""A terminal that shows something live, and is as before afterwards."""

import os
import select
import signal
import sys
import termios
import time
import tty
from typing import Any, NoReturn, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

RESIZE_CHECK_S = 0.2
TERMINATED = 128 + signal.SIGTERM


class Screen:
    """Shows one text at a time, cut to the size of the terminal, while it is entered; for the main thread.

    The key `q` ends it, as Ctrl-C does by KeyboardInterrupt. At SIGTERM the terminal is put back, too.
    """

    def __init__(self) -> None:
        self._console = Console()
        self._live = Live(console=self._console, screen=True, auto_refresh=False)
        self._text = self._note = ""
        self._mode: list[Any] | None = None
        self._handler: Any = None

    def __enter__(self) -> Self:
        self._handler = signal.signal(signal.SIGTERM, _end)
        if sys.stdin is not None and sys.stdin.isatty():
            self._mode = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        if self._mode is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._mode)
        signal.signal(signal.SIGTERM, self._handler)

    def draw(self, text: str, is_changed: bool = True) -> None:
        """Show a text, which may be styled with ANSI codes; with no note below it any more."""
        if (text, "") != (self._text, self._note):
            self._text, self._note = text, ""
            self._refresh()

    def complain(self, note: str) -> None:
        """Show a note below the text, until the next one is drawn."""
        if note != self._note:
            self._note = note
            self._refresh()

    def wait(self, seconds: float) -> bool:
        """Let so much time pass; True if the user wants to end. A new size of the terminal is heeded meanwhile."""
        until = time.monotonic() + seconds
        size = self._console.size
        while (left := until - time.monotonic()) > 0:
            keys = [sys.stdin] if self._mode is not None else []
            if select.select(keys, [], [], min(left, RESIZE_CHECK_S))[0]:
                key = os.read(sys.stdin.fileno(), 1)
                if key in (b"q", b"Q"):
                    return True
                if not key:  # the terminal is closed
                    return True
            if self._console.size != size:
                size = self._console.size
                self._refresh()
        return False

    def _refresh(self) -> None:
        lines = self._text.splitlines()
        below = [self._note] if self._note else []
        room = self._console.size.height - len(below)
        if len(lines) > room:
            below = [f"... and {len(lines) - room + 1} more lines", *below]
            lines = lines[: max(0, room - 1)]
        shown = Text.from_ansi("\n".join([*lines, *below]), no_wrap=True, overflow="ellipsis")
        self._live.update(shown, refresh=True)


def _end(*_: object) -> NoReturn:
    raise SystemExit(TERMINATED)
