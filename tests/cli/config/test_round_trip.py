"""256 described nodes -> `hived config generate` -> a service that runs them -> and back, all by commands."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from hived_cli import main
from hived_lab.start import Embedded, start_embedded
from tests.config.generating import machine_room as room

NEWS = re.compile(" is a new virtual cluster$|^no namespace may use ")
LEVELS = ("--levels", f"{room.ZONE},{room.BLOCK},{room.RACK}")


def config(*words: object) -> tuple[int, str]:
    """Exit code and standard output of a command; whatever is on standard error is a failure."""
    result = CliRunner().invoke(main, ["config", *map(str, words)])
    told = [line for line in result.stderr.splitlines() if not NEWS.search(line)]
    assert told in ([], ["waiting until it is in force ..."])
    return result.exit_code, result.stdout


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nodes") / "nodes.json"
    path.write_text(json.dumps({"kind": "List", "items": room.hall(racks=2)}))
    return path


@pytest.fixture(scope="module")
def made(nodes: Path) -> Path:
    path = nodes.with_name("hivedscheduler.yaml")
    exit_code, text = config("generate", "--nodes", nodes, *LEVELS, "--vc", "research=60%", "--vc", "prod=40%")
    assert exit_code == 0
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def embedded(made: Path) -> Iterator[Embedded]:
    with start_embedded(made) as running:
        yield running


@pytest.fixture
def at(embedded: Embedded) -> tuple[str, str]:
    return "--server", embedded.extender.url


IDENTICAL = "identical: nothing changes against version {}\n"


def test_what_is_generated_is_valid_and_comes_back_as_it_was(made: Path, at: tuple[str, str], tmp_path: Path) -> None:
    assert config("validate", made) == (0, f"{made}: valid, cell chains A100-ZONE, V100-ZONE; 2 virtual clusters\n")
    assert config("plan", made, *at) == (0, IDENTICAL.format(1))
    commented = tmp_path / "commented.yaml"
    commented.write_text(made.read_text() + "# the same\n")
    assert config("push", "-f", commented, "--yes", *at) == (0, f"{IDENTICAL.format(1)}version 2 is in force\n")
    assert config("pull", "-o", tmp_path, *at) == (0, f"{tmp_path / 'hivedscheduler.yaml'}: version 2\n")
    assert (tmp_path / "hivedscheduler.yaml").read_text() == commented.read_text()
    assert config("plan", tmp_path / "hivedscheduler.yaml", *at) == (0, IDENTICAL.format(2))
    assert config("diff", commented, *at) == (0, "")


@pytest.mark.long
def test_what_is_moved_and_moved_back_is_identical(made: Path, at: tuple[str, str]) -> None:
    before = config("pull", *at)[1]
    for words in (
        ("move", 1, "A100-ZONE.A100-BLOCK", "from", "research", "to", "prod"),
        ("move", 1, "A100-ZONE.A100-BLOCK", "from", "prod", "to", "research"),
        ("set-vc", "prod", "A100-NODE=2"),
        ("set-vc", "interns", "V100-NODE=0", "A100-NODE=1"),
        ("remove-vc", "interns"),
        ("set-vc", "prod", "A100-NODE=3"),
    ):
        exit_code, text = config(*words, "--yes", *at)
        assert (exit_code, "is in force" in text) == (0, True), text
    assert config("pull", *at) == (0, before)
    assert config("plan", made, *at)[1].startswith("identical: ")


def test_the_nodes_of_the_service_become_a_configuration_that_comes_back_too(
    embedded: Embedded, at: tuple[str, str], tmp_path: Path
) -> None:
    cluster = ("--api-server", embedded.cluster.api_url)
    live = tmp_path / "live.yaml"
    live.write_text(config("generate", *cluster)[1])
    assert f"{{nvidia.com/gpu.product: {room.A100}}}" in live.read_text()
    assert config("sync", *cluster, *at)[1].endswith(": all nodes are up to date\n")
    assert config("validate", live)[0] == 0
    assert config("push", "-f", live, "--yes", *at)[0] == 0
    assert config("plan", live, *at)[1].startswith("identical: ")
    assert config("generate", *cluster)[1] == live.read_text()
    assert config("sync", *cluster, *at)[1].endswith(": all nodes are up to date\n")
