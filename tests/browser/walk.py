"""The pages of a site: those that links lead to from the first one, a few of each kind."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from tests.browser.cdp import Page

EACH = 2
"""Pages of one kind that are looked at."""


@dataclass(frozen=True, slots=True)
class Link:
    """A page by its path with its query, and its kind: pages of one kind differ in names and numbers."""

    path: str
    kind: str

    @property
    def name(self) -> str:
        """A name for files."""
        return re.sub(r"[^a-z0-9]+", "-", self.path.lower()).strip("-") or "front"


def kind_of(path: str) -> str:
    """The kind of a page: the first two parts of its path, how many follow, and the names of its query."""
    parts = urlsplit(path)
    steps = parts.path.strip("/").split("/")
    names = sorted({name for name, _ in parse_qsl(parts.query, keep_blank_values=True)})
    return "/".join([*steps[:2], *("*" for _ in steps[2:])]) + ("?" + ",".join(names) if names else "")


def links_of(page: Page) -> list[str]:
    """The links of the present page to other pages of the site, without the place within one."""
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('a[href]')].map((each) => new URL(each.href))"
        ".filter((each) => each.origin === location.origin)"
        ".filter((each) => !each.pathname.endsWith('.json') && !each.pathname.startsWith('/v1'))"
        ".map((each) => each.pathname + each.search)"
    )
    return found


def site(page: Page, url: str) -> list[Link]:
    """Every kind of page that links lead to from the first one, in the order in which they are met."""
    found: dict[str, list[Link]] = {}
    queue, seen = ["/"], {"/"}
    while queue:
        path = queue.pop(0)
        kind = kind_of(path)
        if len(found.setdefault(kind, [])) == EACH:
            continue
        found[kind].append(Link(path, kind))
        page.open(url + path)
        for each in links_of(page):
            if each not in seen:
                seen.add(each)
                queue.append(each)
    return [link for links in found.values() for link in links]
