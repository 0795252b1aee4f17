"""`python -m tests.browser.pictures` takes the pictures of docs/page anew, from real pages of a running cluster."""

import sys
import tempfile
from pathlib import Path

from tests.browser import team_cluster, tools
from tests.browser.cdp import Browser, Page
from tests.browser.looks import SETTLED
from tests.places import ROOT

FOLDER = ROOT / "docs" / "page"
WIDTH, HEIGHT = 1280, 900
DRAWN = "!document.getElementById('picture').hidden"
MOST_BYTES = 130_000


def take(browser: Browser, url: str, folder: Path) -> list[Path]:
    """The pictures, written to a folder."""
    cluster, job = folder / "cluster.png", folder / "job.png"
    with browser.page(WIDTH, HEIGHT) as page:
        page.open(f"{url}/page/cluster")
        page.wait_until(DRAWN)
        _take_until(page, cluster, "#chains + table")
    with browser.page(WIDTH, HEIGHT) as page:
        page.open(f"{url}/page/jobs?q=tts-batch")
        page.use("tbody th a")
        page.wait_until(DRAWN)
        _take_until(page, job, "#holders + div")
    return [cluster, job]


def _take_until(page: Page, path: Path, last: str) -> None:
    page.wait_until(SETTLED)
    bottom = page.evaluate(f"document.querySelector({last!r}).getBoundingClientRect().bottom + scrollY + 16")
    page.screenshot(path, height=round(bottom), width=WIDTH)


def main() -> int:
    """0; 1 if a picture is too large to be kept."""
    with (
        tempfile.TemporaryDirectory() as folder,
        team_cluster.running(Path(folder)) as url,
        Browser(tools.chromium()) as browser,
    ):
        sizes = {each.name: each.stat().st_size for each in take(browser, url, FOLDER)}
    for name, size in sizes.items():
        print(f"{name}: {size} bytes of at most {MOST_BYTES}", file=sys.stderr)
    return int(max(sizes.values()) > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
