"""Every kernel can be compiled ahead of time."""

import re
from pathlib import Path

import numba
import pytest

import hived
from hived import warm
from hived.jit import ENTRY_KERNELS
from tests.core.kernels import IS_INTERPRETED


def test_every_entry_kernel_in_the_sources_is_compiled() -> None:
    sources = Path(hived.__file__).parent.glob("*.py")
    names = [name for s in sources for name in re.findall(r"^@entry_kernel\ndef (\w+)", s.read_text(), re.M)]
    assert warm.compile_kernels() == len(names)
    assert sorted(kernel.__name__ for kernel in ENTRY_KERNELS) == sorted(names)


@pytest.mark.skipif(IS_INTERPRETED, reason="nothing is compiled")
def test_a_kernel_that_the_story_misses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    @numba.njit
    def forgotten() -> None:
        pass

    monkeypatch.setattr(warm, "ENTRY_KERNELS", [*ENTRY_KERNELS, forgotten])
    with pytest.raises(RuntimeError, match="kernels that were not compiled: forgotten"):
        warm.compile_kernels()


def test_the_command_says_how_many_kernels_are_ready(capsys: pytest.CaptureFixture[str]) -> None:
    warm.main()
    assert re.fullmatch(rf"{len(ENTRY_KERNELS)} kernels ready after [\d.]+ s\n", capsys.readouterr().err)
