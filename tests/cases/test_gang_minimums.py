"""A gang whose minimum is less than its pods starts with any of them that fit (rule 26.4)."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hived_cli import main
from tests.cases.played import Played, nodes_config, pod
from tests.expecting import expect_soon

pytestmark = pytest.mark.sample(3)

CONFIG = nodes_config(2)

VOLCANO_JOB = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: j, namespace: default}
spec:
  minAvailable: 2
  schedulerName: hived
  tasks:
  - name: large
    replicas: 1
    minAvailable: 0
    template:
      spec:
        restartPolicy: Never
        containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 2}}}]
  - name: small
    replicas: 2
    minAvailable: 0
    template:
      spec:
        restartPolicy: Never
        containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def koordinator(name: str, gpus: int, **spec: Any) -> dict[str, Any]:
    """A pod of a gang of three whose minimum is two."""
    prefix = "gang.scheduling.koordinator.sh/"
    notes = {f"{prefix}name": "g", f"{prefix}min-available": "2", f"{prefix}total-number": "3"}
    return pod(name, gpus, annotations=notes, **spec)


def volcano(name: str, gpus: int, **spec: Any) -> dict[str, Any]:
    """The same in the words of Volcano."""
    notes = {"scheduling.k8s.io/group-name": "g", "scheduling.volcano.sh/group-min-member": "2"}
    return pod(name, gpus, annotations=notes, **spec)


@pytest.mark.parametrize("made", [koordinator, volcano])
def test_the_two_that_fit_start_and_the_large_one_waits(played: Played, made: Any) -> None:
    played.create(made("w1-0", 2), made("w2-0", 1), made("w2-1", 1))
    played.expect_running("w2-0", "w2-1")
    assert set(played.running_pods()) == {"w2-0", "w2-1"}
    assert not played.why("w1-0").never


def test_so_it_is_with_a_large_one_that_can_never_run(played: Played) -> None:
    played.create(koordinator("w1-0", 4), koordinator("w2-0", 1), koordinator("w2-1", 1))
    played.expect_running("w2-0", "w2-1")
    assert played.why("w1-0").never


def test_a_pod_that_no_node_suits_is_passed_over(played: Played) -> None:
    played.create(koordinator("w-0", 1, nodeSelector={"disk": "none"}), koordinator("w-1", 1), koordinator("w-2", 1))
    played.expect_running("w-1", "w-2")
    assert "disk" in played.why("w-0").sentence


def test_a_full_cluster_is_waited_for_without_never(played: Played) -> None:
    played.create(pod("first", 2))
    played.expect_running("first")
    played.create(koordinator("w1-0", 2), koordinator("w2-0", 1), koordinator("w2-1", 1))
    assert not played.why("w2-0").never
    played.delete("first")
    played.expect_running("w2-0", "w2-1")


def test_none_starts_alone_where_no_two_fit(played: Played) -> None:
    played.create(pod("first", 1))
    played.expect_running("first")
    played.create(koordinator("w1-0", 2), koordinator("w2-0", 1), koordinator("w2-1", 1))
    assert not played.why("w2-0").never
    assert set(played.running_pods()) == {"first"}


@pytest.mark.parametrize(
    ("made", "cpus"), [(koordinator, ("16", "2", "2")), (volcano, ("2", "16", "2")), (koordinator, ("100", "2", "2"))]
)
def test_of_pods_without_devices_the_two_start_that_fit_together(
    played: Played, made: Any, cpus: tuple[str, ...]
) -> None:
    names = [f"w-{number}" for number in range(3)]
    played.create(*(made(name, 0, requests={"cpu": cpu}) for name, cpu in zip(names, cpus, strict=True)))
    small = [name for name, cpu in zip(names, cpus, strict=True) if cpu == "2"]
    played.expect_running(*small)
    assert set(played.running_pods()) == set(small)


def test_pods_without_devices_start_beside_those_with_devices(played: Played) -> None:
    played.create(*(koordinator(f"w-{n}", n, requests={"cpu": cpu}) for n, cpu in enumerate(("15", "2", "2"))))
    played.create(koordinator("w-3", 0, requests={"cpu": "2"}))
    played.expect_running("w-1", "w-3")
    assert "w-0" not in played.running_pods()


def test_a_foreign_pod_that_has_the_cpus_decides_which_of_them_start(played: Played) -> None:
    played.create(pod("first", 0, requests={"cpu": "8"}))
    played.expect_running("first")
    cpus = ("10", "4", "4")
    played.create(*(koordinator(f"w-{n}", 0, requests={"cpu": cpu}) for n, cpu in enumerate(cpus)))
    played.expect_running("w-1", "w-2")
    assert "w-0" not in played.running_pods(), "the other two leave too few CPUs for it beside the foreign pod"
    played.delete("first")
    played.delete("w-1")
    played.expect_running("w-0", "w-2")
    assert set(played.running_pods()) == {"w-0", "w-2"}, "the large one has the CPUs of both pods that are gone"


def test_host_ports_of_pods_without_devices_decide_too(played: Played) -> None:
    for number, port in enumerate((80, 80, 81)):
        made = koordinator(f"w-{number}", 0, requests={"cpu": "1"})
        made["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": port}]
        played.create(made)
    played.expect_running("w-0", "w-2")
    assert "w-1" not in played.running_pods()


def submit(played: Played, file: Path, *options: str) -> Any:
    """`hived submit` of a file into this cluster."""
    where = ["--api-server", played.running.cluster.api_url, "--server", played.running.extender.url]
    return CliRunner().invoke(main, ["submit", str(file), *where, "--vc", "default", *options])


def test_a_dry_run_starts_the_pods_that_fit_and_lets_the_other_wait(played: Played, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(VOLCANO_JOB)
    result = submit(played, file, "--dry-run")
    rows = [line.split()[:2] for line in result.stdout.splitlines() if line.startswith("j-")]
    assert rows == [["j-large-0", "wait"], ["j-small-0", "run"], ["j-small-1", "run"]], result.output
    assert result.exit_code == 3


def test_submit_creates_the_job_and_two_of_its_pods_run(played: Played, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(VOLCANO_JOB)
    result = submit(played, file)
    assert result.exit_code == 0, result.output
    expect_soon(lambda: set(played.running_pods()) == {"j-small-0", "j-small-1"})


def test_a_dry_run_says_never_where_no_two_could_run(played: Played, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(VOLCANO_JOB.replace("nvidia.com/gpu: 1", "nvidia.com/gpu: 2"))
    result = submit(played, file, "--dry-run")
    assert "it can never run" in result.stdout, result.output
    assert result.exit_code == 4
