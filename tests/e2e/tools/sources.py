"""Sources of other projects that tests read: their own definitions of the objects and words that hived reads.

`READ` has the modules by the folder beside this file that pins them. HIVED_PUBLISHED overrides pins for a try, such as
"sigs.k8s.io/jobset@v0.11.0", with spaces between several. Of a module that several folders pin it overrides the last.
"""

import json
import os
import re
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tests.e2e.tools import MODULES, Say, ToolsMissing, toolchain

_KUBERNETES = ("k8s.io/api", "k8s.io/apimachinery")
READ: dict[str, tuple[str, ...]] = {
    "controllers": (
        "github.com/kubeflow/trainer/v2",
        "github.com/kubeflow/training-operator",
        "github.com/ray-project/kuberay/ray-operator",
        "sigs.k8s.io/jobset",
        "sigs.k8s.io/lws",
        "sigs.k8s.io/scheduler-plugins",
    ),
    "mpi-operator": ("github.com/kubeflow/mpi-operator",),
    "published": ("github.com/NVIDIA/KAI-scheduler", "github.com/koordinator-sh/koordinator", "volcano.sh/apis"),
    "v1.33": (*_KUBERNETES, "k8s.io/kube-scheduler"),
    "kueue": (*_KUBERNETES, "sigs.k8s.io/kueue"),
    "v1.36": (*_KUBERNETES, "k8s.io/kube-scheduler"),
    "v1.37": (*_KUBERNETES, "k8s.io/kube-scheduler"),
    "v1.38": (*_KUBERNETES, "k8s.io/kube-scheduler"),
}
"""By folder; Kubernetes' own versions ascending."""

KUBERNETES = ("v1.33", "kueue", "v1.36", "v1.37", "v1.38")
"""Folders with Kubernetes 1.33 and 1.35 to 1.38."""


def pinned(folder: str, module: str) -> str:
    """The version of a module that is read."""
    if module in _overrides() and folder == [each for each, modules in READ.items() if module in modules][-1]:
        return _overrides()[module]
    found = re.findall(rf"(?m)^(?:require )?\s*{re.escape(module)} (?:=> \S+ )?(v\S+)", _text(folder, "go.mod"))
    assert found, f"{folder}/go.mod does not pin {module}"
    return str(found[-1])  # a replacement stands last


def source(folder: str, module: str) -> Path | None:
    """Where the module of that version is, None if it has not been fetched, or not yet to its end."""
    escaped = re.sub("[A-Z]", lambda letter: f"!{letter[0].lower()}", module)  # as the cache of Go does
    base = Path(os.environ.get("GOMODCACHE") or Path(os.environ.get("GOPATH") or Path.home() / "go") / "pkg" / "mod")
    version = pinned(folder, module)
    found = base / f"{escaped}@{version}"
    marks = base / "cache" / "download" / escaped / "@v"
    whole = (marks / f"{version}.ziphash").is_file() and not (marks / f"{version}.partial").exists()
    return found if whole and found.is_dir() else None


def fetch(say: Say) -> None:
    """Fetch every module of `READ` that is not here. What is pinned is checked by its go.sum. Raises ToolsMissing."""
    unread = [module for module in _overrides() if not any(module in modules for modules in READ.values())]
    if unread:
        raise ToolsMissing(f"HIVED_PUBLISHED names {', '.join(unread)}, of which nothing is read")
    for folder, modules in READ.items():
        for module in modules:
            if source(folder, module) is None:
                say(f"fetching {module} {pinned(folder, module)}")
                _fetch(folder, module)


def _fetch(folder: str, module: str) -> None:
    version = pinned(folder, module)
    command = ["go", "mod", "download", "-json", f"{module}@{version}"]
    environment = os.environ | toolchain(folder)
    with tempfile.TemporaryDirectory() as outside:  # in a module it would change that one's go.sum
        try:
            done = subprocess.run(command, cwd=outside, capture_output=True, text=True, check=False, env=environment)
        except OSError as error:
            raise ToolsMissing(f"Go cannot be run: {error}") from None
    found = json.loads(done.stdout or "{}")
    if done.returncode:
        raise ToolsMissing(f"{module} {version} cannot be fetched: {found.get('Error') or done.stderr.strip()}")
    if module not in _overrides() and f"{module} {version} {found['Sum']}" not in _text(folder, "go.sum").splitlines():
        raise ToolsMissing(f"{module} {version} is {found['Sum']}, which is not what {folder}/go.sum says")


def _overrides() -> dict[str, str]:
    words = [each.rpartition("@") for each in os.environ.get("HIVED_PUBLISHED", "").split()]
    return {module: version for module, _, version in words}


@cache
def _text(folder: str, name: str) -> str:
    return (MODULES / folder / name).read_text()
