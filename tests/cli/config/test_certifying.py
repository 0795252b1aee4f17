"""Pushes with certificates, on an embedded cluster that keeps a record; all commands that push."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hived_cli import main
from hived_extender.api.inspection import ConfigClient, Inspector
from hived_extender.kube.client import KubeClient
from hived_lab.start import Embedded, start_embedded
from tests.extender.machine.small_cluster import wait_until

pytestmark = pytest.mark.sample(6)

NOW = """\
physicalCluster:
  cellTypes:
    NODE: {childCellType: GPU, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE, cellAddress: n0}
  - {cellType: NODE, cellAddress: n1}
  - {cellType: NODE, cellAddress: n2}
virtualClusters:
  a: {virtualCells: [{cellType: NODE, cellNumber: 2}]}
  b: {virtualCells: [{cellType: NODE, cellNumber: 1}]}
"""
LESS = NOW.replace("cellNumber: 2", "cellNumber: 1")
DEMANDING = f"certify: {{trace: jobs.csv}}\n{NOW}"
JOBS = "job,tenant,submitted_s,duration_s,gpus\nx,a,0,600,4\ny,a,0,600,4\nz,b,0,600,4\n"


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    folder = tmp_path_factory.mktemp("certified")
    (folder / "now.yaml").write_text(NOW)
    with start_embedded(folder / "now.yaml", record_dir=folder / "record") as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("now", NOW), ("less", LESS), ("demanding", DEMANDING), ("other", NOW + "# other\n")):
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def config(embedded: Embedded, *words: object) -> Result:
    return CliRunner().invoke(main, ["config", *map(str, words), "--server", embedded.extender.url])


def service(embedded: Embedded) -> ConfigClient:
    return ConfigClient(Inspector(embedded.extender.url))


@pytest.fixture(autouse=True)
def calm(embedded: Embedded, folder: Path) -> Iterator[None]:
    """Every test begins and ends with a cluster that demands nothing."""
    yield
    if service(embedded).current().text == NOW:
        return
    words = ["push", "-f", folder / "now.yaml", "--yes", "--certify", folder / "jobs.csv", "--certify-warn"]
    result = config(embedded, *words)
    assert result.exit_code == 0, result.output


def test_a_push_that_makes_jobs_wait_is_refused_unless_it_is_only_to_warn(embedded: Embedded, folder: Path) -> None:
    before = service(embedded).current().version
    words = ["push", "-f", folder / "less.yaml", "--yes", "--certify", folder / "jobs.csv"]
    result = config(embedded, *words)
    assert result.exit_code == 1
    assert "a: the mean delay of its 2 guaranteed jobs would have been 5 min instead of 0 s" in result.stdout
    assert "MEAN DELAY, MIN   NEW DELAY, MIN   LATER" in result.stdout
    assert "nothing was pushed, as the certificate says" in result.stderr
    assert service(embedded).current().version == before

    assert config(embedded, *words, "--certify-warn").exit_code == 0
    kept = service(embedded).current().certificate
    assert kept is not None
    assert (kept.verdict, kept.trace.name, kept.trace.jobs) == ("broken", "jobs.csv", 3)
    history = config(embedded, "history").stdout
    assert f"{before + 1}: promises broken: jobs.csv, 3 jobs" in history
    listed = json.loads(config(embedded, "history", "--format", "json").stdout)
    assert listed["items"][0]["certificate"]["vcs"][0]["newDelayS"] == 300.0
    assert "Broken promises" in config(embedded, "pull").stderr
    assert config(embedded, "pull").stdout == LESS


def test_more_percent_allow_more(embedded: Embedded, folder: Path) -> None:
    words = ["set-vc", "b", "NODE=0", "--yes", "--certify", folder / "jobs.csv"]
    assert "b: 1 guaranteed job would never have started" in config(embedded, *words).stdout
    assert config(embedded, *words, "--certify-percent", "1000").exit_code == 1


def test_a_cluster_that_demands_certificates_takes_nothing_without(embedded: Embedded, folder: Path) -> None:
    assert config(embedded, "push", "-f", folder / "demanding.yaml", "--yes").exit_code == 0
    result = config(embedded, "push", "-f", folder / "other.yaml", "--yes")
    assert (result.exit_code, "nothing was pushed: this cluster takes no push without a" in result.stderr) == (1, True)
    assert "push with --certify jobs.csv, or annotate the ConfigMap kube-system/hived-config with" in result.stderr
    result = config(embedded, "push", "-f", folder / "less.yaml", "--yes", "--certify", folder / "jobs.csv")
    assert (result.exit_code, "promises would be broken" in result.stderr) == (1, True)
    assert "config-allow-uncertified=true to do without once, and push without --certify" in result.stderr
    (folder / "jobs2.csv").write_text(JOBS)
    result = config(embedded, "push", "-f", folder / "other.yaml", "--yes", "--certify", folder / "jobs2.csv")
    assert (result.exit_code, "is of the trace jobs2.csv" in result.stderr) == (1, True)
    answer = Inspector(embedded.extender.url).ask("/v1/config", json.dumps({"text": NOW}).encode(), expected=(422,))
    assert answer[0] == 422
    assert "config-allow-uncertified=true to do without once" in json.loads(answer[1])["message"]


def test_once_a_push_may_do_without_if_the_config_map_says_so(embedded: Embedded, folder: Path) -> None:
    assert config(embedded, "push", "-f", folder / "demanding.yaml", "--yes").exit_code == 0
    with closing(KubeClient.connect(embedded.cluster.api_url)) as kube:
        mark = {"metadata": {"annotations": {"hivedscheduler.microsoft.com/config-allow-uncertified": "true"}}}
        kube.patch("/api/v1/namespaces/kube-system/configmaps/hived-config", mark)
    wait_until(lambda: service(embedded).current().may_lack_certificate)
    words = ["push", "-f", folder / "other.yaml", "--yes"]
    assert config(embedded, *words).exit_code == 0
    assert service(embedded).current().text == NOW + "# other\n"
    assert service(embedded).current().may_lack_certificate is False


def test_every_command_that_pushes_can_certify(embedded: Embedded, folder: Path) -> None:
    certify = ["--yes", "--certify", folder / "jobs.csv", "--certify-warn"]
    for words in (
        ["move", "1", "NODE", "from", "a", "to", "b"],
        ["rollback"],
        ["remove-vc", "b"],
        ["set-vc", "b", "NODE=1"],
    ):
        result = config(embedded, *words, *certify)
        assert result.exit_code == 0, result.output
        assert service(embedded).current().certificate is not None, words


def test_days_are_those_of_the_services_record(embedded: Embedded, folder: Path) -> None:
    result = config(embedded, "push", "-f", folder / "less.yaml", "--yes", "--certify", "2d")
    assert result.exit_code == 0, result.output
    kept = service(embedded).current().certificate
    assert kept is not None
    assert (kept.trace.name, kept.trace.days, kept.trace.jobs) == ("record", 2.0, 0)


def test_jobs_of_the_record_are_replayed(embedded: Embedded, folder: Path, tmp_path: Path) -> None:
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": 4}}}
    for name in ("first", "second"):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}
        (tmp_path / f"{name}.json").write_text(json.dumps(pod))
        where = ["--api-server", embedded.cluster.api_url, "--server", embedded.extender.url]
        result = CliRunner().invoke(main, ["submit", str(tmp_path / f"{name}.json"), "--vc", "a", *where])
        assert result.exit_code == 0, result.output
    wait_until(lambda: len(Inspector(embedded.extender.url).groups()) == 2)
    result = config(embedded, "push", "-f", folder / "other.yaml", "--yes", "--certify", "2d")
    assert result.exit_code == 0, result.output
    kept = service(embedded).current().certificate
    assert kept is not None
    assert (kept.trace.name, kept.trace.jobs, [one.vc for one in kept.vcs]) == ("record", 2, ["a"])
    with closing(KubeClient.connect(embedded.cluster.api_url)) as kube:
        for name in ("first", "second"):
            kube.delete_pod("default", name, grace_period_s=0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--certify", "no-such-file"], "there is no such file; expected the file of a trace, or days of record"),
        (["--certify", "0d"], "expected the file of a trace, or days of record from 1d to 366d"),
        (["--certify", "999d"], "--certify 999d: expected at most 366d"),
        (["--certify-warn"], "expected --certify TRACE or DAYSd too"),
        (["--certify", "jobs.csv", "--record", "."], "--record is for --certify DAYSd"),
        (["--certify", "less.yaml"], "it is one of them, name it with --certify-format"),
        (["--certify", "jobs.csv", "--certify-tenants", "x"], "--certify-tenants 'x': expected TENANT=VC"),
    ],
)
def test_mistakes_change_nothing(
    embedded: Embedded, folder: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = service(embedded).current().version
    result = config(embedded, "push", "-f", "less.yaml", "--yes", *words)
    assert (result.exit_code != 0, message in result.stderr) == (True, True), result.output
    assert service(embedded).current().version == before


def test_an_edit_of_a_file_is_no_push(folder: Path, embedded: Embedded) -> None:
    result = config(embedded, "set-vc", "a", "NODE=1", "-f", folder / "now.yaml", "--certify", "1d", "--yes")
    assert "--certify are for pushes" in result.stderr
