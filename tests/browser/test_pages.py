"""Every page in a real browser, at three widths, light and dark: nothing fails or is forbidden, all can read it."""

from pathlib import Path

import pytest

from tests.browser.cdp import Browser
from tests.browser.looks import SETTLED, WIDER, troubles_of
from tests.browser.walk import Link, kind_of, site

WIDTHS = {"phone": (390, 844), "laptop": (1280, 900), "wall": (2560, 1440)}


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
