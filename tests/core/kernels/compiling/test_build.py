"""Whether a linked library is built again: by other sources or other tools, and not by the same."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hived.cells.journal import undo_to
from hived.kernels.compiling import build
from hived.kernels.jit import ENTRY_KERNELS
from hived_extender.build import main

ENTRIES = [entry for entry in ENTRY_KERNELS if entry.__name__ == undo_to.__name__]


class TranslatedError(Exception):
    """The kernels were about to be translated."""


@pytest.fixture
def compiler(tmp_path: Path) -> Path:
    """A C compiler of version 1, which only says so."""
    path = tmp_path / "compiler"
    path.write_text("#!/bin/sh\necho compiler 1\necho more about it\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def build_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiler: Path) -> Callable[[], Any]:
    """Ask for a library that is there already, made by that compiler."""
    monkeypatch.setattr(build, "is_current", lambda folder, description: library.append(description) is None)
    library: list[dict[str, Any]] = []

    def ask() -> Path:
        return build.build(ENTRIES, tmp_path, "x86_64", ["baseline"], str(compiler))

    def translate(*_: object) -> None:
        raise TranslatedError

    ask()
    monkeypatch.undo()
    build._put(tmp_path, b"a library", library[0])
    monkeypatch.setattr(build, "translate", translate)
    return ask


def test_a_library_of_the_same_sources_and_tools_stays(build_again: Callable[[], Any], tmp_path: Path) -> None:
    assert build_again() == tmp_path / build.LIBRARY


def test_another_c_compiler_makes_another_library(build_again: Callable[[], Any], compiler: Path) -> None:
    compiler.write_text(compiler.read_text().replace("compiler 1", "compiler 2"))
    with pytest.raises(TranslatedError):
        build_again()


@pytest.mark.parametrize("name", ["numba", "llvmlite", "numpy"])
def test_another_version_of_a_tool_makes_another_library(
    build_again: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = build.version
    monkeypatch.setattr(build, "version", lambda each: "0" if each == name else real(each))
    with pytest.raises(TranslatedError):
        build_again()


def test_another_python_makes_another_library(build_again: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.sys, "version", "3.99.0 (of a test)")
    with pytest.raises(TranslatedError):
        build_again()


def test_a_c_compiler_that_is_not_there_is_named_before_anything_is_translated(tmp_path: Path) -> None:
    missing = os.fspath(tmp_path / "missing")
    result = CliRunner().invoke(main, ["--folder", str(tmp_path), "--architecture", "x86_64", "--compiler", missing])
    assert (result.exit_code, missing in result.output, "--compiler or CC" in result.output) == (1, True, True)
