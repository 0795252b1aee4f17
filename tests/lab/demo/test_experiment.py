"""Experiments are read strictly, and those that come with hived are sound."""

from pathlib import Path

import pytest

from hived.values.errors import UserError
from hived_config.loader import load_cluster
from hived_jobs.submission import Submission
from hived_lab.demo.experiment import JobState, Loaded, Step, experiments_folder, load_experiments
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
EXPERIMENTS = load_experiments(experiments_folder())
PROMISED = {
    "vc-safety",
    "priority-and-preemption",
    "opportunistic",
    "gang",
    "incremental",
    "pinned-cells",
    "sku-types",
    "bad-node",
    "lazy-preemption",
    "reconfiguration",
}


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
            "step 2: nothing is checked; expected jobs, bad_nodes or podgroups",
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
    with pytest.raises(UserError, match="no experiment is named 'two'; there are one"):
        load_experiments(save(tmp_path, TEXT), ("two",))


def test_an_empty_folder_is_no_lab(tmp_path):
    with pytest.raises(UserError, match="no experiments found"):
        load_experiments(tmp_path)


def test_the_lab_has_every_promised_experiment():
    assert {loaded.name for loaded in EXPERIMENTS} == PROMISED


@pytest.mark.parametrize("loaded", EXPERIMENTS, ids=lambda loaded: loaded.name)
def test_every_file_of_an_experiment_is_used_and_sound(loaded: Loaded):
    steps = loaded.experiment.steps
    configurations = {loaded.experiment.configuration, *(step.reconfigure for step in steps if step.reconfigure)}
    jobs = {step.submit.file: step.submit.refused for step in steps if step.submit}
    assert {path.name for path in loaded.folder.iterdir()} == configurations | jobs.keys() | {"experiment.yaml"}
    for configuration in configurations:
        cluster = load_cluster(loaded.folder / configuration)
        for file, refused in jobs.items():
            if not refused:
                _, warnings = plan_file(str(loaded.folder / file), Submission(user="lab", cluster=cluster))
                assert warnings == []


@pytest.mark.parametrize("loaded", EXPERIMENTS, ids=lambda loaded: loaded.name)
def test_every_experiment_is_explained(loaded: Loaded):
    page = (ROOT / "docs" / "lab.md").read_text()
    assert f"| `{loaded.name}` |" in page


def test_every_key_of_an_experiment_is_explained():
    page = (ROOT / "docs" / "lab.md").read_text()
    missing = [key for key in (*Step.__struct_fields__, *JobState.__struct_fields__) if f"`{key}" not in page]
    assert missing == []
