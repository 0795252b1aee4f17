"""16,384 nodes in a browser: how soon the cluster is drawn, and how much an open page costs. Figures are printed.

The goals are 1.5 s and 5 % of one core, on an idle machine. A test may run on a busy one, so it fails only far beyond.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import large_cluster
from tests.browser.cdp import Browser, Page
from tests.browser.large_cluster import Large

GOAL_S, MOST_S = 1.5, 10.0
GOAL_PART, MOST_PART = 0.05, 0.5

WATCHED_S = 20.0

DRAWN = """
new Promise((done) => {
  const canvas = document.getElementById("cells"), copy = new OffscreenCanvas(1, 1);
  const brush = copy.getContext("2d", { willReadFrequently: true });
  const look = () => {
    const seen = new Set();
    if (canvas.width > 0 && !document.getElementById("picture").hidden) {
      copy.width = canvas.width;
      copy.height = Math.min(canvas.height, 400);
      brush.drawImage(canvas, 0, 0);
      const { data } = brush.getImageData(0, 0, copy.width, copy.height);
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


TIMES = """
[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].map((each) => (
  {name: new URL(each.name).pathname, from: each.startTime, to: each.responseEnd}))
"""
"""When each answer was asked for, and was there."""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Large]:
    """16,384 nodes."""
    with large_cluster.running(tmp_path_factory.mktemp("large")) as running:
        yield running


def cpu_s(pid: int) -> float:
    """Processor time that a process has spent so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answers(page: Page) -> list[int]:
    """The status of every answer to a poll for cells so far, as it came over the wire: 304 for what is known."""
    sent = (event["params"] for event in page.events("Network.requestWillBeSent"))
    asked = {each["requestId"] for each in sent if "/cells/tiles" in each["request"]["url"]}
    received = (event["params"] for event in page.events("Network.responseReceivedExtraInfo"))
    return [each["statusCode"] for each in received if each["requestId"] in asked]


@pytest.mark.timeout(900)
def test_the_cluster_is_drawn_soon(browser: Browser, large: Large, pictures: Path) -> None:
    seconds = []
    for _ in range(3):
        with browser.page() as page:
            page.open(f"{large.url}/")
            seconds.append(page.evaluate(DRAWN) / 1000)
            times = page.evaluate(TIMES)
            print("\n" + "; ".join(f"{each['name']} {each['from']:.0f} to {each['to']:.0f} ms" for each in times))
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
            began, before, polls = time.monotonic(), [cpu_s(pid) for pid in pids], len(answers(page))
            second = 0
            while time.monotonic() - began < WATCHED_S:
                if changes:
                    large.flip(large.nodes[second // 2 * 97], second % 2 == 1)
                second += 1
                time.sleep(1)
            elapsed = time.monotonic() - began
            service, *others = ((cpu_s(pid) - old) / elapsed for pid, old in zip(pids, before, strict=True))
            spent[what] = service
            codes = answers(page)[polls:]
            print(f"\nopen page, {what}: service {service:.1%} of a core, browser {sum(others):.1%}; {codes}")
            assert (200 in codes) == changes
            assert len(codes) >= 2
        assert page.troubles() == []
    print(f"goal {GOAL_PART:.0%}")
    assert max(spent.values()) < MOST_PART
