"""Settings of all tests."""

import asyncio
from types import SimpleNamespace

import pytest
import uvicorn.server
from hypothesis import settings

# The same examples on every machine and in every run; a slow machine is no failure.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")

UVICORN_HURRY = 10
"""uvicorn looks ten times a second whether it shall end, and again whether it has: hundreds of tests stop a server."""

uvicorn.server.asyncio = SimpleNamespace(
    **vars(asyncio) | {"sleep": lambda seconds: asyncio.sleep(seconds / UVICORN_HURRY)},
)

SLOW_FILES = (
    "tests/test_packaging",
    "growth/test_growth",
    "property/test_lockstep",
    "extender/test_election",
    "lab/test_demo",
    "benchmarks/test_benchmarks",
    "lab/test_dialects",
    "lab/test_scenario_files",
    "property/test_gangs",
    "extender/test_leadership",
)
"""Files that take tens of seconds, the longest first. Begun last, one of them would run alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    order = {name: place for place, name in enumerate(SLOW_FILES)}
    items.sort(key=lambda item: order.get("/".join(item.path.with_suffix("").parts[-2:]), len(order)))
