"""Every page with the keyboard alone: all that can be used is reached in order, and one sees where one is."""

from typing import Any

import pytest

from tests.browser.cdp import Browser, Page
from tests.browser.walk import Link, site

MOST = 400
"""Steps on one page, in case the focus never leaves it."""

USABLE = """
[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter(
  (each) => !each.disabled && each.type !== "hidden" && each.checkVisibility({visibilityProperty: true}))
"""

PREPARE = f"window.usable = {USABLE}; usable.length"
FOCUSED = """
(() => {
  const each = document.activeElement, style = getComputedStyle(each), box = each.getBoundingClientRect();
  return {
    number: usable.indexOf(each), what: each.outerHTML.slice(0, 90), width: box.width,
    isSeen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    isInView: box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth,
  };
})()
"""
WORDS = "document.getElementById('cell-words').innerText"


@pytest.fixture(scope="module")
def links(browser: Browser, team_url: str) -> list[Link]:
    """The pages of the site."""
    with browser.page() as page:
        return site(page, team_url)


def steps(page: Page) -> list[dict[str, Any]]:
    """The places that the key Tab leads to, one after the other, until it leaves the page."""
    found = []
    for _ in range(MOST):
        page.press("Tab")
        place = page.evaluate(FOCUSED)
        if place["number"] < 0 or (found and place["number"] == found[0]["number"]):
            break
        found.append(place)
    return found


def test_everything_that_can_be_used_is_reached_in_order_and_seen(
    browser: Browser, team_url: str, links: list[Link]
) -> None:
    wrong = []
    for link in links:
        with browser.page() as page:
            page.open(team_url + link.path)
            count = page.evaluate(PREPARE)
            places = steps(page)
            reached = [place["number"] for place in places]
            if reached != list(range(count)):
                missing = sorted(set(range(count)) - set(reached))
                names = [page.evaluate(f"usable[{each}].outerHTML.slice(0, 90)") for each in missing[:3]]
                wrong.append(f"{link.path}: {len(reached)} of {count} reached, not {names}")
            wrong += [
                f"{link.path}: no sign of the focus on {place['what']}"
                for place in places
                if not (place["isSeen"] and place["isInView"])
            ]
    assert not wrong, "\n".join(wrong)


def test_the_first_step_skips_the_navigation(browser: Browser, team_url: str) -> None:
    with browser.page() as page:
        page.open(f"{team_url}/")
        page.press("Tab")
        page.press("Enter")
        page.wait_until("location.hash === '#main'")
        assert page.evaluate("document.activeElement.id") == "main"


def test_arrows_choose_cells_and_enter_opens_one_in_the_table(browser: Browser, team_url: str) -> None:
    with browser.page() as page:
        page.open(f"{team_url}/page/cluster")
        page.wait_until(
            "document.getElementById('zoom-level').innerText"
        )  # keys choose nothing before the layout is there
        page.evaluate("document.getElementById('cells').focus()")
        page.press("ArrowRight")
        first = page.wait_until(WORDS)
        assert "a10-00" in first
        page.press("ArrowRight")
        page.wait_until(f"{WORDS} !== {first!r}")
        for _ in range(12):
            page.press("-")
        page.wait_until("document.getElementById('zoom-level').innerText.includes('NODE')")
        page.press("Enter")
        page.wait_until("location.search.startsWith('?in=')")
        page.press("Escape")
        page.wait_until(f"{WORDS} === ''")
        assert page.troubles() == []
