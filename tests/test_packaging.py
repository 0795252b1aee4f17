"""The wheel works by itself: it is installed into an empty environment by the very script that the Dockerfile runs.

There may be no network here. So the libraries that hived depends on are those of the environment that runs the tests;
a path file makes them visible to the empty one. Path files are not followed from there, so this checkout, which the
development environment knows by one, stays invisible: hived itself can only come from the wheel.
"""

import hashlib
import os
import platform
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from delivery.bills import LICENCES, SBOM, make_bills
from hived import __version__
from tests.places import ROOT

PACKAGES = {"hived": "hived", "hived_config": "config/hived_config", "hived_extender": "extender/hived_extender"}
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def empty_environment(root: Path) -> Path:
    """A virtual environment that sees the libraries of the present one, but not this checkout."""
    venv.create(root, with_pip=False, symlinks=True)
    libraries = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages(root) / "libraries.pth").write_text("\n".join(libraries))
    return root


@pytest.fixture(scope="module")
def delivery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `make wheel` leaves dist/."""
    if "HIVED_IMAGE" not in os.environ:
        pytest.skip("the wheel is built and installed, which takes a minute: make test-image")
    folder = tmp_path_factory.mktemp("dist")
    make_wheel(folder)
    return folder


def make_wheel(folder: Path) -> Path:
    """Build the wheel as `make wheel` does."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT / ".ci")}
    subprocess.run([sys.executable, "-m", "delivery", "wheel", folder], env=environ, cwd=ROOT, check=True)
    return wheel_in(folder)


def wheel_in(folder: Path) -> Path:
    """The wheel for this machine: it has linked kernels, and is for any Python of its ABI."""
    (wheel,) = folder.glob(f"*-cp311-abi3-manylinux*_{platform.machine()}.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(delivery: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and nothing else of ours."""
    root = empty_environment(tmp_path_factory.mktemp("installed") / "venv")
    install = [root / "bin" / "python", "-m", "pip", "install", "--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*install, wheel_in(delivery)], check=True)
    return root


@pytest.fixture
def bare(installed: Path, tmp_path: Path) -> dict[str, str]:
    """Variables of somebody with an empty home, and no program on PATH but those of the wheel: no compiler."""
    return {"PATH": f"{installed}/bin", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that becomes /opt/hived in the image."""
    if "HIVED_IMAGE" not in os.environ:
        pytest.skip("making the image links all kernels once more, which takes a minute: make test-image")
    root = empty_environment(tmp_path_factory.mktemp("image") / "hived")
    offline = {"PIP_NO_INDEX": "1"}  # so that it fails unless the very versions that are locked are there
    build = [ROOT / ".ci" / "build-image-root", root]
    subprocess.run(build, env={**os.environ, **offline, "PYTHON": sys.executable}, check=True)
    return root


def site_packages(root: Path) -> Path:
    """Where a virtual environment keeps its packages."""
    return root / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def run(image: Path, *command: str) -> str:
    """The output of a command of the image, with the environment of the image and somewhere else than the checkout."""
    environ = {"PATH": f"{image}/bin:/usr/bin:/bin", "HOME": "/nonexistent"}
    return subprocess.run(command, cwd=image, env=environ, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_the_wheel_is_the_same_bytes_twice(delivery: Path, tmp_path: Path) -> None:
    once, again = (hashlib.sha256(each.read_bytes()).hexdigest() for each in (wheel_in(delivery), make_wheel(tmp_path)))
    assert once == again


def test_linked_kernels_use_no_newer_c_library_than_the_tag_of_their_wheel_says(delivery: Path) -> None:
    for wheel in delivery.glob("*manylinux*.whl"):
        (allowed,) = re.findall(r"manylinux_(\d+_\d+)_", wheel.name)
        with zipfile.ZipFile(wheel) as content:
            library = content.read("hived/_kernels.abi3.so")
        used = [number.decode() for number in re.findall(rb"\0GLIBC_([^\0]+)", library)]
        assert used
        assert max(tuple(map(int, each.split("."))) for each in used) <= tuple(map(int, allowed.split("_")))


def test_the_wheel_carries_its_bill_of_materials(delivery: Path) -> None:
    with zipfile.ZipFile(wheel_in(delivery)) as content:
        carried = content.read(f"hivedscheduler-{__version__}.dist-info/sboms/{SBOM}")
    assert carried == (delivery / SBOM).read_bytes()


def test_the_licences_lie_beside_the_wheel(delivery: Path) -> None:
    assert (delivery / LICENCES).read_text() == make_bills()[LICENCES]


def test_the_demo_passes_from_the_wheel_with_an_empty_home_and_no_compiler(
    installed: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    shown = subprocess.run(
        [installed / "bin" / "hived", "demo"], env=bare, cwd=tmp_path, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout + shown.stderr


def test_the_example_is_simulated_from_the_wheel(installed: Path, bare: dict[str, str], tmp_path: Path) -> None:
    shown = subprocess.run(
        [installed / "bin" / "hived", "simulate", "philly"], env=bare, cwd=tmp_path, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "No guaranteed job starts later" in (tmp_path / "philly-results" / "report.html").read_text()


def test_a_cluster_is_served_from_the_wheel_with_an_empty_home(
    installed: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    sample = str(ROOT / "config" / "samples" / "racks.yaml")
    serve = [str(installed / "bin" / "hived"), "serve", "--embedded", sample, "--listen", "127.0.0.1:0"]
    with subprocess.Popen(serve, env=bare, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert any("pods are scheduled" in line for line in server.stdout)
        finally:
            server.terminate()


def test_the_program_runs_from_the_wheel(image: Path) -> None:
    assert run(image, "hived", "version").startswith("hived ")
    places = run(
        image, "python", "-c", f"import {', '.join(PACKAGES)}; print(*[m.__file__ for m in ({', '.join(PACKAGES)})])"
    )
    assert all(Path(place).is_relative_to(site_packages(image)) for place in places.split())


def test_the_wheel_has_the_version_of_the_checkout(image: Path) -> None:
    assert [path.name for path in site_packages(image).glob("hivedscheduler-*.dist-info")] == [
        f"hivedscheduler-{__version__}.dist-info"
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
    assert (site_packages(image) / "hived_deploy" / "manifests" / "overlays" / "tls").is_dir()


IMPORTS = """
import sys
import hived_extender.running
from hived.kernels import linked
print(linked.variant(), *sorted({"numba", "llvmlite"} & sys.modules.keys()))
"""


def test_the_kernels_of_the_image_are_linked_and_need_no_compiler(image: Path) -> None:
    (variant,) = run(image, "python", "-c", IMPORTS).split()
    assert variant in {"avx512", "avx2", "baseline"}


def test_the_kernels_of_the_wheel_are_linked_and_need_no_compiler(
    installed: Path, bare: dict[str, str], tmp_path: Path
) -> None:
    asked = [installed / "bin" / "python", "-c", IMPORTS]
    (variant,) = subprocess.run(asked, env=bare, cwd=tmp_path, stdout=-1, text=True, check=True).stdout.split()
    assert variant in {"avx512", "avx2", "baseline"}


def test_there_is_a_wheel_without_kernels_for_every_other_platform(delivery: Path) -> None:
    assert [path.name for path in delivery.glob("*-any.whl")] == [f"hivedscheduler-{__version__}-py3-none-any.whl"]


def test_the_image_carries_the_bill_of_materials_and_the_licences(image: Path) -> None:
    assert {name: (image / name).read_text() for name in (SBOM, LICENCES)} == make_bills()


def test_the_dockerfile_runs_what_is_tested_here() -> None:
    assert "RUN PYTHON=python .ci/build-image-root /opt/hived\n" in DOCKERFILE


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
