"""Where compiled kernels are kept, and that none is loaded which is damaged or which others could have written."""

import errno
import grp
import hashlib
import os
import pickle
import pwd
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hived.kernels import linked
from hived.kernels.compiling import kernel_cache
from hived.kernels.compiling.kernel_cache import KEPT_FOLDERS, find_folders
from tests.core.forked import ROOT, Fork, Starter

pytestmark = pytest.mark.sample(24)

STRANGER = 12345

DAMAGES = {
    "empty": lambda content: b"",
    "first_byte": lambda content: content[:1],
    "digest_only": lambda content: content[:32],
    "start": lambda content: content[:100],
    "half": lambda content: content[: len(content) // 2],
    "last_byte_missing": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "zeros": lambda content: bytes(len(content)),
    "flip_in_digest": lambda content: flip(content, 5),
    "flip_in_pickle": lambda content: flip(content, 40),
    "flip_in_code": lambda content: flip(content, content.index(b"\x7fELF") + 70),
    "flip_in_last": lambda content: flip(content, len(content) - 1),
    **{f"flip_{seed}": lambda content, seed=seed: flip_anywhere(content, seed) for seed in range(6)},
}
"""Files as a crash, a full disk or a bad one leave them, by the name of the kernel that gets one."""


def flip(content: bytes, place: int, bit: int = 0) -> bytes:
    """The same content but for one bit."""
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def flip_anywhere(content: bytes, seed: int) -> bytes:
    """The same content but for one bit somewhere."""
    chance = random.Random(seed)
    return flip(content, chance.randrange(len(content)), chance.randrange(8))


class Program:
    """A program with a few kernels of its own, and the folder where they are kept."""

    def __init__(self, starter: Starter, folder: Path, kernels: list[str]) -> None:
        self._starter = starter
        self.kernels = kernels
        self.cache = folder / "cache"
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self.path = folder / "program.py"
        lines = ["import sys", "from hived.kernels.compiling.dispatchers import keep_on_disk"]
        for number, name in enumerate(kernels):
            lines += ["@keep_on_disk", f"def {name}(value):", f"    return value * {number} + 1"]
        lines += ["argument = float(sys.argv[1]) if '.' in sys.argv[1] else int(sys.argv[1])"]
        lines += [f"print({name}(argument), sum({name}.stats.cache_hits.values()))" for name in kernels]
        self.path.write_text("\n".join(lines))

    def environ(self) -> dict[str, str]:
        """The environment in which it runs."""
        return {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NUMBA_CACHE_DIR": str(self.cache),
            "NUMBA_DISABLE_JIT": "0",
            "TMPDIR": str(self.temporary),
        }

    def start(self, argument: str = "2", before: str = "") -> Fork:
        """Begin to run it; `before` is Python that runs first."""
        folder = self.path.parent
        return self._starter.start(folder, self.path, argument, before=before, environ=self.environ())

    def finish(self, fork: Fork, argument: float = 2) -> tuple[int, str]:
        """(how many kernels came from disk, what was said on stderr); every result has to be right."""
        code, out, err = fork.communicate()
        assert code == 0, err
        return self.hits(out, argument), err

    def hits(self, out: str, argument: float = 2) -> int:
        """How many kernels came from disk, from what was said on stdout; every result has to be right."""
        lines = [line.split() for line in out.splitlines()]
        assert [float(line[0]) for line in lines] == [argument * number + 1 for number in range(len(self.kernels))]
        return sum(int(line[1]) for line in lines)

    def run(self, before: str = "") -> tuple[int, str]:
        """(how many kernels came from disk, what was said on stderr)."""
        return self.finish(self.start(before=before))

    def file(self, name: str) -> Path:
        """The file of a kernel."""
        (found,) = self.cache.rglob(f"*.{name}-*.nbc")
        return found

    def folder(self) -> Path:
        """The folder of this version's kernels."""
        (found,) = self.cache.glob("kernels-*")
        return found


@pytest.fixture(scope="module")
def starter() -> Iterator[Starter]:
    """Runs programs without starting Python anew."""
    starter = Starter()
    yield starter
    starter.stop()


@pytest.fixture
def program(starter: Starter, tmp_path: Path) -> Program:
    """A program whose kernels are compiled and kept."""
    program = Program(starter, tmp_path, ["one", "two"])
    assert program.run() == (0, "")
    return program


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.path),)


def plant_bomb(program: Program) -> Path:
    """Put a file whose digest is right in the place of a kernel; returns the file that appears if it is unpickled."""
    target = program.file("one")
    data = pickle.dumps(Bomb(program.path.parent / "exploded"))
    target.write_bytes(hashlib.sha256(target.name.encode() + data).digest() + data)
    return program.path.parent / "exploded"


def test_kernels_are_loaded_from_disk_by_the_next_process(program: Program) -> None:
    """Here a new Python, which shares nothing with the one that compiled them."""
    command = [sys.executable, "-c", f"import runpy; runpy.run_path({str(program.path)!r})", "2"]
    done = subprocess.run(command, env=program.environ(), capture_output=True, text=True, check=True)
    assert (program.hits(done.stdout), done.stderr) == (2, "")


def test_a_file_whose_digest_is_right_is_unpickled(program: Program) -> None:
    """So the tests that plant one show more than that it cannot be read."""
    exploded = plant_bomb(program)
    program.start().communicate()
    assert exploded.exists()


def test_damaged_files_are_named_and_compiled_anew(starter: Starter, tmp_path: Path) -> None:
    program = Program(starter, tmp_path, list(DAMAGES))
    program.run()
    for name, damage in DAMAGES.items():
        file = program.file(name)
        content = file.read_bytes()
        assert damage(content) != content
        file.write_bytes(damage(content))
    hits, err = program.run()
    assert hits == 0
    assert err.splitlines() == [
        f"hived: compiled kernel {program.file(name)} is not used: it is damaged, its SHA-256 digest differs; "
        "compiling it anew"
        for name in DAMAGES
    ]
    assert program.run() == (len(DAMAGES), "")


def test_the_kernel_of_another_function_is_damage(program: Program) -> None:
    shutil.copy(program.file("two"), program.file("one"))
    hits, err = program.run()
    assert hits == 1
    assert "one-" in err
    assert "digest differs" in err


def test_a_file_that_cannot_be_read_is_compiled_anew(program: Program) -> None:
    file = program.file("one")
    file.unlink()
    os.mkfifo(file)
    hits, err = program.run()
    assert hits == 1
    assert f"{file} is not used: it is no regular file; compiling it anew" in err
    assert program.run() == (2, "")


def test_a_link_in_the_place_of_a_file_is_not_followed(program: Program) -> None:
    exploded = plant_bomb(program)
    file = program.file("one")
    file.symlink_to(file.rename(program.path.parent / "elsewhere"))
    hits, err = program.run()
    assert hits == 1
    assert f"compiled kernel {file} is not used" in err
    assert not exploded.exists()
    assert not program.file("one").is_symlink()


def test_a_file_that_others_may_write_is_not_loaded(program: Program) -> None:
    exploded = plant_bomb(program)
    program.file("one").chmod(0o666)
    hits, err = program.run()
    assert hits == 1
    assert f"others may write to {program.file('one')}: chmod go-w {program.file('one')}; compiling it anew" in err
    assert not exploded.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_loaded(program: Program) -> None:
    exploded = plant_bomb(program)
    os.chown(program.file("one"), STRANGER, 0)
    hits, err = program.run()
    assert hits == 1
    assert f"{program.file('one')} belongs to user {STRANGER}" in err
    assert not exploded.exists()


def test_the_innermost_folder_is_closed_to_others_whatever_the_umask(starter: Starter, tmp_path: Path) -> None:
    program = Program(starter, tmp_path, ["one"])
    program.run(before="import os; os.umask(0)")
    made = [program.cache, *program.cache.rglob("*")]
    assert len(made) == 4
    assert [oct(path.stat().st_mode & 0o022) for path in made] == ["0o0"] * 4
    assert program.run() == (1, "")


def test_nothing_is_loaded_from_a_folder_that_others_may_write(program: Program) -> None:
    exploded = plant_bomb(program)
    program.folder().chmod(0o777)
    before = {path: path.stat().st_mtime_ns for path in program.cache.rglob("*")}
    hits, err = program.run()
    assert hits == 0
    assert err == (
        f"hived: no compiled kernels are loaded or kept: others may write to {program.folder()}: "
        f"chmod go-w {program.folder()}. Until then every process compiles them anew\n"
    )
    assert not exploded.exists()
    assert {path: path.stat().st_mtime_ns for path in program.cache.rglob("*")} == before
    assert not list(program.temporary.iterdir())
    subprocess.run(re.findall(r"chmod go-w [^.]+/kernels-\w+", err)[0].split(), check=True)
    program.file("one").unlink()
    assert program.run() == (1, "")


def test_two_processes_that_compile_at_once_do_not_disturb_each_other(starter: Starter, tmp_path: Path) -> None:
    program = Program(starter, tmp_path, [f"kernel_{number}" for number in range(8)])
    forks = [(program.start(argument), float(argument)) for argument in ("2", "2", "2.0", "2.0")]
    for fork, argument in forks:
        assert program.finish(fork, argument)[1] == ""
    for argument in ("2", "2.0"):
        assert program.finish(program.start(argument)) == (8, "")
    assert not list(program.cache.rglob("*.tmp"))


def test_a_process_that_ends_amid_a_write_leaves_nothing_that_is_loaded(starter: Starter, tmp_path: Path) -> None:
    program = Program(starter, tmp_path, ["one"])
    die = "import os; os.replace = lambda *_: os._exit(7)"
    assert program.start(before=die).communicate()[0] == 7
    assert [path.suffix for path in program.folder().rglob("*.*") if path.is_file()] == [".tmp"]
    assert program.run() == (0, "")
    assert program.run() == (1, "")


def test_a_full_disk_keeps_no_kernel_from_running(starter: Starter, tmp_path: Path) -> None:
    program = Program(starter, tmp_path, ["one"])
    full = "import os, errno\ndef full(*_): raise OSError(errno.ENOSPC, 'No space left on device')\nos.replace = full"
    hits, err = program.run(before=full)
    assert hits == 0
    assert re.fullmatch(r"hived: compiled kernel \S+ is not kept: No space left on device\n", err)
    assert not [path for path in program.folder().rglob("*") if path.is_file()]


@pytest.mark.skipif(os.geteuid() != 0, reason="the image is made by root")
def test_kernels_of_an_image_are_loaded_where_nothing_can_be_written(program: Program) -> None:
    """As in a container with a read-only root: any user loads what root has compiled."""
    as_image = (
        "import os, errno, tempfile\n"
        f"os.geteuid = lambda: {STRANGER}\n"
        "make = tempfile.TemporaryFile\n"
        "def refuse(dir=None, **given):\n"
        f"    if str(dir).startswith({str(program.cache)!r}): raise OSError(errno.EROFS, 'Read-only file system')\n"
        "    return make(dir=dir, **given)\n"
        "tempfile.TemporaryFile = refuse\n"
    )
    assert program.run(before=as_image) == (2, "")
    program.file("one").write_bytes(b"")
    hits, err = program.run(before=as_image)
    assert hits == 1
    assert "digest differs" in err


def test_an_interpreted_run_makes_and_removes_no_folder(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for age in range(2 * KEPT_FOLDERS):
        (cache / f"kernels-{age:016x}").mkdir(parents=True)
    command = [sys.executable, "-c", "import hived.scheduler"]
    environ = {"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(cache), "NUMBA_DISABLE_JIT": "1"}
    subprocess.run(command, env={**os.environ, **environ}, check=True)
    assert len(list(cache.iterdir())) == 2 * KEPT_FOLDERS


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


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary_folder: Path) -> Path:
    """The folder that NUMBA_CACHE_DIR names."""
    assert temporary_folder.exists()
    folder = tmp_path / "named"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
    return folder


def test_kernels_are_kept_in_the_folder_that_is_named(named: Path) -> None:
    (folder,) = find_folders()
    assert folder.is_dir()
    assert folder.parent == named


def test_kernels_are_kept_in_the_users_cache_folder_otherwise(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_folders()[0].parent == tmp_path / "hived"


def test_the_users_cache_folder_is_below_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_folders()[0].parent == tmp_path / ".cache" / "hived"


@pytest.mark.usefixtures("no_home")
def test_kernels_are_kept_in_a_temporary_folder_for_a_user_without_a_home(temporary_folder: Path) -> None:
    (folder,) = find_folders()
    assert folder.parent.parent == temporary_folder


def test_kernels_are_kept_in_a_temporary_folder_where_the_named_one_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary_folder: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    (folder,) = find_folders()
    assert folder.parent.parent == temporary_folder


@pytest.mark.usefixtures("temporary_folder")
def test_the_temporary_folder_is_found_by_a_process_to_which_its_parent_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file" / "below"))
    (folder,) = find_folders()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder.parent))
    assert find_folders() == (folder,)


@pytest.mark.usefixtures("no_home", "temporary_folder")
def test_nobody_else_may_look_into_a_temporary_folder() -> None:
    before = os.umask(0)
    try:
        (folder,) = find_folders()
    finally:
        os.umask(before)
    assert {oct(each.stat().st_mode & 0o777) for each in (folder, folder.parent)} == {"0o700"}


def test_kernels_compiled_beforehand_are_read_from_a_folder_that_is_read_only(
    monkeypatch: pytest.MonkeyPatch, named: Path, temporary_folder: Path
) -> None:
    find_folders()

    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    written, read = find_folders()
    assert written.parent.parent == temporary_folder
    assert read.parent == named


@pytest.mark.parametrize("place", [".", ".cache", ".cache/hived"])
def test_every_folder_up_to_the_users_home_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, temporary_folder: Path, place: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for variable in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    find_folders()
    assert capsys.readouterr().err == ""
    (home / place).chmod(0o777)
    (folder,) = find_folders()
    assert folder.parent.parent == temporary_folder
    assert f"chmod go-w {home / place}. " in capsys.readouterr().err


ALICE = 4711
BOB = 4712


class Accounts:
    """Users and groups of a machine; this process runs as alice, whose folders have her own group."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.users = {"alice": (os.geteuid(), ALICE), "bob": (BOB, BOB)}
        self.groups: dict[str, tuple[int, list[str]]] = {"alice": (ALICE, []), "bob": (BOB, [])}
        self.folder_group = ALICE
        monkeypatch.setattr(pwd, "getpwuid", lambda uid: self._one(self._passwd(), 2, uid))
        monkeypatch.setattr(pwd, "getpwall", self._passwd)
        monkeypatch.setattr(grp, "getgrgid", lambda gid: self._one(self._group(), 2, gid))
        monkeypatch.setattr(Path, "stat", lambda path, **given: self._owned(os.stat(path, **given)))

    def _passwd(self) -> list[pwd.struct_passwd]:
        return [pwd.struct_passwd((name, "x", uid, gid, "", "", "")) for name, (uid, gid) in self.users.items()]

    def _group(self) -> list[grp.struct_group]:
        return [grp.struct_group((name, "x", gid, members)) for name, (gid, members) in self.groups.items()]

    def _one(self, rows: list[Any], column: int, wanted: int) -> Any:
        for row in rows:
            if row[column] == wanted:
                return row
        raise KeyError(wanted)

    def _owned(self, info: os.stat_result) -> os.stat_result:
        return os.stat_result((*info[:5], self.folder_group, *info[6:10]), {"st_mtime": info.st_mtime})


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> Accounts:
    """Users of a distribution that gives each a group of their own, as Debian and Fedora do."""
    return Accounts(monkeypatch)


def make_open_to_group(folder: Path) -> None:
    """As a umask of 002 leaves it."""
    folder.mkdir()
    folder.chmod(0o775)


def test_a_folder_that_the_users_private_group_may_write_will_do(named: Path, accounts: Accounts) -> None:
    make_open_to_group(named)
    assert find_folders()[0].parent == named
    accounts.groups["alice"] = (ALICE, ["alice"])
    assert find_folders()[0].parent == named


def has_another_member(accounts: Accounts) -> None:
    """bob is listed as a member of alice's group."""
    accounts.groups["alice"] = (ALICE, ["alice", "bob"])


def has_another_user_by_default(accounts: Accounts) -> None:
    """alice's group is what bob's files have, without a word in the list of its members."""
    accounts.users["bob"] = (BOB, ALICE)


def has_another_name(accounts: Accounts) -> None:
    """The group is called users."""
    accounts.groups = {"users": (ALICE, [])}


def is_not_the_users_first(accounts: Accounts) -> None:
    """alice's files have the group of bob."""
    accounts.users["alice"] = (os.geteuid(), BOB)


def is_unknown(accounts: Accounts) -> None:
    """No group has the folder's number."""
    accounts.groups = {}


def has_an_unknown_user(accounts: Accounts) -> None:
    """No user has the number of this process, as in a container with an arbitrary user id."""
    accounts.users = {}


def is_of_another_user(accounts: Accounts) -> None:
    """The folder has bob's group."""
    accounts.folder_group = BOB


@pytest.mark.parametrize(
    "change",
    [
        has_another_member,
        has_another_user_by_default,
        has_another_name,
        is_not_the_users_first,
        is_unknown,
        has_an_unknown_user,
        is_of_another_user,
    ],
)
def test_a_folder_that_any_other_group_may_write_is_not_used(
    named: Path, accounts: Accounts, temporary_folder: Path, change: Callable[[Accounts], None],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    make_open_to_group(named)
    change(accounts)
    assert find_folders()[0].parent.parent == temporary_folder
    assert f"others may write to {named}: chmod go-w {named}. " in capsys.readouterr().err


@pytest.mark.usefixtures("accounts")
def test_a_folder_that_everybody_may_write_is_not_used_whatever_its_group(named: Path, temporary_folder: Path) -> None:
    make_open_to_group(named)
    named.chmod(0o777)
    assert find_folders()[0].parent.parent == temporary_folder


@pytest.mark.skipif(sys.platform != "linux", reason="access lists are read on Linux")
@pytest.mark.usefixtures("accounts")
def test_an_access_list_counts_as_others(named: Path, temporary_folder: Path) -> None:
    """The mode of such a folder shows the list's mask in the place of its group."""
    make_open_to_group(named)
    try:
        os.setxattr(named, "system.posix_acl_access", access_list({BOB: 7}))
    except OSError:
        pytest.skip("no access lists on this file system")
    assert find_folders()[0].parent.parent == temporary_folder


def access_list(users: dict[int, int]) -> bytes:
    """rwxrwxr-x with more users, in the form that Linux keeps it in: version, then (tag, rights, id) each."""
    nobody = 2**32 - 1
    rows = [(0x01, 7, nobody), *((0x02, rights, uid) for uid, rights in users.items())]
    rows += [(0x04, 7, nobody), (0x10, 7, nobody), (0x20, 5, nobody)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)


@pytest.mark.parametrize(("variable", "mode"), [("XDG_CACHE_HOME", 0o700), ("NUMBA_CACHE_DIR", 0o755)])
def test_new_folders_are_private_unless_one_is_named_for_readers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, mode: int
) -> None:
    """An image has compiled kernels in a named folder: root makes it, any user reads it."""
    for other in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, str(tmp_path / "cache"))
    before = os.umask(0o002)
    try:
        (folder,) = find_folders()
    finally:
        os.umask(before)
    made = [path for path in (folder, *folder.parents) if path.is_relative_to(tmp_path / "cache")]
    assert {path.stat().st_mode & 0o777 for path in made} == {mode}


def test_folders_above_the_named_one_do_not_count(named: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert find_folders()[0].parent == named


def test_a_folder_for_everybody_will_do_if_only_owners_can_move_things(named: Path) -> None:
    named.mkdir()
    named.chmod(0o1777)
    (folder,) = find_folders()
    assert folder.parent == named
    assert folder.stat().st_mode & 0o022 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_of_another_user_is_not_used(
    named: Path, temporary_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = find_folders()
    os.chown(folder, STRANGER, 0)
    assert find_folders()[0].parent.parent == temporary_folder
    assert f"{folder} belongs to user {STRANGER}" in (said := capsys.readouterr().err)
    assert "name a folder of your own with NUMBA_CACHE_DIR" in said


def test_a_folder_that_belongs_to_root_will_do_for_everybody(monkeypatch: pytest.MonkeyPatch, named: Path) -> None:
    """As in an image that runs with an arbitrary user id."""
    (folder,) = find_folders()
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    found = find_folders()
    assert (found == (folder,)) == (folder.stat().st_uid == 0)


def test_a_link_in_the_place_of_the_folder_is_not_followed(
    named: Path, temporary_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder,) = find_folders()
    folder.symlink_to(folder.rename(tmp_path / "elsewhere"))
    assert find_folders()[0].parent.parent == temporary_folder
    assert f"{folder} is a symbolic link: remove it" in capsys.readouterr().err
    assert named.exists()


def test_a_folder_above_may_be_a_link_of_the_users_own(named: Path, tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    named.symlink_to(tmp_path / "large disk")
    assert find_folders()[0].parent == named


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
def test_a_link_of_another_user_is_not_followed(named: Path, temporary_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    named.symlink_to(tmp_path / "elsewhere")
    os.chown(named, STRANGER, 0, follow_symlinks=False)
    assert find_folders()[0].parent.parent == temporary_folder


def test_an_edit_of_any_source_file_means_another_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = kernel_cache.source_digest()
    shutil.copytree(linked.HERE, tmp_path / "hived")
    monkeypatch.setattr(kernel_cache, "core_digest", lambda: linked.core_digest(tmp_path / "hived"))
    assert kernel_cache.source_digest() == before
    with (tmp_path / "hived" / "free_lists.py").open("a") as copy:
        copy.write("\n")
    assert kernel_cache.source_digest() != before


def test_the_kernels_of_old_versions_are_removed_when_a_new_one_comes(named: Path) -> None:
    for age in range(2 * KEPT_FOLDERS):
        folder = named / f"kernels-{age:016x}"
        folder.mkdir(parents=True)
        os.utime(folder, (1e9 - age, 1e9 - age))
    (new,) = find_folders()
    kept = {f"kernels-{age:016x}" for age in range(KEPT_FOLDERS - 1)}
    assert {folder.name for folder in named.iterdir()} == kept | {new.name}


def test_what_others_keep_beside_the_kernels_is_not_removed(named: Path) -> None:
    others = {"kernels-of-mine", "kernels-v2", "other"} | {f"kernels-{year}" for year in range(2000, 2020)}
    for name in others:
        (named / name).mkdir(parents=True)
        os.utime(named / name, (0, 0))
    (new,) = find_folders()
    assert {folder.name for folder in named.iterdir()} == others | {new.name}


@pytest.mark.usefixtures("named")
def test_a_version_that_is_in_use_counts_as_new() -> None:
    (folder,) = find_folders()
    os.utime(folder, (0, 0))
    assert find_folders() == (folder,)
    assert folder.stat().st_mtime > 0
