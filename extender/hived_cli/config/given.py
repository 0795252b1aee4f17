"""Configurations that commands are given: `COMMAND FILE` and `COMMAND -f FILE` mean the same. A folder will do.

Commands that edit a configuration (`set-vc`, `move`, `remove-vc`, `sync`) have arguments of their own, and `-f` alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from hived.values.errors import UserError
from hived_config.document import ConfigError, not_checked, read_text
from hived_config.loader import load_text
from hived_config.openpai import cluster_id, inner_text, open_configuration
from hived_config.words import counted

FILE_NAMES = ("services-configuration.yaml", "service-configuration.yaml", "hivedscheduler.yaml")
"""The files of a folder: OpenPAI's under either of its names, or the one of `hived config pull -o`."""

PULLED = FILE_NAMES[-1]

_KEYS = frozenset(("physicalCluster", "virtualClusters"))


@dataclass(frozen=True, slots=True)
class Source:
    """A configuration as text: `file` is how messages call it. Of an OpenPAI file it is the scheduler's part alone.

    `cluster_id` is the id of the cluster that the file is for; "" if it says none.
    """

    file: str
    text: str
    cluster_id: str = ""


def find_file(path: Path) -> Path:
    """The path, or the file to be read in this folder. Raises UserError if that is none or several."""
    if not path.is_dir():
        return path
    found = [path / name for name in FILE_NAMES if (path / name).is_file()]
    if not found:
        raise UserError(f"{click.format_filename(path)} has no configuration: expected {' or '.join(FILE_NAMES)} in it")
    if len(found) > 1:
        both = " and ".join(each.name for each in found)
        raise UserError(f"{click.format_filename(path)} has {both}: expected one of them; name the file that counts")
    return found[0]


def read_source(path: Path) -> Source:
    """The text of a file, or of the one in a folder. Raises UserError if there is none, or it is no configuration.

    A file without a configuration may be OpenPAI's, with passwords that must not be shown.
    """
    found = find_file(path)
    file = click.format_filename(found)
    text = read_text(found, file)
    reader = open_configuration(text, file, lenient=True)
    if _KEYS.isdisjoint(name for name, _, _ in reader.fields(reader.root, "")):
        raise UserError(
            f"{file}: found no configuration of the scheduler, expected physicalCluster and virtualClusters, or "
            "OpenPAI's hivedscheduler.config with them"
        )
    return Source(file, inner_text(text, file))


def read_sound_source(path: Path) -> Source:
    """As `read_source`, of a configuration without mistakes. Raises ConfigError with all of them, lines of the file."""
    found = find_file(path)
    file = click.format_filename(found)
    text = read_text(found, file)
    load_text(text, file)
    return Source(file, inner_text(text, file), cluster_id(text, file))


def tell_mistakes(error: ConfigError) -> None:
    """Every mistake on stderr, a line each, then how many."""
    for mistake in error.mistakes:
        click.echo(str(mistake), err=True)
    mistakes = [each for each in error.mistakes if not each.is_warning]
    file = mistakes[0].file if mistakes else "the configuration"
    click.echo(f"{file}: {counted(len(mistakes), 'mistake')}", err=True)
    if error.left_out:
        click.echo(not_checked(file, error.left_out), err=True)


_PATH = click.Path(path_type=Path)
_HELP = "The same as FILE."


def takes_file(function: Callable[..., None]) -> Callable[..., None]:
    """Add FILE|DIR, and -f for it; the command gets it as `path`, None if none is given."""

    @wraps(function)
    def run(path: Path | None, same: Path | None, **options: Any) -> None:
        if path is not None and same is not None:
            raise click.UsageError(
                f"expected one configuration, found {click.format_filename(path)} and -f {click.format_filename(same)}"
            )
        function(path=path or same, **options)

    option = click.option("-f", "same", type=_PATH, metavar="FILE|DIR", help=_HELP)
    return click.argument("path", metavar="[FILE|DIR]", type=_PATH, required=False)(option(run))


def takes_files(function: Callable[..., None]) -> Callable[..., None]:
    """Add FILE|DIR several times, and -f for each; the command gets them as `paths`, at least one."""

    @wraps(function)
    def run(paths: tuple[Path, ...], same: tuple[Path, ...], **options: Any) -> None:
        function(paths=tuple(required(path) for path in (*paths, *same) or (None,)), **options)

    option = click.option("-f", "same", type=_PATH, metavar="FILE|DIR", multiple=True, help=_HELP)
    return click.argument("paths", metavar="FILE|DIR...", type=_PATH, nargs=-1)(option(run))


def required(path: Path | None) -> Path:
    """A path that is given. Raises UsageError without one."""
    if path is None:
        raise click.UsageError("expected the file of a configuration: FILE, -f FILE or a folder DIR with one")
    return path
