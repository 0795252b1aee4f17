"""The kind of command whose exit code 2 is an answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click


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
