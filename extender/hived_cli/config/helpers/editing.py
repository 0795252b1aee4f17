"""What commands that edit virtual clusters share: the service's configuration is pushed, a file changed in place."""

import codecs
import difflib
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click
import msgspec

from hived.errors import UserError
from hived_cli.config.helpers.asking import ask
from hived_cli.config.helpers.files import find_file
from hived_cli.config.helpers.pushing import push_text, pushes
from hived_cli.config.plan import tell_plan
from hived_cli.helpers.connecting import asks_service
from hived_config.document import read_text
from hived_config.errors import ConfigError
from hived_config.loader import load_text
from hived_extender.client.config_client import ConfigClient
from hived_extender.client.inspection import Inspector

_COLORS = {"+": "green", "-": "red", "@": "cyan"}


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a configuration: `make` takes its text and what messages call it, `summary` is for the history."""

    summary: str
    make: Callable[[str, str], str]


def edits(function: Callable[..., Edit]) -> Callable[..., None]:
    """Make a command of a function that says what to edit: it shows what that does, asks, and does it."""

    @wraps(function)
    def run(
        inspector: Inspector,
        path: Path | None,
        dry_run: bool,
        cluster_id: str,
        yes: bool,
        message: str,
        allow_downgrade: bool,
        form: str,
        **arguments: Any,
    ) -> None:
        edit = function(**arguments)
        if path is not None:
            if message or cluster_id or allow_downgrade:
                raise click.UsageError("--message, --cluster-id and --allow-downgrade are for pushes: -f edits a file")
            return _edit_file(find_file(path), edit, yes, dry_run, form)
        service = ConfigClient(inspector)
        current = service.current()
        text = _made(edit, current.text, current.source)
        if dry_run:
            return tell_plan(service.plan(text, current.source), form)
        return push_text(
            inspector, text, file=current.source, message=message or edit.summary, yes=yes,
            allow_downgrade=allow_downgrade, cluster_id=cluster_id, base_version=current.version, form=form,
        )  # fmt: skip

    decorated = pushes(asks_service(run))
    decorated = click.option("--dry-run", is_flag=True, help="Show what it would do, and do nothing.")(decorated)
    return click.option(
        "-f", "path", type=click.Path(path_type=Path), metavar="FILE|DIR",
        help="Edit this configuration in place, instead of pushing to the service.",
    )(decorated)  # fmt: skip


def _made(edit: Edit, text: str, file: str) -> str:
    """The edited text. Raises UserError if the edit does not fit in, with every place where it does not."""
    try:
        return edit.make(text, file)
    except ConfigError as error:
        raise UserError(f"{edit.summary} does not fit in:\n{error}") from error


def _edit_file(file: Path, edit: Edit, yes: bool, dry_run: bool, form: str) -> None:
    name = click.format_filename(file)
    before = read_text(file, name)
    after = _made(edit, before, name)
    is_written = before != after and not dry_run
    is_json = form == "json"
    click.echo(_difference(before, after, name), err=is_json)
    for warning in _new_warnings(before, after, name):
        click.echo(warning, err=True)
    if is_written and not yes:
        ask(f"Write {name}?", "written", is_json)
    if is_written:
        replace_file(file.resolve(), after)
    if is_json:
        answer = {"file": name, "changed": before != after, "written": is_written}
        click.echo(msgspec.json.format(msgspec.json.encode(answer)))
    elif is_written:
        click.echo(f"{name}: written")


def _new_warnings(before: str, after: str, name: str) -> list[str]:
    """What is odd about the edited text and was not before, lines aside."""
    old, new = (load_text(text, name, lenient=True).warnings for text in (before, after))
    known = {replace(each, line=0) for each in old}
    return [str(each) for each in new if replace(each, line=0) not in known]


def _difference(before: str, after: str, name: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, f"{name}, edited", lineterm="")
    return "\n".join(click.style(line, fg=_COLORS.get(line[:1])) for line in lines) or f"{name}: nothing changes"


def replace_file(file: Path, text: str) -> None:
    """Replace a file at once: whoever reads it sees the old text or the new one. Its mode and byte order mark stay."""
    try:
        with file.open("rb") as stream:
            mark = codecs.BOM_UTF8 if stream.read(3) == codecs.BOM_UTF8 else b""
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(mark + text.encode())
            shutil.copymode(file, name)
            os.replace(name, file)
        except OSError:
            os.unlink(name)
            raise
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
