"""A small part of the recorded decisions, kept here so that a fresh clone tests parity on its own."""

import gzip
import json
from pathlib import Path

import pytest

from hived_extender.machine.recording.replay import Json
from tests.parity.replays import replay_on_core, scenario_names

RECORDED = Path(__file__).parent / "recorded"


def comparable(record: Json) -> Json:
    """Without the free part of error texts, and without inspected cells, which nest stale copies in the reference."""
    result = {key: value for key, value in record["result"].items() if key != "json"}
    if "Failed to unmarshal YAML" in result.get("message", ""):
        result["message"] = "Failed to unmarshal YAML"
    return {"i": record["i"], "op": record["op"], "result": result, "hash": record["state"]["hash"]}


@pytest.mark.parametrize("name", scenario_names(RECORDED))
def test_no_recorded_decision_differs(name: str) -> None:
    with gzip.open(RECORDED / "traces" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        expected = [comparable(json.loads(line)) for line in lines]
    assert [comparable(record) for record in replay_on_core(RECORDED, name)] == expected
