"""Figures of another scheduler: which files are compared with, and what is shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.__main__ import main
from tests.benchmarks.reference import ReferenceError, read_reference
from tests.benchmarks.report import reference_table, target_table
from tests.places import ROOT

MACHINE = {"cpu": "Some CPU", "cores": 2, "python": "3.11"}
FILTER = {"p50": 0.4, "p99": 3.0}


def write(folder: Path, **changed: object) -> Path:
    document = {
        "name": "another scheduler 1.0",
        "measured": "2026-11-20",
        "machine": {"cpu": "Some CPU", "cores": 2},
        "nodes": {"128": {"web/filter": FILTER}},
    }
    path = folder / "reference.json"
    path.write_text(json.dumps({key: value for key, value in {**document, **changed}.items() if value is not None}))
    return path


def refused(folder: Path, **changed: object) -> str:
    with pytest.raises(ReferenceError) as caught:
        read_reference(write(folder, **changed), MACHINE)
    return str(caught.value)


def test_figures_are_found_by_size_and_row(tmp_path: Path) -> None:
    reference = read_reference(write(tmp_path), MACHINE)
    assert (reference.name, reference.measured) == ("another scheduler 1.0", "2026-11-20")
    assert reference.sizes == {128: {"web/filter": FILTER}}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"machine": {"cpu": "Other", "cores": 2}}, "another machine: its cpu is 'Other', here it is 'Some CPU'"),
        ({"machine": {"cpu": "Some CPU", "cores": 8}}, "another machine: its cores is 8, here it is 2"),
        ({"machine": None}, "missing required field `machine`"),
        ({"measured": None}, "missing required field `measured`"),
        ({"name": 1}, "Expected `str`, got `int` - at `$.name`"),
        ({"rows": {}}, "unknown field `rows`"),
        ({"nodes": {}}, "`nodes` has no figures"),
        ({"nodes": {"many": {"web/filter": FILTER}}}, "the key 'many', expected a number of nodes"),
        ({"nodes": {"128": {"web/filtre": FILTER}}}, "nodes['128']['web/filtre']: no row has this name"),
        ({"nodes": {"128": {"web/filter": {"value": 1.0}}}}, "expected p50 and p99, given value"),
        ({"nodes": {"128": {"web/filter": {"p50": 0}}}}, "figures must be above 0"),
        ({"nodes": {"128": {"web/filter": {"p50": "fast"}}}}, "Expected `float`, got `str`"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_compared_with_is_refused_with_the_reason(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    assert message in refused(tmp_path, **changed)


@pytest.mark.parametrize("text", ["", "garbage", "[]"])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(ReferenceError, match="file: "):
        read_reference(tmp_path / "file", MACHINE)


def test_a_file_is_refused_before_anything_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--reference", str(tmp_path / "absent.json")])
    assert "No such file" in capsys.readouterr().err


def test_each_row_shows_both_figures_and_their_ratio() -> None:
    ours = {128: {"web/filter": {"p50": 0.2, "p99": 1.0}}}
    line = reference_table(ours, {128: {"web/filter": FILTER}}).splitlines()[2]
    assert line.split("|")[2].strip() == "0.200/1, 0.400/3 (x0.50)"


def test_a_row_that_was_not_measured_has_no_ratio() -> None:
    line = reference_table({128: {}}, {128: {"web/filter": FILTER}}).splitlines()[2]
    assert line.split("|")[2].strip() == "-, 0.400/3"


def test_a_ratio_above_its_target_is_missed() -> None:
    ours = {128: {"web/filter": {"p50": 0.36, "p99": 1.0}}}
    assert "128 nodes: 0.90 times the reference, target 0.8 times" in reference_table(
        ours, {128: {"web/filter": FILTER}}
    )


def test_a_ratio_below_its_target_is_not_missed() -> None:
    ours = {128: {"web/filter": {"p50": 0.28, "p99": 1.0}}}
    assert "missed" not in reference_table(ours, {128: {"web/filter": FILTER}})


def test_without_a_file_no_figure_of_another_scheduler_is_shown() -> None:
    shown = target_table({128: {"web/filter": {"p50": 0.2, "p99": 1.0}}})
    assert [line.split("|")[1].strip() for line in shown.splitlines() if line.startswith("|")][2:] == [
        "HTTP filter that binds, keep-alive, ms p50/p99",
        "target",
    ]


def test_the_example_in_the_documentation_can_be_read(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    example = text.split("```json\n")[1].split("```")[0]
    (tmp_path / "example.json").write_text(example)
    reference = read_reference(tmp_path / "example.json", json.loads(example)["machine"])
    assert reference.sizes.keys() == {128, 1024}
