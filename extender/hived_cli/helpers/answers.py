"""The forms of an answer: text for people, JSON for programs, and differences line by line."""

from collections.abc import Callable, Iterator, Sequence
from difflib import unified_diff
from typing import Any

import click
import msgspec

_COLORS = {"+": "green", "-": "red", "@": "cyan"}

format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Form of the answer.",
)  # fmt: skip

json_option = click.option("--json", "is_json", is_flag=True, help="The same as --format json.")


def with_options(function: Callable[..., None], options: Sequence[Callable[..., Any]]) -> Callable[..., None]:
    """The command with these options, in the order in which help lists them."""
    for option in reversed(options):
        function = option(function)
    return function


def as_json(answer: object) -> bytes:
    """A value, or bytes that are JSON already, as JSON that people can read."""
    return msgspec.json.format(answer if isinstance(answer, bytes) else msgspec.json.encode(answer))


def difference(old: str, new: str, old_name: str, new_name: str, context: int = 3) -> Iterator[str]:
    """The lines in which two texts differ, coloured."""
    lines = unified_diff(old.splitlines(), new.splitlines(), old_name, new_name, n=context, lineterm="")
    return (click.style(line, fg=_COLORS.get(line[:1])) for line in lines)
