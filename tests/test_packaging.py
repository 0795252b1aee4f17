"""The wheel works by itself: it is installed into an empty environment by the very script that the Dockerfile runs.

There may be no network here. So the libraries that hived depends on are those of the environment that runs the tests;
a path file makes them visible to the empty one. Path files are not followed from there, so this checkout, which the
development environment knows by one, stays invisible: hived itself can only come from the wheel.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from hived import __version__
from tests.places import ROOT

PACKAGES = {"hived": "hived", "hived_config": "config/hived_config", "hived_extender": "extender/hived_extender"}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that becomes /opt/hived in the image."""
    if "HIVED_IMAGE" not in os.environ:
        pytest.skip("making the image links all kernels once more, which takes a minute: make test-image")
    root = tmp_path_factory.mktemp("image") / "hived"
    venv.create(root, with_pip=False, symlinks=True)
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages(root) / "libraries.pth").write_text("\n".join(libraries))
    offline = {"PIP_NO_INDEX": "1"}  # so that it fails unless the very versions that are locked are there
    build = [ROOT / ".ci" / "build-image-root", root]
    subprocess.run(build, env={**os.environ, **offline, "PYTHON": sys.executable}, check=True)
    return root


def site_packages(root: Path) -> Path:
    """Where a virtual environment keeps its packages."""
    return root / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def run(image: Path, *command: str) -> str:
    """The output of a command of the image, with the environment of the image and somewhere else than the checkout."""
    environ = {"PATH": f"{image}/bin:/usr/bin:/bin"}
    return subprocess.run(command, cwd=image, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_the_program_runs_from_the_wheel(image: Path) -> None:
    assert run(image, "hived", "version").startswith("hived ")
    places = run(
        image, "python", "-c", f"import {', '.join(PACKAGES)}; print(*[m.__file__ for m in ({', '.join(PACKAGES)})])"
    )
    assert all(Path(place).is_relative_to(site_packages(image)) for place in places.split())


def test_the_wheel_has_the_version_of_the_checkout(image: Path) -> None:
    assert [path.name for path in site_packages(image).glob("hived_scheduler-*.dist-info")] == [
        f"hived_scheduler-{__version__}.dist-info"
    ]


def test_the_wheel_carries_every_file_of_the_packages(image: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "--", *PACKAGES.values()], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    ).stdout.split("\n")
    if not any(tracked):
        pytest.skip("this is no git checkout, so what belongs to the packages is not known")
    missing = [
        name
        for package, folder in PACKAGES.items()
        for name in tracked
        if name.startswith(f"{folder}/")
        and (ROOT / name).exists()
        and not (site_packages(image) / package / Path(name).relative_to(folder)).exists()
    ]
    assert not missing


def test_a_configuration_is_validated_from_the_wheel(image: Path) -> None:
    samples = sorted(str(path) for path in (ROOT / "config" / "samples").glob("*.yaml"))
    assert run(image, "hived", "config", "validate", *samples).count(": valid") == len(samples)


def test_the_manifests_are_printed_from_the_wheel(image: Path) -> None:
    sample = str(ROOT / "config" / "samples" / "racks.yaml")
    printed = run(image, "hived", "manifests", "--one-scheduler", "--config", sample)
    assert printed.count("kind: Deployment") == 2
    assert (site_packages(image) / "hived_extender" / "deploy" / "manifests" / "overlays" / "tls").is_dir()


def test_the_kernels_are_linked_and_no_compiler_is_imported(image: Path) -> None:
    code = "import sys, hived_extender.running\nfrom hived.jit import kernels_in_use\n"
    code += "print(kernels_in_use().split()[0], [name for name in ('numba', 'llvmlite') if name in sys.modules])"
    assert run(image, "python", "-c", code) == "linked []\n"


def test_the_dockerfile_runs_what_is_tested_here() -> None:
    assert "RUN PYTHON=python .ci/build-image-root /opt/hived\n" in DOCKERFILE
    assert "apt-get install --yes --no-install-recommends gcc libc6-dev\n" in DOCKERFILE


def test_the_image_installs_only_what_is_locked() -> None:
    script = (ROOT / ".ci" / "build-image-root").read_text()
    assert "--require-hashes --requirement .ci/requirements.lock" in script
    assert "--require-hashes --requirement /tmp/build.lock" in DOCKERFILE
    installs = [
        line for line in (script + DOCKERFILE).splitlines() if "pip install" in line or line.startswith('"${pip')
    ]
    assert len(installs) == 4


def test_the_kernels_of_the_image_belong_to_root() -> None:
    """So that they are loaded whatever user id the container gets, and cannot be changed by the service."""
    assert "chown" not in DOCKERFILE


def test_the_image_runs_as_a_user_without_rights() -> None:
    users = [line.split()[1] for line in DOCKERFILE.splitlines() if line.startswith("USER ")]
    assert users == ["10001:10001"]
