"""The file of the past: kept over restarts, bounded, and never in anybody's way."""

import logging
import sqlite3
from pathlib import Path

import pytest

from hived_extender.insight.store import CORRUPT, Store

TABLE = "CREATE TABLE IF NOT EXISTS numbers (number INTEGER PRIMARY KEY, text TEXT)"
INSERT = "INSERT OR REPLACE INTO numbers VALUES (?, ?)"
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
