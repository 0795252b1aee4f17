"""`hived demo` on real embedded clusters: all passes as shipped, and what is wrong is reported as wrong."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from hived_cli import demo, main
from hived_extender.api.inspection import Inspector
from hived_extender.kube.client import PODS, KubeClient, pod_path
from hived_lab.demo import runner
from hived_lab.demo.experiment import experiments_folder
from hived_lab.demo.observer import failures
from hived_lab.embedded.nodes import RUN_SECONDS
from tests.programs import HIVED, hived

LAB = experiments_folder()
LONE_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: lone
  annotations:
    hivedscheduler.microsoft.com/pod-scheduling-spec: "{virtualCluster: vision, leafCellNumber: 1}"
spec:
  containers:
  - {name: main, image: none}
"""


@pytest.fixture(scope="module")
def story() -> Result:
    """The whole lab as a user sees it, run once."""
    return CliRunner().invoke(main, ["demo"])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["demo", *arguments])


def changed(tmp_path: Path, name: str, old: str, new: str) -> str:
    """A folder with one experiment that differs from the shipped one."""
    folder = next(LAB.glob(f"*-{name}"))
    shutil.copytree(folder, tmp_path / folder.name)
    file = tmp_path / folder.name / "experiment.yaml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    return str(tmp_path)


def test_every_experiment_passes(story):
    assert story.exit_code == 0, story.output
    assert re.search(r"\n10 of 10 experiments passed in \d+ s, the start of all services included", story.output)


def test_the_time_counts_from_the_start_of_the_program(monkeypatch):
    monkeypatch.setattr(demo, "BEGAN_S", time.monotonic() - 1000)
    found = re.search(r"\n1 of 1 experiments passed in (\d+) s", run("--only", "gang").output)
    assert found is not None
    assert int(found[1]) >= 1000


def test_the_story_fits_on_100_columns(story):
    assert [line for line in click.unstyle(story.output).splitlines() if len(line) > 100] == []


def test_the_story_says_what_was_submitted_expected_and_seen(story):
    part = click.unstyle(story.output).split("4/10  Gang")[1].split("5/10")[0]
    assert "submit   B: gang.yaml, 2 tasks of 2 GPUs as a gang, VC vision, prod" in part
    assert "because  one of its two tasks would fit, but it could do nothing alone" in part
    # On a busy machine the two tasks are seen to wait one after the other, and told of apart.
    assert re.search(r"AA     \.\.     B[01]? waits: needs 2 nodes of 2 ", part)
    assert "BB     BB     " in part
    assert "pass     after " in part


def test_nothing_but_the_story_is_printed(story):
    assert story.stderr == ""


def test_a_wrong_expectation_fails_with_what_was_found_and_exit_code_1(tmp_path):
    wrong = "A: {running: 1}\n- expect: more of it runs\n  jobs: {A: {running: 2}}\n  within_s: 0.1"
    folder = changed(tmp_path, "gang", "A: {running: 1}", wrong)
    result = run("--from", folder)
    assert result.exit_code == 1
    assert "  FAIL     1 of A running, expected 2\n" in click.unstyle(result.output)
    assert "0 of 1 experiments passed" in result.output


def test_an_expectation_that_does_not_last_fails(tmp_path, monkeypatch):
    def end_what_runs(step, observer, moment):
        found = failures(step, observer, moment)
        if not found:
            observer.kube.patch(pod_path("default", "lone"), {"metadata": {"annotations": {RUN_SECONDS: "0"}}})
        return found

    monkeypatch.setattr(runner, "failures", end_what_runs)
    steps = "- submit: {job: A, file: lone-pod.yaml}\n- expect: A runs on\n  jobs: {A: {running: 1}}\n  hold_s: 600\n"
    folder = changed(tmp_path, "gang", "steps:\n", "steps:\n" + steps)
    next(tmp_path.glob("*-gang")).joinpath("lone-pod.yaml").write_text(LONE_POD)
    result = run("--from", folder, "-o", "json")
    [experiment] = json.loads(result.stdout)
    assert (result.exit_code, experiment["passed"]) == (1, False)
    assert experiment["expectations"][0]["found"][0].startswith("0 of A running, expected 1, after ")


def test_a_job_that_should_be_refused_but_is_accepted_fails(tmp_path):
    folder = changed(tmp_path, "pinned-cells", "file: trespasser.yaml", "file: on-fast-disk.yaml")
    result = run("--from", folder, "-o", "json")
    [experiment] = json.loads(result.stdout)
    assert (result.exit_code, experiment["passed"]) == (1, False)
    assert experiment["expectations"][-1]["found"] == [
        "it was accepted, expected \"VC speech has no pinned cell 'FAST-DISK'\" in the answer"
    ]


def test_a_step_that_cannot_be_done_fails_the_experiment(tmp_path):
    result = run("--from", changed(tmp_path, "bad-node", "fail: gpu-b", "fail: gpu-z"), "-o", "json")
    [experiment] = json.loads(result.stdout)
    assert (result.exit_code, experiment["passed"]) == (1, False)
    assert "gpu-z" in experiment["error"]


@pytest.mark.parametrize(
    ("words", "name", "seen"), [((), "sku-types", "(known: K80)"), (("dialects",), "tfjob", "A: 5 run")]
)
def test_json_has_every_expectation_of_the_experiment_and_what_was_seen(words, name, seen):
    result = run(*words, "--only", name, "-o", "json")
    [experiment] = json.loads(result.stdout)
    assert (result.exit_code, experiment["name"], experiment["passed"]) == (0, name, True)
    assert all(one["passed"] for one in experiment["expectations"])
    assert experiment["expectations"][-1]["seen"].endswith(seen)


def test_the_list_names_every_experiment():
    names = [line.split()[0] for line in run("--list").output.splitlines()[1:]]
    assert names == [folder.name.split("-", 1)[1] for folder in sorted(LAB.iterdir())]


def test_an_unknown_experiment_is_refused():
    result = run("--only", "nothing")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: no experiment is named 'nothing'; there are vc-safety, ")


@pytest.mark.long
def test_keep_leaves_the_cluster_up_until_it_is_interrupted(tmp_path):
    log = tmp_path / "demo.log"
    words = ["demo", "--keep", "--only", "sku-types", "--log", str(log)]
    with hived(*words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as demo:
        assert demo.stderr is not None
        variables = {}
        for line in demo.stderr:
            if line.startswith("  export "):
                name, _, value = line.split()[1].partition("=")
                variables[name] = value
            if "Ctrl-C" in line:
                break
        names = [cell.name for cell in Inspector(variables["HIVED_SERVER"]).physical_cluster()]
        pods = KubeClient.connect(kubeconfig=variables["KUBECONFIG"]).list_objects(PODS, dict).items
        shown = subprocess.run(
            [*HIVED, "get", "vc", "vision"],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        demo.send_signal(signal.SIGINT)
        assert demo.wait(timeout=60) == 0
    assert names == ["k80-a", "k80-b", "v100-a"]
    assert len(pods) == 3
    assert [line.split()[-1] for line in shown.stdout.splitlines()[1:3]] == ["k80-a", "v100-a"]
    assert '"outcome":"bind"' in log.read_text()
