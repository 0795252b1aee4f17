"""The file of the past: kept over restarts, bounded, and never in anybody's way."""

import logging
import multiprocessing
import os
import resource
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from hived_extender.insight.store import CORRUPT, FileLock, Store

TABLE = "CREATE TABLE IF NOT EXISTS numbers (number INTEGER PRIMARY KEY, text TEXT)"
INSERT = "INSERT OR REPLACE INTO numbers VALUES (?, ?)"
NOBODY = 65534
ALL = "SELECT number, text FROM numbers ORDER BY number"


def opened(path: Path | None, most_bytes: int = 1 << 20) -> Store:
    store = Store(path, most_bytes=most_bytes)
    store.define(TABLE)
    return store


def test_rows_survive_a_restart(tmp_path: Path) -> None:
    store = opened(tmp_path / "past.db")
    assert store.write(INSERT, [(1, "a"), (2, "b")])
    store.close()
    again = opened(tmp_path / "past.db")
    assert again.read(ALL) == [(1, "a"), (2, "b")]
    assert again.where == str(tmp_path / "past.db")


def test_without_a_path_everything_is_in_memory() -> None:
    store = opened(None)
    store.write(INSERT, [(1, "a")])
    assert (store.read(ALL), store.where) == ([(1, "a")], "")


def test_a_folder_that_is_a_file_leaves_memory_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "taken").write_text("")
    with caplog.at_level(logging.WARNING):
        store = opened(tmp_path / "taken" / "past.db")
    assert store.write(INSERT, [(1, "a")])
    assert store.where == ""
    assert "kept in memory only" in caplog.text


def test_a_file_that_is_no_database_is_renamed_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "past.db"
    path.write_bytes(b"not a database at all" * 400)
    with caplog.at_level(logging.WARNING):
        store = opened(path)
    assert store.write(INSERT, [(1, "a")])
    assert (tmp_path / f"past.db{CORRUPT}").read_bytes().startswith(b"not a database")
    assert "begun anew" in caplog.text


def test_a_file_that_breaks_while_it_is_used_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "past.db"
    store = opened(path)
    store.write(INSERT, [(number, "x" * 500) for number in range(200)])
    store.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(bytes(content))
    again = opened(path)
    assert again.read(ALL) == []
    assert again.write(INSERT, [(1, "a")])
    assert again.read(ALL) == [(1, "a")]


def test_the_file_is_bounded_and_goes_on_once_there_is_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(tmp_path / "past.db", most_bytes=128 * 1024)
    with caplog.at_level(logging.WARNING):
        assert not store.write(INSERT, [(number, "x" * 1000) for number in range(1000)])
        assert not store.write(INSERT, [(number, "x" * 1000) for number in range(1000)])
    assert caplog.text.count("for now") == 1
    assert store.read(ALL) == []
    assert store.write(INSERT, [(1, "a")])
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 6 * 1024 * 1024


def test_a_wrong_row_writes_none_of_them() -> None:
    store = opened(None)
    assert not store.write("INSERT INTO numbers VALUES (?, ?)", [(1, "a"), (1, "b")])
    assert store.read(ALL) == []


def test_another_process_that_locks_the_file_costs_a_write_only(tmp_path: Path) -> None:
    path = tmp_path / "past.db"
    store = opened(path)
    other = sqlite3.connect(path)
    other.execute("BEGIN IMMEDIATE")
    assert not store.write(INSERT, [(1, "a")])
    other.rollback()
    assert store.write(INSERT, [(1, "a")])


def test_a_closed_store_answers_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path / "past.db")
    store.close()
    assert not store.write(INSERT, [(1, "a")])
    assert store.read(ALL) == []


def test_one_process_at_a_time_writes_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "past.db"
    first, second = opened(path), opened(path)
    assert first.write(INSERT, [(1, "a")])
    with caplog.at_level(logging.WARNING):
        assert not second.write(INSERT, [(1, "b")])
        assert not second.write(INSERT, [(2, "b")])
    assert caplog.text.count("another process writes its file") == 1
    assert second.read(ALL) == [(1, "a")]
    first.release()
    assert second.write(INSERT, [(2, "b")])
    assert not first.write(INSERT, [(3, "a")])
    second.close()
    assert first.write(INSERT, [(3, "a")])
    assert first.read(ALL) == [(1, "a"), (2, "b"), (3, "a")]


def test_a_broken_file_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "past.db"
    path.write_bytes(b"not a database at all" * 400)
    other = FileLock(tmp_path / "past.db.lock")
    assert other.take()
    store = opened(path)
    assert store.where == ""
    assert store.write(INSERT, [(1, "a")])
    assert path.read_bytes().startswith(b"not a database")
    other.release()
    assert opened(path).where == str(path)
    assert (tmp_path / f"past.db{CORRUPT}").exists()


def test_a_file_that_another_process_began_anew_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "past.db"
    first = opened(path)
    first.write(INSERT, [(1, "a")])
    second = opened(path)
    first.release()
    path.rename(tmp_path / "elsewhere.db")
    assert first.write(INSERT, [(2, "a")])
    assert second.read(ALL) == [(2, "a")]


def test_rows_of_other_types_are_skipped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = opened(tmp_path / "past.db")
    store.write(INSERT, [(1, "a"), (2, b"\xff"), (3, None), (4, "d")])
    with caplog.at_level(logging.WARNING):
        assert store.read(ALL, tuple[int, str]) == [(1, "a"), (4, "d")]
    assert caplog.text.count("are skipped") == 1


def in_child(work: Callable[[], object]) -> object:
    """The result of a function in a forked process, which may lose rights that nothing gives back."""
    with multiprocessing.get_context("fork").Pool(1, initializer=_note, initargs=(work,)) as pool:
        return pool.apply(_work)


_noted: list[Callable[[], object]] = []


def _note(work: Callable[[], object]) -> None:
    _noted.append(work)


def _work() -> object:
    return _noted[0]()


def test_a_full_disk_costs_writes_only(tmp_path: Path) -> None:
    path = tmp_path / "past.db"

    def fill() -> object:
        store = opened(path)
        written = store.write(INSERT, [(1, "a")])
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, limits[1]))
        is_full = [store.write(INSERT, [(number, "x" * 1000) for number in range(2, 2000)]) for _ in range(2)]
        found = store.read(ALL), store.where
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        return written, is_full, found, store.write(INSERT, [(2, "b")]), store.read(ALL)

    assert in_child(fill) == (True, [False, False], ([(1, "a")], str(path)), True, [(1, "a"), (2, "b")])


@pytest.mark.parametrize("has_file", [False, True])
def test_a_folder_that_is_read_only_leaves_memory(tmp_path: Path, has_file: bool) -> None:
    folder = tmp_path / "past"
    folder.mkdir()
    if has_file:
        store = opened(folder / "past.db")
        store.write(INSERT, [(1, "a")])
        store.close()
        (folder / "past.db").chmod(0o444)
    folder.chmod(0o555)

    def use() -> object:
        os.chdir(folder)
        if os.geteuid() == 0:  # for root nothing is read-only
            os.setuid(NOBODY)
        store = opened(Path("past.db"))
        return store.write(INSERT, [(2, "b")]), store.read(ALL), store.where

    assert in_child(use) == (True, [(2, "b")], "")
    assert sorted(each.name for each in folder.iterdir()) == (["past.db", "past.db.lock"] if has_file else [])
