"""The log of `hived serve --embedded` unless it is asked for more."""

import io
import logging
from collections.abc import Iterator

import pytest

from hived.values.decisions import Wait
from hived.values.events import Phase
from hived_cli.serve import CHANGES, Brief
from hived_extender.kube import logs
from hived_extender.kube.metrics import Metrics
from hived_extender.machine import cluster_cache
from hived_extender.machine.verbs import tell_decision
from hived_jobs import controller
from tests.places import ROOT


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The lines of a brief log."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.configure("text", stream=stream, only=Brief())
    yield stream
    root.handlers[:], root.level = handlers, level


def test_changes_and_warnings_have_a_line_and_nothing_else_has(stream: io.StringIO) -> None:
    cluster_cache.log.info("bound", extra={"fields": {"pod": "ns/p", "node": "n0"}})
    cluster_cache.log.info("pod gone", extra={"fields": {"pod": "ns/p"}})
    cluster_cache.log.warning("anything")
    tell_decision(Metrics(), "ns/p", None, Phase.FILTERING, Wait("no room"), 0.0)
    controller.log.info("job train: Completed")
    lines = [line.split(maxsplit=2)[2] for line in stream.getvalue().splitlines()]
    assert lines == [
        "hived_extender.machine.cluster_cache: bound pod=ns/p node=n0",
        "hived_extender.machine.cluster_cache: anything",
        "hived_jobs.controller: job train: Completed",
    ]


@pytest.mark.parametrize("message", sorted(CHANGES))
def test_every_change_is_a_message_of_ours(message: str) -> None:
    sources = (path.read_text() for path in (ROOT / "extender").rglob("*.py") if path.name != "serve.py")
    assert any(
        f'log.info("{message}"' in source or f'log.info(\n            "{message}"' in source for source in sources
    )
