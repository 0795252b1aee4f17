"""The commands on a page: where they stand, the output that is shown for them, and whether their options exist."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

import click

from docs.site.pages import Block, Page
from hived_cli import main

PROGRAMS = (
    "hived", "kubectl", "make", "curl", "cat", "sed", "python", ".venv/bin/python", "pip", "export", "source", ".",
    "helm", "docker", "nvidia-smi",
)  # fmt: skip
"""A block without a language that begins with one of these has commands. All others show something."""

NO_CALLS = {"hived node sync": "the author of versions that the service makes", "hived COMMAND --help": "any command"}
"""Code in sentences that looks like a call of hived."""

_GAP = re.compile(r"(?<!\S)\.\.\.(?!\S)")


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a block with the output that the page shows for it; None if it shows none.

    `text` may have several lines. `mark` is the block's reason not to run it.
    """

    block: Block
    line: int
    text: str
    shown: str | None
    mark: str

    def __str__(self) -> str:
        return f"{self.block.page}:{self.line}"


def commands_of(page: Page) -> list[Command]:
    """The commands of all blocks of a page, in order."""
    return [command for block in page.blocks for command in _commands(block)]


def has_commands(block: Block) -> bool:
    """Whether a block has commands to type in, rather than something to look at."""
    if block.language in ("", "console", "bash"):
        first = block.text.split(maxsplit=1)[0]
        return first == "$" or first in PROGRAMS
    return False


def _commands(block: Block) -> Iterator[Command]:
    if not has_commands(block):
        return
    lines = block.text.splitlines()
    is_transcript = block.text.startswith("$ ")
    number = 0
    while number < len(lines):
        start = number
        text = lines[number].removeprefix("$ ")
        number += 1
        while number < len(lines) and not _is_whole(text):
            text += "\n" + lines[number]
            number += 1
        shown = None
        if is_transcript:
            end = next((i for i in range(number, len(lines)) if lines[i].startswith("$ ")), len(lines))
            shown = "\n".join(lines[number:end]).strip("\n") or None
            number = end
        if text.strip():
            yield Command(block, block.line + start, text, shown, block.mark)


def _is_whole(text: str) -> bool:
    """Whether a shell would begin to run it: no quote is open, and no line goes on."""
    if re.search(r"(?:\\|\||&&)\s*$", text):
        return False
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def invocations(text: str) -> list[list[str]]:
    """The words of each call of `hived` in a piece of shell, without its redirections."""
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("$(", " ( "), posix=True, punctuation_chars="();|&<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    calls: list[list[str]] = []
    is_in_call = is_at_start = skips = False
    is_at_start = True
    for word in lexer:
        if set(word) <= set("();|&<>"):
            skips = set(word) <= {"<", ">"}
            is_at_start = is_at_start if skips else True
            is_in_call = is_in_call and skips
        elif skips:
            skips = False
        elif is_at_start:
            is_in_call = word == "hived"
            is_at_start = False
            if is_in_call:
                calls.append([])
        elif is_in_call:
            calls[-1].append(word)
    return calls


def inline_invocations(page: Page) -> list[str]:
    """The pieces of code within sentences that call hived; a piece may end with an option that takes a value."""
    return [span for span in page.spans if span.startswith("hived ") and span not in NO_CALLS]


def wrong_words(words: list[str]) -> str:
    """Why hived would refuse these words for what they are, whatever stands in files; nothing if it would not.

    A word `...` stands for others. Names of options, the number of values and choices are checked.
    """
    words = [word for word in words if word != "..."]
    command: click.Command = main
    # Commands keep the options for help that their first context names.
    context = click.Context(main, info_name="hived", **main.context_settings)
    while isinstance(command, click.Group):
        name = next((word for word in words if not word.startswith("-")), None)
        if name is None:
            break
        found = command.get_command(context, name)
        if found is None:
            return f"there is no command {name}"
        words = words[words.index(name) + 1 :]
        command, context = found, click.Context(found, info_name=name, parent=context)
    try:
        values, _, _ = command.make_parser(context).parse_args(list(words))
    except click.BadOptionUsage as error:
        is_named_alone = words[-1] == error.option_name
        return "" if is_named_alone else error.format_message()
    except click.UsageError as error:
        return error.format_message()
    for parameter in command.params:
        given = values.get(parameter.name or "")
        if isinstance(parameter.type, click.Choice):
            for value in given if isinstance(given, list | tuple) else [given]:
                if isinstance(value, str) and value.islower() and value not in parameter.type.choices:
                    return f"{parameter.name} is none of {parameter.type.choices}: {value}"
    return ""


def without_gaps(text: str) -> str:
    """A command without the dots that stand for more options."""
    return _GAP.sub("", text)
