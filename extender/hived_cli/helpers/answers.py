"""Forms and exit codes of answers: text for people, JSON for programs, differences line by line; numbers of options."""

import math
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

output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer."
)

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


class FiniteRange(click.FloatRange):
    """A range of numbers without `nan` and `inf`, which click lets through."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number. Fails with the range if it is none of it."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number that can be counted with.", param, ctx)
        return number


RUNS = 0
REFUSED = 1
WAITS = 3
NEVER = 4

_WORST_FIRST = (REFUSED, NEVER, WAITS, RUNS)
_CODE_OF = {"refused": REFUSED, "never": NEVER, "wait": WAITS}


def worst(outcomes: list[str]) -> int:
    """The exit code of the worst of these outcomes: refused, never, wait, or any that runs."""
    codes = {_CODE_OF.get(outcome, RUNS) for outcome in outcomes}
    return next((code for code in _WORST_FIRST if code in codes), RUNS)
