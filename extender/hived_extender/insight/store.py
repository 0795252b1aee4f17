"""One small SQLite file that keeps what is learned of the past: samples of the cluster, and durations of jobs.

It is a convenience, never a condition: without a path, or where the path cannot be written, everything is kept in
memory. A file that is no sound database is renamed to `FILE.corrupt` with a warning, and a new one is begun. A write
that fails is dropped, with one warning until a write succeeds again. Owners of tables bound their rows; the file itself
is bounded too. Thread-safe; other processes may read the file.
"""

import contextlib
import logging
import os
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

log = logging.getLogger(__name__)

Row: TypeAlias = tuple[Any, ...]

MOST_BYTES = 64 * 1024 * 1024
"""Of the file; a write beyond that fails."""

PAGE = 4096
BUSY_S = 0.5
"""How long a write waits for another process that reads or writes the file."""

CORRUPT = ".corrupt"
_BESIDE = ("-wal", "-shm", "-journal")


class Store:
    """See the module. Owners call `define` once, then `write` and `read`; neither raises for a broken file."""

    def __init__(self, path: Path | None = None, *, most_bytes: int = MOST_BYTES) -> None:
        """Opens the file, which is made if there is none; `path` None keeps everything in memory."""
        self._path = path
        self._most_pages = max(most_bytes // PAGE, 1)
        self._lock = threading.RLock()
        self._tables: list[str] = []
        self._is_failing = False
        self._is_closed = False
        self._database = self._open()

    @property
    def where(self) -> str:
        """The path of the file; "" if all is in memory and is lost when the process ends."""
        return "" if self._path is None else str(self._path)

    def define(self, *statements: str) -> None:
        """Make tables and indices: statements that may be repeated, such as CREATE TABLE IF NOT EXISTS."""
        with self._lock:
            self._tables += statements
            try:
                self._make(statements)
            except sqlite3.DatabaseError as error:
                self._failed(error)

    def write(self, statement: str, rows: Iterable[Row]) -> bool:
        """Carry a statement out for each row, all or none; False if they could not be written."""
        with self._lock:
            if self._is_closed:
                return False
            try:
                with self._database:
                    self._database.executemany(statement, rows)
            except sqlite3.DatabaseError as error:
                self._failed(error)
                return False
            self._is_failing = False
            return True

    def read(self, query: str, parameters: Sequence[Any] = ()) -> list[Row]:
        """All rows that a query finds; none if they cannot be read."""
        with self._lock:
            if self._is_closed:
                return []
            try:
                return self._database.execute(query, parameters).fetchall()
            except sqlite3.DatabaseError as error:
                self._failed(error)
                return []

    def close(self) -> None:
        """Let the file go; nothing is read or written any more."""
        with self._lock:
            self._is_closed = True
            with contextlib.suppress(sqlite3.Error):
                self._database.close()

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return self._connect(":memory:")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return self._connect(str(self._path))
            except sqlite3.DatabaseError as error:
                if not _is_corrupt(error):
                    raise
                self._set_aside(error)
                return self._connect(str(self._path))
        except (OSError, sqlite3.Error) as error:
            fields = {"file": str(self._path), "reason": str(error)}
            log.warning("history is kept in memory only: its file cannot be used", extra={"fields": fields})
            self._path = None
            return self._connect(":memory:")

    def _connect(self, name: str) -> sqlite3.Connection:
        """Raises sqlite3.Error; a file that is no database says so here, since its first page is read."""
        database = sqlite3.connect(name, timeout=BUSY_S, check_same_thread=False)
        try:
            database.execute(f"PRAGMA page_size = {PAGE}")
            database.execute("PRAGMA journal_mode = WAL").fetchall()
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA wal_autocheckpoint = 256")
            database.execute(f"PRAGMA journal_size_limit = {1024 * PAGE}")
            database.execute(f"PRAGMA max_page_count = {self._most_pages}").fetchall()
            (found,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(f"malformed: {found}")
            with database:  # says now whether the file may be written
                database.execute("CREATE TABLE IF NOT EXISTS hived (format INTEGER)")
        except BaseException:
            database.close()
            raise
        return database

    def _make(self, statements: Iterable[str]) -> None:
        with self._database:
            for statement in statements:
                self._database.execute(statement)

    def _failed(self, error: sqlite3.DatabaseError) -> None:
        if self._path is not None and _is_corrupt(error):
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            with contextlib.suppress(OSError):
                self._set_aside(error)
            self._database = self._open()
            with contextlib.suppress(sqlite3.DatabaseError):
                self._make(self._tables)
        elif not self._is_failing:
            self._is_failing = True
            fields = {"file": self.where, "reason": str(error)}
            log.warning("history cannot be read or written for now", extra={"fields": fields})

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Rename the file, over an earlier one that was set aside. Raises OSError."""
        assert self._path is not None
        aside = self._path.with_name(self._path.name + CORRUPT)
        os.replace(self._path, aside)
        for ending in _BESIDE:
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        fields = {"file": str(self._path), "renamed_to": str(aside), "reason": str(error)}
        log.warning("history is begun anew: its file is no sound database", extra={"fields": fields})


def _is_corrupt(error: sqlite3.Error) -> bool:
    """Is the file no database, or a broken one? A full disk or a lock of another process is neither."""
    text = str(error)
    return "malformed" in text or "not a database" in text or "file is encrypted" in text
