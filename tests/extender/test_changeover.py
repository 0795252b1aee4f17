"""From plain kernels to compiled ones, beside a service that answers."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from hived.kernels.compiling import kernel_cache
from hived.kernels.jit import ENTRY_KERNELS
from hived_extender import warm
from hived_extender.warm import MODULES_WITH_KERNELS, Changeover
from tests.core.kernels.test_linked import say
from tests.places import ROOT

pytestmark = pytest.mark.sample(8)

WAIT_S = 300  # a process that imports numba, at low priority


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Kernels that are plain until they are loaded, from a compiler that says what a test wants."""
    known: dict[str, Any] = {"in_use": "plain", "entered": 0, "program": "print('1 2')", "can_load": True}

    def load(within: Any) -> bool:
        if known["can_load"]:
            with within():
                known["in_use"] = "compiled"
        return bool(known["can_load"])

    real = subprocess.Popen

    def popen(_command: list[str], **options: Any) -> Any:
        return real([sys.executable, "-c", known["program"]], **options)

    monkeypatch.setattr(warm, "kernels_in_use", lambda: known["in_use"])
    monkeypatch.setattr(warm, "has_plain_kernels", lambda: "plain" in known["in_use"])
    monkeypatch.setattr(warm, "may_compile", lambda: "plain" in known["in_use"])
    monkeypatch.setattr(warm, "load_kernels", load)
    monkeypatch.setattr(warm.subprocess, "Popen", popen)
    return known


def begin(state: dict[str, Any]) -> Changeover:
    @contextmanager
    def between_stimuli() -> Iterator[None]:
        state["entered"] += 1
        yield

    made = Changeover(between_stimuli)
    made.start()
    return made


def wait(made: Changeover) -> None:
    made._thread.join(WAIT_S)
    assert not made._thread.is_alive()


def test_the_page_counts_the_kernels_that_there_are() -> None:
    assert MODULES_WITH_KERNELS
    count = sum(kernel.__module__.startswith("hived") for kernel in ENTRY_KERNELS)
    assert set(re.findall(r"[0-9]+ of ([0-9]+)(?: plain)?`", (ROOT / "docs" / "http.md").read_text())) == {str(count)}


def test_kernels_are_used_once_they_are_compiled(state: dict[str, Any]) -> None:
    made = begin(state)
    wait(made)
    assert (made.describe(), state["entered"]) == ("compiled", 1)


def test_the_log_says_that_they_are_being_compiled_and_when_they_are(
    state: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    wait(begin(state))
    assert [each.getMessage() for each in caplog.records] == [
        "kernels are plain Python, which is slow, until they are compiled beside the service",
        "kernels are compiled",
    ]


def test_kernels_lie_where_the_service_reads_them_if_its_folder_cannot_be_used(
    state: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    folders = kernel_cache.find_folders()
    monkeypatch.setattr(kernel_cache, "kernel_folders", lambda: folders)
    state["program"] = (
        "from hived.kernels.compiling.kernel_cache import kernel_folders as f; (f()[0] / 'kernel').touch()"
    )
    wait(begin(state))
    assert [each.name for each in folders[0].iterdir()] == ["kernel"]


def test_what_is_quick_already_is_not_compiled(state: dict[str, Any]) -> None:
    state["in_use"] = "linked (avx2)"
    made = begin(state)
    assert (made.describe(), made._thread.ident) == ("linked (avx2)", None)
    made.stop()


@pytest.mark.parametrize("environ", [{"HIVED_KERNELS": "plain"}, {"NUMBA_DISABLE_JIT": "1"}])
def test_kernels_that_shall_stay_plain_are_never_compiled(environ: dict[str, str]) -> None:
    """Neither is the compiler loaded."""
    code = "import sys\nfrom contextlib import nullcontext\nfrom hived_extender.warm import Changeover\n"
    code += "made = Changeover(nullcontext)\nmade.start()\n"
    code += "print(made.describe(), made._thread.ident, 'numba' in sys.modules)"
    assert say(code, **environ)[0] == "plain None False\n"


def test_people_see_how_far_it_is(state: dict[str, Any]) -> None:
    state["program"] = "import time; print('3 24', flush=True); time.sleep(60)"
    made = begin(state)
    seen = threading.Event()
    for _ in range(WAIT_S * 10):
        if made.describe() == "plain, compiling 3 of 24" or seen.wait(0.1):
            break
    assert made.describe() == "plain, compiling 3 of 24"
    made.stop()
    wait(made)


def test_no_compiler_begins_once_the_changeover_has_been_stopped(
    state: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its thread was about to start one."""

    def folders() -> tuple[Path, ...]:
        for _ in range(WAIT_S * 10):
            if made._is_stopping or threading.Event().wait(0.1):
                break
        return (tmp_path,)

    monkeypatch.setattr(kernel_cache, "kernel_folders", folders)
    made = Changeover(nullcontext)
    made.start()
    made.stop()
    wait(made)
    assert made._process is None


@pytest.mark.usefixtures("state")
def test_nothing_begins_after_a_stop() -> None:
    made = Changeover(nullcontext)
    made.stop()
    made.start()
    assert made._thread.ident is None


def test_a_compiler_that_ignores_signals_to_end_is_ended(state: dict[str, Any]) -> None:
    state["program"] = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    state["program"] += "print('3 24', flush=True); time.sleep(60)"
    made = begin(state)
    for _ in range(WAIT_S * 10):
        if made.describe() == "plain, compiling 3 of 24" or threading.Event().wait(0.1):
            break
    made.stop()
    assert not made._thread.is_alive()


def test_the_compiler_imports_nothing_from_the_working_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kernel_cache, "kernel_folders", lambda: (tmp_path / "kernels",))
    monkeypatch.setattr(warm, "may_compile", lambda: True)
    monkeypatch.setattr(warm, "load_kernels", lambda within: True)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # it has nothing to compile then
    monkeypatch.chdir(tmp_path)
    (tmp_path / "msgspec.py").write_text("open('planted', 'w')")
    made = Changeover(nullcontext)
    made.start()
    wait(made)
    assert [each.name for each in tmp_path.iterdir()] == ["msgspec.py"]


def test_what_is_not_linked_is_compiled_beside_a_library(state: dict[str, Any]) -> None:
    state["in_use"] = "linked (avx2), 2 of 24 plain"
    state["program"] = "import time; print('1 2', flush=True); time.sleep(60)"
    made = begin(state)
    for _ in range(WAIT_S * 10):
        if "1 of 2" in made.describe() or threading.Event().wait(0.1):
            break
    assert made.describe() == "linked (avx2), 2 of 24 plain, compiling 1 of 2"
    made.stop()
    wait(made)


@pytest.mark.parametrize("failure", [{"program": "raise SystemExit(1)"}, {"can_load": False}])
def test_kernels_stay_plain_with_one_warning_where_they_cannot_be_compiled(
    state: dict[str, Any], failure: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING")
    state.update(failure)
    made = begin(state)
    wait(made)
    assert made.describe() == "plain"
    assert [each.getMessage() for each in caplog.records] == ["kernels stay plain Python, which is slow"]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise MemoryError('too little')", "MemoryError: too little"),
        ("import sys; sys.stderr.buffer.write(b'LLVM ERROR: \\xff'); sys.exit(1)", "LLVM ERROR: \ufffd"),
        ("print('hived: not kept: No space left on device'); print('24 were to be compiled')",
         "hived: not kept: No space left on device"),
        ("print('1 2'); print('24 were to be compiled')", ""),
    ],
    ids=["an_exception", "no_text", "a_full_disk", "nothing"],
)  # fmt: skip
def test_the_warning_has_the_line_that_says_why(
    state: dict[str, Any], caplog: pytest.LogCaptureFixture, program: str, why: str
) -> None:
    caplog.set_level("WARNING")
    state.update(program=program, can_load=False)
    wait(begin(state))
    assert [vars(each)["fields"]["error"] for each in caplog.records] == [why]


def test_stopping_ends_the_compiler(state: dict[str, Any]) -> None:
    state["program"] = "import time; print('3 24', flush=True); time.sleep(60)"
    made = begin(state)
    for _ in range(WAIT_S * 10):
        if made._process is not None:
            break
        threading.Event().wait(0.1)
    made.stop()
    wait(made)
    assert made._process is not None
    assert made._process.returncode != 0
    assert state["in_use"] == "plain"
