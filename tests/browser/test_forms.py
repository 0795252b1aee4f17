"""Forms in a browser: jobs are filtered as one types, changes are tried, configurations planned, pushed and undone."""

from pathlib import Path

import pytest

from tests.browser.cdp import Browser, Page
from tests.browser.looks import SETTLED, troubles_of
from tests.browser.team_cluster import CONFIG

ROWS = "[...document.querySelectorAll('tbody th')].map((each) => each.innerText)"
MAIN = "document.querySelector('main').innerText"
ASKED, GIVEN = "cellType: A10-NODE, cellNumber: 2}", "cellType: A10-NODE, cellNumber: 1}"
FEWER = GIVEN.join(CONFIG.rsplit(ASKED, 1))
"""One node less for research, which hits nobody: later tests find all jobs as they were."""


def plan(page: Page, url: str, file: Path, text: str) -> str:
    """The words of the plan of a text, uploaded as a file."""
    file.write_text(text)
    page.open(f"{url}/page/configuration")
    page.choose_file("input[type=file]", file)
    page.use("form[action$='/plan'] button")
    return str(page.evaluate(MAIN))


def test_a_list_is_filtered_as_one_types(browser: Browser, team_url: str) -> None:
    with browser.page() as page:
        page.open(f"{team_url}/page/jobs")
        assert len(page.evaluate(ROWS)) > 5
        page.evaluate("document.querySelector('input[type=search]').focus()")
        page.type("whisper")
        # the job itself, and the one that waits for it
        page.wait_until(f"{ROWS}.length === 2 && location.search.includes('q=whisper')")
        assert page.evaluate("[document.activeElement.name, document.activeElement.value]") == ["q", "whisper"]
        page.type("-l")
        page.wait_until("location.search.includes('q=whisper-l')")
        shown, address = page.evaluate(ROWS), page.evaluate("location.href")
        assert page.troubles() == []
    with browser.page(scripts=False) as page:
        page.open(address)
        assert page.evaluate(ROWS) == shown


def test_a_change_is_tried_on_the_page_of_a_job(browser: Browser, team_url: str, pictures: Path) -> None:
    with browser.page() as page:
        page.open(f"{team_url}/page/jobs?q=tts-batch")
        page.use("tbody th a")
        page.evaluate("document.querySelector('input[name=if]').focus()")
        page.type("priority=200")
        before = page.evaluate("location.search")
        page.press("Enter")
        page.wait_until(f"location.search !== {before!r} && document.readyState === 'complete'")
        page.wait_until("document.querySelector('.note[role=status]') !== null")
        assert "priority=200" in page.evaluate(MAIN)
        assert list(troubles_of(page)) == []
        page.screenshot(pictures / "tried.png", whole=True)


@pytest.mark.parametrize("width", [390, 1280])
def test_a_plan_shows_who_is_hit(browser: Browser, team_url: str, pictures: Path, tmp_path: Path, width: int) -> None:
    with browser.page(width) as page:
        words = plan(
            page,
            team_url,
            tmp_path / "fewer.yaml",
            CONFIG.replace("H100-NODE, cellNumber: 4}", "H100-NODE, cellNumber: 1}"),
        )
        assert "protein-fold" in words
        page.wait_until(SETTLED)
        page.wait_until("!document.getElementById('picture').hidden")
        assert list(troubles_of(page)) == []
        page.screenshot(pictures / f"plan-{width}.png", whole=True)


def test_a_configuration_is_pushed_and_undone(browser: Browser, team_url: str, tmp_path: Path) -> None:
    with browser.page() as page:
        words = plan(page, team_url, tmp_path / "less.yaml", FEWER)
        assert "research" in words
        page.evaluate("document.querySelector('input[name=message]').value = 'one node less for a week'")
        page.use("form[action$='/push'] button")
        page.open(f"{team_url}/page/configuration")
        assert "one node less for a week" in page.evaluate(MAIN)
        assert GIVEN in page.evaluate("document.getElementById('text').value")

        page.use("#version-1")
        page.use("form[action$='/plan'] button")
        assert list(troubles_of(page)) == []
        page.use("form[action$='/push'] button")
        page.open(f"{team_url}/page/configuration")
        assert page.evaluate("document.getElementById('text').value").strip() == CONFIG.strip()
        assert page.troubles() == []


def test_a_text_with_a_mistake_is_told_with_its_place(browser: Browser, team_url: str, tmp_path: Path) -> None:
    with browser.page() as page:
        words = plan(page, team_url, tmp_path / "wrong.yaml", CONFIG.replace("childCellNumber: 2", "childCellNumbr: 2"))
        assert "did you mean childCellNumber" in words
        assert page.evaluate("document.querySelectorAll('h1').length") == 1


@pytest.mark.parametrize("path", ["/page/jobs/none", "/page/vcs/none", "/page/none", "/page/configuration/versions/99"])
def test_a_page_that_is_not_there_leads_back(browser: Browser, team_url: str, path: str) -> None:
    with browser.page(390) as page:
        page.open(team_url + path)
        assert page.evaluate("document.querySelectorAll('h1').length") == 1
        assert page.evaluate("document.querySelectorAll('.top nav a').length") >= 3
        assert list(troubles_of(page, 404)) == []
