"""The last days of a folder of records, slimmed to what a trace needs."""

import json
import os
from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived_extender.machine.recording import record
from hived_extender.machine.recording.record import recent_lines, recent_parts

SPEC = {"virtualCluster": "a", "leafCellNumber": 1}


def ask(pod: str, now: float, **more: object) -> dict[str, object]:
    return {"op": "schedule", "pod": pod, "spec": SPEC, "phase": "Filtering", "suggested": "all", "now": now, **more}


def write(folder: Path, name: str, *operations: dict[str, object], age_s: float = 0.0) -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(each) + "\n" for each in operations))
    os.utime(path, (1000.0 - age_s, 1000.0 - age_s))
    return path


def told(folder: Path, since_s: float = 0.0) -> list[dict[str, object]]:
    text = b"".join(recent_lines(recent_parts(folder, since_s)))
    return [json.loads(line) for line in text.splitlines()]


def test_a_pod_is_asked_about_once_and_told_once_more_when_it_is_placed(tmp_path: Path) -> None:
    asked = [ask("p", 1.0), ask("p", 2.0, offer={"all": True}), ask("p", 3.0, commit=True)]
    write(tmp_path, "r-0001.jsonl", {"op": "header"}, *asked)
    lines = told(tmp_path)
    assert [(line["op"], line["now"], line.get("commit", False)) for line in lines] == [
        ("schedule", 1.0, False),
        ("schedule", 3.0, True),
    ]
    assert all("offer" not in line and line["spec"] == SPEC for line in lines)


def test_the_time_of_lines_that_are_left_out_is_kept(tmp_path: Path) -> None:
    write(
        tmp_path, "r-0001.jsonl", ask("p", 1.0), ask("p", 5.0), {"op": "delete", "pod": "p"}, ask("q", 6.0), ask("q", 7)
    )
    assert [(line["op"], line.get("now")) for line in told(tmp_path)] == [
        ("schedule", 1.0), ("time", 5.0), ("delete", None), ("schedule", 6.0), ("time", 7.0),
    ]  # fmt: skip


def test_runs_that_are_older_are_left_out_as_a_whole(tmp_path: Path) -> None:
    write(tmp_path, "a-0001.jsonl", ask("p", 1.0), age_s=900)
    write(tmp_path, "b-0001.jsonl", ask("q", 2.0), age_s=900)
    write(tmp_path, "b-0002.jsonl", ask("r", 3.0))
    assert [line["pod"] for line in told(tmp_path, 500.0)] == ["q", "r"]


def test_a_line_that_is_still_written_and_a_part_that_goes_away_are_no_mistakes(tmp_path: Path) -> None:
    first = write(tmp_path, "a-0001.jsonl", ask("p", 1.0))
    second = write(tmp_path, "a-0002.jsonl", ask("q", 2.0))
    second.write_text(second.read_text() + '{"op":"sched')
    parts = recent_parts(tmp_path, 0.0)
    first.unlink()
    assert [json.loads(line)["pod"] for line in recent_lines(parts) if line] == ["q"]


def test_others_are_served_while_nothing_is_told(tmp_path: Path) -> None:
    write(tmp_path, "a-0001.jsonl", *(ask("p", float(second)) for second in range(100)))
    assert list(recent_lines(recent_parts(tmp_path, 0.0))).count(b"") >= 3


def test_nothing_that_young_and_too_much_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="no record is that young") as caught:
        recent_parts(tmp_path, 0.0)
    assert caught.value.code == 404
    write(tmp_path, "a-0001.jsonl", ask("p", 1.0))
    monkeypatch.setattr(record, "MOST_BYTES", 10)
    with pytest.raises(UserError, match="ask for fewer days") as caught:
        recent_parts(tmp_path, 0.0)
    assert caught.value.code == 413
