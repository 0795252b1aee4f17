"""Forms and exit codes of answers: text for people, JSON for programs, differences line by line; numbers of options."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import unified_diff
from typing import Any

import click
import msgspec

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


def ask(question: str, done: str, is_json: bool, word: str = "") -> None:
    """Ask whether something may be done, such as "pushed"; exits with 1 if not. Raises UserError without a terminal.

    Where stdout is for JSON (`is_json`), the question goes to stderr. A `word` is another way to say yes.
    """
    refuse_unasked(done)
    if word:
        answer = click.prompt(f"{question} [y/N or {word}]", default="", show_default=False, err=is_json)
        is_yes = answer.strip().lower() in ("y", "yes") or answer.strip() == word
    else:
        is_yes = click.confirm(question, default=False, err=is_json)
    if not is_yes:
        click.echo(f"Nothing was {done}.", err=True)
        raise SystemExit(1)


def refuse_unasked(done: str) -> None:
    """Raise UserError without a terminal that could answer; `done` is as for `ask`."""
    if not can_ask():
        raise UserError(f"nothing was {done}: cannot ask, as standard input is no terminal; give --yes")


def can_ask() -> bool:
    """True if there is a terminal that could answer."""
    return sys.stdin is not None and sys.stdin.isatty()  # None: it was closed before we began


def first_line() -> str:
    """The first line of a standard input that is no terminal, without blanks around; "" without any."""
    return "" if sys.stdin is None or can_ask() else sys.stdin.readline().strip()


_COLORS = {"+": "green", "-": "red", "@": "cyan"}

format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Form of the answer.",
)  # fmt: skip

_IS_YAML = "hived_cli.is_yaml"


def form_option(*forms: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option `-o` with these forms, JSON and YAML. YAML is JSON for the command, and is printed by `printed`."""

    def read(context: click.Context, _parameter: click.Parameter, output: str) -> str:
        context.meta[_IS_YAML] = output == "yaml"
        return "json" if output == "yaml" else output

    return click.option(
        "-o",
        "--output",
        type=click.Choice([*forms, "json", "yaml"]),
        default=forms[0],
        callback=read,
        help="Form of the answer.",
    )


output_option = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Form of the answer."
)

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")

json_option = click.option("--json", "is_json", is_flag=True, help="The same as --format json.")


def with_options(function: Callable[..., None], options: Sequence[Callable[..., Any]]) -> Callable[..., None]:
    """The command with these options, in the order in which help lists them."""
    for option in reversed(options):
        function = option(function)
    return function


def as_json(answer: object) -> bytes:
    """A value, or bytes that are JSON already, as JSON that people can read."""
    return msgspec.json.format(answer if isinstance(answer, bytes) else msgspec.json.encode(answer))


def printed(answer: object, *, is_line: bool = False) -> str:
    """The same in the form that was asked for, JSON or a document of YAML; JSON in one line if it `is_line`."""
    told = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
    if not click.get_current_context().meta.get(_IS_YAML):
        return msgspec.json.format(told, indent=-1 if is_line else 2).decode()
    from hived_cli.helpers.documents import as_yaml  # noqa: PLC0415  # loads yaml, which most answers do without

    return as_yaml([msgspec.json.decode(told)])


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
