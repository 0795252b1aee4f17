"""One small SQLite file that keeps what is learned of the past: samples of the cluster, and durations of jobs.

It is a convenience, never a condition: without a path, or where the path cannot be written, everything is kept in
memory. A file that is no sound database is renamed to `FILE.corrupt` with a warning, and a new one is begun. A write
that fails is dropped, with one warning until a write succeeds again. Rows that another program wrote, and that are no
rows of ours, are skipped with a warning. Owners of tables bound their rows; the file itself is bounded too.

One process at a time writes the file: it locks `FILE.lock` with its first write until it ends or closes it. Others may
read, and their writes are dropped. Thread-safe.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec


class FileLock:
    """The lock is on a file of its own, which stays. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        """`path` is made when the lock is taken."""
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Hold the lock from now on; False if another process has it, at once.

        True as well where no file can be locked, as in a folder that is read-only: then no process writes there.
        """
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            return True
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Others may have the lock from now on."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


log = logging.getLogger(__name__)

Row: TypeAlias = tuple[Any, ...]

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""A length of time or a moment, in a row of the file."""

MOST_BYTES = 64 * 1024 * 1024
"""Of the file; a write beyond that fails."""

PAGE = 4096
BUSY_S = 0.5
"""The time that a write waits for another process that reads or writes the file."""

CORRUPT = ".corrupt"
LOCK = ".lock"
_BESIDE = ("-wal", "-shm", "-journal")


class Store:
    """The file. Owners call `define` once, then `write` and `read`; neither raises for a broken file."""

    def __init__(self, path: Path | None = None, *, most_bytes: int = MOST_BYTES) -> None:
        """Opens the file, which is made if there is none; `path` None keeps everything in memory."""
        self._path = path
        self._most_pages = max(most_bytes // PAGE, 1)
        self._lock = threading.RLock()
        self._tables: list[str] = []
        self._is_failing = False
        self._is_closed = False
        self._file_lock = FileLock(path.with_name(path.name + LOCK)) if path is not None else None
        self._opened: tuple[int, int] | None = None  # the file, by device and number
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
            if self._is_closed or not self._may_write():
                return False
            self._follow()
            try:
                with self._database:
                    self._database.executemany(statement, rows)
            except sqlite3.DatabaseError as error:
                self._failed(error)
                return False
            self._is_failing = False
            return True

    def read(self, query: str, kind: Any = Row, parameters: Sequence[Any] = ()) -> list[Any]:
        """All rows of a kind, such as `tuple[str, int]`, that a query finds; none if they cannot be read."""
        with self._lock:
            if self._is_closed:
                return []
            self._follow()
            try:
                rows = self._database.execute(query, parameters).fetchall()
            except sqlite3.DatabaseError as error:
                self._failed(error)
                return []
        found = [row for each in rows if (row := _converted(each, kind)) is not None]
        if len(found) < len(rows):
            fields = {"file": self.where, "rows": len(rows) - len(found), "query": query}
            log.warning("rows of the history are skipped: they have other types", extra={"fields": fields})
        return found

    def release(self) -> None:
        """Another process may write the file from now on, until this one writes again."""
        with self._lock:
            if self._file_lock is not None:
                self._file_lock.release()

    def close(self) -> None:
        """Close the file; nothing is read or written any more."""
        with self._lock:
            self._is_closed = True
            self.release()
            with contextlib.suppress(sqlite3.Error):
                self._database.close()

    def _may_write(self) -> bool:
        """Does no other process write the file? Says so once."""
        if self._file_lock is None or self._path is None or self._file_lock.take():
            return True
        if not self._is_failing:
            self._is_failing = True
            log.warning("history is kept in memory only: another process writes its file", extra=self._fields)
        return False

    def _follow(self) -> None:
        """Open the file anew if another one has its name by now: it was broken, or removed."""
        if self._path is not None and self._opened != _identity(self._path):
            with contextlib.suppress(sqlite3.Error):
                self._database.close()
            self._open_anew()

    def _open_anew(self) -> None:
        self._database = self._open()
        with contextlib.suppress(sqlite3.DatabaseError):
            self._make(self._tables)

    @property
    def _fields(self) -> dict[str, Any]:
        return {"fields": {"file": self.where}}

    def _open(self) -> sqlite3.Connection:
        if self._path is None:
            return self._connect(":memory:")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                found = self._connect(str(self._path))
            except sqlite3.DatabaseError as error:
                if not _is_corrupt(error):
                    raise
                self._set_aside(error)
                found = self._connect(str(self._path))
            self._opened = _identity(self._path)
            return found
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
            self._open_anew()
        elif not self._is_failing:
            self._is_failing = True
            fields = {"file": self.where, "reason": str(error)}
            log.warning("history cannot be read or written for now", extra={"fields": fields})

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Rename the file, over an earlier one. Raises OSError, also if another process writes it."""
        assert self._path is not None
        if self._file_lock is not None and not self._file_lock.take():
            raise OSError(f"{error}, and another process writes it")
        aside = self._path.with_name(self._path.name + CORRUPT)
        os.replace(self._path, aside)
        for ending in _BESIDE:
            self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        fields = {"file": str(self._path), "renamed_to": str(aside), "reason": str(error)}
        log.warning("history is begun anew: its file is no sound database", extra={"fields": fields})


def _identity(path: Path) -> tuple[int, int] | None:
    """The file behind a path, None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _converted(row: Row, kind: Any) -> Any:
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError:
        return None


def _is_corrupt(error: sqlite3.Error) -> bool:
    """Is the file no database, or a broken one? A full disk or a lock of another process is neither."""
    text = str(error)
    return "malformed" in text or "not a database" in text or "file is encrypted" in text
