"""How commands are given a configuration: `COMMAND FILE` and `COMMAND -f FILE` mean the same. A folder will do.

Commands that edit a configuration (`set-vc`, `move`, `remove-vc`, `sync`) have arguments of their own, and `-f` alone.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

_PATH = click.Path(path_type=Path)
_HELP = "The same as FILE."


def takes_file(function: Callable[..., None]) -> Callable[..., None]:
    """Add FILE|DIR, and -f for it; the command gets it as `path`, None if none is given."""

    @wraps(function)
    def run(path: Path | None, same: Path | None, **options: Any) -> None:
        if path is not None and same is not None:
            raise click.UsageError(f"expected one configuration, found {_shown(path)} and -f {_shown(same)}")
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


def _shown(path: Path) -> str:
    return click.format_filename(path)
