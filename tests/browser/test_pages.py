"""Every page in a real browser, at three widths, light and dark: nothing fails or is forbidden, all can read it."""

from pathlib import Path

import pytest

from tests.browser.cdp import PATIENCE_S, Browser, Page
from tests.browser.looks import SETTLED, WIDER, troubles_of
from tests.browser.walk import Link, kind_of, site
from tests.expecting import expect_soon

WIDTHS = {"phone": (390, 844), "laptop": (1280, 900), "wall": (2560, 1440)}

HURRIED = """
{
  const later = window.setTimeout;
  let left = 4;
  window.setTimeout = (task, after, ...rest) => later(task, after >= 5000 && left-- > 0 ? 250 : after, ...rest);
}
"""
"""The first polls come after a quarter of a second. Later ones do not, so that a slow machine rests between two."""

POLLS = "document.querySelector('#live > .poller') !== null"

SHAPE = """
[document.querySelectorAll("#live > .poller").length, document.querySelectorAll("#live > *").length > 1,
 ...[...document.querySelectorAll("h1, h2, thead, caption")].map((each) => each.textContent.trim())]
"""
"""The headings and heads of tables, and whether the changing part has something in it."""


@pytest.fixture(scope="session")
def links(browser: Browser, team_url: str) -> list[Link]:
    """The pages of the site."""
    with browser.page() as page:
        return site(page, team_url)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_shows_without_a_trouble(
    browser: Browser, team_url: str, links: list[Link], pictures: Path, width: str, scheme: str
) -> None:
    found = []
    for link in links:
        with browser.page(*WIDTHS[width], dark=scheme == "dark") as page:
            page.open(team_url + link.path)
            page.wait_until(SETTLED)
            found += [f"{link.path}: {each}" for each in troubles_of(page)]
            page.screenshot(pictures / scheme / width / f"{link.name}.png", whole=True)
    assert not found, "\n".join(found)


def polls(page: Page) -> int:
    """The polls of a page that were answered so far."""
    sent = (event["params"] for event in page.events("Network.requestWillBeSent"))
    asked = {each["requestId"] for each in sent if "HX-Request" in each["request"]["headers"]}
    return sum(event["params"]["requestId"] in asked for event in page.events("Network.loadingFinished"))


def test_every_page_is_the_same_after_two_polls(
    browser: Browser, team_url: str, links: list[Link], pictures: Path
) -> None:
    wrong, polled = [], set()
    for link in links:
        with browser.page() as page:
            page.call("Page.addScriptToEvaluateOnNewDocument", source=HURRIED)
            page.open(team_url + link.path)
            page.wait_until(SETTLED)
            if not page.evaluate(POLLS):
                continue
            polled.add(link.kind)
            before = page.evaluate(SHAPE)
            expect_soon(lambda page=page: polls(page) >= 2 or not page.evaluate(POLLS), PATIENCE_S)
            page.wait_until(SETTLED)
            after = page.evaluate(SHAPE)
            if after != before:
                wrong.append(f"{link.path}: {before} has become {after}")
                page.screenshot(pictures / "polled" / f"{link.name}.png")
            wrong += [f"{link.path}: {each}" for each in page.troubles()]
    assert not wrong, "\n".join(wrong)
    assert {"", "page/cluster", "page/jobs", "page/vcs", "page/queues", "page/configuration"} <= polled


def test_every_page_has_a_heading_a_title_and_its_tab_marked(
    browser: Browser, team_url: str, links: list[Link]
) -> None:
    wrong = []
    for link in links:
        with browser.page() as page:
            page.open(team_url + link.path)
            shown = page.evaluate(
                "[document.querySelectorAll('h1').length, document.title.length > 0, document.documentElement.lang,"
                " document.querySelectorAll('nav [aria-current=page], footer [aria-current=page]').length > 0]"
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


def test_times_are_in_utc_wherever_the_browser_is(browser: Browser, team_url: str) -> None:
    with browser.page() as page:
        page.call("Emulation.setTimezoneOverride", timezoneId="Asia/Kolkata")
        page.open(f"{team_url}/page/jobs")
        page.wait_until(SETTLED)
        shown = page.evaluate("[...document.querySelectorAll('time')].map((each) => [each.dateTime, each.innerText])")
    assert shown
    assert all(f"{moment[11:16]} UTC" in text for moment, text in shown)


@pytest.mark.parametrize("width", [320, 390])
def test_a_long_name_of_a_job_and_the_picture_fit_on_a_phone(
    browser: Browser, team_url: str, pictures: Path, width: int
) -> None:
    with browser.page(width, 700) as page:
        page.open(f"{team_url}/page/jobs?q=whisper-large")
        page.use("tbody th a")
        page.evaluate("document.querySelector('h1').textContent = 'default:me~third/default' + 'x'.repeat(40)")
        assert page.evaluate(WIDER) == []
        page.open(f"{team_url}/page/cluster")
        page.wait_until("document.getElementById('zoom-level').textContent !== ''")
        page.screenshot(pictures / f"cluster-{width}.png", whole=True)
        assert page.evaluate(WIDER) == []
