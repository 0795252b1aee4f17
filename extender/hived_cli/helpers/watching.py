"""Answers that are shown once, or anew whenever they change: `--watch`."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from http import HTTPStatus
from types import FrameType
from typing import Any, NoReturn, Protocol

import click

from hived.values.errors import UserError
from hived_cli.helpers.answers import FiniteRange, printed, with_options
from hived_cli.helpers.connecting import asks_service
from hived_extender.api.inspection import Inspector

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""

Answer = str | bytes
"""Text for people, or JSON for programs."""

Show = Callable[[Callable[[], Answer | None]], None]
"""Shows what a function answers: once, or again and again until it answers None."""


def interval_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option that says how often to look."""
    return click.option(
        "--interval", "interval_s", type=FiniteRange(min=0.2), default=2.0, show_default=True, metavar="SECONDS",
        help=help_text,
    )  # fmt: skip


_OPTIONS = (
    click.option("-w", "--watch", "is_watched", is_flag=True, help="Stay, and show every change until Ctrl-C."),
    interval_option("From one look to the next, with --watch."),
)


class Pages(Protocol):
    """A place where answers are shown one after the other."""

    def draw(self, text: str, is_changed: bool) -> None:
        """Show an answer; `is_changed`: the service has told other things than before."""

    def complain(self, note: str) -> None:
        """Say why there is no newer one."""

    def wait(self, seconds: float) -> bool:
        """Let time pass; whether to end."""


class Stream:
    """Pages one below the other, for files and pipes. Texts stand apart; JSON is a line each."""

    def __init__(self, is_json: bool) -> None:
        self._is_json = is_json
        self._is_begun = False
        self._note = ""

    def draw(self, text: str, is_changed: bool) -> None:
        """Print what has changed; ages alone are no change."""
        self._note = ""
        if is_changed:
            click.echo("\n" * (self._is_begun and not self._is_json) + text)
            self._is_begun = True

    def complain(self, note: str) -> None:
        """Say it on standard error, once."""
        if note != self._note:
            self._note = note
            click.echo(note, err=True)

    def wait(self, seconds: float) -> bool:
        """Sleep."""
        time.sleep(seconds)
        return False


def watches(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--watch` and the options that say whom to ask; the command gets an `inspector`, and `show` for its answer.

    `show` takes a function that asks and answers. It is called anew every few seconds with --watch, so all that it
    needs to ask once belongs before it.
    """

    @wraps(function)
    def run(*, inspector: Inspector, is_watched: bool, interval_s: float, **options: Any) -> None:
        def show(answer: Callable[[], Answer | None]) -> None:
            if is_watched:
                follow(inspector, answer, interval_s)
            elif (found := answer()) is not None:
                click.echo(printed(found) if isinstance(found, bytes) else found)

        function(inspector=inspector, show=show, **options)

    return asks_service(with_options(run, _OPTIONS))


def follow(
    inspector: Inspector, answer: Callable[[], Answer | None], interval_s: float, *, leaves_last: bool = True
) -> None:
    """Show an answer anew whenever it changes, until it is None or the user ends it; exits with 130 after Ctrl-C.

    On a terminal the answer is drawn over the last one, which `leaves_last` leaves there at the end. A service that
    does not answer any more is asked again. Raises UserError if it does not at first, and for its refusals.
    """
    inspector.remember()
    text = ""
    try:
        interrupts = _remember_interrupts()
        first = answer()
        if first is None:
            return
        text = _text(first)
        is_drawn = isinstance(first, str) and is_live()
        pages = _screen() if is_drawn else nullcontext(Stream(isinstance(first, bytes)))
        try:
            with pages as shown:
                shown.draw(text, True)
                count = inspector.change_count
                while not shown.wait(interval_s):
                    if interrupts:
                        raise KeyboardInterrupt
                    try:
                        found = answer()
                    except UserError as error:
                        if error.code < HTTPStatus.INTERNAL_SERVER_ERROR:
                            raise
                        shown.complain(f"{error} Trying again every {interval_s:g} s.")
                        continue
                    if found is None:
                        break
                    last, text = text, _text(found)
                    shown.draw(text, text != last and inspector.change_count != count)
                    count = inspector.change_count
        finally:
            if is_drawn and leaves_last:
                click.echo(text)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _remember_interrupts() -> Sequence[int]:
    """The signals of Ctrl-C from now on. Python may lose their exception, such as one in a destructor."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> NoReturn:
        seen.append(number)
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
    return seen


def is_live() -> bool:
    """True if standard output is a terminal on which text can be drawn over."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


def _screen() -> AbstractContextManager[Pages]:
    from hived_cli.helpers.screen import Screen  # noqa: PLC0415  # takes 50 ms, which answers that are shown once save

    return Screen()


def _text(answer: Answer) -> str:
    return answer if isinstance(answer, str) else printed(answer, is_line=True)
