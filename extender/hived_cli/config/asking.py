"""Questions at the terminal, and commands whose exit code 2 is an answer."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from hived.values.errors import UserError


class MisuseError(click.UsageError):
    """A wrong command line, told as any other."""

    exit_code = 1


class AnsweringCommand(click.Command):
    """A command that tells by exit code 2 that something would be affected, so a wrong command line exits with 1."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the command line."""
        with _telling():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _telling():
            return super().invoke(ctx)


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        raise MisuseError(error.format_message(), error.ctx) from error


def ask(question: str, done: str, is_json: bool) -> None:
    """Ask whether something may be done, such as "pushed"; exits with 1 if not. Raises UserError without a terminal.

    Where stdout is for JSON (`is_json`), the question goes to stderr.
    """
    refuse_unasked(done)
    if not click.confirm(question, default=False, err=is_json):
        click.echo(f"Nothing was {done}.", err=True)
        raise SystemExit(1)


def refuse_unasked(done: str) -> None:
    """Raise UserError without a terminal that could answer; `done` is as for `ask`."""
    if sys.stdin is None or not sys.stdin.isatty():  # None: it was closed before we began
        raise UserError(f"nothing was {done}: cannot ask, as standard input is no terminal; give --yes")
