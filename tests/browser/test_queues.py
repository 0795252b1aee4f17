"""Queues in a browser: their forms hold, release and move jobs, by the keyboard and without scripts too."""

from pathlib import Path

import pytest

from tests.browser.cdp import Browser, Page
from tests.browser.looks import SETTLED, troubles_of

MAIN = "document.querySelector('main').innerText"
PLACES = "[...document.querySelectorAll('tbody th a')].map((each) => each.innerText)"
QUEUE, JOB = "/page/queues/root/assembly", "/page/jobs/Job/assembly/align-narrow"
ORDER = [f"Job/assembly/align-{name}" for name in ("wide", "narrow", "later", "first", "second")]


def button(change: str) -> str:
    """The button of a change."""
    return f"button[value={change}]"


def opened(page: Page, url: str, path: str) -> str:
    """The words of a page."""
    page.open(url + path)
    page.wait_until(SETTLED)
    return str(page.evaluate(MAIN))


@pytest.mark.parametrize("scripts", [True, False], ids=["with-scripts", "without-scripts"])
def test_a_job_is_held_released_and_moved(browser: Browser, team_url: str, pictures: Path, scripts: bool) -> None:
    with browser.page(scripts=scripts) as page:
        assert "Waiting at place 2" in opened(page, team_url, JOB)
        page.use(button("hold"))
        assert "Held at place 2" in page.evaluate(MAIN)
        page.use(button("release"))
        assert "Waiting at place 2" in page.evaluate(MAIN)
        page.use(button("front"))
        assert "Waiting at place 1" in page.evaluate(MAIN)
        page.open(f"{team_url}/page/jobs/Job/assembly/align-wide")
        page.evaluate("document.querySelector('input[name=before]').value = 'Job/assembly/align-narrow'")
        page.use("form:has(input[name=before]) button")
        assert "Waiting at place 1" in page.evaluate(MAIN)
        page.open(team_url + QUEUE)
        assert page.evaluate(PLACES) == ORDER
        if scripts:
            assert page.troubles() == []


def test_a_job_is_held_by_the_keyboard_alone(browser: Browser, team_url: str) -> None:
    with browser.page() as page:
        opened(page, team_url, JOB)
        page.evaluate(f"document.querySelector({button('hold')!r}).focus()")
        page.press("Enter")
        page.wait_until(f"document.readyState === 'complete' && {MAIN}.includes('Held at place 2')")
        page.evaluate(f"document.querySelector({button('release')!r}).focus()")
        page.press("Enter")
        page.wait_until(f"document.readyState === 'complete' && !{MAIN}.includes('Held at place 2')")
        assert "Waiting at place 2" in page.evaluate(MAIN)


def test_a_job_before_which_none_can_be_moved_is_told(browser: Browser, team_url: str) -> None:
    with browser.page(390) as page:
        opened(page, team_url, JOB)
        page.evaluate("document.querySelector('input[name=before]').value = 'Job/folding/fold-more'")
        page.use("form:has(input[name=before]) button")
        assert "cannot be moved before" in page.evaluate(MAIN)
        assert list(troubles_of(page, 400)) == []


def test_queues_tell_what_waits_runs_and_borrows(browser: Browser, team_url: str) -> None:
    with browser.page() as page:
        words = " ".join(opened(page, team_url, "/page/queues").split())
        assert "root/assembly genomics hived 3 2 0" in words
        assert "root/folding genomics hived 2 2 1" in words
        assert "genomics genomics hived 2 0 0" in words


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("default/survey", "Bounded: starts by"),
        ("default/survey-later", "1 job is before it in its queue."),
        ("assembly/align-wide", "Insufficient quota(nvidia.com/gpu) in quota root/assembly"),
        ("folding/fold-held", "hived release lets it take its turn"),
        ("folding/fold-wrong", "set it to a virtual cluster: genomics, research, speech, vision"),
        ("folding/fold-borrowed", "on borrowed cells, which may be reclaimed"),
    ],
)
def test_the_page_of_a_job_says_why_it_waits(
    browser: Browser, team_url: str, pictures: Path, job: str, said: str
) -> None:
    with browser.page() as page:
        assert said in opened(page, team_url, f"/page/jobs/Job/{job}")
        assert list(troubles_of(page)) == []
        page.screenshot(pictures / f"queued-{job.partition('/')[2]}.png", whole=True)
