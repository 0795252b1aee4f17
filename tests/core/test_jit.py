"""Where compiled kernels are kept, also where nothing can be written or nobody is at home."""

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numba
import pytest

from hived import jit
from tests.core.kernels import IS_INTERPRETED


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without a name, as in a container that runs with an arbitrary user id."""
    for variable in ("HOME", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 2)


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where temporary folders are made during the test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_kernels_are_kept_in_the_folder_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    folder = jit._cache_folder()
    assert folder.is_dir()
    assert folder.parent == tmp_path / "named"


def test_kernels_are_kept_in_the_users_cache_folder_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jit._cache_folder().parent == tmp_path / "hived"


def test_the_users_cache_folder_is_below_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jit._cache_folder().parent == tmp_path / ".cache" / "hived"


@pytest.mark.usefixtures("no_home")
def test_kernels_are_kept_in_a_temporary_folder_for_a_user_without_a_home(temporary_folder: Path) -> None:
    assert jit._cache_folder().parent == temporary_folder


def test_kernels_are_kept_in_a_temporary_folder_where_the_named_one_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary_folder: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    assert jit._cache_folder().parent == temporary_folder


def test_kernels_compiled_beforehand_are_copied_from_a_folder_that_is_read_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary_folder: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (jit._cache_folder() / "placement.pick-1.nbi").write_text("compiled")

    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    folder = jit._cache_folder()
    assert folder.parent == temporary_folder
    assert (folder / "placement.pick-1.nbi").read_text() == "compiled"


def test_an_edit_of_any_source_file_means_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for source in Path(jit.__file__).parent.glob("*.py"):
        shutil.copy(source, tmp_path)
    before = jit._source_digest()
    monkeypatch.setattr(jit, "__file__", str(tmp_path / "jit.py"))
    assert jit._source_digest() == before
    with (tmp_path / "buddy.py").open("a") as copy:
        copy.write("\n")
    assert jit._source_digest() != before


@pytest.mark.skipif(IS_INTERPRETED, reason="nothing is compiled")
def test_only_entry_kernels_are_kept_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "ENTRY_KERNELS", [])

    def double(number: int) -> int:
        return 2 * number

    helper: Any = jit.kernel(double)
    entry: Any = jit.entry_kernel(double)
    assert type(helper._cache) is numba.core.caching.NullCache
    assert type(entry._cache) is numba.core.caching.FunctionCache


@pytest.mark.skipif(not IS_INTERPRETED, reason="kernels are compiled")
def test_kernels_are_plain_functions_when_compiling_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "ENTRY_KERNELS", [])

    def double(number: int) -> int:
        return 2 * number

    assert jit.kernel(double) is double
    assert jit.entry_kernel(double) is double


def test_the_kernels_of_old_versions_are_removed_when_a_new_one_comes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for age in range(2 * jit.KEPT_FOLDERS):
        folder = tmp_path / f"kernels-{age:016x}"
        folder.mkdir()
        os.utime(folder, (1e9 - age, 1e9 - age))
    new = jit._cache_folder()
    kept = {f"kernels-{age:016x}" for age in range(jit.KEPT_FOLDERS - 1)}
    assert {folder.name for folder in tmp_path.iterdir()} == kept | {new.name}


def test_what_others_keep_beside_the_kernels_is_not_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    others = {"kernels-of-mine", "kernels-v2", "other"} | {f"kernels-{year}" for year in range(2000, 2020)}
    for name in others:
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (0, 0))
    new = jit._cache_folder()
    assert {folder.name for folder in tmp_path.iterdir()} == others | {new.name}


def test_a_version_that_is_in_use_counts_as_new(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = jit._cache_folder()
    os.utime(folder, (0, 0))
    assert jit._cache_folder() == folder
    assert folder.stat().st_mtime > 0
