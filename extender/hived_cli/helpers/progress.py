"""Progress of long work on stderr: a bar on a terminal, else a line now and then."""

import sys
import time
from collections.abc import Callable

import click

from hived_simulator.certification import Stopped

TELL_S = 10.0
DRAW_S = 0.2
WIDTH = 30


class Bar:
    """One part of the work; call it with how much is done, and of how much. Raises `Stopped` if that is wished."""

    def __init__(self, what: str, must_stop: Callable[[], bool] = lambda: False) -> None:
        self._what = what
        self._must_stop = must_stop
        self._is_terminal = sys.stderr.isatty()
        self._told = time.monotonic()
        self._is_drawn = False

    def __call__(self, done: int, of: int) -> None:
        """Tell, if it is time to."""
        if self._must_stop():
            if self._is_drawn:
                click.echo(err=True)
            raise Stopped
        is_over = done >= of
        if time.monotonic() - self._told < (DRAW_S if self._is_terminal else TELL_S) and not (
            self._is_drawn and is_over
        ):
            return
        self._told = time.monotonic()
        text = f"{done / max(1, of):4.0%}  {self._what}, {done:,} of {of:,}"
        if self._is_terminal:
            self._is_drawn = not is_over
            bar = "#" * round(done / max(1, of) * WIDTH)
            click.echo(f"\r[{bar:<{WIDTH}}] {text}\x1b[K" + ("\n" if is_over else ""), err=True, nl=False)
        else:
            click.echo(text, err=True)
