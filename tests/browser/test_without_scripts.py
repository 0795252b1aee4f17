"""Pages without JavaScript: everything can be read, and links lead everywhere."""

import pytest

from tests.browser.cdp import Browser, Page
from tests.browser.walk import Link, site

WORDS = "document.querySelector('main').innerText.match(/[A-Za-z]{3,}/g)"


@pytest.fixture(scope="module")
def links(browser: Browser, team_url: str) -> list[Link]:
    """The pages that links lead to without scripts."""
    with browser.page(scripts=False) as page:
        return site(page, team_url)


def words_of(page: Page, url: str) -> set[str]:
    """The words of a page."""
    page.open(url)
    return set(page.evaluate(WORDS))


def test_links_lead_to_the_same_pages_as_with_scripts(browser: Browser, team_url: str, links: list[Link]) -> None:
    with browser.page() as page:
        assert {link.kind for link in site(page, team_url)} == {link.kind for link in links}


def test_the_words_of_a_page_are_there_without_scripts(browser: Browser, team_url: str, links: list[Link]) -> None:
    wrong = []
    for link in links:
        with browser.page(scripts=False) as page:
            without = words_of(page, team_url + link.path)
        with browser.page() as page:
            with_scripts = words_of(page, team_url + link.path)
        with browser.page(scripts=False) as page:
            without |= words_of(page, team_url + link.path)  # time goes by, and figures come and go with it
        missing = {word for word in with_scripts - without if word not in MADE_BY_SCRIPTS}
        if missing or not without:
            wrong.append(f"{link.path}: {sorted(missing)}")
    assert not wrong, "\n".join(wrong)


def test_the_table_has_the_cells_that_the_picture_would_show(browser: Browser, team_url: str) -> None:
    with browser.page(scripts=False) as page:
        page.open(f"{team_url}/page/cluster")
        assert page.evaluate("document.getElementById('picture').checkVisibility()") is False
        table = page.evaluate("document.querySelector('main').innerText")
        assert "lent to genomics" in table
        assert "used by speech" in table
        page.open(f"{team_url}/page/cluster?in=1.4.1")
        inside = page.evaluate("document.querySelector('main').innerText")
        assert "h100-05" in inside
        assert "8 bad of 8" in inside or "Bad" in inside


MADE_BY_SCRIPTS = {"Each", "box", "one", "GPU", "node", "Fit", "ago", "min"}
"""Words of the picture's tools, and of moments as people say them."""
