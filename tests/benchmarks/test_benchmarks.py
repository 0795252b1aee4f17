"""The harness itself: that it measures what it says. How long anything took decides nothing here."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hived_config.loader import load_text
from tests.benchmarks.__main__ import main
from tests.benchmarks.callers import Connection, ask_all, request_bytes
from tests.benchmarks.core import Measurement
from tests.benchmarks.load import (
    GANGS,
    KINDS,
    NODES_PER_POOL,
    NODES_PER_RACK,
    JobSource,
    cluster_spec,
    config_text,
    promised_cells,
)
from tests.benchmarks.table import ALL_SIZES, SECTIONS, FileError, growth, missed, read_other, summarise, table
from tests.places import ROOT
from tests.stub_server import StubServer

MACHINE = {"cpu": "Some CPU", "cores": 2, "python": "3.11"}
FILTER = {"p50": 0.4, "p99": 3.0}
SMALLEST_SIZE = ALL_SIZES[0]
NODES_PER_CELL = {"POOL": NODES_PER_POOL, "POOL.RACK": NODES_PER_RACK, "POOL.RACK.NODE": 1}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """All figures of the smallest size; measuring fails if a VC is not full or an invariant broken."""
    path = tmp_path_factory.mktemp("bench") / "bench.json"
    main(["--nodes", str(SMALLEST_SIZE), "--starts", "1", "--json", str(path)])
    written = json.loads(path.read_text())
    assert written["machine"]["cores"] > 0
    return dict(written["nodes"][str(SMALLEST_SIZE)])


@pytest.mark.long
def test_every_row_has_a_figure_except_gangs_that_do_not_fit_and_what_was_not_asked_for(
    report: dict[str, dict[str, float]],
) -> None:
    missing = {row.key for _, rows in SECTIONS for row in rows} - report.keys()
    missing = {key for key in missing if not any(gang.label in key for gang in GANGS)}
    assert missing == {"process/compile", "process/first"}


@pytest.mark.long
def test_every_gpu_was_used_by_a_pod_that_came_back_from_its_annotations(report: dict[str, dict[str, float]]) -> None:
    assert 0 < report["load/pods"]["value"] <= SMALLEST_SIZE * 8
    assert report["full/delete"]["count"] > 0


@pytest.mark.long
def test_the_status_is_read_as_a_whole_beside_filter_calls(report: dict[str, dict[str, float]]) -> None:
    assert report["web/statuses"]["value"] >= 1
    assert report["web/filter beside status"]["count"] >= 100


@pytest.mark.parametrize("node_count", ALL_SIZES)
def test_the_vcs_are_promised_every_node_at_every_level_there_is(node_count: int) -> None:
    promised = promised_cells(node_count)
    assert (
        sum(count * NODES_PER_CELL[name] for cells in promised.values() for name, count in cells.items()) == node_count
    )
    assert {name for cells in promised.values() for name in cells} == {
        name for name in NODES_PER_CELL if name != "POOL" or node_count > NODES_PER_POOL
    }


def test_a_size_that_does_not_make_whole_pools_is_refused() -> None:
    with pytest.raises(ValueError, match="100 nodes do not make whole pools"):
        promised_cells(100)


def test_the_configuration_file_describes_the_cluster_that_the_core_is_measured_with() -> None:
    node_count = 2 * NODES_PER_POOL
    assert load_text(config_text(node_count), "bench.yaml").cluster == cluster_spec(node_count)


def test_the_same_seed_draws_the_same_jobs() -> None:
    def draw(seed: int) -> list[str]:
        source = JobSource(seed)
        return [source.pick_kind(10_000).label for _ in range(50)]

    assert draw(1) == draw(1) != draw(2)


def test_the_kinds_share_all_gpus_and_no_kind_is_drawn_that_does_not_fit() -> None:
    assert sum(kind.share for kind in KINDS) == pytest.approx(1)
    source = JobSource(0)
    assert all(source.pick_kind(63).gpu_count < GANGS[0].gpu_count for _ in range(200))


def test_a_cluster_with_free_gpus_does_not_pass_for_a_full_one() -> None:
    measurement = Measurement(SMALLEST_SIZE, 1, lambda _: None)
    measurement.start()
    measurement.check_used(0)
    with pytest.raises(RuntimeError, match="VC alpha is not full"):
        measurement.check_vcs_full()
    with pytest.raises(RuntimeError, match="1024 GPUs should be in use"):
        measurement.check_used(SMALLEST_SIZE * 8)


def test_a_table_has_percentiles_growth_ratios_limits_and_what_was_not_measured() -> None:
    samples = [i * 1_000_000 for i in range(100, 0, -1)]
    assert summarise(samples) == {"p50": 50, "p99": 99, "max": 100, "count": 100}
    assert growth({128: 1.0, 1024: 64.0}) == pytest.approx(2)
    assert growth({128: 1.0}) is None
    sizes = {128: {"load/any": {"p50": 0.05, "p99": 0.6}}, 256: {}, 1024: {"load/any": {"p50": 0.1, "p99": 0.7}}}
    assert [(row.key, count) for row, count in missed(sizes)] == [("load/any", 128)]
    lines = table(sizes, {128: {"load/any": {"p50": 0.1, "p99": 1.0}}}).splitlines()
    cells = ["any pod", "0.050/0.600 (0.100/0.500) x0.50", "-", "0.100/0.700 (0.100/0.700)", "0.33"]
    assert [cell.strip() for cell in lines[2].split("|")[1:6]] == cells
    assert "missed: any pod, 128 nodes: 0.050/0.600, limit 0.100/0.500" in lines
    assert "not measured: first pod of 128x8, 1,024 nodes" in lines


@pytest.mark.parametrize("nodes", ["", "many", "100", "0", "-128", "128,", "128,128"])
def test_sizes_that_cannot_be_measured_are_refused_before_anything_is(
    nodes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([f"--nodes={nodes}"])
    assert f"{nodes!r} is no list of different multiples of 128" in capsys.readouterr().err


def write(folder: Path, **changed: object) -> Path:
    """Figures of another scheduler."""
    document = {
        "name": "another scheduler 1.0",
        "machine": {"cpu": "Some CPU", "cores": 2},
        "nodes": {"128": {"web/filter": FILTER}},
    }
    path = folder / "other.json"
    path.write_text(json.dumps({key: value for key, value in {**document, **changed}.items() if value is not None}))
    return path


def test_figures_are_found_by_size_and_row(tmp_path: Path) -> None:
    other = read_other(write(tmp_path), MACHINE)
    assert (other.name, other.nodes) == ("another scheduler 1.0", {128: {"web/filter": FILTER}})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"machine": {"cpu": "Other", "cores": 2}}, "another machine: its cpu is 'Other', here it is 'Some CPU'"),
        ({"machine": {"cpu": "Some CPU", "cores": 8}}, "another machine: its cores is 8, here it is 2"),
        ({"machine": None}, "missing required field `machine`"),
        ({"nodes": {"many": {"web/filter": FILTER}}}, "Expected `int`, got `str` - at `key` in `$.nodes`"),
        ({"nodes": {"128": {"web/filter": {"value": 1.0}}}}, "expected p50 and p99, given value"),
        ({"nodes": {"128": {"web/filter": {"p50": "fast"}}}}, "Expected `float`, got `str`"),
    ],
)
def test_a_file_that_cannot_be_compared_with_is_refused_with_the_reason(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(FileError) as caught:
        read_other(write(tmp_path, **changed), MACHINE)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", [None, "", "garbage", "[]"])
def test_a_file_is_refused_before_anything_is_measured(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "other.json").write_text(text)
    with pytest.raises(SystemExit):
        main(["--compare", str(tmp_path / "other.json")])
    assert "other.json: " in capsys.readouterr().err


def test_the_example_in_the_documentation_can_be_read(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    example = text.split("```json\n")[1].split("```")[0]
    (tmp_path / "example.json").write_text(example)
    assert read_other(tmp_path / "example.json", json.loads(example)["machine"]).nodes.keys() == {128, 1024}


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--json", str(tmp_path / "nowhere" / "new.json")])
    assert f"there is no folder {tmp_path / 'nowhere'}" in capsys.readouterr().err


def test_a_limit_may_be_of_the_first_figure_alone() -> None:
    rows = {"load/1x1": {"p50": 0.05, "p99": 9.0}}
    assert not [row for row, _ in missed({128: rows}) if row.key == "load/1x1"]


def requests(count: int) -> Iterator[bytes]:
    return (request_bytes("POST", f"/{number}", b"x" * 100_000) for number in range(count))


def test_connections_that_open_at_once_share_all_requests() -> None:
    with StubServer(lambda request: (200, {"path": request.target, "size": len(request.body)})) as server:
        answers = ask_all(server.url, 4, requests(11))
    expected = sorted(f'{{"path": "/{number}", "size": 100000}}'.encode() for number in range(11))
    assert sorted(answers.bodies) == expected
    assert (len(answers.first), len(answers.spent)) == (4, 11)


@pytest.mark.parametrize(
    ("status", "mistakes"), [(503, (RuntimeError,)), (0, (EOFError, OSError))], ids=["refused", "closed"]
)
def test_a_connection_that_has_no_answer_ends_the_measurement(
    status: int, mistakes: tuple[type[Exception], ...]
) -> None:
    with StubServer(lambda _: (status, {})) as server, pytest.raises(mistakes):
        ask_all(server.url, 2, requests(4))


def test_an_answer_is_read_whole_in_one_piece_or_in_chunks() -> None:
    server = StubServer(lambda request: (200, [b"ab", b"cd"] if request.target == "/chunks" else b"abcd"))
    with server, closing(Connection(server.url)) as connection:
        found = [connection.call(request_bytes("GET", path))[1] for path in ("/chunks", "/whole", "/chunks")]
    assert found == [b"abcd"] * 3
