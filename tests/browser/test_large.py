"""16,384 nodes in a browser: how soon the cluster is drawn, and how much an open page costs. Figures are printed.

The goals are 1.5 s and 5 % of one core, on an idle machine. A test may run on a busy one, so it fails only far beyond.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmarks.process import cpu_ms
from tests.browser import large_cluster
from tests.browser.cdp import Browser
from tests.browser.large_cluster import Large

GOAL_S, MOST_S = 1.5, 10.0
GOAL_PART, MOST_PART = 0.05, 0.5

WATCHED_S = 20.0

DRAWN = """
new Promise((done) => {
  const canvas = document.getElementById("cells"), brush = canvas.getContext("2d");
  const look = () => {
    const seen = new Set();
    if (canvas.width > 0 && !document.getElementById("picture").hidden) {
      const { data } = brush.getImageData(0, 0, canvas.width, Math.min(canvas.height, 400));
      for (let i = 0; i < data.length; i += 4 * 7) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
    }
    const style = getComputedStyle(document.documentElement);
    const wanted = ["--vc-0", "--vc-1", "--vc-2"].map((name) => style.getPropertyValue(name).trim());
    if (wanted.every((each) => seen.has(parseInt(each.slice(1), 16)))) done(performance.now());
    else setTimeout(look, 5);
  };
  look();
})
"""
"""Milliseconds from the start of the navigation until the picture has the colours of all virtual clusters."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    """16,384 nodes."""
    with large_cluster.running(tmp_path_factory.mktemp("large")) as running:
        yield running


@pytest.mark.timeout(900)
def test_the_cluster_is_drawn_soon(browser: Browser, large: Large, pictures: Path) -> None:
    seconds = []
    for _ in range(3):
        with browser.page() as page:
            page.open(f"{large.url}/")
            seconds.append(page.evaluate(DRAWN) / 1000)
            page.screenshot(pictures / "large.png")
            assert page.troubles() == []
    print(f"\n16,384 nodes drawn after {', '.join(f'{each:.2f}' for each in seconds)} s; goal {GOAL_S} s")
    assert min(seconds) < MOST_S


@pytest.mark.timeout(900)
def test_an_open_page_costs_little(browser: Browser, large: Large) -> None:
    with browser.page() as page:
        page.open(f"{large.url}/")
        page.evaluate(DRAWN)
        pids = (large.process.pid, *browser.pids())
        spent = {}
        for what, changes in (("nothing changes", False), ("a node a second fails or heals", True)):
            began, before = time.monotonic(), [cpu_ms(pid) for pid in pids]
            second = 0
            while time.monotonic() - began < WATCHED_S:
                if changes:
                    large.flip(large.nodes[second // 2 * 97], second % 2 == 1)
                second += 1
                time.sleep(1)
            elapsed_ms = (time.monotonic() - began) * 1000
            service, *others = (cpu_ms(pid) - old for pid, old in zip(pids, before, strict=True))
            spent[what] = service / elapsed_ms
            browsing = sum(others) / elapsed_ms
            print(f"\nopen page, {what}: service {service / elapsed_ms:.1%} of a core, browser {browsing:.1%}")
        assert page.troubles() == []
    print(f"goal {GOAL_PART:.0%}")
    assert max(spent.values()) < MOST_PART
