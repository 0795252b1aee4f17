"""Compiled kernels on disk: where they are kept, and why loading them is safe.

A kept kernel is a pickle with machine code: loading a damaged one ends the process, and loading one that another user
has written runs their code. So a folder counts only if this user and root alone can write to it. A group of which this
user is the only member may write, too. Every file begins with the SHA-256 digest of its own name and of all that
follows. All of this is checked before anything is unpickled. If a file fails, it is left alone, the kernel is compiled
anew, and one line on stderr says so.

numba's own cache has an index for each kernel, in which two processes can give one file to two signatures. Here every
signature has a file of its own, named after everything that the machine code depends on, and replaced as a whole.
"""

import atexit
import errno
import grp
import hashlib
import os
import pickle
import pwd
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import FunctionCache
from numba.core.serialize import dumps

from hived.kernels.linked import SAYS, core_digest

KEPT_FOLDERS = 8
"""Versions whose compiled kernels stay on disk, 6 MB each: the ones used last."""

_NAME_LENGTH = 16
_DIGEST_LENGTH = hashlib.sha256().digest_size
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH
_FOLDER_OF_ONE_USER = 0o700
_FOLDER_FOR_READERS = 0o755
_OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class _NotUsableError(Exception):
    """The reason why a file or a folder of compiled kernels is not used."""


class KernelCache(FunctionCache):
    """numba's cache of one kernel, with files that are checked before they are loaded."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        written = Path(self._cache_path)
        _close_to_others(written)
        self._cache_file = _KernelFiles(  # type: ignore[assignment]  # it has the same methods
            [folder / written.name for folder in kernel_folders()],
            self._impl.filename_base,
            (numba.__version__, self._impl.locator.get_source_stamp()),
        )


class _KernelFiles:
    """The files of one kernel; takes the place of numba's `IndexDataCacheFile`.

    Files are written to the first folder, and read from the first one that has them.
    """

    def __init__(self, folders: list[Path], base: str, stamp: object) -> None:
        self._folders = folders
        self._base = base
        self._stamp = stamp

    def load(self, key: object) -> Any:
        """The result saved for a signature; None if there is none, or if it is damaged."""
        name = self._name(key)
        for folder in self._folders:
            if (data := _read_or_say(folder / name)) is not None:
                return pickle.loads(data)
        return None

    def save(self, key: object, data: object) -> None:
        """Keep a compiled kernel. Where that is not possible, it is still good for this process."""
        path = self._folders[0] / self._name(key)
        try:
            _write(path, dumps(data))
        except OSError as error:
            _say(f"compiled kernel {path} is not kept: {error.strerror or error}")

    def flush(self) -> None:
        """Forget every signature of the kernel."""
        for path in self._folders[0].glob(f"{self._base}.*.nbc"):
            path.unlink(missing_ok=True)

    def _name(self, key: object) -> str:
        digest = hashlib.sha256(repr((self._stamp, key)).encode()).hexdigest()
        return f"{self._base}.{digest[: 2 * _NAME_LENGTH]}.nbc"


def _read_or_say(path: Path) -> memoryview | None:
    try:
        return _read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        why = error.strerror or str(error)
    except _NotUsableError as error:
        why = str(error)
    _say(f"compiled kernel {path} is not used: {why}; compiling it anew")
    return None


def _read(path: Path) -> memoryview:
    """The pickle in a file. No link is followed, and the very file that was opened is the one that is checked."""
    with open(os.open(path, _OPEN_FLAGS), "rb") as file:  # Path.open takes no flags
        info = os.fstat(file.fileno())
        if not stat.S_ISREG(info.st_mode):
            raise _NotUsableError("it is no regular file")
        _check_owner_and_mode(path, info)
        content = memoryview(file.read())
    data = content[_DIGEST_LENGTH:]
    if content[:_DIGEST_LENGTH] != _digest(path.name, data):
        raise _NotUsableError("it is damaged, its SHA-256 digest differs")
    return data


def _write(path: Path, data: bytes) -> None:
    """Replace a whole file; a crash leaves at most a file that is never read."""
    handle, unfinished = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with open(handle, "wb") as file:  # the file is open already
            file.write(_digest(path.name, data))
            file.write(data)
            os.fchmod(handle, 0o644)  # an image is made by one user and run by others
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def _digest(name: str, data: bytes | memoryview) -> bytes:
    digest = hashlib.sha256(name.encode())
    digest.update(data)
    return digest.digest()


@cache
def kernel_folders() -> tuple[Path, ...]:
    """The folders of this process, found once."""
    return find_folders()


def find_folders() -> tuple[Path, ...]:
    """Find the folder that compiled kernels are written to, and perhaps another one to read from.

    They live below NUMBA_CACHE_DIR if set, else below the user's cache folder. Where nothing can be written, as in an
    image with a read-only root, new ones go to a temporary folder; kernels compiled beforehand are read where they are.
    """
    try:
        top, base, mode = _base_folder()
        folder = base / _folder_name()
        is_new = not folder.is_dir()
        _make_checked(folder, top, mode)
    except (OSError, RuntimeError):
        return (_temporary_folder(),)
    except _NotUsableError as error:
        _say(f"no compiled kernels are loaded or kept: {error}. Until then every process compiles them anew")
        return (_temporary_folder(),)
    try:
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)
    except OSError:
        return _temporary_folder(), folder
    if is_new:
        _remove_old_versions(base)
    return (folder,)


def source_digest() -> str:
    """Digest of all sources of the compiled kernels of this version, and of their tools."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    digest.update(core_digest().encode())
    return digest.hexdigest()[:_NAME_LENGTH]


def _base_folder() -> tuple[Path, Path, int]:
    """(the uppermost folder to be checked, the folder of all versions, the mode of new folders).

    A folder that is named may be read by others: root compiles the kernels of an image, and any user loads them.
    RuntimeError if the user has no home.
    """
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named).absolute(), Path(named).absolute(), _FOLDER_FOR_READERS
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named).absolute(), Path(named).absolute() / "hived", _FOLDER_OF_ONE_USER
    return Path.home(), Path.home() / ".cache" / "hived", _FOLDER_OF_ONE_USER


def _make_checked(folder: Path, top: Path, mode: int) -> None:
    """Make a folder and its parents up to `top`, unless another user may write to one of them."""
    parents = [parent for parent in reversed(folder.parents) if parent.is_relative_to(top)]
    for each in (*parents, folder):
        each.mkdir(mode=mode, parents=True, exist_ok=True)
        _check_folder(each, is_last=each == folder)


def _check_folder(folder: Path, is_last: bool) -> None:
    """Check a folder: one above may be a link of ours, or a sticky one such as /tmp."""
    link = folder.lstat()
    if stat.S_ISLNK(link.st_mode):
        if is_last:
            raise _NotUsableError(f"{folder} is a symbolic link: remove it")
        _check_owner_and_mode(folder, link, any_mode=True)
    info = folder.stat()
    _check_owner_and_mode(folder, info, any_mode=not is_last and bool(info.st_mode & stat.S_ISVTX))


def _check_owner_and_mode(path: Path, info: os.stat_result, any_mode: bool = False) -> None:
    """Raise _NotUsableError if a user other than this one and root can write to a file or folder."""
    if info.st_uid not in {os.geteuid(), 0}:
        remedy = "name a folder of your own with NUMBA_CACHE_DIR"
        raise _NotUsableError(f"{path} belongs to user {info.st_uid}, who is neither root nor this one: {remedy}")
    if not any_mode and _others_may_write(path, info):
        raise _NotUsableError(f"others may write to {path}: chmod go-w {path}")


def _others_may_write(path: Path, info: os.stat_result) -> bool:
    if info.st_mode & stat.S_IWOTH:
        return True
    return bool(info.st_mode & stat.S_IWGRP) and (_has_access_list(path) or not _is_private_group(info.st_gid))


def _has_access_list(path: Path) -> bool:
    """True if an access list (ACL) may let others write: the mode then shows its mask in the place of the group."""
    if sys.platform != "linux":
        return False
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError as error:
        return error.errno != errno.ENOTSUP  # the file system has no access lists


def _is_private_group(group_id: int) -> bool:
    """True if this user is the only member of a group of the user's name; distributions make one for each."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    if user.pw_gid != group_id or group.gr_name != user.pw_name or not {user.pw_name}.issuperset(group.gr_mem):
        return False
    return all(other.pw_gid != group_id or other.pw_uid == user.pw_uid for other in pwd.getpwall())


def _close_to_others(folder: Path) -> None:
    """Restrict the innermost folders, which numba makes with the mode that the user's umask leaves."""
    if folder.stat().st_mode & _OTHERS_MAY_WRITE:
        folder.chmod(0o755)


def _temporary_folder() -> Path:
    """Make a folder for this process, removed at its end.

    Its place is as below NUMBA_CACHE_DIR, so that a process to which that names its parent finds it.
    """
    base = Path(tempfile.mkdtemp(prefix="hived-kernels-"))
    atexit.register(shutil.rmtree, base, ignore_errors=True)
    folder = base / _folder_name()
    folder.mkdir(mode=_FOLDER_OF_ONE_USER)
    return folder


def _folder_name() -> str:
    return "kernels-" + source_digest()


def _remove_old_versions(base: Path) -> None:
    """Remove the folders of earlier versions, as every edit of a kernel and every new version makes one.

    A folder named by NUMBA_CACHE_DIR may hold other things, so only names that we give are touched.
    """
    ours = "kernels-" + "[0-9a-f]" * _NAME_LENGTH
    with suppress(OSError):  # another process may be doing the same
        folders = sorted(base.glob(ours), key=lambda folder: folder.stat().st_mtime)
        for folder in folders[:-KEPT_FOLDERS]:
            shutil.rmtree(folder, ignore_errors=True)


def _say(line: str) -> None:
    print(f"{SAYS}{line}", file=sys.stderr, flush=True)
