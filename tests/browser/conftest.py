"""One browser and one cluster of several teams for all tests of a session; only `make browser` runs what needs them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser import team_cluster, tools
from tests.browser.cdp import Browser
from tests.places import ROOT

LIMIT_S = 900
"""For one test: some look at every page in every form."""

NEEDS_A_BROWSER = "a browser, which `make browser` installs"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs a browser, and give it time where there is one."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(LIMIT_S))
            if not os.environ.get("HIVED_BROWSER"):
                item.add_marker(pytest.mark.skip(f"needs {NEEDS_A_BROWSER}"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser that runs until all tests are done."""
    with Browser(tools.chromium()) as running:
        yield running


@pytest.fixture(scope="session")
def team_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the cluster of several teams."""
    with team_cluster.running(tmp_path_factory.mktemp("team")) as url:
        yield url


@pytest.fixture(scope="session")
def pictures() -> Path:
    """The folder for screenshots."""
    return Path(os.environ.get("HIVED_SCREENSHOTS") or ROOT / "out" / "browser")
