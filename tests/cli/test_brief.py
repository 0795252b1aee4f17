"""What `hived serve --embedded` logs unless it is asked for more."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from hived.decisions import Wait
from hived.errors import UserError
from hived.events import Phase
from hived_extender import facts, logs
from hived_extender.cli.brief import CHANGES, Brief
from hived_extender.decision_log import tell_decision
from hived_extender.metrics import Metrics

EXTENDER = Path(logs.__file__).parent


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What a brief log says."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    logs.configure("text", stream=stream, only=Brief())
    yield stream
    root.handlers[:], root.level = handlers, level


def decide(pod: str, outcome: Wait | UserError) -> None:
    tell_decision(Metrics(), pod, None, Phase.FILTERING, outcome, 0.0)


def test_changes_and_warnings_have_a_line_and_nothing_else_has(stream: io.StringIO) -> None:
    facts.log.info("bound", extra={"fields": {"pod": "ns/p", "node": "n0"}})
    facts.log.info("pod gone", extra={"fields": {"pod": "ns/p"}})
    facts.log.warning("anything")
    decide("ns/p", Wait("no room"))
    lines = [line.split(maxsplit=2)[2] for line in stream.getvalue().splitlines()]
    assert lines == ["hived_extender.facts: bound pod=ns/p node=n0", "hived_extender.facts: anything"]


def test_a_pod_that_is_refused_is_told_of_once_for_each_reason(stream: io.StringIO) -> None:
    for reason in ("one", "one", "another", "another", "one"):
        decide("ns/p", UserError(reason))
    decide("ns/q", UserError("one"))
    assert [line.split("reason=")[1].split()[0] for line in stream.getvalue().splitlines()] == [
        "one",
        "another",
        "one",
        "one",
    ]


@pytest.mark.parametrize("message", sorted(CHANGES))
def test_every_change_is_a_message_of_ours(message: str) -> None:
    sources = (path.read_text() for path in EXTENDER.rglob("*.py") if path.name != "brief.py")
    assert any(
        f'log.info("{message}"' in source or f'log.info(\n            "{message}"' in source for source in sources
    )
