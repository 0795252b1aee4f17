"""One control plane per Kubernetes version, for all tests of a session; only `make e2e` collects what needs one."""

import os
from collections.abc import Iterator

import pytest

from hived_extender.warm import compile_kernels
from tests.e2e.plane import ControlPlane
from tests.e2e.tools import find, wanted_versions

# Without the programs that `make e2e` builds first, these cannot run.
NEEDS_A_PLANE = ["test_*.py", "failures/*", "controllers/*", "mixed/test_mixed.py"]
collect_ignore_glob = [] if os.environ.get("HIVED_E2E") else NEEDS_A_PLANE


LIMIT_S = 900
"""For one test: the first compiles kernels and starts a control plane, and waits that end by themselves tell more."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all that need a control plane more time than other tests have."""
    for item in items:
        if "plane" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(LIMIT_S))


@pytest.fixture(scope="session", params=wanted_versions())
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane of each version in each worker; what a test leaves in it, the next one's `clear` removes."""
    compile_kernels()  # now, into the cache that the services use: none of them is to compile while somebody waits
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    with ControlPlane(find(request.param), f"{request.param}{worker and '-'}{worker}") as running:
        yield running
