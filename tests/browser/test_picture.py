"""The picture of cells in a browser: whose each GPU is, and why, by the pointer and by keys."""

import re
from pathlib import Path

from tests.browser.cdp import Browser, Page
from tests.browser.looks import SETTLED, troubles_of
from tests.browser.team_cluster import BAD

TIP = "document.getElementById('cell-tip').hidden ? '' : document.getElementById('cell-tip').innerText"
WORDS = "document.getElementById('cell-words').innerText"
MAIN = "document.querySelector('main').innerText"
LENT = (378, 197)
"""A point of a GPU of h100-04, from the corner of the canvas, in a view of 1,280 x 900."""


def point(page: Page, x: int, y: int) -> tuple[float, float]:
    """Rest the pointer on a point of the canvas; returns where that is in the view."""
    left, top = page.evaluate(
        "(({ left, top }) => [left, top])(document.getElementById('cells').getBoundingClientRect())"
    )
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + x, y=top + y)
    return left + x, top + y


def test_a_pointer_that_rests_on_a_gpu_reads_whose_it_is_and_why(
    browser: Browser, team_url: str, pictures: Path
) -> None:
    with browser.page() as page:
        page.open(f"{team_url}/page/cluster")
        page.wait_until("document.getElementById('zoom-level').textContent !== ''")
        point(page, *LENT)
        words = page.wait_until(TIP)
        assert "default:team/sweep of raj 1 GPU, research, opportunistic, since" in words
        assert "no guaranteed job needs them now, and it leaves when one does" in words
        page.screenshot(pictures / "tip.png")
        point(page, LENT[0], 1)
        page.wait_until(f"({TIP}) === ''")
        assert list(troubles_of(page)) == []


def test_a_chosen_gpu_leads_to_its_job_and_to_its_node(browser: Browser, team_url: str) -> None:
    with browser.page() as page:
        page.open(f"{team_url}/page/cluster")
        page.wait_until("document.getElementById('zoom-level').textContent !== ''")
        page.click(*point(page, *LENT))
        page.wait_until(f"{WORDS}.includes('default:team/sweep')")
        page.use("#cell-node")
        assert "Node h100-04" in page.evaluate(MAIN)
        page.use("main ul.holders a")
        assert page.evaluate("document.querySelector('h1').innerText") == "default:team/sweep"
        assert page.troubles() == []


def test_bad_nodes_are_listed_with_their_reason_and_jobs(browser: Browser, team_url: str) -> None:
    with browser.page() as page:
        page.open(f"{team_url}/page/cluster")
        page.wait_until(SETTLED)
        page.wait_until("document.getElementById('waiting') !== null")
        words = page.evaluate(MAIN)
        assert re.search(r"\d+ jobs wait, 6 of them in queues", words)  # without the one that is held
        assert "1 node bad" in words
        told = page.evaluate("document.querySelector('#bad + table').innerText")
        assert BAD in told
        assert "NotReady since" in told
        assert "default:team/sweep of raj" in told
        page.use("#bad-1")
        assert "Bad: NotReady since" in page.evaluate(MAIN)
