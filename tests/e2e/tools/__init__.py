"""Programs of a real control plane, built once from pinned Go modules into a cache folder; etcd is Debian's package.

A folder beside this file is a Go module whose `go.mod` pins what is built and whose `tools.go` names it. The cache is
`$XDG_CACHE_HOME/hived/e2e` (`~/.cache` by default), one folder per module and digest of what decides its content. So a
change of a pin builds anew, and everything else is a look-up.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

DEFAULT = "v1.36"
VERSIONS = ("v1.33", "v1.36", "v1.37")
"""The Kubernetes versions that can be built; the tests run on DEFAULT unless HIVED_E2E_VERSIONS lists others."""

MODULES = Path(__file__).parent
KUBERNETES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
CONTROLLERS = {
    "jobset": "sigs.k8s.io/jobset",
    "kuberay": "github.com/ray-project/kuberay/ray-operator",
    "lws": "sigs.k8s.io/lws/cmd",
    "trainer": "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
    "training-operator": "github.com/kubeflow/training-operator/cmd/training-operator.v1",
}
"""The controllers of jobs, by the name of their program: the package that it is made of."""

APART = {
    "kueue": "sigs.k8s.io/kueue/cmd/kueue",
    "mpi-operator": "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
}
"""The same for those that need other versions of libraries: each has a module of its own, of its name."""

Say = Callable[[str], None]


class ToolsMissing(Exception):
    """Something that the tools are made from cannot be had here; the message says what, and how to get it."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Where the programs are: `tools / "kube-apiserver"` is a path."""

    version: str
    kubernetes: Path
    kwok: Path
    etcd: Path

    def __truediv__(self, name: str) -> Path:
        folder = {"kwok": self.kwok, "etcd": self.etcd}.get(name, self.kubernetes)
        return folder / name


def wanted_versions() -> tuple[str, ...]:
    """The versions that HIVED_E2E_VERSIONS lists, with commas between. Raises ToolsMissing for one without a pin."""
    wanted = tuple(os.environ.get("HIVED_E2E_VERSIONS", DEFAULT).split(","))
    unknown = [version for version in wanted if version not in VERSIONS]
    if unknown:
        raise ToolsMissing(f"HIVED_E2E_VERSIONS names {', '.join(unknown)}; there are pins for {', '.join(VERSIONS)}")
    return wanted


def find(version: str) -> Tools:
    """The tools of one version, if all of them are in the cache. Raises ToolsMissing."""
    return _tools(version, build=False, say=lambda _: None)


def build(version: str, say: Say) -> Tools:
    """The tools of one version, built now as far as they are not in the cache.

    Raises ToolsMissing if something is needed that is not there, CalledProcessError if the compiler refuses the code.
    """
    return _tools(version, build=True, say=say)


def find_controller(name: str) -> Path:
    """A program of CONTROLLERS or APART, if it is in the cache. Raises ToolsMissing."""
    module = _module_of(name)
    return _kept(module, _RECIPES[module], False, lambda _: None) / name


def build_controllers(say: Say) -> None:
    """Build the programs of CONTROLLERS and APART that are not in the cache; raises as `build`."""
    for module, recipe in _RECIPES.items():
        _kept(module, recipe, True, say)


def find_helm() -> Path:
    """Helm, if it is in the cache. Raises ToolsMissing."""
    return _kept("helm", _HELM, False, lambda _: None) / "helm"


def build_helm(say: Say) -> Path:
    """Helm, built now if it is not in the cache; raises as `build`."""
    return _kept("helm", _HELM, True, say) / "helm"


def controller_source(name: str, module: str) -> Path:
    """The folder of the Go module that a controller is built from, with its manifests. Raises ToolsMissing."""
    found = _run_in(_module_of(name), "go", "mod", "download", "-json", module)
    if found.returncode:
        raise ToolsMissing(_why_not_listed(found.stderr))
    return Path(json.loads(found.stdout)["Dir"])


def cache_folder() -> Path:
    """Where built tools are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hived" / "e2e"


def _tools(version: str, *, build: bool, say: Say) -> Tools:
    pinned = re.search(r"k8s.io/kubernetes (v\S+)", (MODULES / version / "go.mod").read_text())
    assert pinned, f"{version}/go.mod does not pin k8s.io/kubernetes"
    commands = {name: f"k8s.io/kubernetes/cmd/{name}" for name in KUBERNETES}
    return Tools(
        version=pinned[1],
        kubernetes=_kept(version, _Go(version, commands, _version_flags(pinned[1])), build, say),
        kwok=_kept("kwok", _Go("kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, ""), build, say),
        etcd=_etcd(build, say),
    )


def _version_flags(version: str) -> str:
    """Linker flags: modules do not know their own version, and clients ask for it."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{key}={value}" for package in packages for key, value in values.items())


@dataclass(frozen=True, slots=True)
class _Go:
    """The targets of one module: programs, and the packages that they are made of."""

    module: str
    commands: dict[str, str]
    linker_flags: str

    @property
    def key(self) -> str:
        digest = hashlib.sha256(" ".join((self.linker_flags, *self.commands.values())).encode())
        for name in ("go.mod", "go.sum"):
            digest.update((MODULES / self.module / name).read_bytes())
        return digest.hexdigest()[:16]

    def make(self, folder: Path, say: Say) -> None:
        if shutil.which("go") is None:
            raise ToolsMissing("Go is not installed; get it from https://go.dev/dl or with: apt-get install golang-go")
        say(f"fetching the modules of {self.module}")
        listed = self._run("go", "list", "-deps", "-f", "", *self.commands.values())
        if listed.returncode:
            raise ToolsMissing(_why_not_listed(listed.stderr))
        say(f"building {', '.join(self.commands)} of {self.module}: minutes at first")
        flags = f"-s -w {self.linker_flags}"
        for name, package in self.commands.items():
            built = self._run("go", "build", "-trimpath", "-ldflags", flags, "-o", f"{folder}/{name}", package)
            if built.returncode:
                raise subprocess.CalledProcessError(built.returncode, built.args, stderr=built.stderr)
            say(f"built {name}")

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return _run_in(self.module, *command)


def _run_in(module: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a command with the Go that the module asks for, which Go fetches where it is another one."""
    environment = os.environ | toolchain(module)
    return subprocess.run(command, cwd=MODULES / module, capture_output=True, text=True, check=False, env=environment)


def toolchain(module: str) -> dict[str, str]:
    """The environment in which Go is the one that a module asks for."""
    asked = re.search(r"^toolchain (\S+)$", (MODULES / module / "go.mod").read_text(), re.MULTILINE)
    return {"GOTOOLCHAIN": asked[1]} if asked else {}


def _module_of(name: str) -> str:
    return name if name in APART else "controllers"


_RECIPES = {
    "controllers": _Go("controllers", CONTROLLERS, ""),
    **{name: _Go(name, {name: package}, "") for name, package in APART.items()},
}
_HELM = _Go("helm", {"helm": "helm.sh/helm/v4/cmd/helm"}, "")


def _why_not_listed(output: str) -> str:
    last = output.strip().splitlines()[-1] if output.strip() else "no message"
    if re.search(r"requires go >=|unknown directive|invalid go version", output):
        return f"Go is too old: {last}; get a newer one from https://go.dev/dl"
    return f"the Go modules cannot be fetched: {last}; set GOPROXY to a module proxy that can be reached"


def _kept(name: str, recipe: "_Go | _Debian", build: bool, say: Say) -> Path:
    """The folder with what a recipe makes, made now if need be; a half-made one is never seen."""
    folder = cache_folder() / f"{name}-{recipe.key}"
    if folder.is_dir():
        return folder
    if not build:
        option = " --controllers" if name in _RECIPES else {"helm": " --helm"}.get(name, "")
        raise ToolsMissing(f"{name} has not been built; run: python -m tests.e2e.tools{option}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
        target = Path(unfinished) / "bin"
        target.mkdir()
        recipe.make(target, say)
        try:
            target.rename(folder)
        except OSError:  # another process was quicker
            if not folder.is_dir():
                raise
    return folder


@dataclass(frozen=True, slots=True)
class _Debian:
    """One file of a Debian package, taken out of it without installing it."""

    package: str
    program: str
    folder: str = "usr/bin"

    @property
    def key(self) -> str:
        return "debian"

    def make(self, folder: Path, say: Say) -> None:
        missing = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
        if missing:
            raise ToolsMissing(f"{self.program} is not on PATH and there is no {missing[0]} to get it with; install it")
        say(f"fetching Debian's {self.package}")
        with tempfile.TemporaryDirectory() as work:
            refused = self._download(work)
            if refused:
                subprocess.run(["apt-get", "update"], capture_output=True, check=False)
                refused = self._download(work)
            if refused:
                raise ToolsMissing(f"apt-get cannot download {self.package}: {refused}; or install {self.program}")
            package = next(Path(work).glob("*.deb"))
            subprocess.run(["dpkg", "-x", package, work], check=True)
            shutil.copy(Path(work) / self.folder / self.program, folder / self.program)

    def _download(self, work: str) -> str:
        """Why the package could not be downloaded; empty if it was."""
        command = ["apt-get", "download", "-o", "APT::Sandbox::User=root", self.package]
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
        return (done.stderr.strip().splitlines() or ["no message"])[-1] if done.returncode else ""


def faketime(say: Say = lambda _: None) -> Path:
    """A library that shows the programs which load it another time; fetched if it is not in the cache.

    Raises ToolsMissing.
    """
    library = _Debian("libfaketime", "libfaketimeMT.so.1", f"usr/lib/{sysconfig.get_config_var('MULTIARCH')}/faketime")
    return _kept("libfaketime", library, True, say) / library.program


def _etcd(build: bool, say: Say) -> Path:
    installed = shutil.which("etcd")
    return Path(installed).parent if installed else _kept("etcd", _Debian("etcd-server", "etcd"), build, say)
