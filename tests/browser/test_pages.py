"""Every page in a real browser, at three widths, light and dark: nothing fails or is forbidden, all can read it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import tools
from tests.browser.cdp import Browser, Page
from tests.browser.walk import Link, kind_of, site

WIDTHS = {"phone": (390, 844), "laptop": (1280, 900), "wall": (2560, 1440)}
SERIOUS = ("serious", "critical")

AXE = "axe.run(document, {resultTypes: ['violations'], preload: false})"
"""Nothing is preloaded: style sheets of the page are those that count."""

WIDER = """
(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > width + 1)
    .slice(0, 5).map((each) => `${each.tagName}.${each.className} ${Math.round(each.getBoundingClientRect().right)}`);
})()
"""
"""What makes the page wider than the view."""

SETTLED = "document.readyState === 'complete' && !document.querySelector('.htmx-request')"


@pytest.fixture(scope="session")
def links(browser: Browser, team_url: str) -> list[Link]:
    """The pages of the site."""
    with browser.page() as page:
        return site(page, team_url)


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    return tools.axe()


def troubles_of(page: Page, link: Link, axe: str) -> Iterator[str]:
    """What is wrong with the page that is shown."""
    yield from page.troubles()
    yield from (f"forbidden by the policy: {each}" for each in page.violations())
    yield from (f"wider than the view: {each}" for each in page.evaluate(WIDER))
    page.evaluate(axe + "; 0")
    results: dict[str, Any] = page.evaluate(AXE)
    for found in results["violations"]:
        if found["impact"] in SERIOUS:
            where = "; ".join(" ".join(map(str, node["target"])) for node in found["nodes"][:5])
            yield f"{found['impact']}: {found['help']} ({found['id']}): {where}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_shows_without_a_trouble(
    browser: Browser, team_url: str, links: list[Link], axe: str, pictures: Path, width: str, scheme: str
) -> None:
    found = []
    for link in links:
        with browser.page(*WIDTHS[width], dark=scheme == "dark") as page:
            page.open(team_url + link.path)
            page.wait_until(SETTLED)
            found += [f"{link.path}: {each}" for each in troubles_of(page, link, axe)]
            page.screenshot(pictures / scheme / width / f"{link.name}.png", whole=True)
    if found:
        pytest.fail("\n".join(found), pytrace=False)


def test_every_page_has_a_heading_a_title_and_its_tab_marked(
    browser: Browser, team_url: str, links: list[Link]
) -> None:
    wrong = []
    for link in links:
        with browser.page() as page:
            page.open(team_url + link.path)
            shown = page.evaluate(
                "[document.querySelectorAll('h1').length, document.title.length > 0, document.documentElement.lang,"
                " document.querySelectorAll('nav [aria-current=page]').length > 0]"
            )
        if shown != [1, True, "en", True]:
            wrong.append((link.path, shown))
    assert wrong == []


def test_links_lead_to_every_page_of_the_navigation(browser: Browser, team_url: str, links: list[Link]) -> None:
    with browser.page() as page:
        page.open(f"{team_url}/")
        tabs = page.evaluate("[...document.querySelectorAll('.top nav a')].map((each) => each.getAttribute('href'))")
    assert len(tabs) >= 3
    assert {kind_of(each) for each in tabs} <= {link.kind for link in links}


def test_pages_of_one_kind_differ_in_names_and_numbers() -> None:
    assert kind_of("/page/vcs/vision") == kind_of("/page/vcs/speech") == "page/vcs/*"
    assert kind_of("/page/cluster?in=0.2.1") == kind_of("/page/cluster?in=1.4.2") != kind_of("/page/cluster")
