"""The glossary of the documentation as a page."""

from functools import cache
from pathlib import Path

from flask import Response

from hived_extender.http.pages.site import PREFIX, Site

HERE = Path(__file__)


def add_pages(site: Site) -> None:
    """The one page."""

    def glossary() -> Response:
        return site.page("glossary.html", "", "Glossary", words=words(), poll_s=0)

    site.blueprint.add_url_rule(f"{PREFIX}/glossary", view_func=glossary)


@cache
def words() -> tuple[tuple[str, str], ...]:
    """Each word with its meaning: of the file beside this module in an installed package, else of docs/."""
    installed = HERE.with_suffix(".md")
    path = installed if installed.is_file() else HERE.parents[4] / "docs" / installed.name
    lines = path.read_text(encoding="utf-8").split("|---|---|---|\n")[1].splitlines()
    cells = (line.replace("`", "").split(" | ") for line in lines)
    return tuple((cell[0].removeprefix("| "), cell[1]) for cell in cells)
