"""Questions to whoever sits at the terminal."""

import sys

import click

from hived.values.errors import UserError


def ask(question: str, done: str, is_json: bool) -> None:
    """Ask whether something may be done, such as "pushed"; exits with 1 if not. Raises UserError if nobody can answer.

    Where stdout is for JSON (`is_json`), the question goes to stderr.
    """
    refuse_unasked(done)
    if not click.confirm(question, default=False, err=is_json):
        click.echo(f"Nothing was {done}.", err=True)
        raise SystemExit(1)


def refuse_unasked(done: str) -> None:
    """Raise UserError if nobody can answer a question; `done` is as for `ask`."""
    if sys.stdin is None or not sys.stdin.isatty():  # None: it was closed before we began
        raise UserError(f"nothing was {done}: cannot ask, as standard input is no terminal; give --yes")
