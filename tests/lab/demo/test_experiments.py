"""Experiments are read strictly, and all that come with hived are sound, explained and do what they promise."""

import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hived.values.errors import UserError
from hived_cli import main
from hived_config.loader import load_cluster
from hived_jobs.submission import Submission
from hived_lab.demo.experiment import JobState, Loaded, Step, experiments_folder, load_experiments
from hived_lab.demo.report import Report
from hived_lab.demo.runner import run_experiment, start_lab
from tests.e2e.scenarios import SCENARIOS
from tests.job_files import plan_file
from tests.places import ROOT

TEXT = """\
title: T
shows: S
configuration: c.yaml
steps:
- submit: {job: A, file: a.yaml}
- expect: E
  jobs: {A: {running: 1}}
"""
DIALECTS_FOLDER = experiments_folder("dialects")
EXPERIMENTS, DIALECTS = load_experiments(experiments_folder()), load_experiments(DIALECTS_FOLDER)
PAGE = (ROOT / "docs" / "lab.md").read_text()
PROMISED = {
    "vc-safety", "priority-and-preemption", "opportunistic", "gang", "incremental", "pinned-cells", "sku-types",
    "bad-node", "lazy-preemption", "reconfiguration",
}  # fmt: skip
LARGEST = "five-hundred-pods"
LONGEST_S = 60


def name_of(loaded: Loaded) -> str:
    return loaded.name


def save(folder: Path, text: str) -> Path:
    (folder / "01-one").mkdir()
    (folder / "01-one" / "experiment.yaml").write_text(text)
    return folder


def test_an_experiment_is_named_after_its_folder_without_the_number(tmp_path):
    [loaded] = load_experiments(save(tmp_path, TEXT))
    assert (loaded.name, loaded.experiment.title, len(loaded.experiment.steps)) == ("one", "T", 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("running: 1", "runing: 1", "unknown field `runing`"),
        ("running: 1", "running: one", "Expected `int | null`, got `str`"),
        ("title: T\n", "", "missing required field `title`"),
        ("expect: E", "expects: E", "unknown field `expects`"),
        ("expect: E", "expect: E\n  delete: A", "step 2: expected exactly one of submit, adopt, "),
        ("- submit: {job: A, file: a.yaml}", "- because: nothing", "step 1: expected exactly one of submit, adopt, "),
        ("{A: {running: 1}}", "{B: {running: 1}}", "step 2: job B was not submitted before"),
        (
            "  jobs: {A: {running: 1}}",
            "  because: it must",
            "step 2: nothing is checked; expected jobs, bad_nodes or p",
        ),
        ("expect: E", "return_node: n1", "step 2: node n1 was not deleted before"),
        ("expect: E", "delete_node: n1\n- return_node: n1\n- return_node: n1", "step 4: node n1 was not deleted"),
        (
            "submit: {job: A, file: a.yaml}\n- expect: E",
            "adopt: {job: A, file: a.yaml}\n- resubmit: A",
            "step 2: job A has no job file to submit again",
        ),
        ("file: a.yaml}\n- expect: E", "file: a.yaml, refused: x}\n- resubmit: A", "step 2: job A has no job file"),
        ("submit: {job: A", "adopt: {job: b", "step 1: job 'b': expected a capital letter, but not X"),
        ("job: A", "job: X", "step 1: job 'X': expected a capital letter, but not X"),
        ("job: A", "job: AB", "step 1: job 'AB': expected a capital letter, but not X"),
        ("steps:", "steps: [", "did not find expected"),
    ],
)
def test_a_mistake_in_an_experiment_is_refused_before_anything_runs(old, new, message, tmp_path):
    with pytest.raises(UserError) as caught:
        load_experiments(save(tmp_path, TEXT.replace(old, new)))
    assert str(tmp_path / "01-one" / "experiment.yaml") in caught.value.message
    assert message in caught.value.message


def test_an_unknown_name_is_answered_with_the_known_ones(tmp_path):
    with pytest.raises(UserError, match="no experiments found"):
        load_experiments(tmp_path)
    with pytest.raises(UserError, match="no experiment is named 'two'; there are one"):
        load_experiments(save(tmp_path, TEXT), ("two",))


def test_the_lab_has_every_promised_experiment():
    assert {loaded.name for loaded in EXPERIMENTS} == PROMISED


@pytest.mark.parametrize("loaded", [*EXPERIMENTS, *DIALECTS], ids=name_of)
def test_every_file_of_an_experiment_is_used_and_honoured(loaded: Loaded):
    steps = loaded.experiment.steps
    configurations = {loaded.experiment.configuration, *(step.reconfigure for step in steps if step.reconfigure)}
    jobs = {step.submit.file: step.submit.refused for step in steps if step.submit}
    objects = {step.create.file for step in steps if step.create}
    files = {path.name for path in loaded.folder.iterdir()}
    own = {name for name in configurations if (loaded.folder / name).parent == loaded.folder and "/" not in name}
    assert files == own | jobs.keys() | objects | {"experiment.yaml"}
    for configuration in configurations:
        cluster = load_cluster(loaded.folder / configuration)
        planned = [
            plan_file(str(loaded.folder / file), Submission("lab", cluster=cluster)) for file in jobs if not jobs[file]
        ]
        assert [warnings for _, warnings in planned] == [[]] * len(planned)


@pytest.mark.parametrize("loaded", EXPERIMENTS, ids=name_of)
def test_every_experiment_is_explained(loaded: Loaded):
    assert f"| `{loaded.name}` |" in PAGE


def test_every_key_of_an_experiment_is_explained():
    assert [key for key in (*Step.__struct_fields__, *JobState.__struct_fields__) if f"`{key}" not in PAGE] == []


def test_the_readme_of_the_dialects_lists_every_example() -> None:
    rows = (DIALECTS_FOLDER / "README.md").read_text().splitlines()
    assert [row.split("`")[1] for row in rows if row.startswith("| `")] == [loaded.folder.name for loaded in DIALECTS]


def test_no_example_asks_in_the_words_of_hived() -> None:
    jobs = [path for path in DIALECTS_FOLDER.glob("*/*.yaml") if path.name != "experiment.yaml"]
    assert [path.name for path in jobs if "pod-scheduling-spec" in path.read_text()] == []


@pytest.fixture(scope="module")
def dialects() -> tuple[Result, float]:
    """All examples as a user sees them, run once; and the seconds that this process computed for them."""
    began = time.process_time()
    return CliRunner().invoke(main, ["demo", "dialects"]), time.process_time() - began


@pytest.mark.long
def test_every_dialect_does_what_it_promises_in_a_row_for_each_expectation(dialects: tuple[Result, float]) -> None:
    result, seconds = dialects
    assert result.exit_code == 0, result.output
    assert f"\n{len(DIALECTS)} of {len(DIALECTS)} examples passed in " in result.output
    lines = click.unstyle(result.output).splitlines()
    checks = sum(step.is_checked for loaded in DIALECTS for step in loaded.experiment.steps)
    assert sum(line.endswith(" ok") for line in lines) == checks
    assert [line for line in lines if len(line) > 100] == []
    assert seconds < LONGEST_S


@pytest.mark.parametrize(
    "loaded",
    [pytest.param(each, id=each.name, marks=pytest.mark.long if each.name == LARGEST else ()) for each in SCENARIOS],
)
def test_every_expectation_of_an_e2e_scenario_holds_on_the_embedded_cluster(loaded: Loaded) -> None:
    began = time.monotonic()
    with start_lab(loaded.folder / loaded.experiment.configuration) as cluster:
        result = run_experiment(loaded, Report(print), cluster, began)
    assert not result.error
    assert [check.found for check in result.checks if check.found] == []
    assert len(result.checks) == sum(step.is_checked for step in loaded.experiment.steps)
