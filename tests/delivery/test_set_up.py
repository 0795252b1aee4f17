"""A demo needs a tenth of the packages, and what the others are for says so where they are not there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from delivery.bills import read_lock
from hived_extender.kube.packages import LATE
from hived_lab.embedded.cluster import kubeconfig_text
from tests.places import ROOT

WITHOUT = "import sys; sys.modules |= dict.fromkeys({}, None); from hived_cli import main; main(prog_name='hived')"


def hived(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command in a Python that has none of the packages that come late."""
    path = os.pathsep.join(filter(None, sys.path))
    proxies = dict.fromkeys(("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"), "")
    command = [sys.executable, "-c", WITHOUT.format(sorted(LATE)), *words]
    wanted = {**os.environ, "PYTHONPATH": path, **proxies, **environment}
    return subprocess.run(command, env=wanted, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_demo_runs_without_compiler_official_client_and_certificates() -> None:
    result = hived("demo", "--only", "vc-safety", NUMBA_DISABLE_JIT="1")
    assert (result.returncode, "1 of 1 experiments passed" in result.stdout) == (0, True), result.stderr


def test_the_lock_of_a_demo_is_a_part_of_the_whole_one_without_these() -> None:
    demo, whole = read_lock("demo.lock"), read_lock("dev.lock")
    assert {name: each["version"] for name, each in demo.items()}.items() <= {
        name: each["version"] for name, each in whole.items()
    }.items()
    assert not demo.keys() & LATE.keys()
    assert whole.keys() >= LATE.keys()


@pytest.mark.parametrize(
    ("words", "package"),
    [
        (["certificates", "--out", "out"], "cryptography"),
        (["delete", "train", "--kubeconfig", "with-token"], "kubernetes"),
    ],
)
def test_a_command_that_needs_one_names_it_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], package: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "with-token").write_text(kubeconfig_text("http://127.0.0.1:1", "a-token"))
    result = hived(*words)
    told = f"the package {package} is not installed, and this needs it: make setup in a checkout"
    assert (result.returncode, told in result.stderr, "Traceback" in result.stderr) == (1, True, False), result.stderr


def test_a_kubeconfig_without_credentials_needs_none(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text(kubeconfig_text("http://127.0.0.1:1"))
    result = hived("delete", "train", "--yes", KUBECONFIG=str(tmp_path / "kubeconfig"), HIVED_SERVER="127.0.0.1:1")
    assert (result.returncode, "http://127.0.0.1:1" in result.stderr) == (1, True), result.stderr
    assert "is not installed" not in result.stderr


def test_kernels_that_nobody_can_compile_stay_plain_and_say_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    program = (
        "import sys; sys.modules |= dict.fromkeys(('numba', 'llvmlite'), None); "
        "from hived.kernels import linked; linked._library = lambda: None; "
        "from hived_extender import warm; warm.compile_kernels(); print(warm.may_compile(), warm.kernels_in_use())"
    )
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout == "False plain\n"
    assert "kernels are plain Python, which is slow: none are linked, and numba is not installed" in result.stderr


def set_up(lock: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / ".ci" / "set_up.py"), str(lock), "--no-index", "--dry-run"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_setting_up_says_how_far_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text("".join(pins("msgspec", "numpy")))
    result = set_up(tmp_path / "a.lock")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1].startswith("  100 %  ")


def test_setting_up_shows_what_pip_says_if_it_fails(tmp_path: Path) -> None:
    (tmp_path / "a.lock").write_text("no-such-package==0.1 --hash=sha256:" + 64 * "0" + "\n")
    result = set_up(tmp_path / "a.lock")
    assert (result.returncode, "100 %" in result.stdout) == (1, False)
    assert "No matching distribution found for no-such-package==0.1" in result.stderr


def pins(*names: str) -> list[str]:
    """Lines of a lock for packages that are installed as it says."""
    return [f"{name}=={read_lock('dev.lock')[name]['version']} --hash=sha256:{64 * '0'}\n" for name in names]
