"""The programs of browser tests: Debian's Chromium, and axe-core of the npm registry, pinned and checked by digest.

`python -m tests.browser.tools` installs what is missing: Chromium with apt, which takes root, and axe-core into
`$XDG_CACHE_HOME/hived/browser` (`~/.cache` by default), with npm.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

AXE = "axe-core"
AXE_VERSION = "4.14.1"
AXE_SHA256 = "e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745"
"""Of the package's archive."""

SCRIPT = "package/axe.min.js"
EXECUTABLES = ("chromium", "chromium-browser", "google-chrome")


class ToolsMissing(Exception):
    """A program cannot be had here; the message says which, and how to get it."""


def chromium() -> str:
    """The browser's executable. Raises ToolsMissing."""
    found = os.environ.get("HIVED_CHROMIUM") or next(filter(None, map(shutil.which, EXECUTABLES)), None)
    if found is None:
        raise ToolsMissing("Chromium is not installed: `make browser` installs Debian's, or name one in HIVED_CHROMIUM")
    return found


def axe() -> str:
    """The source of axe-core. Raises ToolsMissing."""
    script = _folder() / "axe.min.js"
    if not script.is_file():
        raise ToolsMissing(f"{AXE} {AXE_VERSION} is not in {_folder()}: `make browser` fetches it")
    return script.read_text()


def install() -> None:
    """Install what is missing. Raises ToolsMissing, CalledProcessError."""
    try:
        chromium()
    except ToolsMissing:
        _install_chromium()
    if not (_folder() / "axe.min.js").is_file():
        _fetch_axe()


def _folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "hived" / "browser" / AXE_SHA256[:16]


def _install_chromium() -> None:
    if shutil.which("apt-get") is None or os.geteuid():
        raise ToolsMissing("Chromium is not installed: install it, or name an executable in HIVED_CHROMIUM")
    for command in (["update", "--quiet"], ["install", "--yes", "--quiet", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", *command], check=True, stdout=subprocess.DEVNULL)


def _fetch_axe() -> None:
    if shutil.which("npm") is None:
        raise ToolsMissing(f"npm is not installed, which fetches {AXE}: apt-get install npm")
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", f"{AXE}@{AXE_VERSION}", "--silent"]
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        archive = next(Path(folder).glob("*.tgz"))
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        if digest != AXE_SHA256:
            raise ToolsMissing(f"{AXE} {AXE_VERSION}: found an archive of digest {digest}, expected {AXE_SHA256}")
        with tarfile.open(archive) as packed:
            member = packed.extractfile(SCRIPT)
            assert member is not None  # the digest says so
            _folder().mkdir(parents=True, exist_ok=True)
            unfinished = _folder() / "unfinished"
            unfinished.write_bytes(member.read())
        unfinished.replace(_folder() / "axe.min.js")


if __name__ == "__main__":
    try:
        install()
    except (ToolsMissing, subprocess.CalledProcessError) as error:
        sys.exit(f"make browser: {error}")
