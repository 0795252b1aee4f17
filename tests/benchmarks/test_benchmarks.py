"""The harness itself: that it measures what it says. How long anything took decides nothing here."""

import json
from pathlib import Path

import pytest

from hived_config.loader import load_text
from tests.benchmarks.__main__ import ALL_SIZES, main
from tests.benchmarks.clusters import NODES_PER_POOL, NODES_PER_RACK, cluster_spec, config_text, promised_cells
from tests.benchmarks.figures import growth, summarise
from tests.benchmarks.measure import Measurement
from tests.benchmarks.report import SECTIONS, table, target_table
from tests.benchmarks.targets import TARGETS, missed
from tests.benchmarks.workload import GANGS, KINDS, JobSource

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


def test_percentiles_are_samples_in_milliseconds() -> None:
    samples = [i * 1_000_000 for i in range(100, 0, -1)]
    assert summarise(samples) == {"p50": 50, "p99": 99, "max": 100, "count": 100}


def test_growth_is_the_exponent_of_the_node_count() -> None:
    assert growth({128: 1.0, 1024: 64.0}) == pytest.approx(2)
    assert growth({128: 1.0}) is None


def test_a_comparison_shows_the_ratio_to_the_old_figure() -> None:
    new, old = ({128: {"load/any": {"p50": p50, "p99": 1.0}}} for p50 in (0.1, 0.2))
    assert "0.100/1 (x0.50)" in table(new, old)


def test_a_figure_that_was_not_measured_is_a_dash() -> None:
    lines = table({128: {}, 1024: {"load/any": {"p50": 0.25, "p99": 1.0}}}).splitlines()
    assert [cell.strip() for cell in lines[-1].split("|")[1:5]] == ["any pod", "-", "0.250/1", ""]


@pytest.mark.parametrize("nodes", ["", "many", "100", "0", "-128", "128,", "128,128"])
def test_sizes_that_cannot_be_measured_are_refused_before_anything_is(
    nodes: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([f"--nodes={nodes}"])
    assert f"{nodes!r} is no list of different multiples of 128" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", [None, "", "garbage", "[]", "{}", '{"nodes": {}}', '{"nodes": {"128": {"load/any": {}}}}']
)
def test_a_file_that_cannot_be_compared_with_is_refused_before_anything_is_measured(
    text: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "old.json").write_text(text)
    with pytest.raises(SystemExit):
        main(["--compare", str(tmp_path / "old.json")])
    assert "old.json is no file that --json wrote" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--json", str(tmp_path / "nowhere" / "new.json")])
    assert f"there is no folder {tmp_path / 'nowhere'}" in capsys.readouterr().err


def test_a_target_without_a_figure_is_named() -> None:
    title = "first pod of 128x8, ms"
    assert f"not measured: {title}, 1,024 nodes" in target_table({1024: {}}).splitlines()
    assert "not measured" not in target_table({256: {}})
    figures = {1024: {"half/first of 128x8": {"p50": 1.0}}}
    assert f"not measured: {title}, 1,024 nodes" not in target_table(figures).splitlines()


def test_a_target_that_is_missed_is_named_with_figure_and_limit() -> None:
    sizes = {128: {"load/any": {"p50": 0.05, "p99": 0.6}}, 1024: {"load/any": {"p50": 0.1, "p99": 0.7}}}
    assert [(target.keys, count) for target, count in missed(sizes)] == [(("load/any",), 128)]
    lines = target_table(sizes).splitlines()
    title = "schedule + allocate one pod, mixed load, ms p50/p99"
    assert f"missed: {title}, 128 nodes: 0.050/0.600, target 0.100/0.500" in lines
    assert [line.split("|")[1].strip() for line in lines[2:4]] == [title, "target"]


def test_of_several_rows_with_one_target_the_worst_counts() -> None:
    node = next(target for target in TARGETS if len(target.keys) == 4)
    rows = {key: {"p50": i * 0.006} for i, key in enumerate(node.keys, 1)}
    assert node.is_missed({128: rows}, 128)
    assert not node.is_missed({128: rows | {node.keys[-1]: {"p50": 0.019}}}, 128)


def test_every_target_is_of_a_row_that_is_measured() -> None:
    keys = {row.key for _, rows in SECTIONS for row in rows}
    assert {key for target in TARGETS for key in target.keys} <= keys
