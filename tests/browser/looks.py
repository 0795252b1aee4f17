"""What may be wrong with a page that is shown: in the console, by its policy, in its width, and by axe."""

from collections.abc import Iterator
from typing import Any

from tests.browser import tools
from tests.browser.cdp import Page

SERIOUS = ("serious", "critical")

AXE = "axe.run(document, {resultTypes: ['violations'], preload: false})"
"""Nothing is preloaded: style sheets of the page are those that count."""

WIDER = """
(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > width + 1)
    .slice(0, 5).map((each) => `${each.tagName}.${each.className} ${Math.round(each.getBoundingClientRect().right)}`);
})()
"""
"""What makes the page wider than the view."""

CUT_OFF = """
[...document.querySelectorAll(".scroll:has(table.jobs)")]
  .filter((each) => innerWidth >= 1280 && each.scrollWidth > each.clientWidth)
  .map((each) => `${each.ariaLabel} ${each.scrollWidth} in ${each.clientWidth}`)
"""
"""Tables of jobs that have to be scrolled for the reason in their last column, where the screen is no phone's."""

SETTLED = "document.readyState === 'complete' && !document.querySelector('.htmx-request')"


def troubles_of(page: Page, status: int = 200) -> Iterator[str]:
    """What is wrong with the page that is shown, which came with this status: the console tells one of an error."""
    yield from (each for each in page.troubles() if status == 200 or f"status of {status}" not in each)
    yield from (f"forbidden by the policy: {each}" for each in page.violations())
    yield from (f"wider than the view: {each}" for each in page.evaluate(WIDER))
    yield from (f"cut off: {each}" for each in page.evaluate(CUT_OFF))
    page.evaluate(tools.axe() + "; 0")
    results: dict[str, Any] = page.evaluate(AXE)
    for found in results["violations"]:
        if found["impact"] in SERIOUS:
            where = "; ".join(" ".join(map(str, node["target"])) for node in found["nodes"][:5])
            yield f"{found['impact']}: {found['help']} ({found['id']}): {where}"
