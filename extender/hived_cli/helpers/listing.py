"""Options of the lists of `hived get`: an order by a column or a field, no headers, and a selector of labels."""

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

import click
import msgspec

from hived.values.errors import UserError
from hived_cli.helpers.answers import with_options
from hived_cli.helpers.tables import fitted, table
from hived_config.selectors import read_selector

_META = "hived_cli.listing"
_DURATION = re.compile(r"(?=\d)(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_SECONDS = (86_400, 3600, 60, 1)
_DIGITS = re.compile(r"(\d+)")

T = TypeVar("T")

_OPTIONS = (
    click.option("--no-headers", is_flag=True, help="The rows alone, for scripts."),
    click.option(
        "--sort-by", default="", metavar="COLUMN",
        help="Sort by a column of the table, or by a field as -o json has it, such as counts.running.",
    ),
)  # fmt: skip


def _checked(context: click.Context, parameter: click.Parameter, text: str) -> str:
    """A selector that can be read. Raises click.BadParameter."""
    try:
        read_selector(text)
    except UserError as error:
        raise click.BadParameter(error.message, context, parameter) from error
    return text


selector_option = click.option(
    "-l",
    "--selector",
    default="",
    callback=_checked,
    help="Those whose labels meet this, as kubectl has it: app=train, tier!=test, 'zone in (a, b)', gpu, '!gpu', with "
    "commas between.",
)


class Form(msgspec.Struct, frozen=True):
    """The form of a list. `sort_by` is a column or a field, "" for the order of the service."""

    has_headers: bool = True
    sort_by: str = ""

    def ordered(self, items: Sequence[T], columns: Mapping[str, Callable[[T], str]] = {}) -> list[T]:
        """Items by the text in one of their columns, or by a field of theirs; as they come if neither is asked for.

        Raises UserError for one that there is not.
        """
        if not self.sort_by:
            return list(items)
        named = {_bare(header): cell for header, cell in columns.items()}
        known = [one for one in (getattr(item, self.sort_by.lower(), None) for item in items) if one is not None]
        is_number = bool(known) and all(isinstance(one, int) for one in known)  # some may have none
        if (cell := named.get(_bare(self.sort_by))) is not None and not is_number:
            return sorted(items, key=lambda item: order_of(cell(item)))
        plain = [msgspec.to_builtins(item) for item in items]
        path = self.sort_by.lower() if cell is not None else self.sort_by
        found = [_at(each, path) for each in plain]
        if items and all(each is None for each in found) and not _is_field(items[0], path):
            raise self._unknown(list(columns) or sorted(plain[0]))
        return [items[place] for place in sorted(range(len(items)), key=lambda place: order_of(found[place]))]

    def shown(self, headers: Sequence[str], rows: Sequence[Sequence[str]], *, is_fitted: bool = False) -> str:
        """A table of rows, by a column if one is asked for. Raises UserError for one that there is not."""
        if self.sort_by:
            places = [place for place, header in enumerate(headers) if _bare(header) == _bare(self.sort_by)]
            if not places:
                raise self._unknown(headers)
            rows = sorted(rows, key=lambda row: order_of(row[places[0]]))
        return self.headless((fitted if is_fitted else table)(headers, rows))

    def headless(self, text: str) -> str:
        """A table without its first line, if headers are not wanted."""
        return text if self.has_headers else text.partition("\n")[2]

    def _unknown(self, headers: Sequence[str]) -> UserError:
        names = [header.lstrip(">") for header in headers if header.lstrip(">")]
        near = get_close_matches(self.sort_by.upper(), names, n=1)
        hint = f"; nearest: {near[0]}" if near else ""
        return UserError(f"--sort-by {self.sort_by}: no such column; there are {', '.join(names)}{hint}")


def lists(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of all lists to a command, which finds them by `form`."""

    @wraps(function)
    def run(*, no_headers: bool, sort_by: str, **options: Any) -> None:
        click.get_current_context().meta[_META] = Form(not no_headers, sort_by)
        function(**options)

    return with_options(run, _OPTIONS)


def form() -> Form:
    """The form that the present command was asked for."""
    found: Form = click.get_current_context().meta.get(_META) or Form()
    return found


def ordered_json(answer: bytes) -> bytes:
    """A list in JSON by the field that is asked for. Raises UserError for one that no item has."""
    wanted = form()
    if not wanted.sort_by:
        return answer
    told = msgspec.json.decode(answer)
    items = told.get("items") if isinstance(told, dict) else told
    if not isinstance(items, list):
        return answer
    items[:] = wanted.ordered(items)
    return msgspec.json.encode(told)


def order_of(value: object) -> tuple[Any, ...]:
    """Return the sort key of a cell or a field: durations and numbers first, then text in natural order, then none."""
    if value is None or value in ("", "-"):
        return (2,)
    if isinstance(value, bool | int | float):
        return 0, float(value)
    text = click.unstyle(str(value)).strip()
    if (match := _DURATION.fullmatch(text)) is not None and not text.isdecimal():
        return 0, float(sum(int(part or 0) * each for part, each in zip(match.groups(), _SECONDS, strict=True)))
    try:
        return 0, float(text.replace(",", ""))
    except ValueError:
        return 1, [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in _DIGITS.split(text)]


def _bare(header: str) -> str:
    return re.sub(r"[\s_-]", "", header.lstrip(">")).casefold()


def _at(item: Any, path: str) -> Any:
    """The value at a path such as `counts.running`, as kubectl writes them too; None if there is none."""
    for key in path.strip("{}").lstrip(".").split("."):
        item = item.get(key) if isinstance(item, dict) else None
    return item


def _is_field(item: object, path: str) -> bool:
    first = path.strip("{}").lstrip(".").partition(".")[0]
    return isinstance(item, msgspec.Struct) and first in item.__struct_encode_fields__
