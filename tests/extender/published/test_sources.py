"""Where modules of others are looked for: in the cache of Go, and only once they are there to the last file."""

from pathlib import Path

import pytest

from tests.e2e.tools import sources

FOLDER, MODULE = "published", "github.com/NVIDIA/KAI-scheduler"


def test_a_module_that_is_being_fetched_is_not_here_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOMODCACHE", str(tmp_path))
    version = sources.pinned(FOLDER, MODULE)
    files = tmp_path / "github.com" / "!n!v!i!d!i!a" / f"!k!a!i-scheduler@{version}"
    marks = tmp_path / "cache" / "download" / "github.com" / "!n!v!i!d!i!a" / "!k!a!i-scheduler" / "@v"
    assert sources.source(FOLDER, MODULE) is None
    marks.mkdir(parents=True)
    (marks / f"{version}.partial").touch()
    files.mkdir(parents=True)
    assert sources.source(FOLDER, MODULE) is None  # Go writes this mark before the first file
    (marks / f"{version}.ziphash").touch()
    assert sources.source(FOLDER, MODULE) is None
    (marks / f"{version}.partial").unlink()  # after the last file
    assert sources.source(FOLDER, MODULE) == files
    (marks / f"{version}.ziphash").unlink()
    assert sources.source(FOLDER, MODULE) is None
