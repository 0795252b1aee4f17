"""What is said of the folder that compiled kernels are kept in."""

from pathlib import Path

import pytest

from tests.core.kernels.test_linked import say

CODE = "from hived_extender.warm import load_kernels\nfor _ in range(2): load_kernels()"


def said(folder: Path) -> list[str]:
    """The lines on stderr of a process that is to keep compiled kernels there."""
    return say(CODE, HIVED_KERNELS="compiled", NUMBA_CACHE_DIR=str(folder))[1].splitlines()


@pytest.mark.long
def test_a_folder_that_can_be_used_needs_no_line(tmp_path: Path) -> None:
    assert said(tmp_path / "new") == []


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("place", "why"),
    [("file", "File exists"), ("file/below", "Not a directory"), ("/proc/nope", "No such file or directory")],
)
def test_a_folder_that_cannot_be_made_is_named_once_with_the_reason(tmp_path: Path, place: str, why: str) -> None:
    (tmp_path / "file").touch()
    (line,) = said(tmp_path / place)
    assert line.startswith(f"hived: compiled kernels are not kept: {tmp_path / place}: {why}. Name a folder")


@pytest.mark.long
def test_a_folder_that_others_may_write_to_is_named_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    (line,) = said(tmp_path)
    assert line.startswith("hived: no compiled kernels are loaded or kept: others may write to")
