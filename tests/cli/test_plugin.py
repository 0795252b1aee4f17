"""`kubectl hived`: kubectl runs `kubectl-hived`, and `kubectl_complete-hived` for completion."""

import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

from tests.cli.waiting_service import WaitingService
from tests.places import ROOT

PROGRAMS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]


@pytest.fixture(scope="module")
def service() -> Iterator[WaitingService]:
    with WaitingService() as found:
        yield found


def program(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of the wheel, run as an installer's script runs it."""
    module, _, function = PROGRAMS[name].partition(":")
    script = f"import sys; sys.argv[0] = {name!r}; from {module} import {function}; sys.exit({function}())"
    return subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False)


def test_the_plugin_runs_the_same_commands_and_says_how_it_is_called(service: WaitingService) -> None:
    told = program("kubectl-hived", "get", "jobs", "gang", "--server", service.url)
    assert (told.returncode, "podgroup/lab/gang" in told.stdout) == (0, True)
    said = program("kubectl-hived", "get", "jobs", "--help").stdout
    assert said.startswith("Usage: kubectl hived get jobs ")
    assert "\n    kubectl hived get jobs --waiting --vc research\n" in said
    assert "kubectl kubectl" not in said
    wrong = program("kubectl-hived", "frobnicate")
    assert (wrong.returncode, "Try 'kubectl hived --help' for help." in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "word", "last"),
    [
        (["ge"], "get\tShow the cluster, virtual clusters, jobs, nodes or affinity groups.", ":4"),
        (["get", ""], "cluster\tShow every node: health, use, and one character per GPU.", ":4"),
        (["why", "--server", "URL", "podgroup/"], "podgroup/lab/gang\tWaiting, vision", ":4"),
        (["submit", ""], None, ":0"),
        ([], "version\tShow the version of hived and of what it runs on.", ":4"),
    ],
)
def test_kubectl_completes_commands_and_names(
    service: WaitingService, words: list[str], word: str | None, last: str
) -> None:
    asked = [service.url if each == "URL" else each for each in words]
    *found, end = program("kubectl_complete-hived", *asked).stdout.splitlines()
    assert (word is None or word in found, end) == (True, last)
