"""`hived demo dialects`: every example does what it promises, and the folder's README knows it."""

import json
import time

import click
import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_config.loader import load_cluster
from hived_jobs.kinds import plan_jobs
from hived_jobs.submission import Submission
from hived_lab.demo.experiment import Loaded, experiments_folder, load_experiments

FOLDER = experiments_folder("dialects")
EXAMPLES = load_experiments(FOLDER)
LONGEST_S = 60


@pytest.fixture(scope="module")
def run() -> tuple[Result, float]:
    """All examples as a user sees them, run once; and the seconds that this process computed for them."""
    began = time.process_time()
    return CliRunner().invoke(main, ["demo", "dialects"]), time.process_time() - began


@pytest.fixture
def answer(run: tuple[Result, float]) -> Result:
    return run[0]


@pytest.mark.long
def test_every_example_does_what_it_promises(answer: Result) -> None:
    assert answer.exit_code == 0, answer.output
    assert f"\n{len(EXAMPLES)} of {len(EXAMPLES)} examples passed in " in answer.output


@pytest.mark.long
def test_it_takes_less_than_a_minute(run: tuple[Result, float]) -> None:
    assert run[1] < LONGEST_S


@pytest.mark.long
def test_the_table_has_a_row_for_every_expectation_and_fits_on_100_columns(answer: Result) -> None:
    lines = click.unstyle(answer.output).splitlines()
    checks = sum(step.is_checked for loaded in EXAMPLES for step in loaded.experiment.steps)
    assert sum(line.endswith(" ok") for line in lines) == checks
    assert [line for line in lines if len(line) > 100] == []


def test_json_says_what_was_seen() -> None:
    result = CliRunner().invoke(main, ["demo", "dialects", "--only", EXAMPLES[0].name, "-o", "json"])
    [example] = json.loads(result.stdout)
    assert (example["name"], example["passed"]) == (EXAMPLES[0].name, True)
    assert example["expectations"][-1]["seen"] == "A: 5 run"


@pytest.mark.parametrize("loaded", EXAMPLES, ids=lambda loaded: loaded.name)
def test_every_file_of_an_example_is_used_and_honoured(loaded: Loaded) -> None:
    steps = loaded.experiment.steps
    cluster = load_cluster(loaded.folder / loaded.experiment.configuration)
    jobs = {step.submit.file for step in steps if step.submit}
    objects = {step.create.file for step in steps if step.create}
    assert {path.name for path in loaded.folder.iterdir()} == jobs | objects | {"experiment.yaml"}
    assert [plan_jobs(str(loaded.folder / file), Submission("me", cluster=cluster))[1] for file in jobs] == [[]] * len(
        jobs
    )


def test_the_readme_lists_every_example() -> None:
    rows = (FOLDER / "README.md").read_text().splitlines()
    listed = [row.split("`")[1] for row in rows if row.startswith("| `")]
    assert listed == [loaded.folder.name for loaded in EXAMPLES]


def test_no_example_asks_in_the_words_of_hived() -> None:
    jobs = [path for path in FOLDER.glob("*/*.yaml") if path.name != "experiment.yaml"]
    assert [path.name for path in jobs if "pod-scheduling-spec" in path.read_text()] == []
