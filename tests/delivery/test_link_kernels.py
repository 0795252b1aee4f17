"""The hook that links kernels into a wheel asks an isolated build for all that it imports, and for nothing else."""

import os
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from hatchling.build import get_requires_for_build_wheel
from packaging.requirements import Requirement

from tests.places import ROOT

OURS = "hivedscheduler"
IMPORT_OTHERS_NEVER = "import sys; sys.modules.update(dict.fromkeys(sys.argv[1:])); import hived_extender.build"


@pytest.fixture(autouse=True)
def build_of_a_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build in the checkout, for which nothing is chosen."""
    monkeypatch.chdir(ROOT)
    for name in ("HIVED_WHEEL", "HIVED_BUILD_PYTHON"):
        monkeypatch.delenv(name, raising=False)


def test_an_isolated_build_has_versions_that_hived_itself_needs() -> None:
    wanted = {Requirement(each) for each in get_requires_for_build_wheel()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "numba" in {each.name for each in wanted}
    assert wanted <= {Requirement(each) for each in project["dependencies"]}


def test_translating_imports_nothing_that_an_isolated_build_lacks() -> None:
    installed = {Requirement(each).name for each in get_requires_for_build_wheel()}
    others = [
        name for name, by in metadata.packages_distributions().items() if not (installed | {OURS}).intersection(by)
    ]
    assert "flask" in others
    path = os.pathsep.join(str(ROOT / each) for each in (".", "config", "extender"))
    command = [sys.executable, "-c", IMPORT_OTHERS_NEVER, *others]
    subprocess.run(command, env=os.environ | {"PYTHONPATH": path, "NUMBA_DISABLE_JIT": "0"}, check=True)


@pytest.mark.parametrize(("name", "value"), [("HIVED_WHEEL", "pure"), ("HIVED_BUILD_PYTHON", "/python")])
def test_nothing_is_installed_for_a_build_that_translates_nothing(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert get_requires_for_build_wheel() == []
