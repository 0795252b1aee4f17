"""Long work: how far it is, on stderr, and signals that end it."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; for the main thread."""
    stop = threading.Event()

    def tell(*_: object) -> None:
        # On another thread: a signal may come while the main one holds the lock of the event that it waits for.
        threading.Thread(target=stop.set, name="stop").start()

    previous = {number: signal.signal(number, tell) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


TELL_S = 10.0
DRAW_S = 0.2
COUNT_S = 2.0
WIDTH = 30


class Bar:
    """A bar on a terminal, else a line now and then; call it with how much is done, and of how much.

    Raises `Stopped` if `must_stop` says so.
    """

    def __init__(self, what: str = "", must_stop: Callable[[], bool] = lambda: False) -> None:
        self._what = what
        self._must_stop = must_stop
        self._is_terminal = sys.stderr.isatty()
        self._told = time.monotonic()
        self._is_drawn = False

    def __call__(self, done: int, of: int, what: str = "") -> None:
        """Tell, if it is time to; `what` is the part of the work from now on."""
        self._what = what or self._what
        if self._must_stop():
            if self._is_drawn:
                click.echo(err=True)
            from hived_simulator.certification import Stopped  # noqa: PLC0415  # the core, which has come by then

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


class Count:
    """Every two seconds a line on stderr says how many things of a file are done."""

    def __init__(self, file: str, things: str) -> None:
        self._file, self._things = file, things
        self._told = time.monotonic()

    def __call__(self, count: int) -> None:
        """Tell, if it is time to."""
        if time.monotonic() - self._told >= COUNT_S:
            self._told = time.monotonic()
            click.echo(f"{self._file}: {count} {self._things}", err=True)
