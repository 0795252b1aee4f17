"""`hived config set-vc`, `move` and `remove-vc`: the service's configuration is pushed, a file changed in place."""

import codecs
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from hived.values.errors import UserError
from hived_cli.config.given import find_file
from hived_cli.config.plan import tell_plan
from hived_cli.config.pushing import PushOptions, push_text, pushes
from hived_cli.helpers.answers import AnsweringCommand, as_json, ask, difference
from hived_cli.helpers.connecting import asks_service
from hived_config.access import Access
from hived_config.document import ConfigError, read_text
from hived_config.loader import load_text
from hived_config.reader import closest
from hived_config.text import edits as texts
from hived_extender.api.inspection import ConfigClient, Inspector


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a configuration: `make` takes its text and its name in messages, `summary` is for the history."""

    summary: str
    make: Callable[[str, str], str]


def edits(function: Callable[..., Edit]) -> Callable[..., None]:
    """Make a command of a function that says what to edit: it shows what that does, asks, and does it."""

    @wraps(function)
    def run(inspector: Inspector, path: Path | None, dry_run: bool, pushing: PushOptions, **arguments: Any) -> None:
        edit = function(**arguments)
        if path is not None:
            if pushing.message or pushing.cluster_id or pushing.allow_downgrade or pushing.certifying.of:
                raise click.UsageError(
                    "--message, --cluster-id, --allow-downgrade and --certify are for pushes: -f edits a file"
                )
            return _edit_file(find_file(path), edit, dry_run, pushing)
        service = ConfigClient(inspector)
        current = service.current()
        text = _made(edit, current.text, current.source)
        if dry_run:
            return tell_plan(service.plan(text, current.source), pushing.is_json)
        return push_text(inspector, text, current.source, pushing, current.version, edit.summary)

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


def _edit_file(file: Path, edit: Edit, dry_run: bool, pushing: PushOptions) -> None:
    name = click.format_filename(file)
    before = read_text(file, name)
    after = _made(edit, before, name)
    is_written = before != after and not dry_run
    is_json = pushing.is_json
    lines = difference(before, after, name, f"{name}, edited")
    click.echo("\n".join(lines) or f"{name}: nothing changes", err=is_json)
    for warning in _new_warnings(before, after, name):
        click.echo(warning, err=True)
    if is_written and not pushing.yes:
        ask(f"Write {name}?", "written", is_json)
    if is_written:
        replace_file(file.resolve(), after)
    if is_json:
        click.echo(as_json({"file": name, "changed": before != after, "written": is_written}))
    elif is_written:
        click.echo(f"{name}: written")


def _new_warnings(before: str, after: str, name: str) -> list[str]:
    """The warnings of the edited text that were not there before, lines aside."""
    old, new = (load_text(text, name, lenient=True).warnings for text in (before, after))
    known = {replace(each, line=0) for each in old}
    return [str(each) for each in new if replace(each, line=0) not in known]


def replace_file(file: Path, text: str) -> None:
    """Replace a file at once: readers see the old text or the new one. Its mode and byte order mark stay."""
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


@click.command("set-vc", cls=AnsweringCommand)
@click.argument("name")
@click.argument("cells", metavar="CELLTYPE=N...", nargs=-1, required=True)
@edits
def set_vc(name: str, cells: tuple[str, ...]) -> Edit:
    """Set how many cells a virtual cluster is promised.

    A virtual cluster that does not exist is added. 0 takes a cell type away; types that are not named stay as they are.
    A CELLTYPE is a path down a chain such as RACK.NODE, or its last part where only one chain has it. Comments and
    layout of the configuration are kept.

    The configuration of the running service is edited: its plan is shown, and pushed when you agree. With -f a file is
    edited in its place.

    \b
    Examples:
      hived config set-vc research RACK=2 NODE=1
      hived config set-vc research NODE=0 --message "the project has ended"
      hived config set-vc research RACK=2 -f hivedscheduler.yaml --dry-run
    """
    given: dict[str, int] = {}
    for each in cells:
        match = re.fullmatch(r"(.+)=([0-9]{1,10})", each)
        if match is None or match[1] in given:
            expected = "a cell type and a number, such as RACK.NODE=2, each type once"
            raise click.BadParameter(f"found {each!r}, expected {expected}", param_hint="CELLTYPE=N")
        given[match[1]] = int(match[2])

    def make(text: str, file: str) -> str:
        edited = texts.set_vc(text, name, given, file)
        _tell_new(text, file, name)
        return edited

    return Edit(f"set-vc {name} {' '.join(cells)}", make)


NEEDS_NAMESPACE = (
    "no namespace may use {name} yet: write namespaces: [NAMESPACE] below virtualClusters.{name} "
    "(hived config pull > FILE, edit it, hived config push FILE)"
)
"""Of a virtual cluster that `set-vc` has added, where `access` is for listed namespaces alone."""


def _tell_new(text: str, file: str, name: str) -> None:
    """A new name may be a typing error, and a new virtual cluster lists no namespace yet."""
    configuration = load_text(text, file, lenient=True, environ={})
    names = list(configuration.cluster.virtual_clusters)
    if name not in names:
        near = closest(name, names)
        click.echo(f"{name} is a new virtual cluster" + (f" (did you mean {near}?)" if near else ""), err=True)
        if configuration.rules.access.access is Access.NAMESPACES:
            click.echo(NEEDS_NAMESPACE.format(name=name), err=True)


@click.command("move", cls=AnsweringCommand)
@click.argument("count", metavar="N", type=click.IntRange(min=1))
@click.argument("cell_type", metavar="CELLTYPE")
@click.argument("_from", metavar="from", type=click.Choice(["from"]))
@click.argument("from_vc", metavar="VC")
@click.argument("_to", metavar="to", type=click.Choice(["to"]))
@click.argument("to_vc", metavar="VC")
@edits
def move(count: int, cell_type: str, _from: str, from_vc: str, _to: str, to_vc: str) -> Edit:
    """Give cells of one virtual cluster to another one.

    A CELLTYPE is a path down a chain such as RACK.NODE, or its last part where only one chain has it. Pinned cells
    stay. Comments and layout of the configuration are kept.

    The configuration of the running service is edited: its plan is shown, and pushed when you agree. With -f a file is
    edited in its place.

    \b
    Examples:
      hived config move 2 NODE from research to training
      hived config move 1 RACK.NODE from research to training --message "for the release" --yes
      hived config move 2 NODE from research to training -f hivedscheduler.yaml
    """
    summary = f"move {count} {cell_type} from {from_vc} to {to_vc}"
    return Edit(summary, lambda text, file: texts.move_cells(text, count, cell_type, from_vc, to_vc, file))


@click.command("remove-vc", cls=AnsweringCommand)
@click.argument("name")
@edits
def remove_vc(name: str) -> Edit:
    """Remove a virtual cluster.

    Its cells are promised to no one then. The configuration of the running service is edited: its plan is shown, and
    pushed when you agree. With -f a file is edited in its place.

    \b
    Examples:
      hived config remove-vc research
      hived config remove-vc research -f hivedscheduler.yaml --yes
    """
    return Edit(f"remove-vc {name}", lambda text, file: texts.remove_vc(text, name, file))
